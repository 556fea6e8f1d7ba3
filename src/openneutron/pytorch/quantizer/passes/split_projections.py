# SPDX-License-Identifier: BSD-3-Clause
"""A linear layer that computes several things at once, as attention's queries, keys and values, becomes one for each.

Each then has a scale of its own instead of that of the largest, and nothing has to be cut apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import add_constant, constant_of
from openneutron.pytorch.graph.rewriting import add_call, finished

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
"""Operators that give every element of their input another place."""

CUTS = frozenset((_aten.select.int, _aten.slice.Tensor))
"""Operators that take a part of their input."""


@dataclass(frozen=True, slots=True)
class SplitProjections:
    """Splits each linear layer all of whose readers take a run of its output features, but those that ``keep`` holds for."""

    keep: Callable[[Node], bool] | None = None

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if (
                node.op == "call_function"
                and node.target is _aten.linear.default
                and not (self.keep and self.keep(node))
            ):
                changed |= _split(module, node)
        return finished(module, changed)


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
    """The operators that take parts of a node's result, also behind views of it; None for any other reader."""
    for user in node.users:
        if user.target in CUTS:
            yield user
        elif user.target in VIEWS:
            yield from _cuts_behind(user)
        else:
            yield None


def _features_of(layer: Node, cut: Node) -> range | None:
    """The run of output features that a cut holds in the layer's own order; None where it holds anything else.

    Found by sending the places of the layer's elements the same way.
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
    """Computes what a cut holds by a layer of its own."""
    stem = str(getattr(layer.args[1], "target", layer.name))
    parts = [add_constant(module, layer, f"{stem}_{cut.name}", weight.clone())]
    if bias is not None:
        parts.append(add_constant(module, layer, f"{stem}_{cut.name}_bias", bias.clone()))
    part = add_call(module, cut, _aten.linear.default, layer.args[0], *parts)
    part.meta = {**layer.meta, "val": part.meta["val"]}
    view = add_call(module, cut, _aten.reshape.default, part, list(cut.meta["val"].shape))
    cut.replace_all_uses_with(view)
