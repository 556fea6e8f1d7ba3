# SPDX-License-Identifier: BSD-3-Clause
"""Operators that write values to positions of a larger tensor, as compositions of gathers, slices and
concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openneutron.ir import Graph, Node
from openneutron.ops.compose import Parts
from openneutron.ops.limits import constant_at, int8_at, limit, rank, shared_quantization
from openneutron.ops.operands import constant_values
from openneutron.ops.places import INDICES, coordinates, flat_positions, outside, shape_of
from openneutron.ops.table import Composition, Op, Operand, Quantization, Role

# -- writing -----------------------------------------------------------------------------------------------------------


def _scattered(
    parts: Parts, values: str, fill: int, positions: npt.NDArray[np.int64], result: str, rows: int, row: int
) -> None:
    """Write rows of ``values`` to the ``positions`` of the result's ``rows``, one after the other, and ``fill`` to all
    other rows."""
    lines = parts.reshape(values, (parts[values].elements // row, row))
    count = parts[lines].shape[0]
    background = parts.constant(np.full((1, row), fill, np.int8), parts[values].quant)
    taken = np.full(rows, count, np.int32)
    # A single value may stand for all positions.
    taken[positions] = np.arange(len(positions)) if count == len(positions) else 0
    joined = parts.concatenate([lines, background], 0)
    parts.reshape(parts.gather(joined, parts.constant(taken)), parts[result].shape, result)


def _written_places(graph: Graph, node: Node, width: int, extents: Sequence[int]) -> str | None:
    """Return the reason against the coordinates of a write, or None."""
    if not 1 <= width <= len(extents):
        return f"its indices have {width} coordinates each; the result has rank {len(extents)}"
    places = coordinates(graph, node, 0, width)
    reason = outside(places, extents[:width])
    if reason is None and len(set(flat_positions(places, extents[:width]).tolist())) < len(places):
        return "its indices name a place twice; the sum of what is written there is not computed"
    return reason


def _scatter_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return (constant_values(graph, node, 2),)


def _scatter_fits(graph: Graph, node: Node) -> str | None:
    indices, updates, extents = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    width = indices[-1] if indices else 0
    if extents != graph[node.outputs[0]].shape:
        return f"its output is said to have shape {list(graph[node.outputs[0]].shape)}; its operands make it {list(extents)}"
    if updates != (*indices[:-1], *extents[width:]):
        return (
            f"its updates have shape {list(updates)}; its indices and shape make it {[*indices[:-1], *extents[width:]]}"
        )
    return _written_places(graph, node, width, extents)


def _scatter_nd(graph: Graph, node: Node) -> Composition:
    """Append a row of zeros (stored zeros) to the updates, and gather each row of the result from them."""
    parts, extents, (result,) = Parts(graph, node), constant_values(graph, node, 2), node.outputs
    width = shape_of(graph, node, 0)[-1]
    positions = flat_positions(coordinates(graph, node, 0, width), extents[:width])
    rows, row = math.prod(extents[:width]), math.prod(extents[width:])
    _scattered(parts, str(node.inputs[1]), 0, positions, result, rows, row)
    return parts.done()


def _dense_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return (constant_values(graph, node, 1),)


def _dense_width(graph: Graph, node: Node) -> int:
    indices = shape_of(graph, node, 0)
    return indices[-1] if len(indices) == 2 else 1


def _dense_fits(graph: Graph, node: Node) -> str | None:
    indices, values, extents = shape_of(graph, node, 0), graph.operand(node, 2), constant_values(graph, node, 1)
    assert values is not None
    if extents != graph[node.outputs[0]].shape:
        return f"its output is said to have shape {list(graph[node.outputs[0]].shape)}; its operands make it {list(extents)}"
    width = _dense_width(graph, node)
    if width != len(extents) or len(indices) > 2 or values.elements not in (1, math.prod(indices) // max(width, 1)):
        return f"its indices have shape {list(indices)}, its values {list(values.shape)}, its result {list(extents)}"
    return _written_places(graph, node, width, extents)


def _sparse_to_dense(graph: Graph, node: Node) -> Composition:
    parts, extents, (result,) = Parts(graph, node), constant_values(graph, node, 1), node.outputs
    positions = flat_positions(coordinates(graph, node, 0, _dense_width(graph, node)), extents)
    fill = constant_values(graph, node, 3)[0]
    _scattered(parts, str(node.inputs[2]), fill, positions, result, math.prod(extents), 1)
    return parts.done()


# -- boxes -------------------------------------------------------------------------------------------------------------


def _update_begin(graph: Graph, node: Node) -> list[int]:
    """Return the first index of the update on each axis, clamped to the operand as in LiteRT."""
    whole, part, begin = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    return [min(max(b, 0), n - m) for b, n, m in zip(begin, whole, part, strict=True)]


def _update_fits(graph: Graph, node: Node) -> str | None:
    whole, part, begin = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    if len(whole) == len(part) == len(begin) and all(m <= n for n, m in zip(whole, part, strict=True)):
        return None
    return f"it writes {list(part)} from {list(begin)} on into {list(whole)}, which does not hold that"


def _updated_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return (shape_of(graph, node, 0),)


def _dynamic_update_slice(graph: Graph, node: Node) -> Composition:
    """Concatenate the slices before and behind the update with the update, axis by axis, the outermost first."""
    parts, begin, part = Parts(graph, node), _update_begin(graph, node), shape_of(graph, node, 1)
    whole, update, (result,) = str(node.inputs[0]), str(node.inputs[1]), node.outputs
    axes = [axis for axis, extent in enumerate(part) if extent < shape_of(graph, node, 0)[axis]]
    if not axes:
        parts.reshape(update, part, result)
        return parts.done()

    def within(outer: str, left: list[int], output: str | None) -> str:
        if not left:
            return update
        axis, shape = left[0], list(parts[outer].shape)
        first, last = begin[axis], begin[axis] + part[axis]
        box = [0] * len(shape)

        def cut(start: int, stop: int) -> str:
            at, size = list(box), list(shape)
            at[axis], size[axis] = start, stop - start
            return parts.slice(outer, at, size)

        middle = within(cut(first, last) if left[1:] else outer, left[1:], None)
        before = [cut(0, first)] if first else []
        behind = [cut(last, shape[axis])] if last < shape[axis] else []
        return parts.concatenate([*before, middle, *behind], axis, output)

    within(whole, axes, result)
    return parts.done()


OPS = (
    Op(
        "scatter_nd",
        litert="SCATTER_ND",
        operands=(INDICES, Operand(Role.ACTIVATION, "updates"), Operand(Role.PARAMETER, "shape")),
        shape=_scatter_shape,
        kernels=("copy_s8", "resize_nearest_neighbor_s8", "gather_s8"),
        options="ScatterNdOptions",
        quantization=Quantization.SHARED,
        limits=(
            int8_at(1),
            shared_quantization(),
            constant_at(0, "list of indices"),
            constant_at(2, "shape"),
            limit("coordinates inside the result, each once", _scatter_fits),
        ),
        doc="Values or slices at a list of coordinates, stored zeros elsewhere.",
        made_of=_scatter_nd,
    ),
    Op(
        "sparse_to_dense",
        litert="SPARSE_TO_DENSE",
        operands=(
            INDICES,
            Operand(Role.PARAMETER, "shape"),
            Operand(Role.ACTIVATION, "values"),
            Operand(Role.VALUE, "default value"),
        ),
        shape=_dense_shape,
        kernels=("copy_s8", "resize_nearest_neighbor_s8", "gather_s8"),
        options="SparseToDenseOptions",
        quantization=Quantization.SHARED,
        limits=(
            int8_at(2),
            shared_quantization(),
            constant_at(0, "list of indices"),
            constant_at(1, "shape"),
            constant_at(3, "default value"),
            limit("coordinates inside the result, each once", _dense_fits),
        ),
        version=3,
        unsigned=True,
        doc="Values at a list of coordinates, one value elsewhere.",
        made_of=_sparse_to_dense,
    ),
    Op(
        "dynamic_update_slice",
        litert="DYNAMIC_UPDATE_SLICE",
        operands=(
            Operand(Role.ACTIVATION, "input"),
            Operand(Role.ACTIVATION, "update"),
            Operand(Role.PARAMETER, "begin"),
        ),
        shape=_updated_shape,
        kernels=("copy_s8",),
        options="DynamicUpdateSliceOptions",
        quantization=Quantization.SHARED,
        limits=(
            int8_at(0, 1),
            shared_quantization(),
            constant_at(2, "begin"),
            rank(0, 1, 5),
            limit("an update that the input holds", _update_fits),
        ),
        unsigned=True,
        doc="The input with a box of it replaced.",
        made_of=_dynamic_update_slice,
    ),
)
