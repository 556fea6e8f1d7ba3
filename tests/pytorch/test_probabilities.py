# SPDX-License-Identifier: BSD-3-Clause
"""Softmax keeps its signal: small probabilities have a scale of their own, others LiteRT's 1/256."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.quantization_quality import sqnr
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import Compiled

VALUES = (1, 8, 1024)
COORDINATES = torch.linspace(-1.0, 1.0, 32)


def flat(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x / 2, -1)


def expected_column(x: torch.Tensor) -> torch.Tensor:
    """Soft-argmax as products and a sum: the mean column, weighted by a heat map of 32x32."""
    return (flat(x).reshape(8, 32, 32) * COORDINATES).sum((1, 2))


FUNCTIONS = {
    "normal logits": lambda m, x: flat(x),
    "uniform logits": lambda m, x: torch.softmax(torch.erf(x * 0.7) * 3, -1),
    "peaked logits": lambda m, x: torch.softmax(x * 8, -1),
    "soft-argmax by a matrix": lambda m, x: (
        flat(x) @ torch.stack([COORDINATES.repeat(32), torch.arange(1024) / 512], 1)
    ),
    "soft-argmax by products": lambda m, x: expected_column(x) + 0.5,
    "beside other values": lambda m, x: torch.cat([flat(x), x], 1),
    # Behind a function: the parts of a result would have a scale each.
    "beside other probabilities": lambda m, x: torch.relu(torch.cat([flat(x), torch.softmax(x, -1)], 1)),
    "moved": lambda m, x: flat(x).transpose(1, 2).reshape(1, 8, 32, 32),
    "along the first of two": lambda m, x: torch.softmax(x[0, :, :16], 0),
}


@pytest.fixture(scope="module")
def small() -> Compiled:
    return assert_delegated(FUNCTIONS, (VALUES,), most=0.03)


def test_signal_to_noise(small: Compiled) -> None:
    results = [small.program.run(*inputs) for inputs in small.inputs]

    def quality(name: str) -> float:
        place = list(FUNCTIONS).index(name)
        real = [FUNCTIONS[name](None, *inputs) for inputs in small.inputs]
        return sqnr(real, [outputs[place] for outputs in results])

    assert quality("normal logits") > 35
    assert quality("uniform logits") > 35
    assert quality("peaked logits") > 25
    assert quality("soft-argmax by a matrix") > 35
    assert quality("soft-argmax by products") > 35
    assert quality("beside other values") > 35
    assert quality("moved") > 35


def scales_of(small: Compiled, operator: str) -> list[float]:
    graphs = [part.graph for part in small.program.partitions]
    return [graph[node.name].quant.scale for graph in graphs for node in graph.nodes if node.op == operator]


def test_scales(small: Compiled) -> None:
    assert scales_of(small, "softmax") == [1 / 256] * 2, "peaked ones, and those of 8 values"
    own: Any = scales_of(small, "softmax_rescaled")
    # The product with a matrix divides last, as attention does; the peaked ones keep 1/256.
    assert len(own) == len(FUNCTIONS) - 2
    assert max(own) < 1 / 4 / 255


def test_a_logarithm_below_the_fixed_scale_widens_it() -> None:
    """LiteRT's LOG_SOFTMAX ends at -255/16. Of the row's largest value the logarithm is always above."""
    functions = {
        "far": lambda m, x: torch.log_softmax(x * 8, 1),
        "far along the last": lambda m, x: torch.log_softmax(x * 8, -1),
        "near": lambda m, x: torch.log_softmax(x, -1),
    }
    small = assert_delegated(functions, ((2, 5, 6),), most=0.01)
    graphs = [part.graph for part in small.program.partitions]
    assert sorted(node.op for graph in graphs for node in graph.nodes if node.op in ("log_softmax", "sub")) == [
        *["log_softmax"] * 3,
        *["sub"] * 2,
    ]
