# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that add products of int16 activations, and pools and reductions of these; int16 has no zero points, padding is 0."""

from __future__ import annotations

from openneutron.isa.kernels.products import CONV_TAPS, OF_ALL_CHANNELS, OF_ONE_CHANNEL, WINDOW_WORDS
from openneutron.isa.kernels.regions import PER_INPUT, POOL, POOL_TAPS, POOL_WORDS, SUM_SCALE
from openneutron.isa.kernels.row import (
    CLAMP,
    EVERYTHING,
    WIDE_OPERANDS,
    CostClass,
    Operand,
    Packing,
    Row,
    SameRow,
    Traits,
    Work,
    buffer,
    constant,
    of_one_input,
    signed,
)

_ACTIVATIONS = (buffer("input", "int16 activations", 2), buffer("output", "int16 activations", 2))
_CONV_FIELDS = (
    *_ACTIVATIONS,
    *constant("weights", "bytes; packed int8 weights of the channels held"),
    *constant(
        "requant",
        "bytes; for each 8 channels held: lower words of the int64 bias[8], upper words[8], multiplier[8], shift[8]",
    ),
    *WINDOW_WORDS,
    signed(
        "rounding",
        "0: an int64 accumulator times a multiplier with 15 fractional bits, rounded once, halves up; 1: an int32 accumulator, "
        "rounded twice, as int8 convolutions; 2: an int64 accumulator times a double, bits 8 to 29 of a shift being 22 more bits "
        "of its multiplier, rounded as doubles are and then to an integer, halves away from 0; 3: the same of an int32 accumulator",
    ),
    *CLAMP,
)

_REQUANTIZATION = ("requant", Packing.WIDE_REQUANTIZATION)

KERNELS = (
    Row(
        "conv_2d_s16",
        "Convolution and fully connected. Weights `[k/8][kernel_h][kernel_w][group_inputs/8][8 k][8 inputs]`.",
        _CONV_FIELDS,
        65,
        CONV_TAPS,
        traits=OF_ALL_CHANNELS,
        packings=(("weights", Packing.WEIGHT_BLOCKS), _REQUANTIZATION),
    ),
    Row(
        "depthwise_conv_2d_s16",
        "Depthwise convolution: group_inputs 1, group_outputs = depth multiplier. Weights `[k/8][kernel_h][kernel_w][8 k]`.",
        _CONV_FIELDS,
        67,
        CONV_TAPS,
        traits=OF_ONE_CHANNEL,
        packings=(("weights", Packing.CHANNEL_BLOCKS), _REQUANTIZATION),
    ),
    Row(
        "batch_matmul_s16",
        "Products of matrices: a is [batch, row, 1, depth], b [batch, depth, 1, channel] (LiteRT BATCH_MATMUL).",
        (
            *WIDE_OPERANDS,
            buffer("output", "int16; one column", 2),
            signed("depth", "channels of a and rows of b that are taken, at most 32768"),
            signed("output_multiplier", "fixed point, 15 fractional bits"),
            signed("output_shift", "positive shifts left; -31 to 14"),
        ),
        83,
        ("depth",),
        traits=Traits(
            operands=(Operand("input_a", SameRow()), Operand("input_b")),
            cost=Work(CostClass.MATRIX_PRODUCTS, inputs="depth"),
            batches_apart=True,
        ),
    ),
    Row(
        "average_pool_2d_s16",
        "Mean over a window of at most 65534 elements, rounded half away from 0.",
        (*_ACTIVATIONS, *POOL_WORDS),
        127,
        POOL_TAPS,
        traits=POOL,
    ),
    Row("max_pool_2d_s16", "Largest value in a window.", (*_ACTIVATIONS, *POOL_WORDS), 71, POOL_TAPS, traits=POOL),
    Row(
        "mean_s16",
        "Mean over all rows and columns, at most 65534 elements (LiteRT MEAN); the output has one row and one column.",
        (
            *_ACTIVATIONS,
            signed("output_multiplier", "fixed point, 31 fractional bits; holds the division by the elements' number"),
            signed("output_shift", "positive shifts left"),
            *CLAMP,
        ),
        72,
        ("input",),
        traits=of_one_input(EVERYTHING, PER_INPUT),
    ),
    Row(
        "sum_s16",
        "Sum over all rows and columns, at most 65534 elements (LiteRT SUM); the output has one row and one column.",
        (*_ACTIVATIONS, SUM_SCALE),
        91,
        ("input",),
        traits=of_one_input(EVERYTHING, PER_INPUT),
    ),
    Row(
        "reduce_max_s16",
        "Largest stored value of all rows and columns, or the smallest; the output has one row and one column.",
        (*_ACTIVATIONS, signed("smaller", "0: the largest (LiteRT REDUCE_MAX), 1: the smallest (REDUCE_MIN)")),
        81,
        ("input",),
        traits=of_one_input(EVERYTHING, PER_INPUT),
    ),
)
