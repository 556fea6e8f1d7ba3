# SPDX-License-Identifier: BSD-3-Clause
"""Represent concatenations, and shape operators on their results, as trees of pieces.

A piece is an operand of a concatenation. A shape operator on the result moves to the operands if the values stay the same: ``cat([a, b],
1).permute(0, 2, 1)`` is ``cat([a.permute(0, 2, 1), b.permute(0, 2, 1)], 2)``. A slice of a concatenation becomes a concatenation of the
operands that it covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from openneutron.pytorch.graph.program import Change, is_move

_aten = torch.ops.aten

MOST_PIECES = 64
"""The limit on operands of a concatenation and on pieces. A concatenation with more of them is treated as one piece."""


@dataclass(frozen=True, slots=True)
class Move:
    """A shape operator. ``args`` are its arguments after the tensor, and ``origin`` is the node that it comes from."""

    origin: Node
    target: Any
    args: tuple[Any, ...]

    def shape_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result for a tensor of this shape."""
        return tuple(self.target(torch.empty(tuple(shape), device="meta"), *self.args).shape)


@dataclass(frozen=True, slots=True)
class Piece:
    """The result of a node after the shape operators ``moves``. ``shape`` is the shape after the last one."""

    node: Node
    moves: tuple[Move, ...]
    shape: tuple[int, ...]

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the value of the piece, given the result of its node."""
        for move in self.moves:
            tensor = move.target(tensor, *move.args)
        return tensor


@dataclass(frozen=True, slots=True)
class Join:
    """A concatenation of trees along ``dim``. ``origin`` is its node, ``shape`` the shape of the result."""

    origin: Node
    dim: int
    pieces: tuple[Tree, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A shape operator on a tree that can't be moved into the outermost concatenation. ``shape`` is the shape of the result."""

    move: Move
    inner: Tree
    shape: tuple[int, ...]


Tree: TypeAlias = Piece | Join | Moved


def pieces_of(tree: Tree) -> Iterator[Piece]:
    """Yield the pieces of a tree, from the first to the last."""
    if isinstance(tree, Piece):
        yield tree
    elif isinstance(tree, Moved):
        yield from pieces_of(tree.inner)
    else:
        for piece in tree.pieces:
            yield from pieces_of(piece)


def join_of(origin: Node, dim: int, pieces: Sequence[Tree]) -> Tree:
    """Return the concatenation of ``pieces`` along ``dim``, or the piece itself where there is only one.

    A piece may itself be a concatenation along ``dim``. Its operands then become operands of the result.
    """
    flat: list[Tree] = []
    for piece in pieces:
        flat += piece.pieces if isinstance(piece, Join) and piece.dim == dim else (piece,)
    if len(flat) == 1:
        return flat[0]
    shape = list(flat[0].shape)
    shape[dim] = sum(piece.shape[dim] for piece in flat)
    return Join(origin, dim, tuple(flat), tuple(shape))


def exchanged(tree: Tree) -> Tree | None:
    """Return nested concatenations with the dimensions of the outer and the inner ones exchanged.

    ``cat([cat([a, b], 1), cat([c, d], 1)], 2)`` becomes ``cat([cat([a, c], 2), cat([b, d], 2)], 1)``. Return None for any other tree, and
    if the inner concatenations differ in their dimension or in the extents of their operands.
    """
    if not isinstance(tree, Join) or not all(isinstance(piece, Join) for piece in tree.pieces):
        return None
    inner = [piece for piece in tree.pieces if isinstance(piece, Join)]
    first = inner[0]
    extents = [piece.shape[first.dim] for piece in first.pieces]
    for other in inner:
        if other.dim != first.dim or [piece.shape[first.dim] for piece in other.pieces] != extents:
            return None
    columns = zip(*(join.pieces for join in inner), strict=True)
    return join_of(first.origin, first.dim, [join_of(tree.origin, tree.dim, column) for column in columns])


def tree_of(node: Node) -> Tree:
    """Return the tree of the concatenations and shape operators that compute a node's result.

    The tree is one piece where the result is no concatenation, and where a concatenation has a single operand or more
    than MOST_PIECES operands or pieces. The node must have a shape (``shape_of``).
    """
    shape = shape_of(node)
    assert shape is not None
    whole = Piece(node, (), shape)
    if node.op != "call_function" or node.kwargs:
        return whole
    if node.target is _aten.cat.default:
        operands = node.args[0]
        dim = node.args[1] if len(node.args) > 1 else 0
        if not isinstance(operands, (list, tuple)) or not isinstance(dim, int) or not 1 < len(operands) <= MOST_PIECES:
            return whole
        # torch.cat ignores an empty tensor of rank 1 among operands of another rank.
        if any(len(shape_of(item) or ()) != len(shape) for item in operands):
            return whole
        found = join_of(node, dim % len(shape), [tree_of(item) for item in operands])
        return found if sum(1 for _ in pieces_of(found)) <= MOST_PIECES else whole
    move = move_of(node)
    source = node.args[0] if node.args else None
    if move is None or not isinstance(source, Node) or shape_of(source) is None:
        return whole
    inner = tree_of(source)
    return whole if isinstance(inner, Piece) else moved(inner, move)


def shape_of(node: Node) -> tuple[int, ...] | None:
    """Return the shape of a node's float tensor whose extents are numbers; None for any other value."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    shape = tuple(value.shape)
    return shape if all(isinstance(extent, int) for extent in shape) else None


_VIEWS = (_aten.view.default, _aten.reshape.default, _aten.flatten.using_ints, _aten.unflatten.int)


def move_of(node: Node) -> Move | None:
    """Return a shape operator as a ``Move`` in canonical form. Return None for any other node, and where a shape is
    unknown or an argument is computed.

    The canonical form has fewer operators, so that ``moved`` needs fewer rules: each view is a reshape, and each
    transpose is a permute. Dims are not negative, and the bounds of a slice are within the extent.
    """
    target, args = node.target, tuple(node.args[1:])
    shape = shape_of(node)
    source = node.args[0] if node.args else None
    before = shape_of(source) if isinstance(source, Node) else None
    if shape is None or before is None or any(isinstance(item, Node) for item in node.all_input_nodes[1:]):
        return None
    rank = len(before)
    if is_move(node, Change.SAME):
        return Move(node, _aten.alias.default, ())
    if target in _VIEWS:
        return Move(node, _aten.reshape.default, (shape,))
    if target is _aten.permute.default:
        return Move(node, target, (tuple(dim % rank for dim in node.args[1]),))
    if target in (_aten.transpose.int, _aten.t.default):
        order = list(range(rank))
        one, other = args if args else (0, rank - 1)
        if rank > 1:
            order[one], order[other] = order[other], order[one]
        return Move(node, _aten.permute.default, (tuple(order),))
    if target is _aten.unsqueeze.default:
        return Move(node, target, (args[0] % (rank + 1),))
    if target in (_aten.squeeze.dims, _aten.squeeze.dim, _aten.squeeze.default):
        given = range(rank) if not args else args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
        dims = tuple(sorted({dim % rank for dim in given if before[dim] == 1}))
        return Move(node, _aten.squeeze.dims, (dims,))
    if target is _aten.slice.Tensor:
        bounds: tuple[Any, ...] = (*args, *(0, None, None, 1)[len(args) :])
        dim, start, end, step = bounds
        first, last, stride = slice(start, end, step).indices(before[dim])
        return Move(node, target, (dim % rank, first, last, stride))
    if target is _aten.flip.default:
        return Move(node, target, (tuple(sorted(dim % rank for dim in args[0])),))
    return None


def moved(tree: Tree, move: Move) -> Tree:
    """Return the tree of a shape operator on ``tree``, with the operator moved into as many nested concatenations as possible."""
    if isinstance(tree, Piece):
        return Piece(tree.node, (*tree.moves, move), move.shape_of(tree.shape))
    if isinstance(tree, Join):
        found = _RULES[move.target](tree, move)
        if found is not None:
            return found
    return Moved(move, tree, move.shape_of(tree.shape))


def _each(join: Join, dim: int, moves: Sequence[Move]) -> Tree:
    return join_of(join.origin, dim, [moved(piece, move) for piece, move in zip(join.pieces, moves, strict=True)])


def _same(join: Join, move: Move) -> Tree:
    del move
    return join


def _permuted(join: Join, move: Move) -> Tree:
    (order,) = move.args
    return _each(join, order.index(join.dim), [move] * len(join.pieces))


def _unsqueezed(join: Join, move: Move) -> Tree:
    (dim,) = move.args
    return _each(join, join.dim + (dim <= join.dim), [move] * len(join.pieces))


def _squeezed(join: Join, move: Move) -> Tree | None:
    (dims,) = move.args
    if join.dim in dims:
        return None
    return _each(join, join.dim - sum(dim < join.dim for dim in dims), [move] * len(join.pieces))


def _sliced(join: Join, move: Move) -> Tree | None:
    dim, first, last, step = move.args
    if dim != join.dim:
        return _each(join, join.dim, [move] * len(join.pieces))
    if step != 1 or first >= last:
        return None
    taken: list[Tree] = []
    for end, piece in zip(accumulate(piece.shape[dim] for piece in join.pieces), join.pieces, strict=True):
        start = end - piece.shape[dim]
        low, high = max(first, start) - start, min(last, end) - start
        if low < high:
            whole = high - low == piece.shape[dim]
            taken.append(piece if whole else moved(piece, replace(move, args=(dim, low, high, 1))))
    return join_of(join.origin, dim, taken)


def _flipped(join: Join, move: Move) -> Tree | None:
    return None if join.dim in move.args[0] else _each(join, join.dim, [move] * len(join.pieces))


def _reshaped(join: Join, move: Move) -> Tree | None:
    """Return the reshaped concatenation as a concatenation of reshaped operands. Return None where the operands can't
    be reshaped one by one.

    Two conditions hold otherwise. A dimension of the result begins where the joined dimension begins: the extents
    before both have the same product. The extents behind this dimension have a product that divides, for each
    operand, the number of elements from the joined dimension on.
    """
    (shape,) = move.args
    lead = math.prod(join.shape[: join.dim])
    blocks = [math.prod(piece.shape[join.dim :]) for piece in join.pieces]
    for dim in range(len(shape)):
        inner = math.prod(shape[dim + 1 :])
        if math.prod(shape[:dim]) != lead or not inner or any(block % inner for block in blocks):
            continue
        views = [(*shape[:dim], block // inner, *shape[dim + 1 :]) for block in blocks]
        return _each(join, dim, [replace(move, args=(view,)) for view in views])
    return None


_RULES: dict[Any, Callable[[Join, Move], Tree | None]] = {
    _aten.alias.default: _same,
    _aten.reshape.default: _reshaped,
    _aten.permute.default: _permuted,
    _aten.unsqueeze.default: _unsqueezed,
    _aten.squeeze.dims: _squeezed,
    _aten.slice.Tensor: _sliced,
    _aten.flip.default: _flipped,
}


def _ignored(node: Node, tree: Tree) -> None:
    del node, tree


def built(module: GraphModule, before: Node, tree: Tree, note: Callable[[Node, Tree], None] = _ignored) -> Node:
    """Insert the calls of a tree before the node ``before``, and return the node of the tree's result.

    ``note`` is called with the new node and its subtree for each concatenation and each shape operator on a concatenation.
    """
    if isinstance(tree, Piece):
        node = tree.node
        for move in tree.moves:
            node = _call(module, before, move.origin, move.target, node, *move.args)
        return node
    if isinstance(tree, Moved):
        inner = built(module, before, tree.inner, note)
        node = _call(module, before, tree.move.origin, tree.move.target, inner, *tree.move.args)
    else:
        parts = [built(module, before, piece, note) for piece in tree.pieces]
        node = _call(module, before, tree.origin, _aten.cat.default, parts, tree.dim)
    note(node, tree)
    return node


def _call(module: GraphModule, before: Node, origin: Node, target: Any, *args: Any) -> Node:
    """Insert a call with the metadata of ``origin`` and return it. ``alias`` inserts nothing: its argument is returned."""
    if target is _aten.alias.default:
        (source,) = args
        assert isinstance(source, Node)
        return source
    with module.graph.inserting_before(before):
        node = module.graph.call_function(
            target, tuple(list(item) if isinstance(item, tuple) else item for item in args)
        )
    values = map_arg(node.args, lambda source: source.meta["val"])
    mode = detect_fake_mode([source.meta["val"] for source in node.all_input_nodes])
    assert mode is not None
    with torch.no_grad(), mode:
        node.meta = {**origin.meta, "custom": dict(origin.meta.get("custom", {})), "val": target(*values)}
    return node
