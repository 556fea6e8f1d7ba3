# SPDX-License-Identifier: BSD-3-Clause
"""Kernels that add products: convolutions, and products of matrices."""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    KERNEL_AND_STRIDE,
    OPERANDS,
    OUTPUT_RANGE,
    RESCALING,
    ZERO_POINTS,
    Channels,
    Condition,
    CostClass,
    Operand,
    Packing,
    Row,
    SameRow,
    Traits,
    Variant,
    Window,
    Work,
    buffer,
    constant,
    of_one_input,
    signed,
)

WINDOW_WORDS = (
    signed("constant_channel0", "first output channel that weights and requant hold, a multiple of 8"),
    signed("constant_channels", "output channels that they hold"),
    *KERNEL_AND_STRIDE,
    signed("dilation_h", "rows"),
    signed("dilation_w", "columns"),
    signed("pad_top", "rows before the first; padding below and to the right follows from the output's extents"),
    signed("pad_left", "columns before the first"),
    signed(
        "group_inputs", "input channels of a group; output channel k reads from (k / group_outputs) * group_inputs on"
    ),
    signed("group_outputs", "output channels of a group"),
)
"""The words that convolutions of all types of activations share, behind those of their constants."""

_CONV_FIELDS = (
    buffer("input", "int8 activations"),
    buffer("output", "int8 activations"),
    *constant("weights", "bytes; packed weights of the channels held"),
    *constant("requant", "bytes; for each 8 channels held: int32 bias[8], multiplier[8], shift[8]"),
    *WINDOW_WORDS,
    signed("input_zero_point", "the value of padding; biases already hold -zero_point * sum(weights)"),
    signed(
        "single_rounding",
        "0: requantization rounds twice, as LiteRT's convolutions; 1: once, halves up, and bits 8 to 27 of a shift are 20 "
        "more bits of its multiplier",
    ),
    *OUTPUT_RANGE,
)

CONV_TAPS = ("kernel_h", "kernel_w", "group_inputs")
_DILATION = ("dilation_h", "dilation_w")
_WINDOW = Window(dilation=_DILATION)


_REQUANTIZATION = ("requant", Packing.REQUANTIZATION)
_BLOCKS = (("weights", Packing.WEIGHT_BLOCKS), _REQUANTIZATION)
_TAPS = ("kernel_h", "kernel_w")
_PRODUCTS = Work(CostClass.PRODUCTS, _TAPS, "group_inputs", "group_outputs")
_EXCHANGED = (_WINDOW.kernel, _WINDOW.stride, _DILATION, _WINDOW.pad)
OF_ALL_CHANNELS = of_one_input(
    replace(_WINDOW, summed="group_inputs"),
    _PRODUCTS,
    exchanged=_EXCHANGED,
    channels=Channels(False, counts=("group_outputs", "constant_channels")),
)
OF_ONE_CHANNEL = of_one_input(
    _WINDOW,
    Work(CostClass.CHANNEL_PRODUCTS, _TAPS),
    exchanged=_EXCHANGED,
    channels=Channels(True, ("constant_channels",), single=("group_outputs",)),
)


KERNELS = (
    Row(
        "conv_2d_s8",
        "Convolution. Weights `[k/8][kernel_h][kernel_w][group_inputs/8][8 k][8 inputs]`.",
        _CONV_FIELDS,
        1,
        CONV_TAPS,
        traits=OF_ALL_CHANNELS,
        packings=_BLOCKS,
    ),
    Row(
        "conv_2d_1x1_s8",
        "Pointwise convolution and fully connected: kernel 1x1, no padding, one group. Weights `[k/8][inputs/8][8 k][8]`.",
        _CONV_FIELDS,
        2,
        CONV_TAPS,
        (
            Variant(
                "vector",
                "a fully connected layer of one input, where there is no other convolution",
                (
                    Condition("single_rounding", 1),
                    Condition("input.channel_pitch", 1),
                    Condition("output.batches", 1),
                    Condition("output.rows", 1),
                    Condition("output.cols", 1),
                ),
                ("conv_2d_s8", "depthwise_conv_2d_s8"),
            ),
        ),
        traits=OF_ALL_CHANNELS,
        packings=_BLOCKS,
    ),
    Row(
        "depthwise_conv_2d_s8",
        "Depthwise convolution: group_inputs 1, group_outputs = depth multiplier. Weights `[k/8][kernel_h][kernel_w][8 k]`.",
        _CONV_FIELDS,
        3,
        CONV_TAPS,
        traits=OF_ONE_CHANNEL,
        packings=(("weights", Packing.CHANNEL_BLOCKS), _REQUANTIZATION),
    ),
    Row(
        "conv_2d_1x1_parts_s8",
        "conv_2d_1x1_s8 with an output zero point for each 8 output channels: linear layers of one input, side by side.",
        (
            *_CONV_FIELDS,
            *constant(
                "zero_points", "bytes; for each 8 channels held an int8 that takes the place of output_zero_point"
            ),
        ),
        33,
        CONV_TAPS,
        traits=replace(OF_ALL_CHANNELS, channels=None, runs=("conv_2d_1x1_s8",)),
        packings=_BLOCKS,
    ),
    Row(
        "batch_matmul_s8",
        "Products of matrices: a is [batch, row, 1, depth], b [batch, depth, 1, channel] (LiteRT BATCH_MATMUL).",
        (
            *OPERANDS,
            buffer("output", "int8; one column"),
            signed("depth", "channels of a and rows of b that are taken, at most 32768"),
            *ZERO_POINTS,
            *RESCALING,
            signed("output_zero_point", "added after requantization"),
        ),
        19,
        ("depth",),
        traits=Traits(
            operands=(Operand("input_a", SameRow()), Operand("input_b")),
            cost=Work(CostClass.MATRIX_PRODUCTS, inputs="depth"),
            batches_apart=True,
        ),
    ),
)
