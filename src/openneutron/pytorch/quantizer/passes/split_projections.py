# SPDX-License-Identifier: BSD-3-Clause
"""Split a linear layer of several projections, such as attention's queries, keys and values, into one layer for each.

Each result then has a scale of its own instead of that of the largest, and needs no slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of

_aten = torch.ops.aten

VIEWS = frozenset(
    (
        _aten.contiguous.default,
        _aten.permute.default,
        _aten.reshape.default,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
        _aten.transpose.int,
        _aten.unflatten.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)
"""Operators that only move the elements of their input."""

CUTS = frozenset((_aten.select.int, _aten.slice.Tensor))
"""Operators that take a part of their input."""


@dataclass(frozen=True, slots=True)
class SplitProjections(NodePass):
    """Split each linear layer all of whose readers take a range of its output features. keep: layers to leave alone."""

    keep: Callable[[Node], bool] | None = None

    targets = (_aten.linear.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return (self.keep is None or not self.keep(node)) and _split(module, node)


def _split(module: GraphModule, layer: Node) -> bool:
    weight, shape = constant_of(module, layer.args[1]), layer.meta["val"].shape
    bias_node = layer.args[2] if len(layer.args) > 2 else None
    bias = constant_of(module, bias_node)
    if weight is None or layer.kwargs or (bias is None and bias_node is not None):
        return False
    if not all(isinstance(extent, int) for extent in shape):
        return False
    cuts = list(_cuts_behind(layer))
    if len(cuts) < 2 or any(cut is None for cut in cuts):
        return False
    runs = {cut: _features_of(layer, cut) for cut in cuts if cut is not None}
    if any(run is None or len(run) == shape[-1] for run in runs.values()):
        return False
    for cut, run in runs.items():
        assert run is not None
        _replace(module, layer, cut, weight[run.start : run.stop], None if bias is None else bias[run.start : run.stop])
    return True


def _cuts_behind(node: Node) -> Iterator[Node | None]:
    """Return the operators that take parts of a node's result or of a view of the result; None for any other reader."""
    for user in node.users:
        if user.target in CUTS:
            yield user
        elif user.target in VIEWS:
            yield from _cuts_behind(user)
        else:
            yield None


def _features_of(layer: Node, cut: Node) -> range | None:
    """Return the range of output features that a cut holds in the layer's order, or None for any other cut.

    The cut is applied to the indices of the layer's elements.
    """
    shape = layer.meta["val"].shape
    places = torch.arange(math.prod(shape)).reshape(shape)
    chain = [cut]
    while chain[-1] is not layer:
        source = chain[-1].args[0]
        assert isinstance(source, Node)
        chain.append(source)
    taken = places
    for node in reversed(chain[:-1]):
        assert isinstance(node.target, torch._ops.OpOverload)
        taken = node.target(taken, *node.args[1:], **node.kwargs)
    features = shape[-1]
    rows = places.numel() // features
    if not taken.numel() or taken.numel() % rows:
        return None
    start = int(taken.flatten()[0])
    run = range(start, start + taken.numel() // rows)
    if run.stop > features or not torch.equal(taken.flatten(), places[..., run.start : run.stop].flatten()):
        return None
    return run


def _replace(module: GraphModule, layer: Node, cut: Node, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Compute a cut by a layer of its own."""
    stem = str(getattr(layer.args[1], "target", layer.name))
    parts = [add_constant(module, layer, f"{stem}_{cut.name}", weight.clone())]
    if bias is not None:
        parts.append(add_constant(module, layer, f"{stem}_{cut.name}_bias", bias.clone()))
    part = add_call(module, cut, _aten.linear.default, layer.args[0], *parts)
    part.meta = {**layer.meta, "val": part.meta["val"]}
    view = add_call(module, cut, _aten.reshape.default, part, list(cut.meta["val"].shape))
    cut.replace_all_uses_with(view)
