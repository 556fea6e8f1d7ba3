# SPDX-License-Identifier: BSD-3-Clause
"""Means, sums and variances over any dimensions, with scales of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from openneutron.pytorch.quantizer.observers import HistogramRangeObserver
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import Around, compiled

SHAPE = (2, 6, 5, 7)

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "over rows and columns": lambda x, f: f(x, (2, 3)),
    "over channels, kept": lambda x, f: f(x, (1,), True),
    "over columns": lambda x, f: f(x, (-1,)),
    "over batches and rows": lambda x, f: f(x, (0, 2), True),
    "of everything": lambda x, f: f(x),
}


@pytest.mark.parametrize("operator", [torch.mean, torch.sum])
def test_means_and_sums(operator: Callable[..., Any]) -> None:
    functions = {
        f"{operator.__name__} {name}": lambda m, x, reduce=reduce: reduce(x, operator)
        for name, reduce in REDUCTIONS.items()
    }
    functions["behind a convolution"] = lambda m, x: operator(F.conv2d(x, m.conv.weight[:, :6]), (2, 3))
    small = assert_delegated(functions, (SHAPE,), most=0.02)
    graph = small.program.partitions[0].graph
    assert len({graph[name].quant for name in graph.outputs}) == len(functions)


def test_a_sum_is_a_mean_under_another_scale() -> None:
    small = assert_delegated({"sum": lambda m, x: x.sum((2, 3))}, (SHAPE,))
    graph = small.program.partitions[0].graph
    mean = next(node for node in graph.nodes if node.op == "mean")
    product = next(node for node in graph.nodes if node.op == "mul")
    before, after = graph[mean.name].quant, graph[product.name].quant
    assert before is not None and after is not None
    np.testing.assert_allclose(before.scale * 35, after.scale)
    assert before.zero_point == after.zero_point


VARIANCES: dict[str, Callable[..., Any]] = {
    "var": lambda m, x: x.var((2, 3)),
    "var of everything": lambda m, x: x.var(),
    "var without correction": lambda m, x: x.var(1, correction=0, keepdim=True),
    "var and mean": lambda m, x: torch.var_mean(x, (2, 3))[0],
    "std": lambda m, x: x.std(1, unbiased=False),
    "std of everything": lambda m, x: x.std((1, 2, 3)),
}


def test_variances_are_near_the_float_ones() -> None:
    small = compiled(lambda m, x: tuple(function(m, x) for function in VARIANCES.values()), (SHAPE,))
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    for place, (name, function) in enumerate(VARIANCES.items()):
        got = torch.cat([small.program.run(*inputs)[place].reshape(-1) for inputs in small.inputs])
        with torch.no_grad():
            want = torch.cat([function(Around, *inputs).reshape(-1) for inputs in small.inputs])
        ratio = 10 * torch.log10(want.square().sum() / (got - want).square().sum())
        assert ratio > 30, f"{name}: {ratio:.1f} dB"


def test_a_calibrator_of_single_numbers_counts_the_first() -> None:
    observer = HistogramRangeObserver(dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine)
    for number in (2.0, 2.0, 1.0, 1.5):
        observer(torch.tensor(number))
    assert float(observer.histogram.sum()) == 4
    scale, _ = observer.calculate_qparams()
    assert float(scale) == pytest.approx(2 / 255)


def test_a_variance_without_enough_values_is_left_alone() -> None:
    small = compiled(lambda m, x: m.conv(x).var(0))
    assert small.reasons


@pytest.mark.parametrize("operator", [torch.mean, torch.sum])
def test_a_single_number_has_a_dimension_0(operator: Callable[..., Any]) -> None:
    small = compiled(lambda m, x: operator(x * 2, 0), ((),))
    assert small.reasons == []
    for inputs in small.inputs:
        torch.testing.assert_close(small.program.run(*inputs)[0], inputs[0] * 2, rtol=0.05, atol=0.05)
