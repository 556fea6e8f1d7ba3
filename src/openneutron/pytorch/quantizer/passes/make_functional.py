# SPDX-License-Identifier: BSD-3-Clause
"""In-place operators become their out-of-place forms, so that the quantizer has one form of each to know."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_RETURNS_ITS_INPUT = frozenset(("aten::dropout", "aten::feature_dropout", "aten::to", "aten::_to_copy"))
"""Operators that may hand back their input itself although their schema does not say so."""


@dataclass(frozen=True, slots=True)
class MakeFunctional:
    """Rewrites ``x.relu_()`` to ``x.relu()``, for every operator that has both forms.

    Left alone where the old value of ``x`` lives on under another name (a view of it that is read later), or where ``x`` is
    the model's own state.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        return PassResult(module, _make_functional(module))


def _make_functional(module: GraphModule) -> bool:
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    changed = False
    for node in list(module.graph.nodes):
        functional = _functional_form(node)
        if functional is None or not isinstance(node.args[0], Node):
            continue
        target = node.args[0]
        aliases = _aliases(target, node)
        if any(alias.op == "get_attr" for alias in aliases):
            continue
        others = aliases - {target}
        if any(places.get(user, 0) > places[node] for alias in others for user in alias.users):
            continue
        for user in list(target.users):
            if places.get(user, 0) > places[node]:
                user.replace_input_with(target, node)
        node.target = functional
        changed = True
    if changed:
        module.recompile()
    return changed


def _functional_form(node: Node) -> torch._ops.OpOverload | None:
    """The out-of-place overload with the same arguments, if ``node`` is an in-place ATen call on its first argument."""
    overload = node.target
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload) or overload.namespace != "aten":
        return None
    name = overload._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name.startswith("_") or not overload._schema.is_mutable:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, overload._overloadname, None) if packet is not None else None


def _aliases(node: Node, writer: Node) -> set[Node]:
    """Every node whose value may share memory with this one's, not counting those that see it through ``writer``."""
    found, waiting = {node}, [node]
    while waiting:
        here = waiting.pop()
        near = [user for user in here.users if _is_view_of(user, here)]
        near += [source for source in here.all_input_nodes if _is_view_of(here, source)]
        for other in near:
            if other not in found and other is not writer:
                found.add(other)
                waiting.append(other)
    return found


def _is_view_of(node: Node, source: Node) -> bool:
    overload = node.target
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload):
        return False
    if not node.args or node.args[0] is not source:
        return False
    returns = overload._schema.returns
    return overload._schema.name in _RETURNS_ITS_INPUT or any(item.alias_info is not None for item in returns)
