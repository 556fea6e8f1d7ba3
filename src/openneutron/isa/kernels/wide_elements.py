# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that go through int16 operands element by element; int16 has no zero points."""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.elements import of_elements, rescaled
from openneutron.isa.kernels.row import (
    CLAMP,
    OUTPUT_RANGE,
    RESCALING,
    WIDE_OPERANDS,
    WIDE_OPERANDS_AND_OUTPUT,
    Channels,
    CostClass,
    Operand,
    Row,
    SameElement,
    SameRow,
    Traits,
    Work,
    buffer,
    constant,
    of_one_input,
    signed,
)

_OF_TWO = of_elements("input_a", "input_b")


def _of_one(in_place: bool) -> Traits:
    """Return the traits of a function of one element. The output takes the input's place where elements have as many bytes."""
    operand = Operand("input", SameElement(in_place))
    return Traits((operand,), Work(CostClass.MOVED), (), True, Channels(True))


_WIDE_INPUT = buffer("input", "int16", 2)
_WIDE_OUTPUT = buffer("output", "int16", 2)

KERNELS = (
    Row(
        "add_s16",
        "Sum of two int16 tensors, each shifted left by 15 bits and rescaled to a common scale (LiteRT ADD and SUB).",
        (
            *WIDE_OPERANDS_AND_OUTPUT,
            *rescaled(b="fixed point, 31 fractional bits; where it is negative, b times its magnitude is subtracted"),
            *RESCALING,
            *CLAMP,
        ),
        68,
        traits=_OF_TWO,
    ),
    Row(
        "rescale_s16",
        "The operand times one number where it is 0 or positive, times another where it is negative (LiteRT QUANTIZE, RELU ...).",
        (
            _WIDE_INPUT,
            _WIDE_OUTPUT,
            signed("positive_multiplier", "of positive values; fixed point, 31 fractional bits"),
            signed("positive_shift", "positive shifts left"),
            signed("negative_multiplier", "of negative values; fixed point, 31 fractional bits"),
            signed("negative_shift", "positive shifts left"),
            *CLAMP,
        ),
        104,
        traits=_of_one(True),
    ),
    Row(
        "rescale_s8s16",
        "int8 values at the scale of an int16 tensor (LiteRT QUANTIZE).",
        (
            buffer("input", "int8"),
            _WIDE_OUTPUT,
            signed("input_zero_point", "subtracted from each element"),
            *RESCALING,
        ),
        105,
        traits=_of_one(False),
    ),
    Row(
        "rescale_s16s8",
        "int16 values at the scale and zero point of an int8 tensor (LiteRT QUANTIZE).",
        (_WIDE_INPUT, buffer("output", "int8"), *RESCALING, *OUTPUT_RANGE),
        106,
        traits=_of_one(False),
    ),
    Row(
        "mul_s16",
        "Product of two int16 tensors (LiteRT MUL).",
        (*WIDE_OPERANDS_AND_OUTPUT, *RESCALING, *CLAMP),
        69,
        traits=_OF_TWO,
    ),
    Row(
        "maximum_s16",
        "The larger of two stored values, or the smaller one.",
        (*WIDE_OPERANDS_AND_OUTPUT, signed("smaller", "0: the larger (LiteRT MAXIMUM), 1: the smaller (MINIMUM)")),
        78,
        traits=_OF_TWO,
    ),
    Row(
        "prelu_s16",
        "a where it is positive, a times b elsewhere (LiteRT PRELU with int8 slopes).",
        (
            WIDE_OPERANDS[0],
            buffer("input_b", "int8, the slopes; a pitch of 0 broadcasts"),
            _WIDE_OUTPUT,
            signed("b_zero_point", "subtracted from b"),
            signed("positive_multiplier", "of a where it is positive; fixed point, 31 fractional bits"),
            signed("positive_shift", "positive shifts left"),
            signed("negative_multiplier", "of the product; fixed point, 31 fractional bits"),
            signed("negative_shift", "positive shifts left"),
        ),
        79,
        traits=replace(_OF_TWO, operands=(_OF_TWO.operands[0], Operand("input_b", SameElement()))),
    ),
    Row(
        "compare_s16",
        "True where a relation holds between two int16 tensors (LiteRT EQUAL, LESS ...), shifted left by 8 bits and rescaled. "
        "The output holds 1 or 0.",
        (
            *WIDE_OPERANDS,
            buffer("output", "bool, a byte each"),
            *rescaled(),
            signed(
                "relation",
                "of a to b; 0: equal, 1: not equal, 2: less, 3: less or equal, 4: greater, 5: greater or equal",
            ),
        ),
        88,
        traits=replace(_OF_TWO, operands=(Operand("input_a", SameElement()), Operand("input_b", SameElement()))),
    ),
    Row(
        "lookup_s16",
        "A 513-entry table, one for each 128 stored values from -32768 on, with straight lines between the entries.",
        (_WIDE_INPUT, _WIDE_OUTPUT, *constant("table", "bytes, a multiple of 2; int16 entries")),
        76,
        traits=_of_one(True),
    ),
    Row(
        "logistic_s16",
        "Logistic function or hyperbolic tangent (LiteRT LOGISTIC, TANH), output scale 2^-15: a table with straight lines between "
        "the entries.",
        (
            _WIDE_INPUT,
            _WIDE_OUTPUT,
            signed("multiplier", "of the input; 0 to 32767, or to 65535 where the shift is 0"),
            signed("shift", "0 to 31: shifts the product right; 3 * 2^12 then stand for 1"),
            signed("tanh", "0: the logistic function, 1: the hyperbolic tangent"),
            *constant(
                "table",
                "bytes, a multiple of 2; uint16 logistic function, 16 fractional bits, of 0, 1/24, 2/24 ... 255/24",
            ),
        ),
        107,
        traits=_of_one(True),
    ),
    Row(
        "softmax_s16",
        "Softmax over the channels of an int16 tensor (LiteRT SOFTMAX); output scale 2^-15.",
        (
            _WIDE_INPUT,
            _WIDE_OUTPUT,
            signed("channels", "the input's and the output's channels, at most 65536"),
            signed(
                "multiplier",
                "of a difference from the largest value, so that -65535 stands for -10; 31 fractional bits",
            ),
            signed("shift", "positive shifts left"),
            *constant("exp", "bytes, a multiple of 2; 513 int16 entries of exp from -10 to 0, 15 fractional bits"),
            *constant(
                "reciprocal", "bytes, a multiple of 2; 513 int16 entries of 1 / (1 + x) from 0 to 1, 15 fractional bits"
            ),
        ),
        75,
        ("channels",),
        traits=of_one_input(SameRow(), Work(CostClass.EXPONENTIALS)),
    ),
)
