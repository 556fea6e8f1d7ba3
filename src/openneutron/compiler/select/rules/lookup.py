# SPDX-License-Identifier: BSD-3-Clause
"""One-operand functions as a table each, and changes of type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from openneutron.compiler.graph.unsigned import signed_quant
from openneutron.compiler.select.calls import KernelCall, Walk, boxes, call_on_whole, row_major, selects
from openneutron.compiler.select.tables import TABLES, table
from openneutron.ir import DType, Graph, Node


@selects("lookup")
def lookup(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 with the node's own table."""
    entries = graph.given(node, 1).data
    assert entries is not None
    return call_on_whole("lookup_s8", graph, node, constants={"table": entries.view(np.int8)})


@selects(*TABLES)
def function(graph: Graph, node: Node) -> list[KernelCall]:
    """Select lookup_s8 with the function's table."""
    source, result = graph.given(node, 0), graph[node.name]
    made = table(node.op, signed_quant(source), signed_quant(result), node.attrs)
    entries: npt.NDArray[np.uint8] = made.view(np.uint8)
    # The kernel takes every byte for an int8: the entry of a uint8 is 128 entries further on.
    entries = np.roll(entries, 128) if source.dtype is DType.UINT8 else entries
    entries = entries ^ np.uint8(0x80) if result.dtype is DType.UINT8 else entries
    return call_on_whole("lookup_s8", graph, node, constants={"table": entries.view(np.int8)})


_STORED = np.arange(-128, 128)


def _table(function: Callable[[npt.NDArray[np.int_]], npt.ArrayLike]) -> dict[str, npt.NDArray[np.int8]]:
    return {"table": np.asarray(function(_STORED)).astype(np.int8)}


@selects("cast")
def cast(graph: Graph, node: Node) -> list[KernelCall]:
    """Copy the low bytes; where the result has more bytes, fill them with the sign."""
    source, result = graph.given(node, 0), graph[node.name]
    shape, narrow, wide = source.shape, source.dtype.size_bytes, result.dtype.size_bytes
    taken, given = row_major((*shape, narrow)), row_major((*shape, wide))
    kept = (*shape, min(narrow, wide))
    low = boxes(kept, {"input": Walk(source.name, taken), "output": Walk(result.name, given)})
    if result.dtype is DType.BOOL and source.dtype is DType.INT8:
        return [
            KernelCall("lookup_s8", node.name, views, constants=_table(lambda stored: stored != 0)) for views in low
        ]
    calls = [KernelCall("copy_s8", node.name, views) for views in low]
    if wide > narrow:
        sign = Walk(source.name, (*taken[:-1], 0), narrow - 1)
        high = boxes((*shape, wide - narrow), {"input": sign, "output": Walk(result.name, given, narrow)})
        table = _table(lambda stored: -(stored < 0).astype(np.int8))
        calls += [KernelCall("lookup_s8", node.name, views, constants=table) for views in high]
    return calls
