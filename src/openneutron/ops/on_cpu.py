# SPDX-License-Identifier: BSD-3-Clause
"""Reasons for the CPU fallback of LiteRT operators where the reason is more than an absent kernel."""

from __future__ import annotations

_STATE = "it keeps state from one run to the next; a program of the NPU keeps none"
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
    **dict.fromkeys(("ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE", "HASHTABLE_LOOKUP", "SVDF"), _STATE),
    **dict.fromkeys(("CALL_ONCE", "IF", "WHILE", "STABLEHLO_COMPOSITE"), _SUBGRAPH),
    **dict.fromkeys(
        (
            *("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"),
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
"""The reasons by LiteRT's name of an operator without a row in the table. Other operators without a row have the
reason that there is no kernel for them."""
