# SPDX-License-Identifier: BSD-3-Clause
"""What the passes over ATen graphs have in common: how they add a call, and how they end."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult


def add_call(module: GraphModule, before: Node, target: torch._ops.OpOverload, *args: object) -> Node:
    """A call in front of ``before``, from the same place of the model, with the (fake) value it has."""
    with module.graph.inserting_before(before):
        node = module.graph.call_function(target, args)
    values = map_arg(node.args, lambda source: source.meta["val"])
    with torch.no_grad(), before.meta["val"].fake_mode:
        node.meta = {**before.meta, "val": target(*values)}
    return node


def finished(module: GraphModule, changed: bool) -> PassResult:
    """The result of a pass: where it changed something, without what nothing reads any more, and compiled anew."""
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()
    return PassResult(module, changed)
