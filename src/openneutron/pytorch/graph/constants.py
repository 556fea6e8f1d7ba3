# SPDX-License-Identifier: BSD-3-Clause
"""Reading and adding constant tensors of a graph module."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node


def constant_of(module: GraphModule, node: object) -> torch.Tensor | None:
    """The tensor a ``get_attr`` node holds, or None for anything else, and for state that the model writes to."""
    if not isinstance(node, Node) or node.op != "get_attr" or is_state(node):
        return None
    owner: object = module
    for part in str(node.target).split("."):
        owner = getattr(owner, part, None)
    return owner.detach() if isinstance(owner, torch.Tensor) else None


def is_state(node: Node) -> bool:
    """Whether a ``get_attr`` node's tensor, or a view of it, is written to when the model runs."""
    waiting, seen = [node], {node}
    while waiting:
        here = waiting.pop()
        for user in here.users:
            if not isinstance(user.target, torch._ops.OpOverload):
                continue
            schema = user.target._schema
            given = dict(zip((item.name for item in schema.arguments), user.args, strict=False)) | dict(user.kwargs)
            for argument in schema.arguments:
                if argument.alias_info is None or given.get(argument.name) is not here:
                    continue
                if argument.alias_info.is_write:
                    return True
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
    return False


def add_constant(module: GraphModule, before: Node, stem: str, value: torch.Tensor) -> Node:
    """A ``get_attr`` node in front of ``before`` for a new buffer; its name is made unique from ``stem``."""
    name = stem.replace(".", "_")
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, value)
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(name)
    sample = before.meta.get("val")
    if isinstance(sample, torch._subclasses.FakeTensor):
        node.meta["val"] = sample.fake_mode.from_tensor(value, static_shapes=True)
    return node
