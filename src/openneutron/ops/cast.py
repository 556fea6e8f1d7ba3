# SPDX-License-Identifier: BSD-3-Clause
"""Operators that change the type of numbers, or of bytes, and keep the values."""

from __future__ import annotations

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import extent_reason, limit
from openneutron.ops.table import Op, Quantization, stated_shape

WHOLE = (DType.INT8, DType.INT32, DType.INT64, DType.BOOL)
"""The integer types that CAST accepts on either side; each is stored with its low byte first."""


def _whole_numbers(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    for what, tensor in (("input", source), ("output", result)):
        if tensor.dtype not in WHOLE:
            return f"{what} '{tensor.name}' is {tensor.dtype}; it must be int8, int32, int64 or bool"
        if reason := extent_reason(tensor, what):
            return reason
    if result.dtype is DType.BOOL and source.dtype not in (DType.INT8, DType.BOOL):
        return f"it turns {source.dtype} into bool; of several bytes no kernel tells whether one is not 0"
    return None


def _same_bytes(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    if source.size_bytes == result.size_bytes:
        return None
    return f"its input has {source.size_bytes} bytes, its output {result.size_bytes}"


_TYPES = limit("int8, int32, int64 or bool; to bool from int8 or bool alone", _whole_numbers)

OPS = (
    Op(
        "cast",
        kernels=("copy_s8", "lookup_s8"),
        quantization=Quantization.NONE,
        limits=(_TYPES,),
        doc="The stored numbers in another type; where that is narrower, their low bytes.",
    ),
    Op(
        "bitcast",
        shape=stated_shape,
        kernels=("copy_s8",),
        quantization=Quantization.NONE,
        limits=(_TYPES, limit("as many bytes as the input", _same_bytes)),
        doc="The same bytes as another type.",
    ),
)
