# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of two operands as kernel calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from openneutron.compiler.select.calls import KernelCall, View, Walk, boxes, dense, selects
from openneutron.ir import Graph, Node, QuantParams, Tensor
from openneutron.ops.elementwise import prelu_factors, squared_difference_factor, sum_factor
from openneutron.ops.fixed_point import quantize_multiplier
from openneutron.ops.rescaling import activation_range, product_in_float


@selects("add", "sub")
def add(graph: Graph, node: Node) -> list[KernelCall]:
    """add_s8, with the multipliers of LiteRT's Prepare in add.cc: both operands at twice the larger scale."""
    a, b, result = _quants(graph, node)
    twice = 2.0 * max(a.scale, b.scale)
    a_multiplier, a_shift = quantize_multiplier(a.scale / twice)
    b_multiplier, b_shift = quantize_multiplier(b.scale / twice)
    multiplier, shift = quantize_multiplier(sum_factor(a, b, result))
    params = {
        "a_multiplier": a_multiplier,
        "a_shift": a_shift,
        "b_multiplier": -b_multiplier if node.op == "sub" else b_multiplier,
        "b_shift": b_shift,
        "output_multiplier": multiplier,
        "output_shift": shift,
        **_zero_points_and_range(node, a, b, result),
    }
    return [KernelCall("add_s8", node.name, views, params) for views in _views(graph, node)]


@selects("mul")
def mul(graph: Graph, node: Node) -> list[KernelCall]:
    """mul_s8; LiteRT takes the scales' product and quotient in float32 (mul.cc)."""
    a, b, result = _quants(graph, node)
    multiplier, shift = quantize_multiplier(product_in_float(a, b, result))
    params = {
        "output_multiplier": multiplier,
        "output_shift": shift,
        **_zero_points_and_range(node, a, b, result),
    }
    return [KernelCall("mul_s8", node.name, views, params) for views in _views(graph, node)]


@selects("maximum", "minimum")
def maximum(graph: Graph, node: Node) -> list[KernelCall]:
    """maximum_s8."""
    params = {"smaller": int(node.op == "minimum")}
    return [KernelCall("maximum_s8", node.name, views, params) for views in _views(graph, node)]


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
    return [KernelCall("prelu_s8", node.name, views, params) for views in _views(graph, node)]


@selects("squared_difference")
def squared_difference(graph: Graph, node: Node) -> list[KernelCall]:
    """squared_difference_s8, with the multipliers of LiteRT's Prepare in squared_difference.cc."""
    a, b, result = _quants(graph, node)
    twice = 2.0 * max(a.scale, b.scale)
    a_multiplier, a_shift = quantize_multiplier(a.scale / twice)
    b_multiplier, b_shift = quantize_multiplier(b.scale / twice)
    multiplier, shift = quantize_multiplier(squared_difference_factor(a, b, result))
    params = {
        "a_zero_point": a.zero_point,
        "b_zero_point": b.zero_point,
        "a_multiplier": a_multiplier,
        "a_shift": a_shift,
        "b_multiplier": b_multiplier,
        "b_shift": b_shift,
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": result.zero_point,
    }
    return [KernelCall("squared_difference_s8", node.name, views, params) for views in _views(graph, node)]


def _zero_points_and_range(node: Node, a: QuantParams, b: QuantParams, result: QuantParams) -> dict[str, int]:
    low, high = activation_range(node.attrs.get("activation", "NONE"), result.scale, result.zero_point)
    return {
        "a_zero_point": a.zero_point,
        "b_zero_point": b.zero_point,
        "output_zero_point": result.zero_point,
        "clamp_min": low,
        "clamp_max": high,
    }


def _tensors(graph: Graph, node: Node) -> tuple[Tensor, Tensor, Tensor]:
    a, b = graph.operand(node, 0), graph.operand(node, 1)
    assert a is not None and b is not None
    return a, b, graph[node.outputs[0]]


def _quants(graph: Graph, node: Node) -> tuple[QuantParams, QuantParams, QuantParams]:
    a, b, result = (tensor.quant for tensor in _tensors(graph, node))
    assert a is not None and b is not None and result is not None
    return a, b, result


def _views(graph: Graph, node: Node) -> Iterator[Mapping[str, View]]:
    a, b, result = _tensors(graph, node)
    walks = {"input_a": broadcast(a, result), "input_b": broadcast(b, result), "output": dense(result)}
    return boxes(result.shape, walks)


def broadcast(tensor: Tensor, result: Tensor) -> Walk:
    """The tensor walked through the result's shape: again and again where it has one element and the result more."""
    missing = len(result.shape) - len(tensor.shape)
    extents = (1,) * missing + tensor.shape
    pitches = (tensor.elements,) * missing + dense(tensor).pitches
    repeated = [0 if own == 1 < of else pitch for own, of, pitch in zip(extents, result.shape, pitches, strict=True)]
    return Walk(tensor.name, tuple(repeated))
