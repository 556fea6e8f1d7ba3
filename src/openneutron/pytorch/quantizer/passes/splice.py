# SPDX-License-Identifier: BSD-3-Clause
"""Replace a node by a traced graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from openneutron.pytorch.graph.constants import add_constant
from openneutron.pytorch.graph.marks import STAYS_WHOLE, WRITTEN_AS

_FROM_WHERE = ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn", "from_node")


def splice(module: GraphModule, node: Node, traced: GraphModule, sources: Sequence[Node]) -> list[Node]:
    """Insert copies of the traced graph's nodes, redirect the node's readers to the graph's results, and remove the
    node. Return the copies.

    sources: the values of the graph's inputs. The copies have the node's module path and source line, and name its
    operator (``WRITTEN_AS``).
    """
    made: dict[Node, Any] = {}
    pieces: list[Node] = []
    for piece in traced.graph.nodes:
        if piece.op == "placeholder":
            made[piece] = sources[len(made)]
        elif piece.op == "output":
            result = map_arg(piece.args[0], made.__getitem__)
        elif piece.op == "get_attr":
            value = getattr(traced, str(piece.target))
            made[piece] = add_constant(module, node, f"{node.name}{piece.target}", value)
        else:
            with module.graph.inserting_before(node):
                copy = module.graph.node_copy(piece, made.__getitem__)
            copy.meta = {key: node.meta[key] for key in _FROM_WHERE if key in node.meta}
            copy.meta["val"] = piece.meta.get("val")
            copy.meta["custom"] = _notes(node, piece)
            made[piece] = copy
            pieces.append(copy)
    _hand_over(module, node, result)
    return pieces


def _notes(node: Node, piece: Node) -> dict[str, Any]:
    """Return the merged notes of the replaced node and of the copied node."""
    notes = {key: value for key, value in node.meta.get("custom", {}).items() if key != STAYS_WHOLE}
    own = piece.meta.get("custom", {})
    whole = {STAYS_WHOLE: own[STAYS_WHOLE]} if STAYS_WHOLE in own else {}
    return {**notes, WRITTEN_AS: notes.get(WRITTEN_AS, str(node.target)), **whole}


def _hand_over(module: GraphModule, node: Node, result: Any) -> None:
    """Redirect the node's readers to the copies' results."""
    if isinstance(result, (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem, f"{user.name} reads all results of {node.name} at once"
            if user.users:
                user.replace_all_uses_with(result[user.args[1]])
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    module.graph.erase_node(node)
