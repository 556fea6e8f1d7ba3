# SPDX-License-Identifier: BSD-3-Clause
"""Declare SUM, which LiteRT computes in float32."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node
from openneutron.ops.limits import axes_of, limit
from openneutron.ops.reductions import FEW_ADDED, MOST_RUNS, added, named_axes, reduced_axes, reducing, runs_of_axes
from openneutron.ops.rescaling import STORED_BOUNDS, quant_of, result_quant
from openneutron.ops.table import INT8_OR_INT16, Parts, shape_of


def sum_singles(graph: Graph, node: Node) -> tuple[np.float32, np.float32]:
    """Return a SUM's scale and its bias for the zero points in float32, as in LiteRT's optimized kernel (reduce.h)."""
    source = quant_of(graph, node, 0)
    count = added(graph, node)
    with np.errstate(all="ignore"):
        scale = np.float32(source.scale) / np.float32(result_quant(graph, node).scale)
        return scale, np.float32(-source.zero_point) * scale * np.float32(count)


def _castable(graph: Graph, node: Node) -> str | None:
    data = graph.given(node, 0)
    scale, _ = sum_singles(graph, node)
    low, high = (value - quant_of(graph, node, 0).zero_point for value in STORED_BOUNDS[data.dtype])
    largest = float(scale) * max(-low, high) * added(graph, node)
    if largest < LARGEST_CAST:
        return None
    return f"its scales make a sum of up to {largest:.6g} steps, which LiteRT casts to 32 bits; it must be below 2^31"


LARGEST_CAST = 2.0**31 - 2.0**9
"""Sums below this bound, in steps of the output, fit int32 after two roundings to float32."""


def _has_many_runs(graph: Graph, node: Node) -> bool:
    return len(runs_of_axes(shape_of(graph, node), reduced_axes(graph, node))) > MOST_RUNS


def _in_lines(parts: Parts, graph: Graph, node: Node) -> None:
    """Transpose so that the summed elements of each result are contiguous, and sum these lines."""
    (result,) = node.outputs
    source = str(node.inputs[0])
    axes = reduced_axes(graph, node)
    kept = [axis for axis in range(len(graph[source].shape)) if axis not in axes]
    count = added(graph, node)
    turned = parts.transpose(source, (*kept, *axes))
    lines = parts.reshape(turned, (graph[source].elements // count, count))
    sums = parts.new((graph[source].elements // count,), graph[result].dtype, graph[result].quant)
    parts.reshape(parts.add("sum", [lines, parts.integers([1])], sums, keep_dims=False), graph[result].shape, result)


SUM = reducing(
    "sum",
    kernels=("sum_s8", "sum_s16"),
    types=INT8_OR_INT16,
    limits=(
        axes_of(0, named_axes),
        FEW_ADDED,
        limit("a largest sum below 2^31 steps of the output", _castable),
    ),
    version=2,
    doc=(
        "Sum over some axes, in float32 as LiteRT's own optimized kernel computes it; the reference kernel of LiteRT 2.3.0 takes "
        "int8 and int16 tensors for uint8."
    ),
    made_of=_in_lines,
    composed=_has_many_runs,
)

OPS = (SUM,)
