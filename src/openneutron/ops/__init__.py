# SPDX-License-Identifier: BSD-3-Clause
"""The operator table: one row per operator, looked up by every stage."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops import conv, elementwise, indexed, places, recurrent, reductions, shape
from openneutron.ops.table import Attribute, Op, Operand, Quantization, Role

_FAMILIES = (conv, reductions, elementwise, shape, indexed, places, recurrent)

OPS: tuple[Op, ...] = tuple(row for family in _FAMILIES for row in family.OPS)
BY_NAME = {op.name: op for op in OPS}
BY_LITERT = {op.litert: op for op in OPS if op.litert}


_STATE = (
    "it keeps state from one run to the next in a form that no program of the NPU has. Only variables that CALL_ONCE sets, and that are "
    "read once and then written, become states of a program"
)
_SUBGRAPH = "it runs another subgraph of the file; a program of the NPU is one sequence of operators without branches"
_RECURRENT = (
    "it runs over a sequence step by step with several gates in int16; no kernel computes that. "
    "Unroll the layer into its matrix products"
)
_STORED = "it computes with stored values as if they were plain integers and wraps around; no kernel does that"
_EXTREMA = "it compares stored values whatever they stand for; MAXIMUM and MINIMUM are its forms in a quantized model"
_FLOAT = "its result is float32; the NPU computes on int8"
_UNKNOWN_SIZE = "the size of its result depends on the values; a program of the NPU has fixed shapes"
_POSITIONS = "its StableHLO form states its own dimension numbers; no rule reads them. Convert the model to LiteRT's own operators"
_INTEGERS = "it computes on plain integers; the NPU computes on int8"

ON_CPU: dict[str, str] = {
    **dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE", "HASHTABLE_LOOKUP"), _STATE),
    **dict.fromkeys(("CALL_ONCE", "IF", "WHILE", "STABLEHLO_COMPOSITE"), _SUBGRAPH),
    **dict.fromkeys(
        (
            "LSTM",
            *("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"),
        ),
        _RECURRENT,
    ),
    **dict.fromkeys(("BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_AND", "STABLEHLO_SHIFT_LEFT"), _STORED),
    **dict.fromkeys(("STABLEHLO_ADD", "STABLEHLO_MULTIPLY"), _STORED),
    **dict.fromkeys(("STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"), _EXTREMA),
    **dict.fromkeys(("DEQUANTIZE", "EMBEDDING_LOOKUP_SPARSE"), _FLOAT),
    **dict.fromkeys(("UNIQUE", "WHERE"), _UNKNOWN_SIZE),
    **dict.fromkeys(("STABLEHLO_GATHER", "STABLEHLO_PAD", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER"), _POSITIONS),
    **dict.fromkeys(("BROADCAST_ARGS", "BUCKETIZE", "RANGE"), _INTEGERS),
    "FAKE_QUANT": "it rounds float32 values to steps; LiteRT reads the bytes of an int8 tensor as float32",
    "REDUCE_WINDOW": "it computes on plain integers in windows; AVERAGE_POOL_2D and MAX_POOL_2D are its int8 forms",
    "STABLEHLO_RNG_BIT_GENERATOR": "it makes random numbers",
    "TOPK_V2": "no kernel sorts; of the largest value alone REDUCE_MAX and ARG_MAX run",
}
"""The reason why an operator stays on the CPU, by LiteRT's name. Other operators without a row have the reason that
there is no kernel for them."""


def reject(graph: Graph, node: Node) -> str | None:
    """Return the reason why a node can't be compiled; None if it can.

    The reason is that the operator has no row, or the first limit that the node or one of its parts breaks.
    """
    op = BY_NAME.get(node.op)
    if op is None:
        return ON_CPU.get(node.op, f"there is no kernel for {node.op}")
    reason = op.reject(graph, node)
    if reason is not None or not op.is_composed(graph, node):
        return reason
    parts = op.composition(graph, node).within(graph)
    return next((reason for part in parts.nodes if (reason := reject(parts, part)) is not None), None)


__all__ = ["BY_LITERT", "BY_NAME", "ON_CPU", "OPS", "Attribute", "Op", "Operand", "Quantization", "Role", "reject"]
