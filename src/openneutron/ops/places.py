# SPDX-License-Identifier: BSD-3-Clause
"""Declare operators that read, write or mark values at coordinates, or fill positions with a constant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams
from openneutron.ops.limits import STORED, limit, rank, unquantized
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Operand,
    Parts,
    Quantization,
    Role,
    constant_values,
    moving,
    moving_bytes,
    parameter,
    shape_given_by,
    shape_of,
    shape_reason,
)

INDICES = Operand(Role.INDICES, "indices")
_LIST = parameter("list of indices")


def coordinates(graph: Graph, node: Node, index: int, width: int) -> npt.NDArray[np.int64]:
    """Return the coordinates in a constant operand as an int64 matrix [positions, ``width``]."""
    return np.array(constant_values(graph, node, index), np.int64).reshape(-1, width)


def outside(places: npt.NDArray[np.int64], extents: Sequence[int]) -> str | None:
    wrong = [row for row in places.tolist() if any(not 0 <= i < n for i, n in zip(row, extents, strict=True))]
    return f"its indices name {wrong[0]}, which is outside {list(extents)}" if wrong else None


def flat_positions(places: npt.NDArray[np.int64], extents: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the row-major index of each coordinate in a tensor of these extents."""
    pitches = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    return np.asarray(places @ np.array(pitches, np.int64).reshape(-1), np.int64)


def _gather_nd_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data, indices = shape_of(graph, node, 0), shape_of(graph, node, 1)
    return ((*indices[:-1], *data[indices[-1] :]),)


def _readable(graph: Graph, node: Node) -> str | None:
    data, indices = shape_of(graph, node, 0), graph.given(node, 1)
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


def _gather_nd(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower GATHER_ND to a GATHER along the leading axes, which are merged into one."""
    data, (result,) = shape_of(graph, node, 0), node.outputs
    indices = graph.given(node, 1)
    width, outer = indices.shape[-1], indices.shape[:-1]
    flat = parts.reshape(str(node.inputs[0]), (math.prod(data[:width]), *data[width:]))
    if indices.is_constant:
        positions = flat_positions(coordinates(graph, node, 1, width), data[:width]).astype(np.int32)
        named = parts.constant(positions.reshape(outer))
    else:
        named = parts.reshape(indices.name, outer)
    parts.gather(flat, named, result)


def _embedding_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return ((*shape_of(graph, node, 0), *shape_of(graph, node, 1)[1:]),)


def _embedding_lookup(parts: Parts, graph: Graph, node: Node) -> None:
    parts.gather(str(node.inputs[1]), str(node.inputs[0]), node.outputs[0])


# -- one of many -------------------------------------------------------------------------------------------------------

_BYTES = QuantParams((0.5,), (0,))
"""A quantization with which EQUAL distinguishes any two different bytes."""


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
    on, off = graph.given(node, 2), graph.given(node, 3)
    if not on.dtype is off.dtype is DType.INT8 or not on.elements == off.elements == 1:
        return f"its values are {on.dtype} {list(on.shape)} and {off.dtype} {list(off.shape)}; both must be one int8"
    return None


def _one_hot(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower ONE_HOT: compare each index with each number byte by byte, and select the ``on`` value where all bytes
    are equal, else the ``off`` value."""
    axis, (result,) = _one_hot_axis(graph, node), node.outputs
    indices, (depth,) = graph.given(node, 0), constant_values(graph, node, 1)
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


# -- writing -----------------------------------------------------------------------------------------------------------


def _scattered(
    parts: Parts, values: str, fill: int, positions: npt.NDArray[np.int64], result: str, rows: int, row: int
) -> None:
    """Add nodes that write the rows of ``values``, one after the other, to these ``positions`` of the tensor
    ``result``, which has ``rows`` rows of ``row`` elements. If ``values`` has a single row, it is written to all of
    these positions. All other positions get the stored value ``fill``."""
    lines = parts.reshape(values, (parts[values].elements // row, row))
    count = parts[lines].shape[0]
    background = parts.constant(np.full((1, row), fill, np.int8), parts[values].quant)
    taken = np.full(rows, count, np.int32)
    # A single value may stand for all positions.
    taken[positions] = np.arange(len(positions)) if count == len(positions) else 0
    joined = parts.concatenate([lines, background], 0)
    parts.reshape(parts.gather(joined, parts.constant(taken)), parts[result].shape, result)


def _written_places(graph: Graph, node: Node, width: int, extents: Sequence[int]) -> str | None:
    if not 1 <= width <= len(extents):
        return f"its indices have {width} coordinates each; the result has rank {len(extents)}"
    places = coordinates(graph, node, 0, width)
    reason = outside(places, extents[:width])
    if reason is None and len(set(flat_positions(places, extents[:width]).tolist())) < len(places):
        return "its indices name a place twice; the sum of what is written there is not computed"
    return reason


def _scatter_fits(graph: Graph, node: Node) -> str | None:
    indices, updates, extents = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    width = indices[-1] if indices else 0
    if reason := shape_reason(graph, node, extents):
        return reason
    if updates != (*indices[:-1], *extents[width:]):
        return (
            f"its updates have shape {list(updates)}; its indices and shape make it {[*indices[:-1], *extents[width:]]}"
        )
    return _written_places(graph, node, width, extents)


def _scatter_nd(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower SCATTER_ND: append a row of zeros to the updates, and gather each row of the result from them."""
    extents, (result,) = constant_values(graph, node, 2), node.outputs
    width = shape_of(graph, node, 0)[-1]
    positions = flat_positions(coordinates(graph, node, 0, width), extents[:width])
    rows, row = math.prod(extents[:width]), math.prod(extents[width:])
    _scattered(parts, str(node.inputs[1]), 0, positions, result, rows, row)


def _dense_width(graph: Graph, node: Node) -> int:
    indices = shape_of(graph, node, 0)
    return indices[-1] if len(indices) == 2 else 1


def _dense_fits(graph: Graph, node: Node) -> str | None:
    indices, values, extents = shape_of(graph, node, 0), graph.given(node, 2), constant_values(graph, node, 1)
    if reason := shape_reason(graph, node, extents):
        return reason
    width = _dense_width(graph, node)
    if width != len(extents) or len(indices) > 2 or values.elements not in (1, math.prod(indices) // max(width, 1)):
        return f"its indices have shape {list(indices)}, its values {list(values.shape)}, its result {list(extents)}"
    return _written_places(graph, node, width, extents)


def _sparse_to_dense(parts: Parts, graph: Graph, node: Node) -> None:
    extents, (result,) = constant_values(graph, node, 1), node.outputs
    positions = flat_positions(coordinates(graph, node, 0, _dense_width(graph, node)), extents)
    fill = constant_values(graph, node, 3)[0]
    _scattered(parts, str(node.inputs[2]), fill, positions, result, math.prod(extents), 1)


def _update_begin(graph: Graph, node: Node) -> list[int]:
    """Return the first index of the update along each axis, clamped so that the update is inside the operand, as in
    LiteRT."""
    whole, part, begin = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    return [min(max(b, 0), n - m) for b, n, m in zip(begin, whole, part, strict=True)]


def _update_fits(graph: Graph, node: Node) -> str | None:
    whole, part, begin = shape_of(graph, node, 0), shape_of(graph, node, 1), constant_values(graph, node, 2)
    if len(whole) == len(part) == len(begin) and all(m <= n for n, m in zip(whole, part, strict=True)):
        return None
    return f"it writes {list(part)} from {list(begin)} on into {list(whole)}, which does not hold that"


def _dynamic_update_slice(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower DYNAMIC_UPDATE_SLICE to slices and concatenations.

    From the outermost axis inwards, the parts of the operand before and after the update are sliced off. From the
    innermost axis outwards, they are concatenated with the update. Axes along which the update has the whole extent
    are left out.
    """
    begin, part = _update_begin(graph, node), shape_of(graph, node, 1)
    whole, update, (result,) = str(node.inputs[0]), str(node.inputs[1]), node.outputs
    axes = [axis for axis, extent in enumerate(part) if extent < shape_of(graph, node, 0)[axis]]
    if not axes:
        parts.reshape(update, part, result)
        return

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


_AT_POSITIONS = (
    moving_bytes(
        "gather_nd",
        operands=(INPUT, INDICES),
        shape=_gather_nd_shape,
        kernels=("resize_nearest_neighbor_s8", "gather_s8"),
        limits=(
            rank(0, 1, 6),
            limit("constant coordinates inside the input, or computed ones along its first axis", _readable),
        ),
        version=2,
        doc="Values or slices of the input at a list of coordinates.",
        made_of=_gather_nd,
    ),
    moving_bytes(
        "embedding_lookup",
        operands=(Operand(Role.INDICES, "indices", types=(DType.INT32,)), Operand(Role.ACTIVATION, "rows")),
        shape=_embedding_shape,
        kernels=("resize_nearest_neighbor_s8", "gather_s8"),
        limits=(rank(0, 1, 1),),
        version=2,
        doc="Rows of a table, in the order of a list of indices.",
        made_of=_embedding_lookup,
    ),
    Op(
        "one_hot",
        operands=(
            INDICES,
            parameter("depth"),
            Operand(Role.VALUE, "value where the index is"),
            Operand(Role.VALUE, "value elsewhere"),
        ),
        shape=_one_hot_shape,
        kernels=("compare_s8", "reduce_max_s8", "select_s8"),
        attributes=(Attribute("axis", "axis", -1),),
        limits=(limit("two int8 values, and an axis of the result", _one_hot_fits),),
        unsigned=True,
        doc="Along a new axis one value at each index, another elsewhere.",
        made_of=_one_hot,
    ),
    Op(
        "scatter_nd",
        operands=(_LIST, Operand(Role.ACTIVATION, "updates"), parameter("shape")),
        shape=shape_given_by(2),
        kernels=("copy_s8", "resize_nearest_neighbor_s8", "gather_s8"),
        quantization=Quantization.SHARED,
        limits=(limit("coordinates inside the result, each once", _scatter_fits),),
        doc="Values or slices at a list of coordinates, stored zeros elsewhere.",
        made_of=_scatter_nd,
    ),
    moving(
        "sparse_to_dense",
        operands=(_LIST, parameter("shape"), Operand(Role.ACTIVATION, "values"), Operand(Role.VALUE, "default value")),
        shape=shape_given_by(1),
        kernels=("copy_s8", "resize_nearest_neighbor_s8", "gather_s8"),
        limits=(limit("coordinates inside the result, each once", _dense_fits),),
        version=3,
        doc="Values at a list of coordinates, one value elsewhere.",
        made_of=_sparse_to_dense,
    ),
    moving_bytes(
        "dynamic_update_slice",
        operands=(INPUT, Operand(Role.ACTIVATION, "update"), parameter("begin")),
        limits=(rank(0, 1, 5), limit("an update that the input holds", _update_fits)),
        doc="The input with a box of it replaced.",
        made_of=_dynamic_update_slice,
    ),
)


def _padded(parts: Parts, source: str, behind: int, value: int) -> str:
    """Add a PAD that appends ``behind`` columns of one stored value to a matrix, and return the name of its output."""
    given = parts[source]
    rows, cols = given.shape
    filler = parts.constant(np.array([value], given.dtype.numpy), given.quant)
    result = parts.new((rows, cols + behind), given.dtype, given.quant)
    return parts.add("padv2", [source, parts.constant(np.array([(0, 0), (0, behind)], np.int32)), filler], result)


def _diagonal_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    return ((*shape, shape[-1]),)


def _matrix_diag(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower MATRIX_DIAG: append zeros to each value, as many as a row of the matrix has elements, and reshape.

    In the matrix, each value is then one row below and one column right of the value before it.
    """
    (*outer, size), (result,) = shape_of(graph, node), node.outputs
    count = math.prod(outer)
    apart = _padded(parts, parts.reshape(str(node.inputs[0]), (count * size, 1)), size, 0)
    lines = parts.slice(parts.reshape(apart, (count, size * (size + 1))), (0, 0), (count, size * size))
    parts.reshape(lines, graph[result].shape, result)


def _diagonal_fits(graph: Graph, node: Node) -> str | None:
    matrix, diagonal = shape_of(graph, node), graph.given(node, 1)
    if len(matrix) >= 2 and diagonal.shape == (*matrix[:-2], min(matrix[-2:])):
        return None
    return f"its input has shape {list(matrix)}, its diagonal {list(diagonal.shape)}"


def _matrix_set_diag(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower MATRIX_SET_DIAG: a constant mask selects the diagonal, which is repeated as a column or a row."""
    (*outer, rows, cols), (result,) = shape_of(graph, node), node.outputs
    count, output = math.prod(outer), graph[result]
    column = (count, rows, 1) if rows <= cols else (count, 1, cols)
    mask = parts.constant(np.eye(rows, cols, dtype=bool))
    operands = [
        mask,
        parts.reshape(str(node.inputs[1]), column),
        parts.reshape(str(node.inputs[0]), (count, rows, cols)),
    ]
    chosen = parts.add("select_v2", operands, parts.new((count, rows, cols), output.dtype, output.quant))
    parts.reshape(chosen, output.shape, result)


def _dilated_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    factors = constant_values(graph, node, 1)
    return (tuple((n - 1) * factor + 1 for n, factor in zip(shape_of(graph, node), factors, strict=True)),)


def _factors(graph: Graph, node: Node) -> str | None:
    factors, filler = constant_values(graph, node, 1), graph.given(node, 2)
    if min(factors, default=1) < 1:
        return f"its dilations are {list(factors)}; each must be at least 1"
    dtype = graph.given(node, 0).dtype
    if filler.dtype is not dtype or filler.elements != 1:
        return f"its padding value is {filler.dtype} {list(filler.shape)}; it must be one {dtype}"
    return None


def _dilate(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower DILATE: insert padding after each value but the last, along one axis after the other."""
    source, (result,) = str(node.inputs[0]), node.outputs
    shape, (value,) = list(shape_of(graph, node)), constant_values(graph, node, 2)
    for axis, factor in enumerate(constant_values(graph, node, 1)):
        outer, inner = math.prod(shape[: axis + 1]), math.prod(shape[axis + 1 :])
        if factor == 1 or shape[axis] == 1:
            continue
        apart = _padded(parts, parts.reshape(source, (outer, inner)), (factor - 1) * inner, value)
        lines = math.prod(shape[:axis])
        shape[axis] = (shape[axis] - 1) * factor + 1
        wide = parts.reshape(apart, (lines, parts[apart].elements // lines))
        source = parts.slice(wide, (0, 0), (lines, shape[axis] * inner))
    parts.reshape(source, shape, result)


def _fill(parts: Parts, graph: Graph, node: Node) -> None:
    shape = constant_values(graph, node, 0)
    single = parts.reshape(str(node.inputs[1]), (1,) * len(shape))
    parts.add("broadcast_to", [single, parts.integers(shape)], node.outputs[0])


def _extents_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return ((len(shape_of(graph, node)),) if node.op == "shape" else (),)


def _extents(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower SHAPE or RANK to a constant. The shapes of a compiled program are fixed."""
    (result,) = node.outputs
    shape, output = shape_of(graph, node), graph[result]
    values = shape if node.op == "shape" else len(shape)
    parts.reshape(parts.constant(np.array(values, output.dtype.numpy)), output.shape, result)


def _known(graph: Graph, node: Node) -> str | None:
    shape = shape_of(graph, node)
    return None if all(n > 0 for n in shape) else f"its input has shape {list(shape)}; every extent must be known"


_INTEGERS = (unquantized([], True, DType.INT32, DType.INT64), limit("an input of a known shape", _known))

OPS = (
    *_AT_POSITIONS,
    Op(
        "matrix_diag",
        shape=_diagonal_shape,
        kernels=("copy_s8", "pad_s8"),
        quantization=Quantization.SHARED,
        types=STORED,
        limits=(rank(0, 1, 5),),
        doc="Each line of the input as the diagonal of a matrix of stored zeros.",
        made_of=_matrix_diag,
    ),
    moving(
        "matrix_set_diag",
        operands=(INPUT, Operand(Role.ACTIVATION, "diagonal")),
        kernels=("select_s8",),
        limits=(limit("a diagonal of the input's matrices", _diagonal_fits),),
        doc="The input's matrices with other diagonals.",
        made_of=_matrix_set_diag,
    ),
    moving_bytes(
        "dilate",
        operands=(INPUT, parameter("list of dilations"), Operand(Role.VALUE, "padding value")),
        shape=_dilated_shape,
        kernels=("copy_s8", "pad_s8"),
        limits=(limit("dilations of at least 1", _factors),),
        doc="The input's values apart from each other, with one value between them.",
        made_of=_dilate,
    ),
    moving_bytes(
        "fill",
        operands=(parameter("shape"), Operand(Role.ACTIVATION, "value")),
        shape=shape_given_by(0),
        kernels=("resize_nearest_neighbor_s8",),
        limits=(rank(1, 0, 0),),
        version=3,
        doc="One value everywhere.",
        made_of=_fill,
    ),
    Op(
        "shape",
        shape=_extents_shape,
        kernels=("copy_s8",),
        attributes=(Attribute("out_type", "outType", "INT32", {2: "INT32", 4: "INT64"}),),
        quantization=Quantization.NONE,
        limits=_INTEGERS,
        doc="The input's extents, a constant.",
        made_of=_extents,
    ),
    Op(
        "rank",
        shape=_extents_shape,
        kernels=("copy_s8",),
        quantization=Quantization.NONE,
        limits=_INTEGERS,
        doc="The number of the input's axes, a constant.",
        made_of=_extents,
    ),
)
