# SPDX-License-Identifier: BSD-3-Clause
"""Every reader of a quantized value gets a dequantize node of its own, so that one can be delegated without the other."""

from __future__ import annotations

from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import is_dequantize


def has_shared_dequantize(graph: Graph) -> bool:
    return any(is_dequantize(node) and len(node.users) > 1 for node in graph.nodes)


def duplicate_dequantize(graph: Graph) -> bool:
    """Copies dequantize nodes that several nodes read; True if anything changed."""
    changed = False
    for node in list(graph.nodes):
        if not is_dequantize(node):
            continue
        for user in list(node.users)[1:]:
            with graph.inserting_after(node):
                twin = graph.node_copy(node)
            user.replace_input_with(node, twin)
            changed = True
    return changed


class DuplicateDequantizePass:
    """``duplicate_dequantize`` as a pass for ExecuTorch's pass managers."""

    def __call__(self, graph_module: GraphModule) -> PassResult:
        changed = duplicate_dequantize(graph_module.graph)
        if changed:
            graph_module.recompile()
        return PassResult(graph_module, changed)
