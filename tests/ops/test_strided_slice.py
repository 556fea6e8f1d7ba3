# SPDX-License-Identifier: BSD-3-Clause
"""The single position that STRIDED_SLICE takes along an axis that the result drops."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.ir import Graph, Node, constant
from openneutron.ops import reject
from tests.support import oracle


def one_row(begin: int) -> Graph:
    """Return a graph that takes a row of a [4, 3] input, without its axis."""
    masks = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 1, "offset": False}  # fmt: skip
    box = [constant(name, np.array(value, np.int32)) for name, value in (("b", [begin, 0]), ("e", [begin + 1, 3]), ("s", [1, 1]))]  # fmt: skip
    node = Node("strided_slice", ("x", "b", "e", "s"), ("y",), masks)
    return oracle.graph_of([oracle.activation("x", (4, 3))], [node], [*box, oracle.activation("y", (3,))])


@pytest.mark.parametrize("begin", [0, 3, -1, -4, -9])
def test_a_position_of_the_axis_equals_litert(begin: int) -> None:
    oracle.assert_bit_exact(one_row(begin))


@pytest.mark.parametrize("begin", [4, 9])
def test_a_position_behind_the_axis_is_a_reason(begin: int) -> None:
    graph = one_row(begin)
    assert reject(graph, graph.nodes[0]) == (
        "it takes one position of axis 0, from behind its 4; LiteRT reads outside the input there"
    )
