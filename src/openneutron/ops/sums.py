# SPDX-License-Identifier: BSD-3-Clause
"""Sums over axes, as products with ones."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Graph, Node, per_tensor
from openneutron.ops.compose import Parts
from openneutron.ops.limits import axes_of, constant_at, int8_at
from openneutron.ops.operands import constant_values
from openneutron.ops.pool import reduce_shape, reduced_axes
from openneutron.ops.table import Attribute, Composition, Op, Operand, Role


def _made_of(graph: Graph, node: Node) -> Composition:
    """Lower to a fully connected layer of ones: it rounds once, as LiteRT's SUM does, where MEAN rounds twice."""
    parts, (result,) = Parts(graph, node), node.outputs
    source = str(node.inputs[0])
    data = graph[source]
    axes = reduced_axes(graph, node)
    kept = [axis for axis in range(len(data.shape)) if axis not in axes]
    count = math.prod(data.shape[axis] for axis in axes)
    turned = parts.transpose(source, (*kept, *axes)) if axes else source
    lines = parts.reshape(turned, (data.elements // count, count))
    ones = parts.constant(np.ones((1, count), np.int8), per_tensor(1.0, 0))
    sums = parts.new((data.elements // count, 1), DType.INT8, graph[result].quant)
    layer = {"activation": "NONE", "keep_num_dims": False, "weights_format": "DEFAULT"}
    parts.reshape(parts.add("fully_connected", [lines, ones], sums, **layer), graph[result].shape, result)
    return parts.done()


OPS = (
    Op(
        "sum",
        litert="SUM",
        operands=(Operand(Role.ACTIVATION, "input"), Operand(Role.PARAMETER, "axes")),
        shape=reduce_shape,
        kernels=("conv_2d_1x1_s8", "copy_s8"),
        options="ReducerOptions",
        attributes=(Attribute("keep_dims", "keepDims", False),),
        limits=(
            int8_at(0),
            constant_at(1, "list of axes"),
            axes_of(0, lambda graph, node: constant_values(graph, node, 1)),
        ),
        version=2,
        doc=(
            "Sum over some axes, as LiteRT's own optimized kernel computes it; the reference kernel of LiteRT 2.3.0 takes int8 "
            "tensors for uint8."
        ),
        made_of=_made_of,
    ),
)
