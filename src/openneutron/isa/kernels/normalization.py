# SPDX-License-Identifier: BSD-3-Clause
"""Declare kernels that normalize by statistics of their input: a line of channels, or a group of channels over an image."""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    EVERYTHING,
    INPUT_AND_OUTPUT,
    WIDE_INPUT_AND_OUTPUT,
    Audited,
    Block,
    CostClass,
    Field,
    Operand,
    Passes,
    Row,
    SameElement,
    SameRow,
    Traits,
    Work,
    audited,
    buffer,
    constant,
    of_one_input,
    signed,
    unsigned,
)

_STATISTICS = (
    signed("input_zero_point", "subtracted from each element"),
    unsigned("epsilon_low", "low word of epsilon in units of the scaled variance, an int64"),
    unsigned("epsilon_high", "high word, below 2^30"),
    signed("shift", "0 to 62: fractional bits of an output before its rounding"),
    *constant(
        "coefficients",
        "bytes, a multiple of 4; of each channel an int32 factor, and the low and the high word of an int64 offset "
        "that holds bias, zero point and half a step",
    ),
)

_LINE = (
    signed("channels", "the input's and the output's channels, at most 32768"),
    signed("centred", "1: the mean is subtracted (layer norm); 0: it is not (RMS norm)"),
    *_STATISTICS,
)

_GROUP = (signed("group_channels", "channels of a group, at most 32768 elements in all"), *_STATISTICS)

_TWO_PASSES = Work(CostClass.NORMALIZED, steps=3)


_PASSES = Passes("group_sums_s8", "group_norm_by_sums_s8", "group_channels", "block_rows", "count", "sums", 8, 8)


def _line(name: str, code: int, buffers: tuple[Field, ...]) -> Row:
    return Row(
        name,
        "(x - mean) / sqrt(variance + epsilon) of each line of channels; then a factor and an offset for each "
        "channel, with one rounding (docs/quantization.md, normalizations).",
        (*buffers, *_LINE),
        code,
        ("channels",),
        traits=of_one_input(SameRow(), _TWO_PASSES),
    )


def _group(name: str, code: int, buffers: tuple[Field, ...], passes: Passes | None = None) -> Row:
    return Row(
        name,
        "Each group of channels of a batch, over all rows and columns, as layer_norm computes a line.",
        (*buffers, *_GROUP),
        code,
        ("input", "group_channels"),
        traits=replace(of_one_input(EVERYTHING, _TWO_PASSES), passes=passes),
    )


KERNELS = (
    *audited(
        Audited.LINES, _line("layer_norm_s8", 45, INPUT_AND_OUTPUT), _line("layer_norm_s16", 109, WIDE_INPUT_AND_OUTPUT)
    ),
    *audited(
        Audited.GROUPS,
        _group("group_norm_s8", 46, INPUT_AND_OUTPUT, _PASSES),
        _group("group_norm_s16", 110, WIDE_INPUT_AND_OUTPUT),
    ),
    Row(
        "group_sums_s8",
        "The sum and the sum of the squares of each group of channels over blocks of rows: the first pass of group_norm_s8. A row of the "
        "output has two int32 for each group, byte by byte.",
        (
            *INPUT_AND_OUTPUT,
            signed("block_rows", "rows of the input for a row of the output, at most 32768 elements of a group"),
            signed("input_zero_point", "subtracted from each element"),
            signed("group_channels", "channels of a group"),
        ),
        52,
        ("block_rows", "group_channels"),
        traits=Traits((Operand("input", Block("block_rows")),), Work(CostClass.SUMMED, ("block_rows",), steps=2)),
    ),
    *audited(
        Audited.BY_SUMS,
        Row(
            "group_norm_by_sums_s8",
            "The second pass of group_norm_s8: each element by the sums of all blocks of its group.",
            (
                *INPUT_AND_OUTPUT,
                buffer("sums", "int8; the output of group_sums_s8, at most 64 rows"),
                signed("count", "elements of a group over all blocks, at most 32768"),
                *_GROUP,
            ),
            53,
            traits=Traits(
                (Operand("input", SameElement(in_place=True)), Operand("sums")), Work(CostClass.NORMALIZED, steps=2)
            ),
        ),
    ),
)
