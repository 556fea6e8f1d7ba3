# SPDX-License-Identifier: BSD-3-Clause
"""Functions of one operand as kernel calls where the operand or the result is int16."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openneutron.compiler.select.calls import KernelCall, elements, quant_of
from openneutron.ir import DType, Graph, Node
from openneutron.ops.rescaling import STORED_BOUNDS, quantize_multiplier, ratio


def function(graph: Graph, node: Node) -> list[KernelCall]:
    """Return the calls of a function with an int16 operand or result."""
    return _RULES[node.op](graph, node)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether the first operand or the result of a node is int16."""
    return DType.INT16 in (graph.given(node, 0).dtype, graph[node.name].dtype)


def _call(kernel: str, graph: Graph, node: Node, params: Mapping[str, int]) -> list[KernelCall]:
    views = {"input": elements(graph.given(node, 0)), "output": elements(graph[node.name])}
    return [KernelCall(kernel, node.name, views, params)]


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


_RULES: Mapping[str, Callable[[Graph, Node], list[KernelCall]]] = {
    "quantize": _quantize,
}
