# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels that go through a sequence step by step with a state. One call computes all steps."""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    EVERYTHING,
    JOB_WORDS,
    Audited,
    CostClass,
    Operand,
    Packing,
    Row,
    Traits,
    Work,
    audited,
    buffer,
    constant,
    factor,
    scratch,
    signed,
    state,
)

_SEQUENCE_WORDS = (
    state("cell", "int16; a row for each sequence: the units' state before the first step and after the last one", 2),
    signed("work", "multiply-accumulates of a step for each output channel, rounded up, over 4"),
    signed("inputs", "channels of the input"),
    signed("cells", "units of the layer"),
    signed("outputs", "channels of the output"),
    signed("backwards", "0: from the first column to the last; 1: from the last to the first"),
    signed(
        "starts",
        "0: with the states as they are; 1: with a hidden state of first_hidden and the rest 0; "
        "2: with the hidden state as it is and the units' state made of it (recurrent_s8)",
    ),
    signed("first_hidden", "the stored value of a hidden state of 0"),
)
"""The words that each recurrent kernel has after its input, its output and its hidden state."""

_SEQUENCE = (
    buffer("input", "int8; a row for each sequence, a column for each step"),
    buffer("output", "int8; the hidden state after each step"),
    state(
        "hidden",
        "int8; a row for each sequence, one column: the hidden state before the first step and after the last one",
    ),
    *_SEQUENCE_WORDS,
)
_PRODUCTS = (
    *constant("input_weights", "bytes; a matrix with a row for each unit of each gate, one gate behind the other"),
    *constant("input_requant", "bytes; int32 bias[8], multiplier[8], shift[8] for each 8 rows"),
    *constant("hidden_weights", "bytes; a matrix with as many rows, for the hidden state"),
    *constant("hidden_requant", "bytes; int32 bias[8], multiplier[8], shift[8] for each 8 rows"),
)
_PACKINGS = (
    ("input_weights", Packing.WEIGHT_BLOCKS),
    ("input_requant", Packing.REQUANTIZATION),
    ("hidden_weights", Packing.WEIGHT_BLOCKS),
    ("hidden_requant", Packing.REQUANTIZATION),
)
_OPERANDS = tuple(Operand(name, EVERYTHING) for name in ("input", "hidden", "cell", "gates"))
_TABLE = "bytes; lower words of the int64 bias[8], upper words[8], multiplier[8], shift[8] for each 8 rows"

_JOB_CODES = {"unidirectional_sequence_lstm_s8": 39, "recurrent_s8": 40}
"""The ids of the kernels with jobs, by the kernel without."""

_BASE = audited(
    Audited.SEQUENCE,
    Row(
        "unidirectional_sequence_lstm_s8",
        "LSTM of int8 with an int16 cell state over all steps of a sequence (LiteRT UNIDIRECTIONAL_SEQUENCE_LSTM, 8x8_16). "
        "Gates: input, forget, cell, output; the first one is absent with `cifg`.",
        (
            *_SEQUENCE,
            state("gates", "int16; scratch, 4 for each unit side by side", 2),
            signed("cifg", "1: the input gate is 1 less the forget gate"),
            signed("cell_shift", "the cell state's scale is 2 to this power, -15 to -9"),
            signed("cell_clip", "the largest magnitude of a cell, stored; 0: any"),
            *factor("hidden", "of a product of two numbers with 15 fractional bits, to the hidden state"),
            signed("hidden_zero_point", "added after it"),
            signed("projected", "1: the hidden state is a product with the projection"),
            signed("output_zero_point", "added to the projection's result"),
            signed("output_clip", "the largest magnitude of a projection's result, stored; 0: any"),
            signed("peephole", "1: the input, forget and output gates see the cell state"),
            signed("layer_norm", "1: each gate is normalized in front of its function"),
            *_PRODUCTS,
            *constant("projection", "bytes; a matrix with a row for each output channel"),
            *constant("projection_requant", "bytes; int32 bias[8], multiplier[8], shift[8] for each 8 rows"),
            *constant(
                "coefficients",
                "bytes; int32 rows [multiplier, shift, guard, one number for each unit]: with `peephole` one for each such "
                "gate, with `layer_norm` the coefficients of each gate, then the biases of each gate",
            ),
        ),
        36,
        ("work",),
        traits=Traits(
            operands=_OPERANDS,
            cost=Work(CostClass.RECURRENT, inputs="inputs", outputs="cells", steps=4),
        ),
        packings=(
            *_PACKINGS,
            ("projection", Packing.WEIGHT_BLOCKS),
            ("projection_requant", Packing.REQUANTIZATION),
        ),
    ),
    Row(
        "recurrent_s8",
        "A recurrent layer of int8 over all steps of a sequence, with one rounding for each gate. The rows of each gate fill whole "
        "blocks of 8. Gates of a GRU: reset, update, new; its units' state is the hidden state with more bits.",
        (
            *_SEQUENCE,
            signed("kind", "0: GRU; 1: one gate with tanh; 2: one gate that is clamped at 0"),
            signed("state_bits", "fractional bits of the units' state, 15 for a kind without one"),
            *factor("output", "of the units' state, to the output; kinds 0 and 1"),
            signed("output_zero_point", "added after it"),
            *factor("state", "of the hidden state, less its zero point, to the units' state; where it is made of it"),
            *_PRODUCTS,
        ),
        37,
        ("work",),
        traits=Traits(
            operands=_OPERANDS[:3],
            cost=Work(CostClass.RECURRENT, inputs="inputs", outputs="cells", steps=3),
        ),
        packings=_PACKINGS,
    ),
    Row(
        "svdf_s8",
        "A layer of filters that keep their newest results (LiteRT SVDF); a unit is the sum of `rank` filters.",
        (
            buffer("input", "int8; a row for each sequence"),
            buffer("output", "int8; a row for each sequence"),
            state("state", "int8 or int16; a row for each sequence: the results of each filter, the oldest first"),
            signed("work", "multiply-accumulates for each output channel"),
            signed("inputs", "channels of the input"),
            signed("filters", "filters, `rank` for each output channel"),
            signed("rank", "filters of a unit"),
            signed("memory", "results that a filter keeps"),
            signed("state_bytes", "bytes of a result, 1 or 2"),
            signed("starts", "0: with the state as it is; 1: with a state of 0"),
            *factor("output", "fixed point, 31 fractional bits"),
            signed("output_zero_point", "added after requantization"),
            *constant("weights", "bytes; a matrix with a row for each filter"),
            *constant("requant", "bytes; int32 bias[8], multiplier[8], shift[8] for each 8 filters"),
            *constant("time_weights", "bytes; int16 [filter][result], the oldest first"),
            *constant("bias", "bytes; int32 for each output channel"),
        ),
        38,
        ("work",),
        traits=Traits(
            operands=(Operand("input"), Operand("state")),
            cost=Work(CostClass.FILTERED, inputs="inputs", outputs="filters", taps=("memory",)),
        ),
        packings=(("weights", Packing.WEIGHT_BLOCKS), ("requant", Packing.REQUANTIZATION)),
    ),
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
            *_SEQUENCE_WORDS,
            state("gates", "int16; scratch, 4 for each unit side by side", 2),
            signed("cell_shift", "the cell state's scale is 2 to this power, -15 to 0"),
            signed("cell_clip", "the largest magnitude of a cell, stored; 32768: any"),
            *factor("hidden", "of a product of two numbers with 15 fractional bits, to the hidden state"),
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

_OF_JOBS = (
    scratch("memory", "the header of a job, its operand, and results of 4 bytes for each part of the inputs"),
    *constant("job", "bytes; for job_channels channels int32 biases, zeros, then factors of 1.0 as the NPU takes them"),
    signed("flipped", "bits of each input that are inverted: 128 where a job takes uint8, else 0"),
    *JOB_WORDS,
)


_WITH_JOBS = [
    replace(
        row,
        name=f"{row.name.removesuffix('_s8')}_job_s8",
        doc=f"{row.name} whose products of the inputs are matrix products that NXP's driver gives to the NPU of i.MX 95.",
        fields=(*row.fields, *_OF_JOBS),
        code=_JOB_CODES[row.name],
        traits=replace(
            row.traits,
            operands=(*row.traits.operands, Operand("memory")),
            cost=replace(row.traits.cost, kind=CostClass.JOB),
        ),
        packings=(("input_weights", Packing.JOB_WEIGHTS), *row.packings[1:]),
    )
    for row in _BASE
    if row.name in _JOB_CODES
]
"""Recurrent kernels whose products of the inputs of many steps are jobs of the NPU's driver."""

KERNELS = (*_BASE, *_WITH_JOBS)
