# SPDX-License-Identifier: BSD-3-Clause
"""Fold QUANTIZE into the operators before it, which then write their results in its scale: one rounding in place of two.

LiteRT's converter and the quantizer of its PyTorch exporter put a QUANTIZE where a CONCATENATION joins values of several scales.
LiteRT's kernels then round twice, and clamp to the ranges of both scales. A folded operator rounds once, and clamps once, so that its
result is nearer to the float model, and its bytes may differ from those of the file. That is why only ``CompileOptions(fold_quantize=True)``
asks for this pass.

The folded graph is a graph of LiteRT operators too: LiteRT's reference kernels compute the bytes of its program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron import ops
from openneutron.ir import Graph, Node
from openneutron.ir.graph import read_once
from openneutron.ops import BY_NAME, Quantization
from openneutron.options import CompileOptions

MOVING = frozenset(
    (
        *("broadcast_to", "concatenation", "depth_to_space", "expand_dims", "mirror_pad", "pad", "reshape"),
        *("resize_nearest_neighbor", "reverse_v2", "slice", "space_to_depth", "squeeze", "strided_slice", "tile", "transpose"),
    )
)  # fmt: skip
"""Operators that move stored values, with which a requantization can change places. A pad fills in the zero point, which stays one."""

NOT_FREE = frozenset(("lookup", "one_hot"))
"""Operators whose constants have the scale of their results."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A graph without the QUANTIZE operators that were folded, and the names of their results, which other nodes compute now."""

    graph: Graph
    names: tuple[str, ...] = ()


def fold_quantize(graph: Graph) -> Folded:
    """Return the graph with each QUANTIZE folded that rescales the result of one operator, or of operators that are concatenated.

    A QUANTIZE stays if another node reads the result before it, if the operator before it has no scale of its own (such as LOGISTIC, or
    a max pool), or if that operator could not run on the NPU with the new scale. Operators that move values may stand between both.
    """
    names: list[str] = []
    for node in graph.nodes:
        if node.op == "quantize":
            made = _without(graph, node)
            if made is not None:
                graph = made
                names.append(node.name)
    graph.verify()
    return Folded(graph, tuple(names))


def as_asked(graph: Graph, options: CompileOptions) -> Folded:
    """Return the graph that is compiled with these options: folded with ``options.fold_quantize``, or else the graph itself."""
    return fold_quantize(graph) if options.fold_quantize else Folded(graph)


def _without(graph: Graph, quantize: Node) -> Graph | None:
    """Return the graph without a QUANTIZE, whose result the node before it computes; None if it stays."""
    source, result = graph.given(quantize, 0), graph[quantize.name]
    if source.dtype != result.dtype or source.quant == result.quant:
        return None
    rescaled = _rescaled(graph, graph.producers(), graph.consumers(), source.name)
    if rescaled is None:
        return None
    tensors = [replace(graph[name], quant=result.quant) for name in rescaled]
    nodes = [
        replace(node, outputs=quantize.outputs) if node.outputs == (source.name,) else node
        for node in graph.nodes
        if node is not quantize
    ]
    made = graph.rebuilt(nodes, tensors)
    changed = {*rescaled, quantize.name}
    if any(node.name in changed and ops.reject(made, node) is not None for node in made.nodes):
        return None
    return made


def _rescaled(
    graph: Graph, producers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]], name: str
) -> list[str] | None:
    """Return the tensors that get another scale with ``name``: those between it and the operators that compute its values, each of which
    has one reader. Return None if there is another reader, or an operator whose result has no scale of its own."""
    node = producers.get(name)
    if node is None or len(node.outputs) != 1 or not read_once(graph, consumers, node):
        return None
    if node.op not in MOVING:
        return [name] if BY_NAME[node.op].quantization is Quantization.FREE and node.op not in NOT_FREE else None
    found = [name]
    for operand in dict.fromkeys(node.inputs if node.op == "concatenation" else node.inputs[:1]):
        behind = None if operand is None else _rescaled(graph, producers, consumers, operand)
        if behind is None:
            return None
        found += behind
    return found
