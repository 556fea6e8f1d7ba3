# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one value: whatever operators say them, one table computes them, with PyTorch's own results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.pytorch.small_models import assert_same_as_litert, compiled, outputs_of

Function = Callable[[torch.Tensor], torch.Tensor]

TABLES: dict[str, Function] = {
    "silu": F.silu,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "mish": F.mish,
    "erf": torch.erf,
    "square root": lambda x: torch.sqrt(x.abs()),
    "square root of negative values too": torch.sqrt,
    "reciprocal": lambda x: 1 / (x.abs() + 1),
    "cube": lambda x: x**3,
    "square": torch.square,
    "negative": lambda x: -x,
    "subtracted from a number": lambda x: 3 - x,
    "divided by a number": lambda x: x / 3,
    "inverse square root": lambda x: torch.rsqrt(x.abs() + 0.1),
    "hardshrink": F.hardshrink,
    "log of sigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "softsign": F.softsign,
    "sine": torch.sin,
    "a mask": lambda x: (x > 0).float(),
    "where": lambda x: torch.where(x > 0, x, x * 0.2),
    "product with itself": lambda x: x * x,
    "swish by hand": lambda x: x * torch.sigmoid(x),
    "gelu by hand": lambda x: 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3))),
    "in place": lambda x: x.mul_(2.0).add_(1.0).relu_(),
}

OPERATORS: dict[str, tuple[Function, str]] = {
    "abs": (torch.abs, "abs"),
    "exp": (torch.exp, "exp"),
    "log": (lambda x: torch.log(F.avg_pool2d(x, 1)), "average_pool_2d log"),
    "gelu": (F.gelu, "gelu"),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), "gelu"),
}
"""Functions that LiteRT has an operator for."""


@pytest.mark.parametrize("name", TABLES)
def test_function_is_one_table(name: str) -> None:
    small = compiled(lambda m, x: TABLES[name](x), ((1, 2, 12, 12),))
    assert small.reasons == []
    assert small.operators == ["lookup"]
    assert_same_as_litert(small.program)
    for (x,) in small.inputs:
        got = small.program.run(x)[0]
        with torch.no_grad():
            want = outputs_of(small.program.quantized(x))[0]
        there = ~torch.isnan(want) if "negative values" not in name else x > 0.1
        assert torch.equal(got[there], want[there])


@pytest.mark.parametrize("name", OPERATORS)
def test_litert_has_an_operator(name: str) -> None:
    function, operators = OPERATORS[name]
    small = compiled(lambda m, x: function(x), ((1, 2, 12, 12),))
    assert small.reasons == []
    assert " ".join(small.operators) == operators
    assert_same_as_litert(small.program)


def test_a_value_that_others_read_is_quantized_itself() -> None:
    small = compiled(lambda m, x: (lambda y: (torch.sigmoid(y + 1) * 2, m.point(y)))(F.elu(m.conv(x))))
    assert small.reasons == []
    assert sorted(small.operators) == ["conv_2d", "conv_2d", "lookup", "lookup"]


def test_an_activation_stays_in_its_layer() -> None:
    small = compiled(lambda m, x: torch.exp(F.relu(m.conv(x))) * 2 + F.silu(F.relu(m.point(x))))
    assert small.operators == ["conv_2d", "conv_2d", "lookup", "lookup", "add"]


def test_what_litert_refuses_becomes_a_table() -> None:
    # LiteRT's HARD_SWISH demands an output scale above 1/128 of the input's.
    small = compiled(lambda m, x: F.hardswish(x - 50) + 1, ((1, 40),))
    assert small.operators == ["lookup"]


@pytest.mark.parametrize("seed", range(6))
def test_random_functions(seed: int) -> None:
    """Random expressions of one or two tensors: always one delegate call, and PyTorch's results within a step."""
    random = np.random.default_rng(seed)
    unary = (torch.sigmoid, torch.tanh, F.relu, F.silu, torch.abs, lambda x: x * 0.5, lambda x: 1 - x, lambda x: x * x)
    binary = (torch.add, torch.sub, torch.mul)
    steps = [(int(random.integers(11)), int(random.integers(100)), int(random.integers(100))) for _ in range(8)]

    def function(_: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = [x, y]
        for kind, first, second in steps:
            if kind < len(unary):
                values.append(unary[kind](values[first % len(values)]))
            else:
                values.append(binary[kind - len(unary)](values[first % len(values)], values[second % len(values)]))
        return values[-1] + values[-2]

    small = compiled(function, ((2, 30), (2, 30)))
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    assert_same_as_litert(small.program)
