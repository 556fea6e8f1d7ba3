# SPDX-License-Identifier: BSD-3-Clause
"""Select kernel calls for elementwise operators (arithmetic, tables, functions of int16, casts, comparisons), and ARG_MAX and ARG_MIN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from openneutron.compiler.legalize.partition import signed_quant
from openneutron.compiler.select.calls import (
    Constant,
    KernelCall,
    View,
    call_on_whole,
    dense_pitches,
    elements,
    kernel_of,
    quant_of,
    selects,
)
from openneutron.compiler.select.needs import Walk, boxes, by_elements, row_major
from openneutron.compiler.select.tables import INTERPOLATED, TABLES, function_table, sigmoid_table, softmax_tables
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, per_tensor
from openneutron.ops.elementwise import (
    COMPARISONS,
    EQUALITIES,
    arg_axis,
    prelu_factors,
    squared_difference_factor,
    sum_factor,
    wide_sigmoid_factor,
)
from openneutron.ops.reductions import wide_softmax_factor
from openneutron.ops.rescaling import (
    STORED_BOUNDS,
    activation_range,
    leaky_slope,
    product_in_float,
    quantize_multiplier,
    ratio,
    ratio_in_float,
)

_NOTHING: Mapping[str, Constant] = MappingProxyType({})


def wide_function(graph: Graph, node: Node) -> list[KernelCall]:
    """Return the calls of a function with an int16 operand or result."""
    return _RULES[node.op](graph, node)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether the first operand or the result of a node is int16."""
    return DType.INT16 in (graph.given(node, 0).dtype, graph[node.name].dtype)


def _call(
    kernel: str, graph: Graph, node: Node, params: Mapping[str, int], constants: Mapping[str, Constant] = _NOTHING
) -> list[KernelCall]:
    views = {"input": elements(graph.given(node, 0)), "output": elements(graph[node.name])}
    return [KernelCall(kernel, node.name, views, params, constants)]


def _factor(side: str, factor: float) -> dict[str, int]:
    multiplier, shift = quantize_multiplier(factor)
    return {f"{side}_multiplier": multiplier, f"{side}_shift": shift}


def _bounds(low: int, high: int) -> dict[str, int]:
    return {"clamp_min": low, "clamp_max": high}


def _quantize(graph: Graph, node: Node) -> list[KernelCall]:
    """Select the rescale kernel for the types of the input and the result. LiteRT divides the scales in double (quantize.cc)."""
    source, result = graph.given(node, 0), graph[node.name]
    factor = ratio(quant_of(source), quant_of(result))
    if source.dtype is DType.INT8:
        params = {"input_zero_point": quant_of(source).zero_point} | _factor("output", factor)
        return _call("rescale_s8s16", graph, node, params)
    bounds = _bounds(*STORED_BOUNDS[result.dtype])
    if result.dtype is DType.INT8:
        params = _factor("output", factor) | {"output_zero_point": quant_of(result).zero_point} | bounds
        return _call("rescale_s16s8", graph, node, params)
    return _call("rescale_s16", graph, node, _factor("positive", factor) | _factor("negative", factor) | bounds)


def _relu(graph: Graph, node: Node) -> list[KernelCall]:
    """Select rescale_s16 with the bounds of QuantizedReluX in activations.cc."""
    source, result = quant_of(graph.given(node, 0)), quant_of(graph[node.name])
    factor = ratio_in_float(source, result)
    low, high = activation_range(node.op.upper(), result.scale, 0, *STORED_BOUNDS[DType.INT16])
    params = _factor("positive", factor) | _factor("negative", factor) | _bounds(low, high)
    return _call("rescale_s16", graph, node, params)


def _leaky_relu(graph: Graph, node: Node) -> list[KernelCall]:
    """Select rescale_s16 with the factors of LeakyReluPrepare in activations.cc."""
    source, result = quant_of(graph.given(node, 0)), quant_of(graph[node.name])
    params = _factor("positive", ratio_in_float(source, result))
    params |= _factor("negative", leaky_slope(source, result, node["alpha"]))
    return _call("rescale_s16", graph, node, params | _bounds(*STORED_BOUNDS[DType.INT16]))


def _abs(graph: Graph, node: Node) -> list[KernelCall]:
    """Select rescale_s16 with a negative factor for negative values (AbsEvalQuantized of elementwise.cc)."""
    factor = ratio_in_float(quant_of(graph.given(node, 0)), quant_of(graph[node.name]))
    params = _factor("positive", factor) | _factor("negative", -factor)
    return _call("rescale_s16", graph, node, params | _bounds(*STORED_BOUNDS[DType.INT16]))


def _logistic(graph: Graph, node: Node) -> list[KernelCall]:
    """Select logistic_s16 for LOGISTIC and TANH."""
    multiplier, shift = wide_sigmoid_factor(quant_of(graph.given(node, 0)), node.op == "tanh")
    params = {"multiplier": multiplier, "shift": shift, "tanh": int(node.op == "tanh")}
    return _call("logistic_s16", graph, node, params, {"table": sigmoid_table()})


def _interpolated(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s16 with the function's table."""
    source, result = quant_of(graph.given(node, 0)), quant_of(graph[node.name])
    table = function_table(node.op, source, result, node.attrs)
    return _call("lookup_s16", graph, node, {}, {"table": table})


def wide_lookup(graph: Graph, node: Node, entries: Constant) -> list[KernelCall]:
    """Select lookup_s16 with the table ``entries``."""
    return _call("lookup_s16", graph, node, {}, {"table": entries})


def softmax(graph: Graph, node: Node) -> list[KernelCall]:
    """Select softmax_s16, with the factor of SoftmaxPrepare in activations.cc."""
    source = graph.given(node, 0)
    multiplier, shift = quantize_multiplier(wide_softmax_factor(quant_of(source).scale, node["beta"]))
    params = {"channels": source.shape[-1], "multiplier": multiplier, "shift": shift}
    exponentials, reciprocals = softmax_tables()
    return _call("softmax_s16", graph, node, params, {"exp": exponentials, "reciprocal": reciprocals})


_RULES: Mapping[str, Callable[[Graph, Node], list[KernelCall]]] = {
    "quantize": _quantize,
    "relu": _relu,
    "relu6": _relu,
    "leaky_relu": _leaky_relu,
    "abs": _abs,
    "tanh": _logistic,
    "logistic": _logistic,
    **dict.fromkeys(INTERPOLATED, _interpolated),
}


@selects("add", "sub")
def add(graph: Graph, node: Node) -> list[KernelCall]:
    """Select add_s8 or add_s16, with the multipliers of LiteRT's Prepare in add.cc: both operands at twice the larger scale."""
    a, b, result = _quants(graph, node)
    dtype = graph[node.name].dtype
    params = _common_scale(a, b, sum_factor(a, b, result, dtype))
    if node.op == "sub":
        params["b_multiplier"] = -params["b_multiplier"]
    if dtype is DType.INT8:
        params |= _zero_points(a, b, result)
    return _calls(kernel_of("add", dtype), graph, node, params | _clamp(node, result, dtype))


@selects("mul")
def mul(graph: Graph, node: Node) -> list[KernelCall]:
    """Select mul_s8 or mul_s16. LiteRT multiplies and divides the scales in float32 (mul.cc)."""
    a, b, result = _quants(graph, node)
    dtype = graph[node.name].dtype
    params = _factor("output", product_in_float(a, b, result)) | _clamp(node, result, dtype)
    if dtype is DType.INT8:
        params |= _zero_points(a, b, result)
    return _calls(kernel_of("mul", dtype), graph, node, params)


@selects("maximum", "minimum")
def maximum(graph: Graph, node: Node) -> list[KernelCall]:
    """Select maximum_s8 or maximum_s16."""
    return _calls(kernel_of("maximum", graph[node.name].dtype), graph, node, {"smaller": int(node.op == "minimum")})


@selects("prelu")
def prelu(graph: Graph, node: Node) -> list[KernelCall]:
    """Select prelu_s8 or prelu_s16."""
    data, slope, result = _quants(graph, node)
    dtype = graph[node.name].dtype
    positive, negative = prelu_factors(data, slope, result)
    params = _factor("positive", positive) | _factor("negative", negative)
    params |= _zero_points(data, slope, result) if dtype is DType.INT8 else {"b_zero_point": slope.zero_point}
    return _calls(kernel_of("prelu", dtype), graph, node, params)


@selects("squared_difference")
def squared_difference(graph: Graph, node: Node) -> list[KernelCall]:
    """Select squared_difference_s8, with the multipliers of LiteRT's Prepare in squared_difference.cc."""
    a, b, result = _quants(graph, node)
    params = _zero_points(a, b, result) | _common_scale(a, b, squared_difference_factor(a, b, result))
    return _calls("squared_difference_s8", graph, node, params)


def _common_scale(a: QuantParams, b: QuantParams, factor: float) -> dict[str, int]:
    """Return the parameters that rescale both operands to twice the larger of their scales, and the result by
    ``factor``."""
    twice = 2.0 * max(a.scale, b.scale)
    return _factor("a", a.scale / twice) | _factor("b", b.scale / twice) | _factor("output", factor)


def _zero_points(a: QuantParams, b: QuantParams, result: QuantParams) -> dict[str, int]:
    return {"a_zero_point": a.zero_point, "b_zero_point": b.zero_point, "output_zero_point": result.zero_point}


def _clamp(node: Node, result: QuantParams, dtype: DType = DType.INT8) -> dict[str, int]:
    bounds = STORED_BOUNDS[dtype]
    low, high = activation_range(node.attrs.get("activation", "NONE"), result.scale, result.zero_point, *bounds)
    return {"clamp_min": low, "clamp_max": high}


def _quants(graph: Graph, node: Node) -> tuple[QuantParams, QuantParams, QuantParams]:
    return quant_of(graph.given(node, 0)), quant_of(graph.given(node, 1)), quant_of(graph[node.name])


def _calls(kernel: str, graph: Graph, node: Node, params: Mapping[str, int]) -> list[KernelCall]:
    return [KernelCall(kernel, node.name, views, params) for views in views_of(graph, node, ("input_a", "input_b"))]


def views_of(graph: Graph, node: Node, fields: Sequence[str]) -> Iterator[Mapping[str, View]]:
    """Yield sets of views, one set for each kernel call that the node needs. Together the sets cover the result once.
    A set has the views of the operands and of the result, by field.

    Operands are broadcast. ``fields`` has the fields of the operands in order.
    """
    result = graph[node.name]
    walks = {field: broadcast(graph.given(node, place), result) for place, field in enumerate(fields)}
    return boxes(result.shape, {**walks, "output": by_elements(result)})


def broadcast(tensor: Tensor, result: Tensor) -> Walk:
    """Return the pitches with which an operand is read along the dimensions of the result's shape, as a ``Walk``. The
    pitch is 0 along a dimension in which the operand is broadcast."""
    missing = len(result.shape) - len(tensor.shape)
    extents = (1,) * missing + tensor.shape
    walk = by_elements(tensor)
    pitches = (tensor.elements * walk.element_bytes,) * missing + walk.pitches
    repeated = [0 if own == 1 < of else pitch for own, of, pitch in zip(extents, result.shape, pitches, strict=True)]
    return replace(walk, pitches=tuple(repeated))


@selects("lookup")
def lookup(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 or lookup_s16 with the node's own table."""
    entries = graph.given(node, 1).data
    assert entries is not None
    if is_wide(graph, node):
        return wide_lookup(graph, node, entries)
    return call_on_whole("lookup_s8", graph, node, constants={"table": entries.view(np.int8)})


@selects(*TABLES)
def function(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 with the function's table; functions of int16 have their own rules."""
    if is_wide(graph, node):
        return wide_function(graph, node)
    source, result = graph.given(node, 0), graph[node.name]
    made = TABLES[node.op](signed_quant(source), signed_quant(result), node.attrs)
    entries: npt.NDArray[np.uint8] = made.view(np.uint8)
    # The kernel reads every byte as int8, so the entry of a uint8 value is 128 entries further on.
    entries = np.roll(entries, 128) if source.dtype is DType.UINT8 else entries
    entries = entries ^ np.uint8(0x80) if result.dtype is DType.UINT8 else entries
    return call_on_whole("lookup_s8", graph, node, constants={"table": entries.view(np.int8)})


_STORED = np.arange(-128, 128)


def _table(function: Callable[[npt.NDArray[np.int_]], npt.ArrayLike]) -> dict[str, npt.NDArray[np.int8]]:
    return {"table": np.asarray(function(_STORED)).astype(np.int8)}


@selects("cast")
def cast(graph: Graph, node: Node) -> list[KernelCall]:
    """Select copies of the low bytes of the elements. If the result's elements are longer, also select lookup_s8,
    which fills their other bytes with the sign.

    A cast from int8 to bool is only a lookup_s8.
    """
    source, result = graph.given(node, 0), graph[node.name]
    shape, narrow, wide = source.shape, source.dtype.size_bytes, result.dtype.size_bytes
    taken, given = row_major((*shape, narrow)), row_major((*shape, wide))
    kept = (*shape, min(narrow, wide))
    low = boxes(kept, {"input": Walk(source.name, taken), "output": Walk(result.name, given)})
    if result.dtype is DType.BOOL and source.dtype is DType.INT8:
        return [
            KernelCall("lookup_s8", node.name, views, constants=_table(lambda stored: stored != 0)) for views in low
        ]
    calls = [KernelCall("copy_s8", node.name, views) for views in low]
    if wide > narrow:
        sign = Walk(source.name, (*taken[:-1], 0), narrow - 1)
        high = boxes((*shape, wide - narrow), {"input": sign, "output": Walk(result.name, given, narrow)})
        table = _table(lambda stored: -(stored < 0).astype(np.int8))
        calls += [KernelCall("lookup_s8", node.name, views, constants=table) for views in high]
    return calls


_TWO = ("input_a", "input_b")
_TRUTH = per_tensor(0.5, 0)
"""Quantization parameters for booleans: 0 and 1 differ at any scale."""


@selects(*COMPARISONS)
def compare(graph: Graph, node: Node) -> list[KernelCall]:
    """Select compare_s8 or compare_s16. The kernel compares the operands times their scales, as ComparisonQuantized
    of LiteRT's comparisons.cc.

    For int16, LiteRT rescales the operands of EQUAL and NOT_EQUAL only. For other comparisons both operands have the
    same factor.
    """
    params = {"relation": COMPARISONS.index(node.op)}
    if graph.given(node, 0).dtype is DType.INT16:
        for place, side in enumerate("ab"):
            scale = quant_of(graph.given(node, place)).scale if node.op in EQUALITIES else 0.5
            params |= _factor(side, scale)
        return [KernelCall("compare_s16", node.name, views, params) for views in views_of(graph, node, _TWO)]
    for place, side in enumerate("ab"):
        tensor = graph.given(node, place)
        quant = _TRUTH if tensor.dtype is DType.BOOL else quant_of(tensor)
        params |= {f"{side}_zero_point": quant.zero_point} | _factor(side, quant.scale)
    return [KernelCall("compare_s8", node.name, views, params) for views in views_of(graph, node, _TWO)]


@selects("logical_and", "logical_or")
def logical(graph: Graph, node: Node) -> list[KernelCall]:
    """Select maximum_s8. Booleans are 0 and 1, so the larger value is LOGICAL_OR, and the smaller one is LOGICAL_AND."""
    params = {"smaller": int(node.op == "logical_and")}
    return [KernelCall("maximum_s8", node.name, views, params) for views in views_of(graph, node, _TWO)]


@selects("logical_not")
def logical_not(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 with a table that has 1 for 0, and 0 for all other values."""
    return call_on_whole("lookup_s8", graph, node, constants={"table": (np.arange(-128, 128) == 0).astype(np.int8)})


@selects("select_v2")
def select(graph: Graph, node: Node) -> list[KernelCall]:
    """Select select_s8 on the bytes of the elements."""
    result = graph[node.name]
    size = result.dtype.size_bytes
    walks = {field: broadcast(graph.given(node, place), result) for place, field in enumerate(("condition", *_TWO))}
    walks["output"] = by_elements(result)
    if size == 1:
        return [KernelCall("select_s8", node.name, views) for views in boxes(result.shape, walks)]
    in_bytes = {
        field: replace(walk, pitches=(*walk.pitches, int(field != "condition")), element_bytes=1)
        for field, walk in walks.items()
    }
    return [KernelCall("select_s8", node.name, views) for views in boxes((*result.shape, size), in_bytes)]


@selects("arg_max", "arg_min")
def arg_max(graph: Graph, node: Node) -> list[KernelCall]:
    """Select arg_max_s8 with the searched axis as channels.

    The rows are the axes before it, and the columns are the axes after it. If the axes after it have only one
    element, or if there are none, the columns are the axes before it, in a single row.
    """
    source, result = graph.given(node, 0), graph[node.name]
    axis = arg_axis(graph, node)
    depth, size = source.shape[axis], result.dtype.size_bytes
    outer, inner = math.prod(source.shape[:axis]), math.prod(source.shape[axis + 1 :])
    rows, cols = (1, outer) if inner == 1 else (outer, inner)
    pitches = (depth, 1) if inner == 1 else (1, inner)
    positions = (1, rows, cols, size)
    views = {
        "input": View(source.name, (1, rows, cols, depth), (rows * cols * depth, cols * depth, *pitches)),
        "output": View(result.name, positions, dense_pitches(positions)),
    }
    return [KernelCall("arg_max_s8", node.name, views, {"depth": depth, "smaller": int(node.op == "arg_min")})]
