# SPDX-License-Identifier: BSD-3-Clause
"""Pools of every attribute in one, two and three dimensions: delegated, LiteRT's bytes, PyTorch's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from openneutron.pytorch.operators.convolution import Window
from openneutron.pytorch.operators.separable import Separable, as_integers, average_pool, litert_padding
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import Decompose
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import compiled

IMAGE = (1, 5, 11, 9)
SEQUENCE = (2, 6, 13)
VOLUME = (1, 3, 6, 7, 8)


def test_pools_of_images() -> None:
    assert_delegated(
        {
            "average that counts padding": lambda m, x: F.avg_pool2d(x, 3, 2, 1),
            "average that does not": lambda m, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            "average of ceil mode": lambda m, x: F.avg_pool2d(x, (4, 3), 3, (2, 1), True),
            "average of ceil mode without padding": lambda m, x: F.avg_pool2d(x, 4, 3, 2, True, False),
            "average with a divisor": lambda m, x: F.avg_pool2d(x, 3, 2, 1, False, True, 5),
            "average of rank 3": lambda m, x: F.avg_pool2d(x.flatten(0, 1), 2),
            "adaptive average": lambda m, x: F.adaptive_avg_pool2d(x, (4, 7)),
            "adaptive average to more": lambda m, x: F.adaptive_avg_pool2d(x, (11, 20)),
            "adaptive average of even windows": lambda m, x: F.adaptive_avg_pool2d(x, (5, 3)),
            "dilated maximum": lambda m, x: F.max_pool2d(x, 3, 2, 1, 2),
            "maximum dilated in columns, ceil mode": lambda m, x: F.max_pool2d(x, (2, 3), (2, 1), (0, 1), (1, 3), True),
            "adaptive maximum": lambda m, x: F.adaptive_max_pool2d(x, (4, 7)),
            "adaptive maximum of everything": lambda m, x: F.adaptive_max_pool2d(x, 1),
        },
        (IMAGE,),
    )


def test_padding_of_a_maximum_is_below_negative_values() -> None:
    """A window at the border holds no 0, where the padding is neither of LiteRT's two either."""
    small = assert_delegated({"maximum": lambda m, x: F.max_pool2d(-torch.sigmoid(x), 3, 2, 1)}, ((1, 3, 12, 12),))
    assert "padv2" in small.operators


def test_pools_of_sequences() -> None:
    assert_delegated(
        {
            "maximum": lambda m, x: F.max_pool1d(x, 3, 2, 1),
            "dilated maximum": lambda m, x: F.max_pool1d(x, 3, 2, 1, 2, True),
            "average": lambda m, x: F.avg_pool1d(x, 2),
            "average of padding": lambda m, x: F.avg_pool1d(x, 3, 2, 1),
            "adaptive average": lambda m, x: F.adaptive_avg_pool1d(x, 5),
            "adaptive average to one": lambda m, x: F.adaptive_avg_pool1d(x, 1),
            "adaptive maximum": lambda m, x: F.adaptive_max_pool1d(x, 5),
        },
        (SEQUENCE,),
    )


def test_pools_of_volumes() -> None:
    # Planes first, then their depth: two roundings, and the second may be in finer steps.
    assert_delegated(
        {
            "maximum": lambda m, x: F.max_pool3d(x, 3, 2, 1),
            "average": lambda m, x: F.avg_pool3d(x, 2),
            "average of padding": lambda m, x: F.avg_pool3d(x, 3, 2, 1),
            "average with a divisor": lambda m, x: F.avg_pool3d(x, 2, divisor_override=3),
            "adaptive average to one": lambda m, x: F.adaptive_avg_pool3d(x, 1),
            "adaptive maximum": lambda m, x: F.adaptive_max_pool3d(x, (2, 4, 5)),
        },
        (VOLUME,),
        most=0.02,
    )


def _random_pools(seed: int) -> dict[str, Callable[..., Any]]:
    """Two pools of each kind on images of 9 to 12 rows and columns."""
    random = np.random.default_rng(seed)

    def number(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    pools: dict[str, Callable[..., Any]] = {}
    for _ in range(2):
        kernel = (number(1, 4), number(2, 4))
        stride = (number(1, 3), number(1, 4))
        ceil, include = bool(number(0, 1)), bool(number(0, 1))
        padding = tuple(number(0, extent // 2) for extent in kernel)
        divisor = number(1, 20) if number(0, 3) == 0 else None
        average = (kernel, stride, padding, ceil, include, divisor)
        pools[f"avg_pool2d{average}"] = lambda m, x, args=average: F.avg_pool2d(x, *args)
        maximum = (kernel, stride, padding, (number(1, 2), number(1, 3)), ceil)
        pools[f"max_pool2d{maximum}"] = lambda m, x, args=maximum: F.max_pool2d(x, *args)
        size = (number(1, 14), number(1, 14))
        pools[f"adaptive_avg_pool2d{size}"] = lambda m, x, size=size: F.adaptive_avg_pool2d(x, size)
        pools[f"adaptive_max_pool2d{size}"] = lambda m, x, size=size: F.adaptive_max_pool2d(x, size)
    return pools


@pytest.mark.parametrize("seed", range(2))
def test_random_pools(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 3)), int(random.integers(1, 10)), *random.integers(9, 13, 2).tolist())
    assert_delegated(_random_pools(seed), (shape,))


def test_averages_of_many_values_have_finer_steps() -> None:
    """An average of noise loses less than 3 dB against int8 with steps of its own, for small windows too."""
    kernels = (2, 3, 4, 8)
    small = compiled(lambda m, x: tuple(F.avg_pool2d(x, kernel) for kernel in kernels), ((1, 8, 8, 8),))
    assert sorted(set(small.operators)) == ["average_pool_2d", "depthwise_conv_2d", "reshape"]
    for place, kernel in enumerate(kernels):
        got = torch.cat([small.program.run(*inputs)[place] for inputs in small.inputs])
        want = torch.cat([F.avg_pool2d(*inputs, kernel) for inputs in small.inputs])
        ratio = float(10 * torch.log10(want.square().sum() / (got - want).square().sum()))
        assert ratio > 34, f"{kernel}: {ratio:.1f} dB"


def test_averages_of_whole_rows_or_columns_are_means() -> None:
    small = assert_delegated(
        {
            "rows": lambda m, x: F.adaptive_avg_pool2d(x, (None, 1)),
            "columns": lambda m, x: F.adaptive_avg_pool2d(x, (1, None)),
            "an image": lambda m, x: F.avg_pool2d(x, (11, 9)),
            "a row": lambda m, x: F.avg_pool2d(x, (1, 9)),
        },
        (IMAGE,),
    )
    assert set(small.operators) <= {"mean", "depthwise_conv_2d", "transpose", "reshape"}


def test_large_images_are_pooled_axis_by_axis() -> None:
    small = assert_delegated(
        {"average": lambda m, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)}, ((1, 2, 31, 32),)
    )
    assert small.operators.count("batch_matmul") == 2


@pytest.mark.parametrize(("result", "left"), [(0, False), (1, True)])
def test_an_adaptive_maximum_whose_indices_are_used_is_left_alone(result: int, left: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.adaptive_max_pool2d(x, 5, return_indices=True)[result]

    # Indices of more than MOST_COMPARED pairs of an element and a window.
    module = torch.export.export(Model(), (torch.randn(1, 8, 64, 64),)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    Decompose()(module)
    assert left == any("adaptive_max_pool2d" in str(node.target) for node in module.graph.nodes)


def test_an_adaptive_maximum_with_indices_has_its_reason() -> None:
    small = compiled(lambda m, x: F.adaptive_max_pool2d(m.conv(x), 5, return_indices=True)[1], ((1, 8, 64, 64),))
    assert (
        "its indices are used; for them at most 524288 pairs of an element and a window are compared"
        in small.reasons[0]
    )


def test_what_litert_pools_is_told_from_what_it_does_not() -> None:
    def padding(*args: Any) -> str | None:
        names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
        given = dict(zip(names, args, strict=True))
        return litert_padding(average_pool(given, (8, 8)), Window((args[0],) * 2, (args[1],) * 2, (args[2],) * 2))

    assert padding(2, 2, 0, False, True, None) == "VALID"
    assert padding(2, 2, 0, False, True, 4) == "VALID"
    assert padding(3, 1, 1, False, False, None) == "SAME"
    assert padding(3, 2, 0, True, True, None) == "SAME"
    assert padding(3, 1, 1, False, True, None) is None
    assert padding(3, 2, 1, False, False, None) is None
    assert padding(2, 2, 0, False, True, 3) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_matrix_as_integers_keeps_the_sums_of_its_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.random((5, 9)) * (random.random((5, 9)) < 0.5) + np.eye(5, 9)
    matrix /= matrix.sum(1, keepdims=True)
    stored, scale = as_integers(matrix)
    assert np.abs(stored * scale - matrix).max() < scale
    np.testing.assert_allclose((stored * scale).sum(1), 1, atol=scale / 2 + 1e-6)


def test_weights_that_are_whole_parts_are_exact() -> None:
    thirds = Separable(np.array([[0.5, 0.5, 0.0], [0.0, 1 / 3, 2 / 3]]), np.eye(3))
    stored, scale = as_integers(thirds.rows)
    np.testing.assert_allclose(stored * scale, thirds.rows, atol=1e-9)
    assert round(1 / scale) == 6


def test_the_divisors_are_pytorchs() -> None:
    given = {
        "kernel_size": [4, 3],
        "stride": [3, 2],
        "padding": [2, 1],
        "ceil_mode": True,
        "count_include_pad": True,
        "divisor_override": None,
    }
    operator = average_pool(given, (11, 9))
    x = torch.randn(1, 2, 11, 9)
    wanted = F.avg_pool2d(x, (4, 3), (3, 2), (2, 1), True)
    got = np.einsum("ih,jw,nchw->ncij", operator.rows, operator.columns, x.numpy())
    np.testing.assert_allclose(got, wanted.numpy(), atol=1e-6)
