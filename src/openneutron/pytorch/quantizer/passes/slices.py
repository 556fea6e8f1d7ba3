# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite slices of concatenations, writes at constant indices, equal computations on slices, and lookups at computed
positions.

A model that unrolls a recurrent layer applies one linear layer to the input of each step, and one sigmoid to each of
three gates. One call on the whole tensor takes less dispatch overhead on the NPU and less compile time. Decoders of
keypoint detectors select at positions that the model computes.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.joins import Join, built, move_of, moved, pieces_of, shape_of, tree_of
from openneutron.pytorch.graph.program import is_move
from openneutron.pytorch.graph.rewriting import NodePass, Pass, add_call, constant_of, finished, replace

_aten = torch.ops.aten

MOST_RUNS = 16
"""The limit on the number of pieces into which a write at constant indices is split."""


_POSITIONS = (_aten.argmax.default, _aten.argmin.default)
_SEVERAL = (_aten.topk.default, _aten.sort.default, _aten.max.dim, _aten.min.dim)
"""Operators whose second result is a tensor of positions."""

_CHECKS = (_aten._assert_scalar.default, _aten.sym_constrain_range.default, _aten.sym_constrain_range_for_size.default)


@dataclass(frozen=True, slots=True)
class ComputedPositions(Pass):
    """Rewrite ``x[i]``, where ``i`` is an element of a tensor, to a lookup.

    PyTorch writes it as a selection by a number that is known only at run time, and no program can be compiled for
    that. A lookup needs positions of at least 0: other positions are first counted from the end.
    """

    targets = (_aten.item.default,)

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.find_nodes(op="call_function", target=_aten.select.int)):
            data, axis, position = node.args
            if not isinstance(position, Node) or position.target is not _aten.item.default:
                continue
            index = position.args[0]
            assert isinstance(index, Node) and isinstance(data, Node) and isinstance(axis, int)
            value, held = data.meta.get("val"), index.meta.get("val")
            if not isinstance(value, torch.Tensor) or not isinstance(held, torch.Tensor):
                continue
            if held.dtype not in (torch.int32, torch.int64):
                continue
            extent = value.shape[axis]
            if not isinstance(extent, int):
                continue
            if not _is_from_zero(index):
                index = add_call(module, node, _aten.remainder.Scalar, index, extent)
            row = add_call(module, node, _aten.reshape.default, index, [1])
            taken = add_call(module, node, _aten.index_select.default, data, axis, row)
            found = add_call(module, node, _aten.squeeze.dims, taken, [axis])
            replace(node, found)
            changed = True
        for node in module.graph.find_nodes(op="call_function", target=_aten.item.default) if changed else ():
            if all(user.target in _CHECKS for user in node.users):
                for each in (*node.users, node):
                    module.graph.erase_node(each)
        return finished(module, changed)


def _is_from_zero(node: object) -> bool:
    """Return whether all values of an integer node are known to be at least 0.

    These are positions, such as those of argmax or topk; remainders by a positive number; floor quotients of such
    values by a positive number; and moves or type conversions of such values.
    """
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    if node.target in _POSITIONS:
        return True
    source = node.args[0]
    if node.target is operator.getitem:
        return isinstance(source, Node) and source.target in _SEVERAL and node.args[1] == 1
    if node.target in (_aten.remainder.Scalar, _aten.floor_divide.default):
        divisor = node.args[1]
        is_positive = isinstance(divisor, int) and divisor > 0
        return is_positive and (node.target is _aten.remainder.Scalar or _is_from_zero(source))
    is_same = is_move(node) or node.target in (_aten.to.dtype, _aten._to_copy.default)
    return is_same and _is_from_zero(source)


_FUNCTIONS = (_aten.sigmoid.default, _aten.tanh.default)
"""Functions whose result has a fixed quantization. Its scale is therefore the same for a slice and for the whole
tensor."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The slice [start, end) of a tensor along an axis. ``squeezed``: the slice has one element and the axis is removed."""

    source: Node
    axis: int
    start: int
    end: int
    squeezed: bool


@dataclass(frozen=True, slots=True)
class MergeSlices(Pass):
    """Rewrite ``linear(x[0], w, b), linear(x[1], w, b) ...`` to slices of one ``linear(x, w, b)``. Sigmoid and tanh are rewritten likewise.

    This applies only if the slices cover more than half of the tensor, because the remaining results are computed in vain.
    """

    targets = (_aten.slice.Tensor,)

    def __call__(self, module: GraphModule) -> PassResult:
        groups: dict[object, list[Node]] = defaultdict(list)
        for node in module.graph.nodes:
            if node.op != "call_function" or self.is_kept(node):
                continue
            for piece, rest in _pieces(module, node):
                groups[node.target, piece.source, piece.axis, piece.squeezed, rest].append(node)
        changed = False
        for members in groups.values():
            changed |= _merge(module, members)
        return finished(module, changed)


def _pieces(module: GraphModule, node: Node) -> Iterator[tuple[Slice, tuple[object, ...]]]:
    """Yield the slice that a call reads, with the other arguments of the call. Yield nothing if the call can't be
    merged."""
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
        replace(node, part)
    return True


def _behind(module: GraphModule, source: Node, others: tuple[object, ...]) -> Node:
    """Return the first node in front of which a new call can be inserted: it comes after all operands of the call."""
    operands = {source, *(item for item in others if isinstance(item, Node))}
    for node in module.graph.nodes:
        operands.discard(node)
        if not operands:
            return node.next
    raise AssertionError("an operand is not in the graph")


@dataclass(frozen=True, slots=True)
class PutsToJoins(NodePass):
    """Rewrite ``y[..., [3, 4]] = x`` with constant indices to a concatenation of slices of ``y`` and ``x``.

    This applies if the indices are along one axis and all different, if the values are not added to ``y``
    (accumulate), and if there are at most ``MOST_RUNS`` slices.
    """

    targets = (_aten.index_put.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        table, indices, values = node.args[:3]
        if len(node.args) > 3 and node.args[3]:
            return False
        assert isinstance(table, Node) and isinstance(values, Node) and isinstance(indices, (list, tuple))
        given = [(dim, constant_of(module, index)) for dim, index in enumerate(indices) if index is not None]
        shape = shape_of(table)
        if shape is None or len(given) != 1 or given[0][1] is None or shape_of(values) is None:
            return False
        dim, index = given[0][0], given[0][1]
        if index.dim() != 1 or index.is_floating_point() or index.dtype == torch.bool or not index.numel():
            return False
        places = [int(place) % shape[dim] for place in index]
        whole = (*shape[:dim], len(places), *shape[dim + 1 :])
        runs = _runs(places, shape[dim])
        if len(set(places)) != len(places) or len(runs) > MOST_RUNS:
            return False
        if shape_of(values) != whole:
            values = add_call(module, node, _aten.expand.default, values, list(whole))
        parts = [
            add_call(module, node, _aten.slice.Tensor, table if source is None else values, dim, first, last)
            for source, first, last in runs
        ]
        joined = add_call(module, node, _aten.cat.default, parts, dim) if len(parts) > 1 else parts[0]
        return replace(node, joined)


def _runs(places: list[int], extent: int) -> list[tuple[bool | None, int, int]]:
    """Return where the rows of a table come from after a write of values at ``places``, as runs of consecutive rows.

    A run is (None, first, end) for the rows [first, end) of the old table, and (True, first, end) for rows of the
    written values.
    """
    row_of = {place: row for row, place in enumerate(places)}
    runs: list[tuple[bool | None, int, int]] = []
    for place in range(extent):
        source, row = (True, row_of[place]) if place in row_of else (None, place)
        if runs and runs[-1][0] == source and runs[-1][2] == row:
            runs[-1] = (source, runs[-1][1], row + 1)
        else:
            runs.append((source, row, row + 1))
    return runs


@dataclass(frozen=True, slots=True)
class SlicesOfJoins(NodePass):
    """Rewrite ``cat([a, b], 1)[:, :n]`` to ``a``, if ``a`` has n columns, also with shape operators or further
    concatenations in between.

    This applies if the concatenation is read only by such slices or as a result of the model. A concatenation would
    force one scale on all its operands, which would suit none of them.
    """

    targets = (_aten.slice.Tensor,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        move, source = move_of(node), node.args[0]
        if move is None or not isinstance(source, Node) or not _is_only_sliced(source):
            return False
        whole = tree_of(source)
        if not isinstance(whole, Join):
            return False
        part = moved(whole, move)
        if sum(1 for _ in pieces_of(part)) >= sum(1 for _ in pieces_of(whole)):
            return False
        return replace(node, built(module, node, part))


def _is_only_sliced(node: Node) -> bool:
    """Return whether a concatenation, directly or through shape operators, is read only by slices and as results of
    the model."""
    waiting, seen = [node], {node}
    while waiting:
        here = waiting.pop()
        near = [*here.users, *(here.all_input_nodes if here.target is not _aten.cat.default else ())]
        for other in near:
            if other in seen or other.op == "output" or other.target is _aten.slice.Tensor:
                continue
            if other.target is not _aten.cat.default and (move_of(other) is None):
                return False
            seen.add(other)
            waiting.append(other)
    return True
