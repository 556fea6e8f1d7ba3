# SPDX-License-Identifier: BSD-3-Clause
"""Move QUANTIZE and other tables to where they take fewer calls on fewer values, or fold QUANTIZE into the operators before it.

LiteRT's converter and the exporters that use it put a QUANTIZE in front of a CONCATENATION for each operand of another scale. Often such
operands are neighbouring slices of one tensor, enlarged images, or other tables: a table of a table is one table. The rewriting of these
forms changes no bit of a result.

``fold_quantize`` changes bits. LiteRT's kernels round twice where a QUANTIZE follows an operator, and clamp to the ranges of both scales.
A folded operator rounds once, and clamps once, so that its result is nearer to the float model, and its bytes may differ from those of
the file. That is why only ``CompileOptions(fold_quantize=True)`` asks for this pass. The folded graph is a graph of LiteRT operators too:
LiteRT's reference kernels compute the bytes of its program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from openneutron import ops
from openneutron.ir import DType, Graph, Node, Tensor, constant
from openneutron.ir.graph import read_once
from openneutron.isa.kernels.row import Function
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.ops import BY_NAME, Quantization
from openneutron.ops.shape import VIEWS, slice_window
from openneutron.options import CompileOptions

ENLARGING = ("broadcast_to", "resize_nearest_neighbor", "tile")
"""Operators that repeat stored values."""

TABLES = frozenset(name for name, row in KERNEL_BY_NAME.items() if row.traits.function is Function.TABLE)
"""The kernels that look up each value in a table."""


def is_table(graph: Graph, node: Node) -> bool:
    """Return whether the node is a table look-up: each byte of its result is a function of one byte of its only input."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or TABLES.isdisjoint(BY_NAME[node.op].kernels):
        return False
    return graph.given(node, 0).dtype is DType.INT8 and graph[node.name].dtype is DType.INT8


def rescale_before_enlarging(graph: Graph) -> Graph:
    """Return the graph with each QUANTIZE moved in front of the operator that enlarges its input (``ENLARGING``), where
    it rescales fewer values. Nothing but the QUANTIZE may read the enlarged tensor."""
    consumers, producers = graph.consumers(), graph.producers()
    swapped: dict[str, tuple[Node, ...]] = {}
    tensors: list[Tensor] = []
    for node in graph.nodes:
        before = producers.get(node.inputs[0] or "") if node.op == "quantize" and is_table(graph, node) else None
        if before is None or before.op not in ENLARGING or not read_once(graph, consumers, before):
            continue
        source, result = graph.given(before, 0), graph[node.name]
        if source.is_constant or source.elements >= result.elements:
            continue
        # The small tensor can have the name of the enlarged one, since no other node reads that.
        tensors.append(replace(source, name=before.name, quant=result.quant))
        first = replace(node, inputs=(source.name,), outputs=(before.name,))
        second = replace(before, inputs=(before.name, *before.inputs[1:]), outputs=node.outputs)
        swapped |= {before.name: (first,), node.name: (second,)}
    return graph.rebuilt((new for node in graph.nodes for new in swapped.get(node.name, (node,))), tensors)


@dataclass(frozen=True, slots=True)
class _Part:
    """One operand of a concatenation, as a range of another tensor: positions [begin, end) of ``source`` along the axis
    of the concatenation, rescaled by the node ``quantize`` unless that is None."""

    operand: str
    source: str
    begin: int
    end: int
    quantize: Node | None


def join_slices(graph: Graph) -> Graph:
    """Return the graph in which a CONCATENATION that reads adjacent slices of one tensor reads a single slice instead,
    or the whole tensor.

    If each slice goes through a QUANTIZE to the same scale, one QUANTIZE of the joined slice replaces them. Nothing but
    the CONCATENATION may read their results.
    """
    consumers, producers = graph.consumers(), graph.producers()
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.op == "concatenation":
            parts = [_part(graph, node, name, producers, consumers) for name in map(str, node.inputs)]
            inputs: list[str] = []
            for group in _neighbours(graph, parts):
                if len(group) == 1:
                    inputs.append(group[0].operand)
                    continue
                whole = _joined(graph, node, group, tensors)
                nodes += whole
                inputs.append(whole[-1].name if whole else group[0].source)
            is_whole = len(inputs) == 1 and len(parts) > 1
            node = _view(graph, node, inputs[0]) if is_whole else replace(node, inputs=tuple(inputs))
        nodes.append(node)
    return without_unread(graph.rebuilt(nodes, tensors.values())) if tensors or _differ(graph, nodes) else graph


def _view(graph: Graph, node: Node, source: str) -> Node:
    return Node("reshape", (source,), node.outputs, {"new_shape": graph[node.name].shape}, node.source)


def _differ(graph: Graph, nodes: Sequence[Node]) -> bool:
    return any(one.inputs != other.inputs for one, other in zip(graph.nodes, nodes, strict=False))


def without_unread(graph: Graph) -> Graph:
    """Return the graph without the slices and QUANTIZE operators whose results nothing reads."""
    read, kept = set(graph.kept_tensors), []
    for node in reversed(graph.nodes):
        if node.op not in ("quantize", "slice") or read.intersection(node.outputs):
            kept.append(node)
            read.update(name for name in node.inputs if name is not None)
    return graph.rebuilt(reversed(kept))


def _part(
    graph: Graph, join: Node, name: str, producers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]]
) -> _Part:
    """Return an operand of a concatenation as a range of a tensor.

    If the operand is a slice along the axis of the concatenation alone, the range is that of the slice in its source.
    Otherwise, the range is the whole operand. A QUANTIZE may stand between the slice and the concatenation.
    """
    axis = join["axis"] % len(graph[name].shape)
    made = _behind_views(graph, name, producers)
    quantize = made if made is not None and made.op == "quantize" and is_table(graph, made) else None
    if quantize is not None:
        alone = quantize.name == name and read_once(graph, consumers, quantize)
        made = _behind_views(graph, str(quantize.inputs[0]), producers) if alone else None
    if made is None or made.op != "slice" or join.attrs.get("unsigned"):
        return _Part(name, name, 0, graph[name].shape[axis], None)
    source = graph.given(made, 0)
    begin, size = slice_window(graph, made)
    if any(other != extent for at, (other, extent) in enumerate(zip(size, source.shape, strict=True)) if at != axis):
        return _Part(name, name, 0, graph[name].shape[axis], None)
    return _Part(name, source.name, begin[axis], begin[axis] + size[axis], quantize)


def _behind_views(graph: Graph, name: str, producers: Mapping[str, Node]) -> Node | None:
    """Return the node that computes a tensor, skipping views (``VIEWS``) whose output has the shape of their input;
    None if no node does."""
    made = producers.get(name)
    while made is not None and made.op in VIEWS and graph.given(made, 0).shape == graph[made.name].shape:
        made = producers.get(str(made.inputs[0]))
    return made


def _neighbours(graph: Graph, parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts divided into groups of adjacent ranges: each part of a group begins where the part before it
    ends, in the same source and with the same scale."""
    groups: list[list[_Part]] = []
    for part in parts:
        last = groups[-1][-1] if groups else None
        follows = (
            last is not None
            and (last.source, last.end) == (part.source, part.begin)
            and (last.quantize is None) == (part.quantize is None)
            and graph[last.operand].quant == graph[part.operand].quant
            and part.operand != part.source
        )
        if follows:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _joined(graph: Graph, join: Node, group: Sequence[_Part], tensors: dict[str, Tensor]) -> list[Node]:
    """Return the nodes that compute the joined operand of a group: a slice, a QUANTIZE, both or none. The new tensors
    are added to ``tensors``."""
    source, axis = graph[group[0].source], join["axis"] % len(graph[group[0].source].shape)
    begin, end = group[0].begin, group[-1].end
    origin, nodes, name = join.source, [], source.name
    shape = (*source.shape[:axis], end - begin, *source.shape[axis + 1 :])
    if shape != source.shape:
        starts = [begin if at == axis else 0 for at in range(len(shape))]
        first, sizes, name = (graph.free_name(f"{group[0].operand}/{part}") for part in ("begin", "size", "joined"))
        tensors[first], tensors[sizes] = (
            constant(each, np.array(values, np.int32)) for each, values in ((first, starts), (sizes, shape))
        )
        tensors[name] = replace(source, name=name, shape=shape)
        nodes.append(Node("slice", (source.name, first, sizes), (name,), {}, origin))
    if group[0].quantize is not None:
        result = graph.free_name(f"{group[0].operand}/rescaled")
        tensors[result] = replace(graph[group[0].operand], name=result, shape=shape)
        nodes.append(replace(group[0].quantize, inputs=(name,), outputs=(result,)))
    return nodes


MOVED = ("slice", "strided_slice", "transpose")
"""Operators that become copies. A table look-up can be folded into a copy."""


def tables_before_join(graph: Graph) -> Graph:
    """Return the graph in which a table look-up that reads the result of a CONCATENATION is applied to each operand
    of the CONCATENATION instead.

    This is done if a table or a copy computes each operand, and nothing but the look-up reads the result. The
    look-ups are then folded into these tables and copies. So the kernel call after the CONCATENATION is saved, and
    none is added before it.
    """
    while True:
        consumers, producers = graph.consumers(), graph.producers()
        found = (_before_join(graph, node, producers, consumers) for node in graph.nodes)
        made = next((one for one in found if one is not None), None)
        if made is None:
            return graph
        graph = made


def _before_join(
    graph: Graph, table: Node, producers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]]
) -> Graph | None:
    """Return the graph with the look-up ``table`` moved in front of the CONCATENATION that it reads; None if it must
    stay."""
    join = producers.get(table.inputs[0] or "") if is_table(graph, table) else None
    if (
        join is None
        or join.op != "concatenation"
        or join.attrs.get("unsigned")
        or not read_once(graph, consumers, join)
    ):
        return None
    operands = [str(name) for name in join.inputs]
    if len(set(operands)) < len(operands) or not all(
        _takes_table(graph, name, producers, consumers) for name in operands
    ):
        return None
    tables, tensors = [], []
    for name in operands:
        tensor = replace(graph[table.name], name=graph.free_name(f"{name}/{table.op}"), shape=graph[name].shape)
        tensors.append(tensor)
        tables.append(replace(table, inputs=(name,), outputs=(tensor.name,)))
    joined = replace(join, inputs=tuple(tensor.name for tensor in tensors), outputs=table.outputs)
    nodes = [
        new for node in graph.nodes if node is not table for new in ((*tables, joined) if node is join else (node,))
    ]
    return graph.rebuilt(nodes, tensors)


def _takes_table(
    graph: Graph, name: str, producers: Mapping[str, Node], consumers: Mapping[str, Sequence[Node]]
) -> bool:
    """Return whether a table look-up or a copy computes the tensor ``name``, through reshapes or directly, and the
    tensor has one reader."""
    node = producers.get(name)
    while node is not None and node.op in VIEWS and read_once(graph, consumers, node):
        node = producers.get(str(node.inputs[0]))
    return node is not None and read_once(graph, consumers, node) and (node.op in MOVED or is_table(graph, node))


MOVING = frozenset(
    (
        *("broadcast_to", "concatenation", "depth_to_space", "expand_dims", "mirror_pad", "pad", "reshape"),
        *("resize_nearest_neighbor", "reverse_v2", "slice", "space_to_depth", "squeeze", "strided_slice", "tile", "transpose"),
    )
)  # fmt: skip
"""Operators that only move stored values, so that a requantization can be moved from behind them to in front of them. A
pad fills in the zero point, and the requantized zero point is the new zero point."""

NOT_FREE = frozenset(("lookup", "one_hot"))
"""Operators whose result can't get another scale without new constants, since their constants are stored at the scale
of the result."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A graph without the QUANTIZE operators that ``fold_quantize`` removed. ``names`` are the results of these
    operators; the operators before them now compute these tensors."""

    graph: Graph
    names: tuple[str, ...] = ()


def fold_quantize(graph: Graph) -> Folded:
    """Return the graph with QUANTIZE operators folded into the operators before them, which then write their results
    in the scale of the QUANTIZE.

    Operators that only move values (``MOVING``), such as CONCATENATION, may stand between the two. A QUANTIZE stays
    if it changes the type, if another node reads the result before it, if the operator before it has no scale of its
    own (such as LOGISTIC, or a max pool), or if that operator could not run on the NPU with the new scale.
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
    """Return the graph without a QUANTIZE, with its result computed by the node before it; None if the QUANTIZE must
    stay."""
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
    """Return the names of the tensors that must get another scale if tensor ``name`` does: the tensor itself, and those
    from which operators of ``MOVING`` make it.

    Return None if one of these has several readers, or if the operator that computes it can't write another scale.
    """
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
