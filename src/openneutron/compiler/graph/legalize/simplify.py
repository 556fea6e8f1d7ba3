# SPDX-License-Identifier: BSD-3-Clause
"""Replace operators by simpler ones: compositions by their parts, and operators that move no byte by reshapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant
from openneutron.ops import BY_NAME
from openneutron.ops.rescaling import steps_of
from openneutron.ops.shape import pads, slice_window
from openneutron.ops.table import constant_values

VIEWS = ("reshape", "squeeze", "expand_dims", "bitcast")
"""Operators whose output is their input's memory under another shape."""


def rename_identities(graph: Graph) -> Graph:
    """Return the graph with every operator that leaves all bytes in place turned into a reshape, which costs nothing."""
    return graph.rebuilt(
        Node("reshape", node.inputs[:1], node.outputs, {"new_shape": graph[node.name].shape}, node.source)
        if node.op in VIEWS or _moves_nothing(graph, node)
        else node
        for node in graph.nodes
    )


def _moves_nothing(graph: Graph, node: Node) -> bool:
    data = graph.given(node, 0)
    if node.op == "transpose":
        permutation = constant_values(graph, node, 1)
        moved = [axis for axis in permutation if data.shape[axis] != 1]
        return moved == sorted(moved)
    if node.op == "slice":
        return slice_window(graph, node)[1] == data.shape
    if node.op in ("pad", "padv2"):
        return not any(amount for pair in pads(graph, node) for amount in pair)
    if node.op == "concatenation":
        return len(node.inputs) == 1
    if node.op == "quantize":
        return (data.dtype, data.quant) == (graph[node.name].dtype, graph[node.name].quant)
    if node.op == "resize_nearest_neighbor":
        # With both, every position is rounded up by a half: a shift by one.
        shifted = node["align_corners"] and node["half_pixel_centers"]
        return data.shape == graph[node.name].shape and not shifted
    return False


def drop_zero_sums(graph: Graph) -> Graph:
    """Return the graph with every ADD and SUB that changes no value turned into a reshape of its other operand."""
    return graph.rebuilt(_rewritten(graph, node) for node in graph.nodes)


def _rewritten(graph: Graph, node: Node) -> Node:
    kept = unchanged_operand(graph, node)
    if kept is None:
        return node
    return Node("reshape", (kept,), node.outputs, {"new_shape": graph[node.name].shape}, node.source)


def unchanged_operand(graph: Graph, node: Node) -> str | None:
    """Return the operand of an ADD or SUB that equals the result for all values; None where neither operand does.

    LiteRT (add.cc, sub.cc) shifts each stored value, less its zero point, left by 20 bits. It multiplies the result by
    the operand's scale over twice the larger scale, and the sum by twice the larger scale over 2^20 times the output's
    scale. Where the output's scale equals the operand's, and the zeros' scale is not larger, these factors are 1/2 and
    1/2^19. Both are exact, and so is the result. Where the zeros' scale is larger, the first factor is rounded.
    """
    if node.op not in ("add", "sub") or node.attrs.get("activation", "NONE") != "NONE":
        return None
    result = graph[node.name]
    for data, zeros in ((0, 1), (1, 0))[: 2 if node.op == "add" else 1]:
        kept, other = graph.operand(node, data), graph.operand(node, zeros)
        if kept is None or other is None or kept.data is not None or not _is_zero(other):
            continue
        assert kept.quant is not None and other.quant is not None
        alike = kept.dtype is DType.INT8 and kept.shape == result.shape and kept.quant == result.quant
        if alike and np.float32(other.quant.scale) <= np.float32(kept.quant.scale):
            return kept.name
    return None


def _is_zero(tensor: Tensor) -> bool:
    quant = tensor.quant
    if tensor.data is None or tensor.dtype is not DType.INT8 or quant is None or quant.per_channel:
        return False
    return bool(np.all(tensor.data == quant.zero_point))


def take_apart(graph: Graph) -> Graph:
    """Replace every node whose row has a composition (``made_of``) by its parts, recursively, and return the graph."""
    nodes: list[Node] = []
    for node in graph.nodes:
        made_of = BY_NAME[node.op].made_of
        if made_of is None:
            nodes.append(node)
            continue
        parts = made_of(graph, node)
        tensors = {**graph.tensors, **{tensor.name: tensor for tensor in parts.tensors}}
        inner = take_apart(replace(graph, tensors=tensors, nodes=parts.nodes))
        graph = replace(graph, tensors={**tensors, **inner.tensors})
        nodes += inner.nodes
    return graph.rebuilt(nodes)


_OFFSET = 128


def rescale_joined(graph: Graph) -> Graph:
    """Return the graph with all inputs of uint8 CONCATENATIONs quantized as their outputs, each by a table.

    LiteRT's int8 kernel copies bytes; its uint8 kernel rescales such inputs in float32 (ConcatenationWithScaling of
    reference/concatenation.h).
    """
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
            made, entries = (graph.free_name(f"{node.name}/{part}{place}") for part in ("rescaled", "table"))
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
