# SPDX-License-Identifier: BSD-3-Clause
"""One-operand functions as a table each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.compiler.graph.unsigned import signed_quant
from openneutron.compiler.select.calls import KernelCall, selects, whole
from openneutron.compiler.select.tables import TABLES, table
from openneutron.ir import DType, Graph, Node


@selects("lookup")
def lookup(graph: Graph, node: Node) -> list[KernelCall]:
    """lookup_s8 with the node's own table."""
    source, entries, result = graph.operand(node, 0), graph.operand(node, 1), graph[node.outputs[0]]
    assert source is not None and entries is not None and entries.data is not None
    views = {"input": whole(source), "output": whole(result)}
    return [KernelCall("lookup_s8", node.name, views, constants={"table": entries.data.view(np.int8)})]


@selects(*TABLES)
def function(graph: Graph, node: Node) -> list[KernelCall]:
    """lookup_s8."""
    source, result = graph.operand(node, 0), graph[node.outputs[0]]
    assert source is not None and source.quant is not None and result.quant is not None
    views = {"input": whole(source), "output": whole(result)}
    made = table(node.op, signed_quant(source), signed_quant(result), node.attrs)
    entries: npt.NDArray[np.uint8] = made.view(np.uint8)
    # The kernel takes every byte for an int8: what a uint8 stands for is 128 entries further on.
    entries = np.roll(entries, 128) if source.dtype is DType.UINT8 else entries
    entries = entries ^ np.uint8(0x80) if result.dtype is DType.UINT8 else entries
    return [KernelCall("lookup_s8", node.name, views, constants={"table": entries.view(np.int8)})]
