# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take elements by position as kernel calls.

Positions that are known beforehand are resize_nearest_neighbor_s8's, whose maps name any rows and columns; others are
gather_s8's.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from openneutron.compiler.select.calls import Extents, KernelCall, Maps, View, dense_pitches, row_major, selects
from openneutron.ir import Graph, Node
from openneutron.ops.indexed import INDEXED, Indexed, gathers_by_maps, kernel_axes, merged_axes

_ONE = Indexed(1, (0,))


@selects("gather")
def gather(graph: Graph, node: Node) -> list[KernelCall]:
    """Select gather_s8 with the axes before the axis as rows, the axis as columns, and the axes behind it as channels."""
    if gathers_by_maps(graph, node):
        return indexed(graph, node)
    source, indices, result = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    batch_dims, axis = node["batch_dims"], node["axis"] % len(source.shape)
    batches, outer = math.prod(source.shape[:batch_dims]), math.prod(source.shape[batch_dims:axis])
    extent, inner = source.shape[axis], math.prod(source.shape[axis + 1 :])
    count, size = math.prod(indices.shape[batch_dims:]), indices.dtype.size_bytes
    taken, given = (batches, outer, extent, inner), (batches, outer, count, inner)
    named = (batches, 1, count, size)
    views = {
        "input": View(source.name, taken, dense_pitches(taken)),
        "indices": View(indices.name, named, dense_pitches(named)),
        "output": View(result.name, given, dense_pitches(given)),
    }
    return [KernelCall("gather_s8", node.name, views)]


@selects(*(op for op in INDEXED if op != "gather"))
def indexed(graph: Graph, node: Node) -> list[KernelCall]:
    """Select a call for each position along the axes that are neither rows, columns, batches nor channels."""
    source, result = graph.given(node, 0), graph[node.name]
    axes = merged_axes(INDEXED[node.op](graph, node))
    from_pitches, to_pitches = row_major([axis.extent for axis in axes]), row_major([len(a.positions) for a in axes])
    chosen, rest = kernel_axes(axes)
    own = [axes[i] if i >= 0 else _ONE for i in chosen]
    # Something of one element has any pitch; 1 keeps the buffer small.
    read = [from_pitches[i] if i >= 0 else 1 for i in chosen]
    written = [to_pitches[i] if i >= 0 else 1 for i in chosen]
    maps = Maps(*(np.array([axis.positions], np.int32) for axis in own[1:3]))
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
