# SPDX-License-Identifier: BSD-3-Clause
"""Maximum pools with positions give PyTorch's positions, also for equal values, and are delegated whole."""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F

from openneutron.pytorch.operators.families import DECOMPOSITIONS
from tests.pytorch.side_by_side import assert_delegated


def _small_numbers(*shape: int) -> torch.Tensor:
    """Inputs have five distinct values, so that windows hold their maximum several times."""
    return torch.randint(0, 5, shape).float()


def test_positions_are_those_of_pytorch() -> None:
    for kernel, stride, padding, dilation, ceil in product((2, 3), (1, 2, 3), (0, 1), (1, 2), (False, True)):
        for dimensions, shape in ((1, (2, 3, 9)), (2, (1, 2, 7, 8)), (3, (1, 1, 6, 5, 5))):
            x = _small_numbers(*shape)
            pool = DECOMPOSITIONS[f"aten.max_pool{dimensions}d_with_indices.default"]
            got = pool(x, [kernel], [stride], [padding], [dilation], ceil)
            wanted = getattr(F, f"max_pool{dimensions}d")(
                x, kernel, stride, padding, dilation, ceil, return_indices=True
            )
            assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1])
    for shape, outputs in (((2, 3, 13), (5,)), ((1, 3, 11, 9), (4, 7)), ((1, 2, 5, 6, 4), (2, 4, 3))):
        x = _small_numbers(*shape)
        got = DECOMPOSITIONS[f"aten.adaptive_max_pool{len(outputs)}d.default"](x, list(outputs))
        wanted = getattr(F, f"adaptive_max_pool{len(outputs)}d")(x, outputs, return_indices=True)
        assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1])


def test_positions_are_left_to_the_cpu_where_they_take_too_many_comparisons() -> None:
    pool = DECOMPOSITIONS["aten.max_pool2d_with_indices.default"]
    assert pool(torch.zeros(1, 8, 64, 64), [2], [2], [0], [1], False)[1] is None


def test_pools_with_positions_are_delegated_whole() -> None:
    def positions(result: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        # Look up each position in a table, so that results can be compared in steps of its values.
        return torch.linspace(-1, 1, 64)[result[1].flatten()]

    small = assert_delegated(
        {
            "pool": lambda m, x: positions(F.max_pool2d(x, 3, 2, 1, return_indices=True)),
            "adaptive pool": lambda m, x: positions(F.adaptive_max_pool2d(x, (3, 5), return_indices=True)),
        },
        ((1, 2, 8, 8),),
    )
    assert small.operators.count("arg_max") == 2
