# SPDX-License-Identifier: BSD-3-Clause
"""Layers of concatenated inputs with different ranges, such as volts and kilopascals: one layer for each part, and a sum.

A concatenation has one scale, which would leave no steps for the part of small values. A layer of parts has a scale for each, for
its weights too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.joins import Piece
from openneutron.pytorch.graph.rewriting import add_call, add_constant, constant_of
from openneutron.pytorch.quantizer.heads import measured
from openneutron.pytorch.quantizer.observers import Seen, is_alike
from openneutron.pytorch.source.exporting import SAMPLES, FirstSamples

_aten = torch.ops.aten

_CHANNELS = {
    _aten.linear.default: -1,
    _aten.conv1d.default: 1,
    _aten.conv2d.default: 1,
    _aten.conv2d.padding: 1,
}
"""Layers and the dimension over which they add up."""

MOST_PARTS = 4
"""Layers of more parts stay whole."""


def split_layers(module: GraphModule, samples: FirstSamples | None) -> bool:
    """Rewrite ``linear(cat([a, b], -1))`` as ``linear(a) + linear(b)``, and convolutions likewise, where the first samples show
    different ranges of a and b. Return whether the graph has changed."""
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
        if 1 < len(groups) <= MOST_PARTS:
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
    """Return the concatenation over whose dimension a layer adds up; None for other nodes."""
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
    """Return runs of neighbours with similar ranges."""
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
    layer.replace_all_uses_with(total)
    module.graph.erase_node(layer)
