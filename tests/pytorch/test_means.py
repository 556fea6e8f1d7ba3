# SPDX-License-Identifier: BSD-3-Clause
"""Means, sums and variances over any dimensions, with scales of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from openneutron.compiler.select.tables import doubling_high_mul, rounding_shift_right
from openneutron.ops.rescaling import mean_multiplier, quantize_multiplier
from openneutron.pytorch.operators.reduction import sum_weight
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
    product = next(node for node in graph.nodes if node.op == "mul")
    before, after = (graph[name].quant for name in (str(product.inputs[0]), product.name))
    assert before is not None and after is not None
    np.testing.assert_allclose(before.scale * 35, after.scale)
    assert before.zero_point == after.zero_point


@pytest.mark.parametrize(
    ("ratio", "count", "weight"),
    [(1.3, 4, 127), (1.0, 4, 127), (4.0, 36, 127), (2.0, 4, 1), (8.0, 4, 1), (1.0, 1 << 20, 1), (30.0, 1 << 10, 127)],
)
def test_a_mean_is_weighted_where_two_roundings_change_it(ratio: float, count: int, weight: int) -> None:
    assert sum_weight(ratio, count) == weight


def test_weights_leave_one_rounding() -> None:
    """With a factor of 1.3137 / 4, a sum of 4 is 1.3 steps. LiteRT's MEAN rounds 2.6 half steps to 3, and these to 2 steps."""
    sums = np.arange(-4 * 255, 4 * 255)
    mean = _requantized(sums, *mean_multiplier(1.3137, 1.0, 4))
    weighted = _requantized(sums * 127, *quantize_multiplier(1.3137 / 4 / 127))
    once = np.rint(sums * 1.3137 / 4)
    assert mean[sums == 4] == 2 and weighted[sums == 4] == 1
    assert (mean != once).mean() > 0.2
    assert (weighted != once).mean() < 1 / 200


def _requantized(sums: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    return rounding_shift_right(doubling_high_mul(sums.astype(np.int64), multiplier), -shift)


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
