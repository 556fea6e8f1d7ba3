# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons, booleans, selections and positions of extrema as kernel calls."""

from __future__ import annotations

import math

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View, call_on_whole, dense_pitches, quant_of, selects
from openneutron.compiler.select.rules.elementwise import views_of
from openneutron.ir import DType, Graph, Node, per_tensor
from openneutron.ops.choice import COMPARISONS, arg_axis
from openneutron.ops.rescaling import quantize_multiplier

_TWO = ("input_a", "input_b")
_TRUTH = per_tensor(0.5, 0)
"""Any scale tells 0 from 1."""


@selects(*COMPARISONS)
def compare(graph: Graph, node: Node) -> list[KernelCall]:
    """Select compare_s8, with the multipliers of ComparisonQuantized in LiteRT's comparisons.cc: the scales themselves."""
    params = {"relation": COMPARISONS.index(node.op)}
    for place, side in enumerate("ab"):
        tensor = graph.given(node, place)
        quant = _TRUTH if tensor.dtype is DType.BOOL else quant_of(tensor)
        params[f"{side}_zero_point"] = quant.zero_point
        params[f"{side}_multiplier"], params[f"{side}_shift"] = quantize_multiplier(quant.scale)
    return [KernelCall("compare_s8", node.name, views, params) for views in views_of(graph, node, _TWO)]


@selects("logical_and", "logical_or")
def logical(graph: Graph, node: Node) -> list[KernelCall]:
    """Select maximum_s8: of values that are 0 and 1 the larger is 1 where one is true, the smaller where both are."""
    params = {"smaller": int(node.op == "logical_and")}
    return [KernelCall("maximum_s8", node.name, views, params) for views in views_of(graph, node, _TWO)]


@selects("logical_not")
def logical_not(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 with 1 for 0 and 0 for everything else."""
    return call_on_whole("lookup_s8", graph, node, constants={"table": (np.arange(-128, 128) == 0).astype(np.int8)})


@selects("select_v2")
def select(graph: Graph, node: Node) -> list[KernelCall]:
    """Select select_s8."""
    return [KernelCall("select_s8", node.name, views) for views in views_of(graph, node, ("condition", *_TWO))]


@selects("arg_max", "arg_min")
def arg_max(graph: Graph, node: Node) -> list[KernelCall]:
    """Select arg_max_s8 with the axis as channels, and as columns the axes behind it, or those before it where it is the last."""
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
