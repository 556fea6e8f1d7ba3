# SPDX-License-Identifier: BSD-3-Clause
"""One-operand functions as a table each."""

from __future__ import annotations

from openneutron.compiler.calls import KernelCall, selects, whole
from openneutron.compiler.tables import TABLES, table
from openneutron.ir import Graph, Node


@selects("lookup")
def lookup(graph: Graph, node: Node) -> list[KernelCall]:
    """lookup_s8 with the node's own table."""
    source, entries, result = graph.operand(node, 0), graph.operand(node, 1), graph[node.outputs[0]]
    assert source is not None and entries is not None and entries.data is not None
    views = {"input": whole(source), "output": whole(result)}
    return [KernelCall("lookup_s8", node.name, views, constants={"table": entries.data.tobytes()})]


@selects(*TABLES)
def function(graph: Graph, node: Node) -> list[KernelCall]:
    """lookup_s8."""
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None and source.quant is not None and result.quant is not None
    views = {"input": whole(source), "output": whole(result)}
    constants = {"table": table(node.op, source.quant, result.quant, node.attrs).tobytes()}
    return [KernelCall("lookup_s8", node.name, views, constants=constants)]
