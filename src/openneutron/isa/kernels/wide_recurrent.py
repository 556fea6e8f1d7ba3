# SPDX-License-Identifier: BSD-3-Clause
"""Declare recurrent kernels of int16 activations; int16 has no zero points."""

from __future__ import annotations

from openneutron.isa.kernels.recurrent import SEQUENCE_WORDS
from openneutron.isa.kernels.row import CostClass, Operand, Packing, Row, Traits, Work, buffer, constant, signed, state

_TABLE = "bytes; lower words of the int64 bias[8], upper words[8], multiplier[8], shift[8] for each 8 rows"

KERNELS = (
    Row(
        "unidirectional_sequence_lstm_s16",
        "LSTM of int16 with int8 weights over all steps of a sequence (UNIDIRECTIONAL_SEQUENCE_LSTM of LiteRT for "
        "Microcontrollers, 16x8). Gates: input, forget, cell, output.",
        (
            buffer("input", "int16; a row for each sequence, a column for each step", 2),
            buffer("output", "int16; the hidden state after each step", 2),
            state(
                "hidden",
                "int16; a row for each sequence, one column: the hidden state before the first step and after the last one",
                2,
            ),
            *SEQUENCE_WORDS,
            state("gates", "int16; scratch, 4 for each unit side by side", 2),
            signed("cell_shift", "the cell state's scale is 2 to this power, -15 to 0"),
            signed("cell_clip", "the largest magnitude of a cell, stored; 32768: any"),
            signed("hidden_multiplier", "of a product of two numbers with 15 fractional bits, to the hidden state"),
            signed("hidden_shift", "positive shifts left"),
            *constant(
                "input_weights", "bytes; a matrix with a row for each unit of each gate, one gate behind the other"
            ),
            *constant("input_requant", _TABLE),
            *constant("hidden_weights", "bytes; a matrix with as many rows, for the hidden state"),
            *constant("hidden_requant", _TABLE),
            *constant("sigmoid", "bytes, a multiple of 2; uint16[256], 16 fractional bits: sigmoid(i / 24)"),
        ),
        100,
        ("work",),
        traits=Traits(
            operands=tuple(Operand(name) for name in ("input", "hidden", "cell", "gates")),
            cost=Work(CostClass.RECURRENT, inputs="inputs", outputs="cells", steps=4),
        ),
        packings=(
            ("input_weights", Packing.WEIGHT_BLOCKS),
            ("input_requant", Packing.WIDE_REQUANTIZATION),
            ("hidden_weights", Packing.WEIGHT_BLOCKS),
            ("hidden_requant", Packing.WIDE_REQUANTIZATION),
        ),
    ),
)
