# SPDX-License-Identifier: BSD-3-Clause
"""Operators whose results hold a constant in some or all positions: diagonals, spread values, fills, shapes."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Graph, Node
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
)


def _padded(parts: Parts, source: str, behind: int, value: int) -> str:
    """Return the matrix with columns of one stored value appended."""
    given = parts[source]
    rows, cols = given.shape
    filler = parts.constant(np.array([value], given.dtype.numpy), given.quant)
    result = parts.new((rows, cols + behind), given.dtype, given.quant)
    return parts.add("padv2", [source, parts.constant(np.array([(0, 0), (0, behind)], np.int32)), filler], result)


def _diagonal_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    return ((*shape, shape[-1]),)


def _matrix_diag(parts: Parts, graph: Graph, node: Node) -> None:
    """Append as many zeros to each value as the matrix has columns: the next value moves one row and one column on."""
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
    """Select the diagonal, repeated as a column or a row, by a constant mask."""
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
    """Insert padding behind each value but the last, along one axis after the other."""
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
    """Return the shape as a constant; the shapes of a compiled program are fixed."""
    (result,) = node.outputs
    shape, output = shape_of(graph, node), graph[result]
    values = shape if node.op == "shape" else len(shape)
    parts.reshape(parts.constant(np.array(values, output.dtype.numpy)), output.shape, result)


def _known(graph: Graph, node: Node) -> str | None:
    shape = shape_of(graph, node)
    return None if all(n > 0 for n in shape) else f"its input has shape {list(shape)}; every extent must be known"


_INTEGERS = (unquantized([], True, DType.INT32, DType.INT64), limit("an input of a known shape", _known))

OPS = (
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
