# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take elements by position as calls of resize_nearest_neighbor_s8, whose maps name any rows and columns."""

from __future__ import annotations

import itertools

import numpy as np

from openneutron.compiler.boxes import row_major
from openneutron.compiler.calls import Extents, KernelCall, View, selects
from openneutron.ir import Graph, Node
from openneutron.ops.indexed import INDEXED, Indexed, kernel_axes, merged_axes

_ONE = Indexed(1, (0,))


@selects(*INDEXED)
def indexed(graph: Graph, node: Node) -> list[KernelCall]:
    """A call for each position along the axes that are neither rows, columns, batches nor channels."""
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None
    axes = merged_axes(INDEXED[node.op](graph, node))
    from_pitches, to_pitches = row_major([axis.extent for axis in axes]), row_major([len(a.positions) for a in axes])
    chosen, rest = kernel_axes(axes)
    own = [axes[i] if i >= 0 else _ONE for i in chosen]
    # Something of one element has any pitch; 1 keeps the buffer small.
    read = [from_pitches[i] if i >= 0 else 1 for i in chosen]
    written = [to_pitches[i] if i >= 0 else 1 for i in chosen]
    maps = np.array([*own[1].positions, *own[2].positions], "<i4").tobytes()
    calls = []
    for places in itertools.product(*(enumerate(axes[i].positions) for i in rest)):
        steps = list(zip(rest, places, strict=True))
        offset = sum(position * from_pitches[i] for i, (_, position) in steps)
        to_offset = sum(place * to_pitches[i] for i, (place, _) in steps)
        views = {
            "input": View(source.name, _four([axis.extent for axis in own]), _four(read), offset),
            "output": View(result.name, _four([len(axis.positions) for axis in own]), _four(written), to_offset),
        }
        calls.append(KernelCall("resize_nearest_neighbor_s8", node.name, views, constants={"map": maps}))
    return calls


def _four(numbers: list[int]) -> Extents:
    return numbers[0], numbers[1], numbers[2], numbers[3]
