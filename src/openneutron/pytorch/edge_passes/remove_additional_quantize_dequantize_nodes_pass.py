# SPDX-License-Identifier: BSD-3-Clause
"""Remove quantize and dequantize nodes around CPU operators that only move values, so that they move int8 values."""

from __future__ import annotations

from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_DQ = exir_ops.edge.quantized_decomposed.dequantize_per_tensor.default
_Q = exir_ops.edge.quantized_decomposed.quantize_per_tensor.default
_MOVERS = (exir_ops.edge.aten.permute_copy.default, exir_ops.edge.aten.cat.default)


class RemoveAdditionalQDQClustersPass(ExportPass):
    """Removes the dequantize and quantize nodes around a permute or a concatenation on the CPU, which then moves
    quantized values. This is done only if all these nodes have the same quantization parameters.

    The pass runs after lowering: ``NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()])``.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        changed = False
        for node in list(graph_module.graph.nodes):
            if node.op == "call_function" and node.target in _MOVERS:
                changed |= _in_int8(node)
        if changed:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, changed)


def _in_int8(node: Node) -> bool:
    around = [*node.all_input_nodes, *node.users]
    if not all(source.target is _DQ for source in node.all_input_nodes) or not all(
        user.target is _Q for user in node.users
    ):
        return False
    if not node.users or len({each.args[1:] for each in around}) != 1:
        return False
    for source in node.all_input_nodes:
        node.replace_input_with(source, source.args[0])
    for user in list(node.users):
        node.meta["val"] = user.meta["val"]
        user.replace_all_uses_with(node)
    return True
