# SPDX-License-Identifier: BSD-3-Clause
"""Merge the same computation on several slices of one tensor into one computation on the tensor.

Recurrent layers that a model unrolls itself apply one linear layer to the inputs of each step, and one sigmoid to each
of three gates. One call instead of many takes less dispatch overhead on the NPU and less compile time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.rewriting import add_call, constant_of, finished

_aten = torch.ops.aten
_FUNCTIONS = (_aten.sigmoid.default, _aten.tanh.default)
"""Functions whose result has a fixed quantization, so that merging does not change its scale."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of a tensor [start, end) along an axis; ``squeezed``: the slice has one element, and the axis is
    removed."""

    source: Node
    axis: int
    start: int
    end: int
    squeezed: bool


@dataclass(frozen=True, slots=True)
class MergeSlices:
    """Rewrite ``linear(x[0], w, b), linear(x[1], w, b) ...`` to slices of ``linear(x, w, b)``, and the same for sigmoid
    and tanh.

    This applies only where the slices cover more than half of the tensor, to limit unused results. keep: calls to leave
    alone.
    """

    keep: Callable[[Node], bool] | None = None
    targets: ClassVar = (_aten.slice.Tensor,)

    def __call__(self, module: GraphModule) -> PassResult:
        groups: dict[object, list[Node]] = defaultdict(list)
        for node in module.graph.nodes:
            if node.op != "call_function" or (self.keep is not None and self.keep(node)):
                continue
            for piece, rest in _pieces(module, node):
                groups[node.target, piece.source, piece.axis, piece.squeezed, rest].append(node)
        changed = False
        for members in groups.values():
            changed |= _merge(module, members)
        return finished(module, changed)


def _pieces(module: GraphModule, node: Node) -> Iterator[tuple[Slice, tuple[object, ...]]]:
    """Return the slice that a call reads and the call's other arguments; nothing for any other call."""
    if node.target not in (*_FUNCTIONS, _aten.linear.default) or node.kwargs:
        return
    piece = _slice_of(node.args[0])
    if piece is None:
        return
    rest = node.args[1:]
    if node.target is _aten.linear.default:
        last = len(piece.source.meta["val"].shape) - 1
        if piece.axis == last or any(item is not None and constant_of(module, item) is None for item in rest):
            return
    yield piece, rest


def _slice_of(node: object) -> Slice | None:
    if not isinstance(node, Node):
        return None
    squeezed = node.target is _aten.squeeze.dim
    inner = node.args[0] if squeezed else node
    if not isinstance(inner, Node) or inner.target is not _aten.slice.Tensor or inner.kwargs or len(inner.args) != 4:
        return None
    source, axis, start, end = inner.args
    if not isinstance(source, Node) or not all(isinstance(item, int) for item in (axis, start, end)):
        return None
    shape = source.meta["val"].shape
    if not all(isinstance(extent, int) for extent in shape):
        return None
    axis %= len(shape)
    first, last, _ = slice(start, end).indices(shape[axis])
    if squeezed and (last - first != 1 or node.args[1] % len(shape) != axis):
        return None
    return Slice(source, axis, first, last, squeezed)


def _merge(module: GraphModule, members: list[Node]) -> bool:
    # Looked up again: merging another group may have replaced the tensor that is sliced.
    pieces = [piece for node in members if (piece := _slice_of(node.args[0])) is not None]
    assert len(pieces) == len(members)
    places = {(piece.start, piece.end) for piece in pieces}
    first, piece = members[0], pieces[0]
    extent = piece.source.meta["val"].shape[piece.axis]
    if len(places) < 2 or 2 * sum(end - start for start, end in places) <= extent:
        return False
    assert isinstance(first.target, torch._ops.OpOverload)
    after = _behind(module, piece.source, first.args[1:])
    whole = add_call(module, after, first.target, piece.source, *first.args[1:])
    whole.meta = {**first.meta, "val": whole.meta["val"]}
    for node, own in zip(members, pieces, strict=True):
        part = add_call(module, node, _aten.slice.Tensor, whole, own.axis, own.start, own.end)
        if own.squeezed:
            part = add_call(module, node, _aten.squeeze.dim, part, own.axis)
        node.replace_all_uses_with(part)
        module.graph.erase_node(node)
    return True


def _behind(module: GraphModule, source: Node, others: tuple[object, ...]) -> Node:
    """Return the first node that all operands of a call precede."""
    operands = {source, *(item for item in others if isinstance(item, Node))}
    for node in module.graph.nodes:
        operands.discard(node)
        if not operands:
            return node.next
    raise AssertionError("an operand is not in the graph")
