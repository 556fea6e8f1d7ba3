# SPDX-License-Identifier: BSD-3-Clause
"""Rescale the inputs of a uint8 CONCATENATION whose scale or zero point differs from the output's, each by a table.

LiteRT's int8 kernel copies bytes; its uint8 kernel rescales such inputs in float32 (ConcatenationWithScaling of
reference/concatenation.h).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.ir import Graph, Node, QuantParams, Tensor, constant
from openneutron.ops.rescaling import steps_of

_OFFSET = 128


def rescale_joined(graph: Graph) -> Graph:
    """Return the graph with all inputs of such concatenations quantized as their outputs."""
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    for node in graph.nodes:
        inputs = list(node.inputs)
        for place, name in enumerate(inputs):
            result = graph[node.name]
            if node.op != "concatenation" or not node.attrs.get("unsigned") or name is None:
                break
            if graph[name].quant == result.quant:
                continue
            source = graph[name]
            assert source.quant is not None and result.quant is not None
            made, entries = (_free_name(graph, f"{node.name}/{part}{place}") for part in ("rescaled", "table"))
            tensors[made] = replace(source, name=made, quant=result.quant, data=None)
            tensors[entries] = constant(entries, _table(source.quant, result.quant), result.quant)
            nodes.append(Node("lookup", (name, entries), (made,), {}, node.source))
            inputs[place] = made
        nodes.append(replace(node, inputs=tuple(inputs)))
    return graph.rebuilt(nodes, tensors.values()) if tensors else graph


def _table(source: QuantParams, result: QuantParams) -> npt.NDArray[np.int8]:
    """Return the int8 result for each int8 input from -128 on, in the float32 arithmetic of LiteRT's uint8 kernel."""
    scale = np.float32(source.scale) * (np.float32(1) / np.float32(result.scale))
    bias = np.float32(-(source.zero_point + _OFFSET)) * scale
    reals = np.arange(256, dtype=np.float32) * scale + bias
    steps = np.array([steps_of(float(real), 1.0) for real in reals]) + (result.zero_point + _OFFSET)
    return np.asarray(np.clip(steps, 0, 255) - _OFFSET, np.int8)


def _free_name(graph: Graph, name: str) -> str:
    while name in graph.tensors:
        name += "_"
    return name
