# SPDX-License-Identifier: BSD-3-Clause
"""Quantize the parts of a concatenated result separately, where their ranges differ. An example is boxes in pixels and scores of a
detector.

One scale for the whole result would leave hardly any steps for the part with small values. Each part gets a scale of its own, and the parts
are concatenated in float after their dequantize nodes. Parts of similar ranges keep a common scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.joins import (
    Join,
    Moved,
    Piece,
    Tree,
    built,
    exchanged,
    join_of,
    pieces_of,
    shape_of,
    tree_of,
)
from openneutron.pytorch.graph.program import JOINS_OUTPUT
from openneutron.pytorch.graph.rewriting import add_call, add_constant, constant_of, replace
from openneutron.pytorch.operators.annotations import SOFTMAX
from openneutron.pytorch.quantizer.observers import Seen, is_alike
from openneutron.pytorch.source.exporting import SAMPLES, FirstSamples, Run

_aten = torch.ops.aten

_CHANNELS = {
    _aten.linear.default: -1,
    _aten.conv1d.default: 1,
    _aten.conv2d.default: 1,
    _aten.conv2d.padding: 1,
}
"""Linear layers and convolutions, each with the dimension of its input over which it sums."""

MOST_PARTS_OF_LAYERS = 4
"""The limit on parts of a layer's input. A layer whose input has more parts of different ranges is not split."""


def split_layers(module: GraphModule, samples: FirstSamples | None) -> bool:
    """Rewrite ``linear(cat([a, b], -1))`` as ``linear(a) + linear(b)`` if the ranges of a and b differ in the
    samples. Convolutions likewise.

    Nothing changes without samples, and a layer with more than ``MOST_PARTS_OF_LAYERS`` parts does not change. Return
    whether the graph has changed.
    """
    given = [] if samples is None else samples.first(SAMPLES)
    layers = (
        {node: join for node in module.graph.nodes if (join := _join_of(module, node)) is not None} if given else {}
    )
    if not layers:
        return False
    pieces = {
        item: Piece(item, (), tuple(item.meta["val"].shape)) for join in layers.values() for item in _operands(join)
    }
    seen = measured(module, list(pieces.values()), given)
    ranges = {item: seen[piece] for item, piece in pieces.items()}
    changed = False
    for layer, join in layers.items():
        groups = _groups(_operands(join), ranges)
        if 1 < len(groups) <= MOST_PARTS_OF_LAYERS:
            _split(module, layer, groups)
            changed = True
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()
    return changed


def _operands(join: Node) -> list[Node]:
    operands = join.args[0]
    assert isinstance(operands, (list, tuple))
    return [item for item in operands if isinstance(item, Node)]


def _join_of(module: GraphModule, layer: Node) -> Node | None:
    """Return the concatenation that a layer reads, if it is along the dimension over which the layer sums, or None."""
    dim = _CHANNELS.get(layer.target) if layer.op == "call_function" else None
    join = layer.args[0] if dim is not None else None
    if dim is None or not isinstance(join, Node) or join.target is not _aten.cat.default or layer.kwargs:
        return None
    weight, rank = constant_of(module, layer.args[1]), join.meta["val"].dim()
    along = join.args[1] if len(join.args) > 1 else 0
    operands = _operands(join)
    if weight is None or not isinstance(along, int) or along % rank != dim % rank or len(operands) < 2:
        return None
    if any(item.meta["val"].dtype != torch.float32 or item.meta["val"].dim() != rank for item in operands):
        return None
    return join if weight.shape[1] == join.meta["val"].shape[dim] else None


def _groups(operands: Sequence[Node], ranges: dict[Node, Seen]) -> list[list[Node]]:
    """Return the operands of a concatenation in groups of neighbours with similar ranges."""
    groups: list[list[Node]] = []
    for item in operands:
        if groups and is_alike([ranges[other] for other in (*groups[-1], item)]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _split(module: GraphModule, layer: Node, groups: Sequence[Sequence[Node]]) -> None:
    dim = _CHANNELS[layer.target]
    weight = constant_of(module, layer.args[1])
    assert weight is not None and isinstance(layer.target, torch._ops.OpOverload)
    begin, total = 0, None
    for place, group in enumerate(groups):
        data: Any = group[0] if len(group) == 1 else add_call(module, layer, _aten.cat.default, list(group), dim)
        count = data.meta["val"].shape[dim]
        part: Tensor = weight.narrow(1, begin, count).contiguous()
        begin += count
        rest = list(layer.args[2:])
        if place and rest:
            rest[0] = None
        held = add_constant(module, layer, f"{layer.name}_part{place}", part)
        made = add_call(module, layer, layer.target, data, held, *rest)
        total = made if total is None else add_call(module, layer, _aten.add.Tensor, total, made)
    assert total is not None
    replace(layer, total)


MOST_PARTS = 16
"""The limit on parts of a result. A result with more parts keeps one scale, because each part is an output of a delegate call."""


def split_heads(module: GraphModule, samples: FirstSamples | None) -> bool:
    """Split results of the model whose parts have different ranges. Such a result is rewritten as a concatenation of
    its parts, marked with ``JOINS_OUTPUT``. Return whether the graph has changed.

    The ranges come from a float run on the first samples. Without samples, the only parts that count as different are
    functions of a fixed range, such as sigmoid.
    """
    output = module.graph.output_node()
    trees = {node: tree_of(node) for node in output.all_input_nodes if shape_of(node) is not None}
    trees = {node: tree for node, tree in trees.items() if not isinstance(tree, Piece)}
    if not trees:
        return False
    pieces = list(dict.fromkeys(piece for tree in trees.values() for piece in pieces_of(tree)))
    given = [] if samples is None else samples.first(SAMPLES)
    seen = measured(module, pieces, given) if given else {piece: _known(piece) for piece in pieces}
    changed = False
    for node, tree in trees.items():
        parts = _Parts(seen)
        found = parts.of(tree)
        if found in parts.whole or parts.count(found) > MOST_PARTS:
            continue
        made = built(module, output, found, parts.mark)
        output.replace_input_with(node, made)
        changed = True
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()
    return changed


@dataclass(slots=True, eq=False)
class _Parts:
    """Divides the pieces of trees into parts. ``whole`` has the subtrees that get one scale each, ``joins`` those
    above them."""

    seen: dict[Piece, Seen]
    whole: set[Tree] = field(default_factory=set)
    joins: set[Tree] = field(default_factory=set)

    def of(self, tree: Tree) -> Tree:
        """Return the tree with neighbours of similar ranges joined first. The subtrees that get one scale are added
        to ``whole``."""
        if isinstance(tree, Piece) or is_alike([self.seen[piece] for piece in pieces_of(tree)]):
            self.whole.add(tree)
            return tree
        if isinstance(tree, Moved):
            return dataclasses.replace(tree, inner=self.of(tree.inner))
        turned = exchanged(tree)
        if isinstance(turned, Join):
            # Each column is one part if the same part of all levels has similar ranges.
            alike = [is_alike([self.seen[piece] for piece in pieces_of(column)]) for column in turned.pieces]
            if all(alike):
                tree = turned
        assert isinstance(tree, Join)
        return self._grouped(tree)

    def _grouped(self, tree: Join) -> Tree:
        groups: list[Tree] = []
        for piece in map(self.of, tree.pieces):
            last = groups[-1] if groups else None
            if last in self.whole and piece in self.whole:
                assert last is not None
                both = [self.seen[item] for each in (last, piece) for item in pieces_of(each)]
                if is_alike(both):
                    groups[-1] = join_of(tree.origin, tree.dim, [last, piece])
                    self.whole.add(groups[-1])
                    continue
            groups.append(piece)
        # ``join_of`` would dissolve a group with the same dimension, but a group is one part.
        return Join(tree.origin, tree.dim, tuple(groups), tree.shape)

    def count(self, tree: Tree) -> int:
        """Return the number of subtrees with a scale of their own. The trees that join them are added to ``joins``."""
        if tree in self.whole:
            return 1
        self.joins.add(tree)
        if isinstance(tree, Moved):
            return self.count(tree.inner)
        assert isinstance(tree, Join)
        return sum(map(self.count, tree.pieces))

    def mark(self, node: Node, tree: Tree) -> None:
        """Mark a node that joins parts, so that it stays float. Do nothing if its tree is not in ``joins``."""
        if tree in self.joins:
            node.meta["custom"] = {**node.meta.get("custom", {}), JOINS_OUTPUT: True}


_UNIT = ("aten.sigmoid.default", "aten.hardsigmoid.default", *SOFTMAX)


def _known(piece: Piece) -> Seen:
    """Return the range of a piece of a result without samples: [0, 1] for a function with this fixed range, and a far wider one for all
    others."""
    high = 1.0 if str(piece.node.target) in _UNIT else 1e3
    return Seen(0.0, high, (high / 10) ** 2, 1)


def measured(module: GraphModule, pieces: Sequence[Piece], samples: Sequence[Any]) -> dict[Piece, Seen]:
    """Return the observed range of each piece in float runs on the samples."""
    run = _Measuring(module, pieces)
    with torch.no_grad():
        for sample in samples:
            run.of(sample)
    return run.seen


class _Measuring(Run):
    """Runs a float module and stores the observed ranges of pieces in ``seen``."""

    def __init__(self, module: GraphModule, pieces: Sequence[Piece]) -> None:
        super().__init__(module)
        self.seen = dict.fromkeys(pieces, Seen())
        self._pieces: dict[Node, list[Piece]] = {}
        for piece in pieces:
            self._pieces.setdefault(piece.node, []).append(piece)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        for piece in self._pieces.get(n, ()):
            self.seen[piece] = self.seen[piece].with_values(piece.value_of(result))
        return result
