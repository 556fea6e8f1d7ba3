# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons, truth values, choices and positions of extrema as kernel calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View, boxes, dense, dense_pitches, selects, whole
from openneutron.compiler.select.rules.elementwise import broadcast
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, per_tensor
from openneutron.ops.choice import COMPARISONS, arg_axis
from openneutron.ops.fixed_point import quantize_multiplier

_TRUTH = per_tensor(0.5, 0)
"""Any scale tells 0 from 1."""


def _operands(graph: Graph, node: Node) -> list[Tensor]:
    return [graph[name] for name in node.inputs if name is not None]


def _views(graph: Graph, node: Node, fields: Sequence[str]) -> Iterator[Mapping[str, View]]:
    result = graph[node.outputs[0]]
    walks = {field: broadcast(tensor, result) for field, tensor in zip(fields, _operands(graph, node), strict=True)}
    return boxes(result.shape, {**walks, "output": dense(result)})


@selects(*COMPARISONS)
def compare(graph: Graph, node: Node) -> list[KernelCall]:
    """compare_s8, with the multipliers of ComparisonQuantized in LiteRT's comparisons.cc: the scales themselves."""
    params = {"relation": COMPARISONS.index(node.op)}
    for side, tensor in zip("ab", _operands(graph, node), strict=True):
        quant: QuantParams | None = _TRUTH if tensor.dtype is DType.BOOL else tensor.quant
        assert quant is not None
        params[f"{side}_zero_point"] = quant.zero_point
        params[f"{side}_multiplier"], params[f"{side}_shift"] = quantize_multiplier(quant.scale)
    return [KernelCall("compare_s8", node.name, views, params) for views in _views(graph, node, ("input_a", "input_b"))]


@selects("logical_and", "logical_or")
def logical(graph: Graph, node: Node) -> list[KernelCall]:
    """maximum_s8: of values that are 0 and 1 the larger says whether one is true, the smaller whether both are."""
    params = {"smaller": int(node.op == "logical_and")}
    return [KernelCall("maximum_s8", node.name, views, params) for views in _views(graph, node, ("input_a", "input_b"))]


@selects("logical_not")
def logical_not(graph: Graph, node: Node) -> list[KernelCall]:
    """lookup_s8 with 1 for 0 and 0 for everything else."""
    (source,), result = _operands(graph, node), graph[node.outputs[0]]
    table = (np.arange(-128, 128) == 0).astype(np.int8)
    views = {"input": whole(source), "output": whole(result)}
    return [KernelCall("lookup_s8", node.name, views, constants={"table": table})]


@selects("select_v2")
def select(graph: Graph, node: Node) -> list[KernelCall]:
    """select_s8."""
    fields = ("condition", "input_a", "input_b")
    return [KernelCall("select_s8", node.name, views) for views in _views(graph, node, fields)]


@selects("arg_max", "arg_min")
def arg_max(graph: Graph, node: Node) -> list[KernelCall]:
    """arg_max_s8: the axis as channels, what lies behind it as columns, or where that is nothing what lies before it."""
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None
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
