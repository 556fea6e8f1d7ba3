# SPDX-License-Identifier: BSD-3-Clause
"""Convert uint8 models to int8 models: every stored value and zero point 128 lower, with the same real values.

For the operators that the operator table marks, LiteRT's uint8 kernels compute the same as its int8 kernels on such
values. Where a uint8 kernel rounds otherwise, the node's attribute ``unsigned`` selects its rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.ops import BY_NAME

OFFSET = 128

NO_SUCH_KERNEL = "its tensors are uint8, and LiteRT has no uint8 kernel that computes what its int8 kernel does"
MIXED = "some of its tensors are uint8 and some int8"


def as_int8(graph: Graph) -> Graph:
    """Return the graph with int8 tensors of the same names in place of uint8 ones."""
    if not any(tensor.dtype is DType.UINT8 for tensor in graph.tensors.values()):
        return graph
    nodes = (node.with_attrs(unsigned=True) if _is_unsigned(graph, node) else node for node in graph.nodes)
    tensors = {name: _as_int8(tensor) for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def unsigned_reason(graph: Graph, node: Node) -> str | None:
    """Return the reason why a node of a graph with uint8 tensors can't run on int8, or None."""
    row = BY_NAME.get(node.op)
    if row is None or not _is_unsigned(graph, node):
        return None
    if not row.unsigned:
        return NO_SUCH_KERNEL
    others = any(tensor.dtype is DType.INT8 for tensor in _tensors(graph, node))
    return MIXED if others and node.op != "quantize" else None


def with_uint8_io(graph: Graph, stored: Graph) -> Graph:
    """Return the graph with the input and output types of ``stored``; QUANTIZE converts between uint8 and int8.

    Inputs and outputs are matched by name; the names stay.
    """
    moved = [name for name in (*graph.inputs, *graph.outputs) if stored[name].dtype is DType.UINT8]
    if not moved:
        return graph
    inside = {name: graph.free_name(f"{name}/int8") for name in moved}
    tensors = {**graph.tensors}
    for name, other in inside.items():
        tensors[other] = replace(graph[name], name=other)
        tensors[name] = stored[name]
    nodes = [Node("quantize", (name,), (inside[name],)) for name in graph.inputs if name in inside]
    for node in graph.nodes:
        inputs = tuple(None if name is None else inside.get(name, name) for name in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=tuple(inside.get(name, name) for name in node.outputs)))
    outputs = [name for name in dict.fromkeys(graph.outputs) if name in inside and name not in graph.inputs]
    nodes += [Node("quantize", (inside[name],), (name,)) for name in outputs]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def signed_quant(tensor: Tensor) -> QuantParams:
    """Return the parameters of an int8 tensor, or of the int8 tensor that replaces a uint8 one."""
    assert tensor.quant is not None
    return _lower(tensor.quant) if tensor.dtype is DType.UINT8 else tensor.quant


def _tensors(graph: Graph, node: Node) -> list[Tensor]:
    return [graph[name] for name in (*node.inputs, *node.outputs) if name is not None]


def _is_unsigned(graph: Graph, node: Node) -> bool:
    return any(tensor.dtype is DType.UINT8 for tensor in _tensors(graph, node))


def _lower(quant: QuantParams) -> QuantParams:
    return QuantParams(quant.scales, tuple(zero - OFFSET for zero in quant.zero_points), quant.axis)


def _as_int8(tensor: Tensor) -> Tensor:
    if tensor.dtype is not DType.UINT8:
        return tensor
    quant = None if tensor.quant is None else _lower(tensor.quant)
    data = None if tensor.data is None else (np.asarray(tensor.data) ^ 0x80).view(np.int8)
    return replace(tensor, dtype=DType.INT8, quant=quant, data=data)
