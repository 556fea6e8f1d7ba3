# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one operand as kernel calls where the operand or the result is int16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from openneutron.compiler.select.calls import KernelCall, elements, quant_of
from openneutron.compiler.select.constants import Constant
from openneutron.compiler.select.wide_tables import INTERPOLATED, function_table, sigmoid_table, softmax_tables
from openneutron.ir import DType, Graph, Node
from openneutron.ops.elementwise import wide_sigmoid_factor
from openneutron.ops.reductions import wide_softmax_factor
from openneutron.ops.rescaling import (
    STORED_BOUNDS,
    activation_range,
    leaky_slope,
    quantize_multiplier,
    ratio,
    ratio_in_float,
)

_NOTHING: Mapping[str, Constant] = MappingProxyType({})


def function(graph: Graph, node: Node) -> list[KernelCall]:
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
    """Select the kernel of both types; LiteRT divides the scales in double (quantize.cc)."""
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
    """Select logistic_s16."""
    multiplier, shift = wide_sigmoid_factor(quant_of(graph.given(node, 0)), node.op == "tanh")
    params = {"multiplier": multiplier, "shift": shift, "tanh": int(node.op == "tanh")}
    return _call("logistic_s16", graph, node, params, {"table": sigmoid_table()})


def _interpolated(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s16 with the function's table."""
    source, result = quant_of(graph.given(node, 0)), quant_of(graph[node.name])
    table = function_table(node.op, source, result, node.attrs)
    return _call("lookup_s16", graph, node, {}, {"table": table})


def lookup(graph: Graph, node: Node, entries: Constant) -> list[KernelCall]:
    """Select lookup_s16 with a table of the node's own."""
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
