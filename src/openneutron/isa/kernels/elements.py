# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels that compute element by element, on int8 and on int16. Int16 has no zero points."""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    CLAMP,
    INPUT_AND_OUTPUT,
    OPERANDS,
    OPERANDS_AND_OUTPUT,
    OUTPUT_RANGE,
    RESCALING,
    WIDE_INPUT_AND_OUTPUT,
    WIDE_OPERANDS,
    WIDE_OPERANDS_AND_OUTPUT,
    ZERO_POINTS,
    Audited,
    Channels,
    Condition,
    CostClass,
    Field,
    Function,
    Operand,
    Row,
    SameElement,
    Traits,
    Variant,
    Work,
    audited,
    buffer,
    constant,
    factor,
    of_one_input,
    signed,
    unsigned,
)


def of_elements(*names: str) -> Traits:
    """Return the traits of a kernel whose output elements each depend on one element of each operand. ``names`` are the
    operands."""
    operands = tuple(Operand(name, SameElement(in_place=True)) for name in names)
    return Traits(operands, Work(CostClass.MOVED), (), True)


def _of_one(function: Function) -> Traits:
    return replace(of_elements("input"), channels=Channels(True), function=function)


def rescaled(a: str = "fixed point, 31 fractional bits", b: str = "") -> tuple[Field, ...]:
    """Return the fields that rescale both operands of a kernel. ``a`` and ``b`` describe the multipliers; without
    ``b``, ``a`` describes both."""
    right = "0 or below: shifts right"
    multipliers = signed("a_multiplier", a), signed("b_multiplier", b or a)
    return multipliers[0], signed("a_shift", right), multipliers[1], signed("b_shift", right)


_OF_TWO = of_elements("input_a", "input_b")
IDENTITY = _of_one(Function.IDENTITY)


def _wide_of_one(in_place: bool) -> Traits:
    """Return the traits of a kernel that computes each output element from the input's element at the same position.
    ``in_place`` states whether the output may be written over the input. That requires elements of the same size."""
    operand = Operand("input", SameElement(in_place))
    return Traits((operand,), Work(CostClass.MOVED), (), True, Channels(True))


_WIDE_INPUT, _WIDE_OUTPUT = WIDE_INPUT_AND_OUTPUT

KERNELS = audited(
    Audited.SAME,
    Row(
        "add_s8",
        "Sum of two tensors, each shifted left by 20 bits and rescaled to a common scale (LiteRT ADD and SUB).",
        (
            *OPERANDS_AND_OUTPUT,
            *ZERO_POINTS,
            *rescaled(b="fixed point, 31 fractional bits; where it is negative, b times its magnitude is subtracted"),
            *RESCALING,
            *OUTPUT_RANGE,
        ),
        4,
        traits=_OF_TWO,
    ),
    Row(
        "mul_s8",
        "Product of two tensors (LiteRT MUL).",
        (*OPERANDS_AND_OUTPUT, *ZERO_POINTS, *RESCALING, *OUTPUT_RANGE),
        5,
        traits=_OF_TWO,
    ),
    Row(
        "copy_s8",
        "Element (n, r, c, k) of the input to the same place of the output: slice, concatenation and transpose, by views.",
        INPUT_AND_OUTPUT,
        10,
        traits=IDENTITY,
    ),
    Row(
        "copy_s16",
        "Element (n, r, c, k) of the input to the same place of the output, where elements of two bytes are not side by side.",
        WIDE_INPUT_AND_OUTPUT,
        74,
        traits=IDENTITY,
    ),
    Row(
        "move_s8",
        "Starts a copy of a window between two memories on a channel; WAIT ends it. The rows of the output are those of the input.",
        (
            buffer("input", "bytes, those of a column side by side"),
            buffer("output", "bytes, those of a column side by side"),
            unsigned("channel", "0 to 15"),
        ),
        62,
        traits=of_one_input(SameElement(), Work(CostClass.TRANSFERRED)),
    ),
    Row(
        "lookup_s8",
        "A 256-entry table, indexed by the stored value + 128.",
        (*INPUT_AND_OUTPUT, *constant("table", "bytes")),
        12,
        traits=_of_one(Function.TABLE),
    ),
    Row(
        "maximum_s8",
        "The larger of two stored values, or the smaller one.",
        (
            *OPERANDS_AND_OUTPUT,
            signed("smaller", "0: the larger (LiteRT MAXIMUM), 1: the smaller (MINIMUM)"),
        ),
        14,
        traits=_OF_TWO,
    ),
    Row(
        "prelu_s8",
        "a where it is positive, a times b elsewhere (LiteRT PRELU).",
        (
            OPERANDS[0],
            buffer("input_b", "int8, the slopes; a pitch of 0 broadcasts"),
            buffer("output", "int8"),
            *ZERO_POINTS,
            *factor("positive", "of a where it is positive; fixed point, 31 fractional bits"),
            *factor("negative", "of the product; fixed point, 31 fractional bits"),
            signed("output_zero_point", "added after requantization"),
        ),
        15,
        traits=_OF_TWO,
    ),
    Row(
        "squared_difference_s8",
        "Square of a difference (LiteRT SQUARED_DIFFERENCE): operands shifted left by 7 bits and rescaled to a common scale.",
        (
            *OPERANDS_AND_OUTPUT,
            *ZERO_POINTS,
            *rescaled("fixed point, 31 fractional bits; with its shift at most 1/2"),
            signed("output_multiplier", "fixed point, 31 fractional bits"),
            signed("output_shift", "0 or below: shifts right"),
            signed("output_zero_point", "added after requantization"),
        ),
        16,
        traits=_OF_TWO,
    ),
    Row(
        "compare_s8",
        "True where a relation holds between two tensors (LiteRT EQUAL, LESS ...): differences from the zero points, shifted left "
        "by 8 bits and rescaled. The output holds 1 or 0.",
        (
            *OPERANDS,
            buffer("output", "bool, a byte each"),
            *ZERO_POINTS,
            *rescaled(),
            signed(
                "relation",
                "of a to b; 0: equal, 1: not equal, 2: less, 3: less or equal, 4: greater, 5: greater or equal",
            ),
        ),
        24,
        variants=tuple(
            Variant(name, "one relation", (Condition("relation", relation),))
            for relation, name in enumerate(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
        ),
        traits=_OF_TWO,
    ),
    Row(
        "select_s8",
        "a where the condition is not 0, b elsewhere (LiteRT SELECT_V2).",
        (
            buffer("condition", "bool, a byte each; a pitch of 0 broadcasts"),
            *OPERANDS_AND_OUTPUT,
        ),
        25,
        traits=of_elements("condition", "input_a", "input_b"),
    ),
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
            *factor("positive", "of positive values; fixed point, 31 fractional bits"),
            *factor("negative", "of negative values; fixed point, 31 fractional bits"),
            *CLAMP,
        ),
        104,
        traits=_wide_of_one(True),
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
        traits=_wide_of_one(False),
    ),
    Row(
        "rescale_s16s8",
        "int16 values at the scale and zero point of an int8 tensor (LiteRT QUANTIZE).",
        (_WIDE_INPUT, buffer("output", "int8"), *RESCALING, *OUTPUT_RANGE),
        106,
        traits=_wide_of_one(False),
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
            *factor("positive", "of a where it is positive; fixed point, 31 fractional bits"),
            *factor("negative", "of the product; fixed point, 31 fractional bits"),
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
        traits=_wide_of_one(True),
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
        traits=_wide_of_one(True),
    ),
)
