# SPDX-License-Identifier: BSD-3-Clause
"""Operators on values without a scale: casts, comparisons, boolean operators, selections by booleans, positions of extrema."""

from __future__ import annotations

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import axes_of, broadcasts, extent_reason, int8_inputs, int8_reason, limit, unquantized
from openneutron.ops.reductions import RUNS_OF_AXES, named_axes, reducing
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Operand,
    Parts,
    Quantization,
    Role,
    broadcast,
    moving,
    parameter,
    stated_shape,
)

WHOLE = (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL)
"""The integer types that CAST accepts on either side; each is stored with its low byte first."""


def _whole_numbers(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    for what, tensor in (("input", source), ("output", result)):
        if tensor.dtype not in WHOLE:
            return f"{what} '{tensor.name}' is {tensor.dtype}; it must be int8, int16, int32, int64 or bool"
        if reason := extent_reason(tensor, what):
            return reason
    if result.dtype is DType.BOOL and source.dtype not in (DType.INT8, DType.BOOL):
        return f"it turns {source.dtype} into bool; of several bytes no kernel tells whether one is not 0"
    return None


def _same_bytes(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    if source.size_bytes == result.size_bytes:
        return None
    return f"its input has {source.size_bytes} bytes, its output {result.size_bytes}"


_TYPES = limit("int8, int16, int32, int64 or bool; to bool from int8 or bool alone", _whole_numbers)


MOST_BROADCAST = {"compare": 4, "logical": 4, "select": 5}
"""The largest rank at which LiteRT broadcasts the operators of each family."""


def _comparable(graph: Graph, node: Node) -> str | None:
    """LiteRT rescales both operands by their scales, by less than 1."""
    for index in (0, 1):
        tensor = graph.given(node, index)
        if tensor.dtype is DType.BOOL and node.op in EQUALITIES:
            continue
        if reason := int8_reason(tensor, "input", (DType.INT8, DType.INT16)):
            return reason
        assert tensor.quant is not None
        if tensor.dtype is DType.INT16 and node.op not in EQUALITIES:
            continue
        if tensor.quant.scale >= 1:
            return f"input '{tensor.name}' has scale {tensor.quant.scale:.6g}; LiteRT compares for scales below 1"
    return None


def _one_type(graph: Graph, node: Node) -> str | None:
    a, b = graph.given(node, 0), graph.given(node, 1)
    return None if a.dtype is b.dtype else f"its inputs are {a.dtype} and {b.dtype}; they must be of one type"


_COMPARED = {
    "equal": "True where two values are equal",
    "not_equal": "True where two values differ",
    "less": "True where one value is below another",
    "less_equal": "True where one value is not above another",
    "greater": "True where one value is above another",
    "greater_equal": "True where one value is not below another",
}
COMPARISONS = tuple(_COMPARED)
"""The names of the comparisons, in the order of the numbers that compare_s8 takes for them."""

EQUALITIES = ("equal", "not_equal")
"""The comparisons that LiteRT also has for booleans. On int16, only these rescale: the others compare the stored
values."""


def _comparison(name: str) -> Op:
    kinds = "int8 or int16 of scales below 1, or bool" if name in EQUALITIES else "int8 of scales below 1, or int16"
    return Op(
        name,
        operands=(Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=broadcast,
        kernels=("compare_s8", "compare_s16"),
        quantization=Quantization.NONE,
        limits=(
            limit(f"inputs {kinds}", _comparable),
            limit("inputs of one type", _one_type),
            unquantized([], True, DType.BOOL),
            broadcasts(MOST_BROADCAST["compare"]),
        ),
        version=2,
        unsigned=True,
        doc=f"{_COMPARED[name]}, with broadcasting; LiteRT rounds both to 1/256 first, so that values nearer than that may count as "
        + ("equal." if name in EQUALITIES else "equal. Of int16 it compares the stored values, whatever their scales."),
    )


def _logical(name: str, doc: str, kernel: str = "maximum_s8", operands: int = 2) -> Op:
    return Op(
        name,
        operands=tuple(Operand(Role.CONDITION, place) for place in ("a", "b")[:operands]),
        shape=broadcast,
        kernels=(kernel,),
        quantization=Quantization.NONE,
        limits=(unquantized([], True, DType.BOOL), broadcasts(MOST_BROADCAST["logical"])),
        doc=doc,
    )


def _condition_of_rows(graph: Graph, node: Node) -> str | None:
    condition, a, b = (graph.operand(node, index) for index in range(3))
    assert condition is not None and a is not None and b is not None
    if a.shape == b.shape and condition.shape in ((), a.shape, a.shape[:1]):
        return None
    return (
        f"its condition has shape {list(condition.shape)}, its inputs {list(a.shape)} and {list(b.shape)}; the inputs must be "
        "of one shape, the condition of theirs, of their first extent or a single one"
    )


def _select_of_rows(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower SELECT_V2. If the condition has one value for each row of the first axis, broadcast it along the other
    axes."""
    (condition, *others), (result,) = (str(name) for name in node.inputs), node.outputs
    shape, own = graph[result].shape, graph[condition].shape
    if own != shape:
        condition = parts.reshape(condition, (*own, *(1,) * (len(shape) - len(own))))
    parts.add("select_v2", [condition, *others], result)


def arg_axis(graph: Graph, node: Node) -> int:
    """Return the axis along which an arg_max searches, counted from 0. Raises ValueError if the node names several
    axes."""
    data, (axis,) = graph.given(node, 0), named_axes(graph, node)
    return axis % len(data.shape)


def _arg_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data, axis = graph.given(node, 0), arg_axis(graph, node)
    return ((*data.shape[:axis], *data.shape[axis + 1 :]),)


def _stated_type(graph: Graph, node: Node) -> str | None:
    output = graph[node.outputs[0]]
    if str(output.dtype) == node["output_type"].lower():
        return None
    return f"its output is {output.dtype}; its option says {node['output_type']}"


def _arg(name: str, doc: str) -> Op:
    return Op(
        name,
        operands=(INPUT, parameter("axis")),
        shape=_arg_shape,
        kernels=("arg_max_s8",),
        attributes=(Attribute("output_type", "outputType", "INT64", {2: "INT32", 4: "INT64"}),),
        quantization=Quantization.NONE,
        limits=(
            int8_inputs(0),
            axes_of(0, named_axes),
            unquantized([], True, DType.INT32, DType.INT64),
            limit("an output of the type its option says", _stated_type),
        ),
        version=2,
        unsigned=True,
        doc=doc,
    )


def _over_axes(name: str, doc: str) -> Op:
    return reducing(
        name,
        operands=(Operand(Role.CONDITION, "input"), parameter("list of axes")),
        kernels=("reduce_max_s8",),
        quantization=Quantization.NONE,
        limits=(unquantized([], True, DType.BOOL), axes_of(0, named_axes), RUNS_OF_AXES),
        doc=doc,
    )


OPS = (
    Op(
        "cast",
        kernels=("copy_s8", "lookup_s8"),
        quantization=Quantization.NONE,
        limits=(_TYPES,),
        doc="The stored numbers in another type; where that is narrower, their low bytes.",
    ),
    Op(
        "bitcast",
        shape=stated_shape,
        kernels=("copy_s8",),
        quantization=Quantization.NONE,
        limits=(_TYPES, limit("as many bytes as the input", _same_bytes)),
        doc="The same bytes as another type.",
    ),
    *(_comparison(name) for name in COMPARISONS),
    _logical("logical_and", "True where both are true, with broadcasting."),
    _logical("logical_or", "True where one of them is true, with broadcasting."),
    _logical("logical_not", "True where the input is false.", "lookup_s8", 1),
    moving(
        "select_v2",
        operands=(Operand(Role.CONDITION, "condition"), Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=broadcast,
        kernels=("select_s8",),
        types=(DType.INT8, DType.INT16),
        limits=(broadcasts(MOST_BROADCAST["select"]),),
        doc="One value where a condition holds, another elsewhere, with broadcasting.",
    ),
    moving(
        "select",
        operands=(Operand(Role.CONDITION, "condition"), Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=lambda graph, node: (graph[str(node.inputs[1])].shape,),
        kernels=("select_s8",),
        types=(DType.INT8, DType.INT16),
        limits=(limit("inputs of one shape; a condition of that, of its first extent, or one", _condition_of_rows),),
        doc="One value where a condition holds, another elsewhere.",
        made_of=_select_of_rows,
    ),
    _over_axes("reduce_any", "True where one of the values along some axes is true."),
    _over_axes("reduce_all", "True where all values along some axes are true."),
    _arg("arg_max", "The position of the largest value along an axis; the first of several."),
    _arg("arg_min", "The position of the smallest value along an axis; the first of several."),
)
