# SPDX-License-Identifier: BSD-3-Clause
"""Write slices of concatenations as their operands, and writes at constant indices as concatenations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.joins import Join, built, move_of, moved, pieces_of, shape_of, tree_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call, constant_of, finished

_aten = torch.ops.aten

MOST_RUNS = 16
"""A write at constant indices becomes a concatenation of at most this many pieces."""


@dataclass(frozen=True, slots=True)
class PutsToJoins(NodePass):
    """Rewrite ``y[..., [3, 4]] = x`` with constant indices to a concatenation of slices of ``y`` and ``x``."""

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
        node.replace_all_uses_with(joined)
        module.graph.erase_node(node)
        return True


def _runs(places: list[int], extent: int) -> list[tuple[bool | None, int, int]]:
    """Return the rows of a table in order as runs of rows: (None, first, last) of its own, (True, first, last) of the values."""
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
class SlicesOfJoins:
    """Rewrite ``cat([a, b], 1)[:, :n]`` to ``a``, through shape operators and further concatenations, where all readers of the
    concatenation are such slices or results of the model.

    One scale for all operands would serve none of the readers.
    """

    targets = (_aten.slice.Tensor,)

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target is _aten.slice.Tensor:
                changed |= self._resolved(module, node)
        return finished(module, changed)

    def _resolved(self, module: GraphModule, node: Node) -> bool:
        move, source = move_of(node), node.args[0]
        if move is None or not isinstance(source, Node) or not _is_only_sliced(source):
            return False
        whole = tree_of(source)
        if not isinstance(whole, Join):
            return False
        part = moved(whole, move)
        if sum(1 for _ in pieces_of(part)) >= sum(1 for _ in pieces_of(whole)):
            return False
        node.replace_all_uses_with(built(module, node, part))
        module.graph.erase_node(node)
        return True


def _is_only_sliced(node: Node) -> bool:
    """Return whether all that reads a concatenation, or shape operators behind it, are slices and results of the model."""
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
