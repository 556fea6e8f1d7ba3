# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that add products of int16 activations; int16 has no zero points, and padding is 0."""

from __future__ import annotations

from openneutron.isa.kernels.products import CONV_TAPS, OF_ALL_CHANNELS, OF_ONE_CHANNEL, WINDOW_WORDS
from openneutron.isa.kernels.row import CLAMP, Packing, Row, buffer, constant, signed

_CONV_FIELDS = (
    buffer("input", "int16 activations", 2),
    buffer("output", "int16 activations", 2),
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
)
