# SPDX-License-Identifier: BSD-3-Clause
"""Operators that take a tensor apart or put one together: split, unpack, pack."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.limits import limit, rank
from openneutron.ops.table import INPUT, Attribute, Operand, Role, constant_values, moving, parameter, shape_of

DATA = {"split": 1, "split_v": 0, "unpack": 0}
"""The index of the operand that is taken apart."""


def split_axis(graph: Graph, node: Node) -> int:
    """Return the axis along which a tensor is taken apart, not negative."""
    data = graph.given(node, DATA[node.op])
    if node.op == "unpack":
        return int(node["axis"]) % len(data.shape)
    (axis,) = constant_values(graph, node, 0 if node.op == "split" else 2)
    return axis % len(data.shape)


def piece_sizes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return positions of the axis that each output takes, one behind the other."""
    data = graph.given(node, DATA[node.op])
    extent = data.shape[split_axis(graph, node)]
    if node.op == "split_v":
        sizes = constant_values(graph, node, 1)
        rest = extent - sum(size for size in sizes if size >= 0)
        return tuple(rest if size == -1 else size for size in sizes)
    return (extent // len(node.outputs),) * len(node.outputs)


def _pieces_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data = graph.given(node, DATA[node.op])
    axis = split_axis(graph, node)
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    if node.op == "unpack":
        return ((*before, *after),) * len(node.outputs)
    return tuple((*before, size, *after) for size in piece_sizes(graph, node))


def _sizes_fit(graph: Graph, node: Node) -> str | None:
    data = graph.given(node, DATA[node.op])
    axis, sizes = split_axis(graph, node), piece_sizes(graph, node)
    extent = data.shape[axis]
    one_each = node.op != "unpack" or extent == len(node.outputs)
    if one_each and len(sizes) == len(node.outputs) and min(sizes) >= 1 and sum(sizes) == extent:
        return None
    return f"it has {len(node.outputs)} outputs, whose sizes do not add up to the {extent} positions of axis {axis}"


def _pack_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    axis = node["axis"] % (len(shape) + 1)
    return ((*shape[:axis], len(node.inputs), *shape[axis:]),)


def _same_shapes(graph: Graph, node: Node) -> str | None:
    shapes = {graph[name].shape for name in node.inputs if name is not None}
    if len(shapes) == 1:
        return None
    return f"its inputs have {len(shapes)} different shapes; they must be the same"


_AXIS = parameter("axis")
_SIZES = limit("outputs whose sizes add up to the axis", _sizes_fit)

OPS = (
    moving(
        "split",
        operands=(_AXIS, INPUT),
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num_splits", "numSplits", 0),),
        limits=(rank(1, 1, 6), _SIZES),
        version=2,
        several_outputs=True,
        doc="Equal parts of the input along an axis.",
    ),
    moving(
        "split_v",
        operands=(INPUT, parameter("list of sizes"), _AXIS),
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num_splits", "numSplits", 0),),
        limits=(
            rank(0, 1, 6),
            _SIZES,
        ),
        version=2,
        several_outputs=True,
        doc="Parts of the input along an axis, of any sizes.",
    ),
    moving(
        "unpack",
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num", "num", 0), Attribute("axis", "axis", 0)),
        limits=(rank(0, 1, 6), _SIZES),
        version=2,
        several_outputs=True,
        doc="Each position of an axis on its own, without that axis.",
    ),
    moving(
        "pack",
        operands=(Operand(Role.ACTIVATION, "input", repeated=True),),
        shape=_pack_shape,
        movable=True,
        attributes=(Attribute("values_count", "valuesCount", 0), Attribute("axis", "axis", 0)),
        limits=(limit("inputs of one shape", _same_shapes),),
        version=2,
        doc="Inputs one behind the other along a new axis.",
    ),
)
