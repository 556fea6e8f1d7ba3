# SPDX-License-Identifier: BSD-3-Clause
"""Select one kernel call for each normalization by statistics of its input."""

from __future__ import annotations

import numpy as np

from openneutron.compiler.select.calls import KernelCall, elements, kernel_of, quant_of, selects
from openneutron.ir import Graph, Node
from openneutron.ops.normalization import coefficients, scaled_epsilon


@selects("layer_norm", "group_norm")
def normalization(graph: Graph, node: Node) -> list[KernelCall]:
    """Select layer_norm_s8, layer_norm_s16, group_norm_s8 or group_norm_s16."""
    source = graph.given(node, 0)
    affine, epsilon = coefficients(graph, node), scaled_epsilon(graph, node)
    params = {
        "input_zero_point": quant_of(source).zero_point,
        "epsilon_low": epsilon & 0xFFFFFFFF,
        "epsilon_high": epsilon >> 32,
        "shift": affine.shift,
    }
    if node.op == "layer_norm":
        params |= {"channels": source.shape[-1], "centred": int(node["centred"])}
    else:
        params["group_channels"] = source.shape[-1] // node["groups"]
    low = (affine.offsets & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    table = np.stack([affine.factors.astype(np.int32), low, (affine.offsets >> 32).astype(np.int32)], axis=1)
    views = {"input": elements(source), "output": elements(graph[node.name])}
    return [KernelCall(kernel_of(node.op, source.dtype), node.name, views, params, {"coefficients": table})]
