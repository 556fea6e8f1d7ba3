# SPDX-License-Identifier: BSD-3-Clause
"""Operators that read values at positions given as a list of coordinates, or mark such positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams
from openneutron.ops.compose import Parts
from openneutron.ops.limits import constant_at, int8_at, limit, rank, shared_quantization, unquantized
from openneutron.ops.operands import constant_values
from openneutron.ops.table import Attribute, Composition, Op, Operand, Quantization, Role

INDICES = Operand(Role.INDICES, "indices")


def shape_of(graph: Graph, node: Node, index: int) -> tuple[int, ...]:
    tensor = graph.operand(node, index)
    assert tensor is not None
    return tensor.shape


def coordinates(graph: Graph, node: Node, index: int, width: int) -> npt.NDArray[np.int64]:
    """Return constant coordinates, one row for each position."""
    return np.array(constant_values(graph, node, index), np.int64).reshape(-1, width)


def outside(places: npt.NDArray[np.int64], extents: Sequence[int]) -> str | None:
    wrong = [row for row in places.tolist() if any(not 0 <= i < n for i, n in zip(row, extents, strict=True))]
    return f"its indices name {wrong[0]}, which is outside {list(extents)}" if wrong else None


def flat_positions(places: npt.NDArray[np.int64], extents: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return each row's position in row-major order."""
    pitches = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    return np.asarray(places @ np.array(pitches, np.int64).reshape(-1), np.int64)


def _gather_nd_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data, indices = shape_of(graph, node, 0), shape_of(graph, node, 1)
    return ((*indices[:-1], *data[indices[-1] :]),)


def _readable(graph: Graph, node: Node) -> str | None:
    data, indices = shape_of(graph, node, 0), graph.operand(node, 1)
    assert indices is not None
    width = indices.shape[-1] if indices.shape else 0
    if not 1 <= width <= len(data):
        return (
            f"its indices have shape {list(indices.shape)}; the last extent must be 1 to {len(data)}, the input's rank"
        )
    if indices.is_constant:
        return outside(coordinates(graph, node, 1, width), data[:width])
    if width > 1:
        return f"its indices '{indices.name}' are computed, with {width} coordinates each; then there may be one"
    return None


def _gather_nd(graph: Graph, node: Node) -> Composition:
    """Lower to a GATHER along the leading axes, merged into one."""
    parts, data, (result,) = Parts(graph, node), shape_of(graph, node, 0), node.outputs
    indices = graph.operand(node, 1)
    assert indices is not None
    width, outer = indices.shape[-1], indices.shape[:-1]
    flat = parts.reshape(str(node.inputs[0]), (math.prod(data[:width]), *data[width:]))
    if indices.is_constant:
        positions = flat_positions(coordinates(graph, node, 1, width), data[:width]).astype(np.int32)
        named = parts.constant(positions.reshape(outer))
    else:
        named = parts.reshape(indices.name, outer)
    parts.gather(flat, named, result)
    return parts.done()


def _embedding_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return ((*shape_of(graph, node, 0), *shape_of(graph, node, 1)[1:]),)


def _embedding_lookup(graph: Graph, node: Node) -> Composition:
    parts = Parts(graph, node)
    parts.gather(str(node.inputs[1]), str(node.inputs[0]), node.outputs[0])
    return parts.done()


# -- one of many -------------------------------------------------------------------------------------------------------

_BYTES = QuantParams((0.5,), (0,))
"""At this scale EQUAL distinguishes any two different bytes."""


def _one_hot_axis(graph: Graph, node: Node) -> int:
    own = len(shape_of(graph, node, 0))
    return own if node["axis"] == -1 else int(node["axis"])


def _one_hot_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    indices, axis = shape_of(graph, node, 0), _one_hot_axis(graph, node)
    (depth,) = constant_values(graph, node, 1)
    return ((*indices[:axis], depth, *indices[axis:]),)


def _one_hot_fits(graph: Graph, node: Node) -> str | None:
    (depth,), own = constant_values(graph, node, 1), len(shape_of(graph, node, 0))
    if depth < 1:
        return f"its depth is {depth}; it must be at least 1"
    if not -1 <= node["axis"] <= own:
        return f"its axis is {node['axis']}; its indices have rank {own}"
    on, off = graph.operand(node, 2), graph.operand(node, 3)
    assert on is not None and off is not None
    if not on.dtype is off.dtype is DType.INT8 or not on.elements == off.elements == 1:
        return f"its values are {on.dtype} {list(on.shape)} and {off.dtype} {list(off.shape)}; both must be one int8"
    return None


def _one_hot(graph: Graph, node: Node) -> Composition:
    """Compare the bytes of each index with those of each number: the ``on`` value where all bytes are equal, else the
    ``off`` value."""
    parts, axis, (result,) = Parts(graph, node), _one_hot_axis(graph, node), node.outputs
    indices, (depth,) = graph.operand(node, 0), constant_values(graph, node, 1)
    assert indices is not None
    size, output = indices.dtype.size_bytes, graph[result]
    outer, inner = math.prod(indices.shape[:axis]), math.prod(indices.shape[axis:])
    given = parts.new((outer, 1, inner, size), DType.INT8, _BYTES)
    parts.add("bitcast", [indices.name], given)
    numbers = np.arange(depth, dtype=indices.dtype.numpy).view(np.int8).reshape(1, depth, 1, size)
    same = parts.new((outer, depth, inner, size), DType.BOOL, None)
    parts.add("equal", [given, parts.constant(numbers, _BYTES)], same)
    hit = parts.new((outer, depth, inner), DType.BOOL, None)
    parts.add("reduce_all", [same, parts.integers([3])], hit, keep_dims=False)
    values = [parts.constant(np.array(constant_values(graph, node, i), np.int8), output.quant) for i in (2, 3)]
    chosen = parts.new((outer, depth, inner), DType.INT8, output.quant)
    parts.reshape(parts.add("select_v2", [hit, *values], chosen), output.shape, result)
    return parts.done()


OPS = (
    Op(
        "gather_nd",
        litert="GATHER_ND",
        operands=(Operand(Role.ACTIVATION, "input"), INDICES),
        shape=_gather_nd_shape,
        kernels=("resize_nearest_neighbor_s8", "gather_s8"),
        options="GatherNdOptions",
        quantization=Quantization.SHARED,
        limits=(
            int8_at(0),
            shared_quantization(),
            unquantized([1], False, DType.INT32, DType.INT64),
            rank(0, 1, 6),
            limit("constant coordinates inside the input, or computed ones along its first axis", _readable),
        ),
        version=2,
        unsigned=True,
        doc="Values or slices of the input at a list of coordinates.",
        made_of=_gather_nd,
    ),
    Op(
        "embedding_lookup",
        litert="EMBEDDING_LOOKUP",
        operands=(INDICES, Operand(Role.ACTIVATION, "rows")),
        shape=_embedding_shape,
        kernels=("resize_nearest_neighbor_s8", "gather_s8"),
        quantization=Quantization.SHARED,
        limits=(int8_at(1), shared_quantization(), unquantized([0], False, DType.INT32), rank(0, 1, 1)),
        version=2,
        unsigned=True,
        doc="Rows of a table, in the order of a list of indices.",
        made_of=_embedding_lookup,
    ),
    Op(
        "one_hot",
        litert="ONE_HOT",
        operands=(
            INDICES,
            Operand(Role.PARAMETER, "depth"),
            Operand(Role.VALUE, "value where the index is"),
            Operand(Role.VALUE, "value elsewhere"),
        ),
        shape=_one_hot_shape,
        kernels=("compare_s8", "reduce_max_s8", "select_s8"),
        options="OneHotOptions",
        attributes=(Attribute("axis", "axis", -1),),
        quantization=Quantization.FREE,
        limits=(
            int8_at(),
            unquantized([0], False, DType.INT32, DType.INT64),
            constant_at(1, "depth"),
            constant_at(2, "value where the index is"),
            constant_at(3, "value elsewhere"),
            limit("two int8 values, and an axis of the result", _one_hot_fits),
        ),
        unsigned=True,
        doc="Along a new axis one value at each index, another elsewhere.",
        made_of=_one_hot,
    ),
)
