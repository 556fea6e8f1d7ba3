# SPDX-License-Identifier: BSD-3-Clause
"""STRIDED_SLICE before the start of an axis that the result does not have."""

from __future__ import annotations

import pytest

from openneutron.ir import Graph
from tests.support import oracle, random_graphs

EXTENT = 4


def one_index(axis: int, index: int) -> Graph:
    """Return a graph that takes index ``index`` along an axis of int8[4, 4, 4], which the result drops."""
    b = random_graphs.Builder(axis)
    source = b.input((EXTENT,) * 3)
    begins, ends = [0, 0, 0], [EXTENT] * 3
    begins[axis], ends[axis] = index, index + 1
    numbers = [b.integers(*values) for values in (begins, ends, [1, 1, 1])]
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"), 0)
    result = b.new((EXTENT, EXTENT), source.quant)
    b.node("strided_slice", [source, *numbers], result, shrink_axis_mask=1 << axis, offset=False, **masks)
    return b.graph([result])


@pytest.mark.parametrize("index", [-9, -5, -4, -1, 0, 3])
@pytest.mark.parametrize("axis", range(3))
def test_an_index_before_the_start_is_the_first(axis: int, index: int) -> None:
    oracle.assert_bit_exact(one_index(axis, index), (0,))
