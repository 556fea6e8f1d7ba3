# SPDX-License-Identifier: BSD-3-Clause
"""Composite operators become the operators they are made of, so that each piece gets a quantization of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_flatten, tree_unflatten

from openneutron.pytorch.aten_passes.constants import add_constant
from openneutron.pytorch.aten_passes.decompositions import DECOMPOSITIONS, Keep
from openneutron.pytorch.aten_passes.rewriting import finished

WRITTEN_AS = "written_as"
"""The key of ``node.meta["custom"]`` that names the operator a piece was made from."""

_FROM_WHERE = ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn", "from_node")


@dataclass(frozen=True, slots=True)
class Decompose:
    """Replaces each call of an operator in ``DECOMPOSITIONS`` by what its function does, until none is left.

    keep: calls to leave alone. Pieces keep the module path and source line of the call, and say in ``meta["custom"]`` which
    operator they come from.
    """

    keep: Callable[[Node], bool] | None = None

    def __call__(self, module: GraphModule) -> PassResult:
        waiting = [node for node in module.graph.nodes if _is_composite(node)]
        changed = False
        while waiting:
            node = waiting.pop()
            if self.keep is not None and self.keep(node):
                continue
            pieces = _replace(module, node)
            changed |= pieces is not None
            waiting += [piece for piece in pieces or () if _is_composite(piece)]
        return finished(module, changed)


def _is_composite(node: Node) -> bool:
    return node.op == "call_function" and str(node.target) in DECOMPOSITIONS


def _replace(module: GraphModule, node: Node) -> list[Node] | None:
    """Puts the pieces in front of the node and takes it out; None, and nothing done, for a call that is left alone."""
    overload = node.target
    assert isinstance(overload, torch._ops.OpOverload)
    if not _has_fixed_shapes(node):
        return None
    traced = _traced(overload, node)
    if traced is None or _lacks_a_result(traced[1], node):
        return None
    sources, graph_module = traced
    made: dict[Node, Any] = {}
    pieces: list[Node] = []
    for piece in graph_module.graph.nodes:
        if piece.op == "placeholder":
            made[piece] = sources[len(made)]
        elif piece.op == "output":
            result = map_arg(piece.args[0], made.__getitem__)
        elif piece.op == "get_attr":
            value = getattr(graph_module, str(piece.target))
            assert not isinstance(value, FakeTensor), f"{overload}: constants come from torch.full, ones, arange, tril"
            made[piece] = add_constant(module, node, f"{node.name}{piece.target}", value)
        else:
            with module.graph.inserting_before(node):
                copy = module.graph.node_copy(piece, made.__getitem__)
            copy.meta = {key: node.meta[key] for key in _FROM_WHERE if key in node.meta}
            copy.meta["val"] = piece.meta.get("val")
            custom = node.meta.get("custom", {})
            copy.meta["custom"] = {**custom, WRITTEN_AS: custom.get(WRITTEN_AS, str(overload))}
            made[piece] = copy
            pieces.append(copy)
    _hand_over(module, node, result)
    return pieces


def _lacks_a_result(graph_module: GraphModule, node: Node) -> bool:
    """Whether one of several results is used that the decomposition does not compute."""
    results = next(iter(reversed(graph_module.graph.nodes))).args[0]
    if not isinstance(results, (list, tuple)):
        return False
    return any(user.target is operator.getitem and results[user.args[1]] is None for user in node.users if user.users)


def _has_fixed_shapes(node: Node) -> bool:
    values = [item.meta.get("val") for item in (*node.all_input_nodes, node)]
    tensors = [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]
    return all(isinstance(extent, int) for tensor in tensors for extent in tensor.shape)


def _traced(overload: torch._ops.OpOverload, node: Node) -> tuple[list[Node], GraphModule] | None:
    """The decomposition of this call as a graph of the call's tensors; None where it is left alone."""
    names = [argument.name for argument in overload._schema.arguments]
    given = {item.name: item.default_value for item in overload._schema.arguments if item.has_default_value()}
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    leaves, spec = tree_flatten(given)
    sources = [leaf for leaf in leaves if isinstance(leaf, Node)]
    values = [source.meta.get("val") for source in sources]
    fakes = [value for value in values if isinstance(value, FakeTensor)]
    if len(fakes) != len(sources):
        return None
    function = DECOMPOSITIONS[str(overload)]
    left_alone = False

    def call(*tensors: torch.Tensor) -> Any:
        nonlocal left_alone
        rest = iter(tensors)
        filled = [next(rest) if isinstance(leaf, Node) else leaf for leaf in leaves]
        result = function(**tree_unflatten(filled, spec))
        left_alone = isinstance(result, Keep)
        return tensors[0] if left_alone else result

    with torch.no_grad(), fakes[0].fake_mode:
        graph_module = make_fx(call, pre_dispatch=True)(*fakes)
    return None if left_alone else (sources, graph_module)


def _hand_over(module: GraphModule, node: Node, result: Any) -> None:
    """Gives the node's readers the pieces' results instead."""
    if isinstance(result, (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem, f"{user.name} reads all results of {node.name} at once"
            if user.users:
                user.replace_all_uses_with(result[user.args[1]])
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    module.graph.erase_node(node)
