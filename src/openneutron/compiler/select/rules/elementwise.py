# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of two operands as kernel calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from openneutron.compiler.select.calls import KernelCall, View, Walk, boxes, dense, quant_of, selects
from openneutron.ir import Graph, Node, QuantParams, Tensor
from openneutron.ops.elementwise import prelu_factors, squared_difference_factor, sum_factor
from openneutron.ops.rescaling import activation_range, product_in_float, quantize_multiplier


@selects("add", "sub")
def add(graph: Graph, node: Node) -> list[KernelCall]:
    """Select add_s8, with the multipliers of LiteRT's Prepare in add.cc: both operands at twice the larger scale."""
    a, b, result = _quants(graph, node)
    params = _common_scale(a, b, sum_factor(a, b, result))
    if node.op == "sub":
        params["b_multiplier"] = -params["b_multiplier"]
    params |= _zero_points(a, b, result) | _clamp(node, result)
    return _calls("add_s8", graph, node, params)


@selects("mul")
def mul(graph: Graph, node: Node) -> list[KernelCall]:
    """Select mul_s8; LiteRT takes the scales' product and quotient in float32 (mul.cc)."""
    a, b, result = _quants(graph, node)
    multiplier, shift = quantize_multiplier(product_in_float(a, b, result))
    params = {"output_multiplier": multiplier, "output_shift": shift}
    return _calls("mul_s8", graph, node, params | _zero_points(a, b, result) | _clamp(node, result))


@selects("maximum", "minimum")
def maximum(graph: Graph, node: Node) -> list[KernelCall]:
    """Select maximum_s8."""
    return _calls("maximum_s8", graph, node, {"smaller": int(node.op == "minimum")})


@selects("prelu")
def prelu(graph: Graph, node: Node) -> list[KernelCall]:
    """Select prelu_s8."""
    data, slope, result = _quants(graph, node)
    positive, negative = prelu_factors(data, slope, result)
    positive_multiplier, positive_shift = quantize_multiplier(positive)
    negative_multiplier, negative_shift = quantize_multiplier(negative)
    params = {
        "a_zero_point": data.zero_point,
        "b_zero_point": slope.zero_point,
        "positive_multiplier": positive_multiplier,
        "positive_shift": positive_shift,
        "negative_multiplier": negative_multiplier,
        "negative_shift": negative_shift,
        "output_zero_point": result.zero_point,
    }
    return _calls("prelu_s8", graph, node, params)


@selects("squared_difference")
def squared_difference(graph: Graph, node: Node) -> list[KernelCall]:
    """Select squared_difference_s8, with the multipliers of LiteRT's Prepare in squared_difference.cc."""
    a, b, result = _quants(graph, node)
    params = _zero_points(a, b, result) | _common_scale(a, b, squared_difference_factor(a, b, result))
    return _calls("squared_difference_s8", graph, node, params)


def _common_scale(a: QuantParams, b: QuantParams, factor: float) -> dict[str, int]:
    """Return the multipliers of operands at twice the larger scale, and of a result with this factor."""
    twice = 2.0 * max(a.scale, b.scale)
    params = {}
    for side, real in (("a", a.scale / twice), ("b", b.scale / twice), ("output", factor)):
        params[f"{side}_multiplier"], params[f"{side}_shift"] = quantize_multiplier(real)
    return params


def _zero_points(a: QuantParams, b: QuantParams, result: QuantParams) -> dict[str, int]:
    return {"a_zero_point": a.zero_point, "b_zero_point": b.zero_point, "output_zero_point": result.zero_point}


def _clamp(node: Node, result: QuantParams) -> dict[str, int]:
    low, high = activation_range(node.attrs.get("activation", "NONE"), result.scale, result.zero_point)
    return {"clamp_min": low, "clamp_max": high}


def _quants(graph: Graph, node: Node) -> tuple[QuantParams, QuantParams, QuantParams]:
    return quant_of(graph.given(node, 0)), quant_of(graph.given(node, 1)), quant_of(graph[node.name])


def _calls(kernel: str, graph: Graph, node: Node, params: Mapping[str, int]) -> list[KernelCall]:
    return [KernelCall(kernel, node.name, views, params) for views in views_of(graph, node, ("input_a", "input_b"))]


def views_of(graph: Graph, node: Node, fields: Sequence[str]) -> Iterator[Mapping[str, View]]:
    """Yield views of the operands and the result that together go through the result once; operands are broadcast."""
    result = graph[node.name]
    walks = {field: broadcast(graph.given(node, place), result) for place, field in enumerate(fields)}
    return boxes(result.shape, {**walks, "output": dense(result)})


def broadcast(tensor: Tensor, result: Tensor) -> Walk:
    """Return the tensor walked through the result's shape: again and again where it has one element and the result more."""
    missing = len(result.shape) - len(tensor.shape)
    extents = (1,) * missing + tensor.shape
    pitches = (tensor.elements,) * missing + dense(tensor).pitches
    repeated = [0 if own == 1 < of else pitch for own, of, pitch in zip(extents, result.shape, pitches, strict=True)]
    return Walk(tensor.name, tuple(repeated))
