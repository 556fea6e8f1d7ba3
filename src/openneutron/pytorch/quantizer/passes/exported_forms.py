# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite an exported graph to plain out-of-place calls, so that later passes have one form of each operator."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.rewriting import add_constant, finished

WRAPPERS = {
    "wrap_with_set_grad_enabled": (1, 2),
    "wrap_with_autocast": (4, 5),
    "wrap": (0, 1),
    "tag_activation_checkpoint": (0, 1),
    "invoke_subgraph": (0, 2),
}
"""The argument indices of a wrapper's body and of the first tensor for the body."""

AUTOCAST_ENABLED = 2
"""The argument index of autocast's flag."""


@dataclass(frozen=True, slots=True)
class InlineWrappers:
    """Inline the bodies of wrappers that change no value: ``torch.no_grad()``, disabled autocast, checkpoints.

    For example, the rotary embeddings of Hugging Face's language models are computed under ``torch.no_grad()``, from
    constants only.

    Enabled autocast stays: it changes the types of the results.

    training: bodies of ``torch.no_grad()`` that read any tensor stay too, since they are not trained.
    """

    training: bool = False

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        waiting = [node for node in module.graph.nodes if self._is_inlined(module, node)]
        while waiting:
            copies = _inline(module, waiting.pop())
            waiting += [node for node in copies if self._is_inlined(module, node)]
            changed = True
        result = finished(module, changed)
        if changed:
            _drop_unread(module)
        return result

    def _is_inlined(self, module: GraphModule, node: Node) -> bool:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        name = node.target.name()
        if name not in WRAPPERS or _body(module, node) is None or node.kwargs:
            return False
        if name == "wrap_with_autocast":
            return not node.args[AUTOCAST_ENABLED]
        operands = node.args[WRAPPERS[name][1] :]
        return not (self.training and name == "wrap_with_set_grad_enabled" and not node.args[0] and operands)


def _body(module: GraphModule, node: Node) -> GraphModule | None:
    assert isinstance(node.target, torch._ops.HigherOrderOperator)
    body = node.args[WRAPPERS[node.target.name()][0]]
    if not isinstance(body, Node) or body.op != "get_attr":
        return None
    found = _attribute(module, str(body.target))
    return found if isinstance(found, GraphModule) else None


def _attribute(owner: object, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def _inline(module: GraphModule, node: Node) -> list[Node]:
    """Replace the wrapper by copies of its body's nodes, and return the copies."""
    body = _body(module, node)
    assert body is not None and isinstance(node.target, torch._ops.HigherOrderOperator)
    place, first = WRAPPERS[node.target.name()]
    path = str(node.args[place].target)
    operands = iter(node.args[first:])
    made: dict[Node, Any] = {}
    results: Sequence[Any] = ()
    for inner in body.graph.nodes:
        if inner.op == "placeholder":
            made[inner] = next(operands)
        elif inner.op == "output":
            results = map_arg(inner.args[0], made.__getitem__)
        elif inner.op == "get_attr" and isinstance(value := _attribute(body, str(inner.target)), torch.Tensor):
            made[inner] = add_constant(module, node, f"{path}_{inner.target}", value)
            made[inner].meta = dict(inner.meta)
        else:
            with module.graph.inserting_before(node):
                made[inner] = module.graph.node_copy(inner, made.__getitem__)
            if inner.op == "get_attr":
                made[inner].target = f"{path}.{inner.target}"
    for user in list(node.users):
        assert user.target is operator.getitem, f"{user.name} reads all results of {node.name} at once"
        user.replace_all_uses_with(results[user.args[1]])
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    return [copy for inner, copy in made.items() if inner.op == "call_function"]


def _drop_unread(module: GraphModule) -> None:
    """Delete the bodies that no wrapper uses any more."""
    read = {str(node.target).split(".")[0] for node in module.graph.find_nodes(op="get_attr")}
    for name, child in list(module.named_children()):
        if isinstance(child, GraphModule) and name not in read:
            module.delete_submodule(name)


_RETURNS_ITS_INPUT = frozenset(("aten::dropout", "aten::feature_dropout", "aten::to", "aten::_to_copy"))
"""Operators that may hand back their input itself although their schema does not say so."""


@dataclass(frozen=True, slots=True)
class MakeFunctional:
    """Rewrite ``x.relu_()`` to ``x.relu()``, for every operator that has both forms.

    An operator stays where the old value of ``x`` is read later through a view, or where ``x`` is
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
    """Return the out-of-place overload with the same arguments, if ``node`` is an in-place ATen call on its first argument."""
    overload = node.target
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload) or overload.namespace != "aten":
        return None
    name = overload._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name.startswith("_") or not overload._schema.is_mutable:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, overload._overloadname, None) if packet is not None else None


def _aliases(node: Node, writer: Node) -> set[Node]:
    """Return the nodes whose values may share memory with this node, except through ``writer``."""
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
