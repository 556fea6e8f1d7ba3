# SPDX-License-Identifier: BSD-3-Clause
"""Change graphs that were exported in training mode so that they compute as in inference."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import add_call

_aten = torch.ops.aten

NORMS = (_aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit.default)
"""The operators with running statistics that ``run_decompositions`` turns batch normalizations in training into."""

COUNTER = "num_batches_tracked"


def to_inference(module: GraphModule, with_dropout: bool = True) -> bool:
    """Change a graph in place so that batch normalizations use their running statistics.

    With ``with_dropout``, dropouts drop nothing either. Return whether the graph may compute other values now. Such a graph updates
    neither the running statistics nor the counters of batches.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target in NORMS:
            changed |= _to_running(module, node)
        elif node.target is _aten.native_dropout.default and with_dropout:
            changed |= node.args[2] is not False
            for user in list(node.users):
                if user.target is operator.getitem and user.args[1] == 0:
                    user.replace_all_uses_with(node.args[0])
                if not user.users:
                    module.graph.erase_node(user)
            if not node.users:  # as a random operator it is never dead
                module.graph.erase_node(node)
        elif with_dropout or node.target is _aten.batch_norm.default:
            changed |= _set_arguments(node)
    if changed:
        _drop_writes(module)
        module.graph.eliminate_dead_code()
        module.recompile()
    return changed


def _set_arguments(node: Node) -> bool:
    """Set the arguments of a call that select training, such as ``training`` and ``dropout_p``, to those of inference.

    Return whether the call may compute other values now. A batch normalization without running statistics stays as it is.
    """
    given = arguments_of(node)
    if "momentum" in given and given.get("running_mean") is None:
        return False  # the statistics of the batch are the only ones
    wanted: dict[str, Any] = {"train": False, "training": False, "use_input_stats": False, "dropout_p": 0.0}
    assert isinstance(node.target, torch._ops.OpOverload)
    changed = False
    for place, item in enumerate(node.target._schema.arguments):
        if item.name not in wanted or given[item.name] in (None, wanted[item.name]):
            continue
        # In a recurrent layer without dropout the flag changes nothing.
        changed |= given.get("dropout", 1.0) != 0.0
        if place < len(node.args):
            node.update_arg(place, wanted[item.name])
        else:
            node.update_kwarg(item.name, wanted[item.name])
    return changed


def _to_running(module: GraphModule, norm: Node) -> bool:
    given = arguments_of(norm)
    statistics = given["running_mean"], given["running_var"]
    if None in statistics:
        return False
    arguments = (
        given["input"],
        given["weight"],
        given["bias"],
        *statistics,
        False,
        given["momentum"],
        given["eps"],
        False,
    )
    result = add_call(module, norm, _aten.batch_norm.default, *arguments)
    kept = {0: result, 3: statistics[0], 4: statistics[1]}
    for user in list(norm.users):
        if user.target is operator.getitem and user.args[1] in kept:
            user.replace_all_uses_with(kept[user.args[1]])
    return True


def _drop_writes(module: GraphModule) -> None:
    """Remove the updates of ``num_batches_tracked``, and each copy of a tensor to itself."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in (_aten.add_.Tensor, _aten.copy_.default):
            continue
        state, source = node.args[:2]
        counts = isinstance(state, Node) and str(state.target).rpartition(".")[2] == COUNTER
        if (counts or state is source) and not node.users:
            module.graph.erase_node(node)
