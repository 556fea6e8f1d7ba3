# SPDX-License-Identifier: BSD-3-Clause
"""Operators that change the type of numbers, or of bytes, and keep the values."""

from __future__ import annotations

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import limit
from openneutron.ops.table import INPUT, Op, Quantization, shape_of

WHOLE = (DType.INT8, DType.INT32, DType.INT64, DType.BOOL)
"""The integer types that CAST accepts on either side; each is stored with its low byte first."""

_OPERANDS = (INPUT,)


def _whole_numbers(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    for what, tensor in (("input", source), ("output", result)):
        if tensor.dtype not in WHOLE:
            return f"{what} '{tensor.name}' is {tensor.dtype}; it must be int8, int32, int64 or bool"
        if any(extent <= 0 for extent in tensor.shape):
            return f"{what} '{tensor.name}' has shape {list(tensor.shape)}; every extent must be known and above 0"
    if result.dtype is DType.BOOL and source.dtype not in (DType.INT8, DType.BOOL):
        return f"it turns {source.dtype} into bool; of several bytes no kernel tells whether one is not 0"
    return None


def _same_bytes(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    if source.size_bytes == result.size_bytes:
        return None
    return f"its input has {source.size_bytes} bytes, its output {result.size_bytes}"


def _stated_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    assert shape_of(graph, node) is not None
    return (graph[node.outputs[0]].shape,)


_TYPES = limit("int8, int32, int64 or bool; to bool from int8 or bool alone", _whole_numbers)

OPS = (
    Op(
        "cast",
        operands=_OPERANDS,
        kernels=("copy_s8", "lookup_s8"),
        quantization=Quantization.NONE,
        limits=(_TYPES,),
        doc="The stored numbers in another type; where that is narrower, their low bytes.",
    ),
    Op(
        "bitcast",
        operands=_OPERANDS,
        shape=_stated_shape,
        kernels=("copy_s8",),
        quantization=Quantization.NONE,
        limits=(
            _TYPES,
            limit("as many bytes as the input", _same_bytes),
        ),
        doc="The same bytes as another type.",
    ),
)
