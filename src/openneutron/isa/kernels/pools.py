# SPDX-License-Identifier: BSD-3-Clause
"""Pools, and reductions of all rows and columns."""

from __future__ import annotations

from openneutron.isa.kernels.row import CLAMP, INPUT_AND_OUTPUT, KERNEL_AND_STRIDE, OUTPUT_RANGE, Row, buffer, signed
from openneutron.isa.kernels.traits import BOOL, INT8, Channels, CostClass, Operand, Result, Traits, Window, Work

_POOL_FIELDS = (
    buffer("input", "int8 activations"),
    buffer("output", "int8 activations"),
    *KERNEL_AND_STRIDE,
    signed("pad_top", "rows; padding takes no part in the result"),
    signed("pad_left", "columns"),
    *CLAMP,
)

_POOL_TAPS = ("kernel_h", "kernel_w")
_WINDOW = Window()
_POOL = Traits(
    operands=(Operand("input", _WINDOW, INT8),),
    results=(Result(elements=INT8),),
    cost=Work(CostClass.PER_OUTPUT, _POOL_TAPS),
    exchanged=(_WINDOW.kernel, _WINDOW.stride, _WINDOW.pad),
    batches_apart=True,
    channels=Channels(True),
)


def _reduction(elements: tuple[str, ...]) -> Traits:
    return Traits(
        operands=(Operand("input", elements=elements),),
        results=(Result(elements=elements),),
        cost=Work(CostClass.PER_INPUT),
        exchanged=(),
        batches_apart=True,
    )


KERNELS = (
    Row(
        "average_pool_2d_s8",
        "Mean over a window, rounded half away from 0.",
        _POOL_FIELDS,
        63,
        _POOL_TAPS,
        traits=_POOL,
    ),
    Row("max_pool_2d_s8", "Largest value in a window.", _POOL_FIELDS, 7, _POOL_TAPS, traits=_POOL),
    Row(
        "mean_s8",
        "Mean over all rows and columns (LiteRT MEAN); the output has one row and one column.",
        (
            *INPUT_AND_OUTPUT,
            signed("input_zero_point", "subtracted from each element"),
            signed("output_multiplier", "fixed point, 31 fractional bits; holds the division by the elements' number"),
            signed("output_shift", "positive shifts left"),
            *OUTPUT_RANGE,
        ),
        8,
        ("input",),
        traits=_reduction(INT8),
    ),
    Row(
        "reduce_max_s8",
        "Largest stored value of all rows and columns, or the smallest; the output has one row and one column.",
        (
            *INPUT_AND_OUTPUT,
            signed("smaller", "0: the largest (LiteRT REDUCE_MAX), 1: the smallest (REDUCE_MIN)"),
        ),
        17,
        ("input",),
        traits=_reduction((*INT8, *BOOL)),
    ),
)
