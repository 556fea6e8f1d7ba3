# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that compute from whole lines of channels."""

from __future__ import annotations

from openneutron.isa.kernels.row import INPUT_AND_OUTPUT, Row, buffer, signed, unsigned
from openneutron.isa.kernels.traits import INT8, POSITIONS, CostClass, Operand, Result, SameRow, Traits, Work


def _line(cost: Work, result: tuple[str, ...] = INT8) -> Traits:
    return Traits(
        operands=(Operand("input", SameRow(), INT8),),
        results=(Result(elements=result),),
        cost=cost,
        exchanged=(),
        batches_apart=True,
    )


_EXPONENTIALS = Work(CostClass.EXPONENTIALS)

KERNELS = (
    Row(
        "softmax_s8",
        "Softmax over the channels; output scale 1/256 and zero point -128, or a quantization of its own.",
        (
            *INPUT_AND_OUTPUT,
            unsigned("exp_base", "see bases"),
            unsigned(
                "exp_offset",
                "bytes, a multiple of 4; int32 exponential, 31 fractional bits, of each difference 0, 1, 2 ... "
                "from the largest value",
            ),
            signed("exp_count", "entries, at most 256; greater differences count as 0"),
            signed("channels", "the input's and the output's channels"),
            signed(
                "multiplier",
                "0: stored values are 256 times the probability, less 128; above 0: probabilities with 16 fractional bits "
                "are requantized by multiplier * 2^(shift - 31)",
            ),
            signed("shift", "-31 to 9"),
            signed("output_zero_point", "added after requantization"),
        ),
        11,
        ("channels",),
        traits=_line(_EXPONENTIALS),
    ),
    Row(
        "arg_max_s8",
        "Where the largest stored value of a line of channels stands, or the smallest; the first of several.",
        (
            buffer("input", "int8"),
            buffer("output", "positions, little-endian: a column each, a channel for each of its bytes (4 or 8)"),
            signed("depth", "channels of the input that are compared"),
            signed("smaller", "0: the largest (LiteRT ARG_MAX), 1: the smallest (ARG_MIN)"),
        ),
        23,
        ("depth",),
        traits=_line(Work(CostClass.PER_COLUMN, inputs="depth"), POSITIONS),
    ),
    Row(
        "log_softmax_s8",
        "Logarithm of softmax over the channels (LiteRT LOG_SOFTMAX); output scale 1/16, zero point 127.",
        (
            *INPUT_AND_OUTPUT,
            unsigned("table_base", "see bases"),
            unsigned(
                "table_offset",
                "bytes, a multiple of 4; int32 exponential, 19 fractional bits, of each difference 0, 1, 2 ... from the "
                "largest value, then the int32 differences themselves, 0 or below, 26 fractional bits",
            ),
            signed("table_count", "entries of either, at most 256; the results of greater differences are -128"),
            signed("channels", "the input's and the output's channels"),
        ),
        34,
        ("channels",),
        traits=_line(_EXPONENTIALS),
    ),
    Row(
        "l2_normalization_s8",
        "Each line of channels divided by the root of the sum of its squares (LiteRT L2_NORMALIZATION); output scale 1/128, zero "
        "point 0.",
        (
            *INPUT_AND_OUTPUT,
            signed("channels", "the input's and the output's channels"),
            signed("input_zero_point", "subtracted from each element"),
        ),
        35,
        ("channels",),
        traits=_line(_EXPONENTIALS),
    ),
)
