# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels that add products: convolutions and products of matrices, of int8 and of int16.

Int16 has no zero points: its padding is 0.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    CLAMP,
    JOB_WORDS,
    KERNEL_AND_STRIDE,
    OPERANDS,
    OUTPUT_RANGE,
    RESCALING,
    WIDE_OPERANDS,
    ZERO_POINTS,
    Audited,
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
    audited,
    buffer,
    constant,
    of_one_input,
    scratch,
    signed,
)

_WINDOW_WORDS = (
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
"""The words that convolutions of all types of activations share. They follow the words of the constants."""

_CONV_FIELDS = (
    buffer("input", "int8 activations"),
    buffer("output", "int8 activations"),
    *constant("weights", "bytes; packed weights of the channels held"),
    *constant("requant", "bytes; for each 8 channels held: int32 bias[8], multiplier[8], shift[8]"),
    *_WINDOW_WORDS,
    signed("input_zero_point", "the value of padding; biases already hold -zero_point * sum(weights)"),
    signed(
        "single_rounding",
        "0: requantization rounds twice, as LiteRT's convolutions; 1: once, halves up, and bits 8 to 27 of a shift are 20 "
        "more bits of its multiplier",
    ),
    *OUTPUT_RANGE,
)

_CONV_TAPS = ("kernel_h", "kernel_w", "group_inputs")
_DILATION = ("dilation_h", "dilation_w")
_WINDOW = Window(dilation=_DILATION)


_REQUANTIZATION = ("requant", Packing.REQUANTIZATION)
_BLOCKS = (("weights", Packing.WEIGHT_BLOCKS), _REQUANTIZATION)
_TAPS = ("kernel_h", "kernel_w")
_PRODUCTS = Work(CostClass.PRODUCTS, _TAPS, "group_inputs", "group_outputs")
_EXCHANGED = (_WINDOW.kernel, _WINDOW.stride, _DILATION, _WINDOW.pad)
_OF_ALL_CHANNELS = of_one_input(
    replace(_WINDOW, summed="group_inputs"),
    _PRODUCTS,
    exchanged=_EXCHANGED,
    channels=Channels(False, counts=("group_outputs", "constant_channels")),
)
_OF_ONE_CHANNEL = of_one_input(
    _WINDOW,
    Work(CostClass.CHANNEL_PRODUCTS, _TAPS),
    exchanged=_EXCHANGED,
    channels=Channels(True, ("constant_channels",), single=("group_outputs",)),
)

_ACTIVATIONS = (buffer("input", "int16 activations", 2), buffer("output", "int16 activations", 2))
_WIDE_CONV_FIELDS = (
    *_ACTIVATIONS,
    *constant("weights", "bytes; packed int8 weights of the channels held"),
    *constant(
        "requant",
        "bytes; for each 8 channels held: lower words of the int64 bias[8], upper words[8], multiplier[8], shift[8]",
    ),
    *_WINDOW_WORDS,
    signed(
        "rounding",
        "0: an int64 accumulator times a multiplier with 15 fractional bits, rounded once, halves up; 1: an int32 accumulator, "
        "rounded twice, as int8 convolutions; 2: an int64 accumulator times a double, bits 8 to 29 of a shift being 22 more bits "
        "of its multiplier, rounded as doubles are and then to an integer, halves away from 0; 3: the same of an int32 accumulator",
    ),
    *CLAMP,
)

_WIDE_REQUANTIZATION = ("requant", Packing.WIDE_REQUANTIZATION)

_MATMUL_WORDS = (
    *OPERANDS,
    buffer("output", "int8; one column"),
    signed("depth", "channels of a and rows of b that are taken, at most 32768"),
    *ZERO_POINTS,
    *RESCALING,
    signed("output_zero_point", "added after requantization"),
)

KERNELS = (
    *audited(
        Audited.CONVOLUTION,
        Row(
            "conv_2d_s8",
            "Convolution. Weights `[k/8][kernel_h][kernel_w][group_inputs/8][8 k][8 inputs]`.",
            _CONV_FIELDS,
            1,
            _CONV_TAPS,
            traits=_OF_ALL_CHANNELS,
            packings=_BLOCKS,
        ),
        Row(
            "conv_2d_1x1_s8",
            "Pointwise convolution and fully connected: kernel 1x1, no padding, one group. Weights `[k/8][inputs/8][8 k][8]`.",
            _CONV_FIELDS,
            2,
            _CONV_TAPS,
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
            traits=_OF_ALL_CHANNELS,
            packings=_BLOCKS,
        ),
        Row(
            "depthwise_conv_2d_s8",
            "Depthwise convolution: group_inputs 1, group_outputs = depth multiplier. Weights `[k/8][kernel_h][kernel_w][8 k]`.",
            _CONV_FIELDS,
            3,
            _CONV_TAPS,
            (
                Variant(
                    "3x3",
                    "a kernel of 3 rows and 3 columns next to each other, with a depth multiplier of 1",
                    (
                        Condition("kernel_h", 3),
                        Condition("kernel_w", 3),
                        Condition("dilation_h", 1),
                        Condition("dilation_w", 1),
                        Condition("group_outputs", 1),
                    ),
                ),
            ),
            traits=_OF_ONE_CHANNEL,
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
            _CONV_TAPS,
            traits=replace(_OF_ALL_CHANNELS, channels=None, runs=("conv_2d_1x1_s8",)),
            packings=_BLOCKS,
        ),
        Row(
            "conv_2d_s16",
            "Convolution and fully connected. Weights `[k/8][kernel_h][kernel_w][group_inputs/8][8 k][8 inputs]`.",
            _WIDE_CONV_FIELDS,
            65,
            _CONV_TAPS,
            traits=_OF_ALL_CHANNELS,
            packings=(("weights", Packing.WEIGHT_BLOCKS), _WIDE_REQUANTIZATION),
        ),
        Row(
            "depthwise_conv_2d_s16",
            "Depthwise convolution: group_inputs 1, group_outputs = depth multiplier. Weights `[k/8][kernel_h][kernel_w][8 k]`.",
            _WIDE_CONV_FIELDS,
            67,
            _CONV_TAPS,
            traits=_OF_ONE_CHANNEL,
            packings=(("weights", Packing.CHANNEL_BLOCKS), _WIDE_REQUANTIZATION),
        ),
    ),
    Row(
        "conv_2d_job_s8",
        "Convolution and fully connected of one group by matrix products that NXP's driver gives to the NPU of i.MX 95. Weights in the order "
        "of the driver's release.",
        (
            *_CONV_FIELDS,
            *constant(
                "job",
                "bytes; for job_channels channels int32 biases, zeros, then factors as the NPU takes them: 1.0, or the multipliers of results "
                "of 1 byte; for int4 weights 16 bytes of 1",
            ),
            scratch(
                "memory",
                "the header of a job, its operand where it is copied, and results of job_result_bytes for each part of the inputs",
            ),
            signed(
                "copied", "1: the operand's rows are put together in memory; 0: they follow each other in the input"
            ),
            signed("flipped", "bits of each copied input that are inverted: 128 where a job takes uint8, else 0"),
            signed("job_rows", "most rows of a job, at most 2048"),
            signed(
                "job_inputs", "inputs of a job, a multiple of 16 or of job_group; the last part of them may have fewer"
            ),
            signed("job_channels", "output channels, with those that only fill up a block"),
            signed("job_kind", "word 0 of a job's header, or word 10 for int4 weights"),
            signed("job_bits", "word 12 of a job's header"),
            signed(
                "job_group", "word 13 of a job's header: inputs that share a decode scale of int4 weights; -1 for int8"
            ),
            signed(
                "job_result_bytes",
                "word 11 of a job's header: 4, or 1 for results that the NPU rescales and the CPU copies",
            ),
        ),
        44,
        _CONV_TAPS,
        traits=Traits(
            (Operand("input", _WINDOW), Operand("memory")), Work(CostClass.JOB, _TAPS, "group_inputs", "group_outputs")
        ),
        packings=(("weights", Packing.JOB_WEIGHTS), _REQUANTIZATION),
    ),
    Row(
        "batch_matmul_job_s8",
        "batch_matmul_s8 by matrix products that NXP's driver gives to the NPU of i.MX 95, with weights that are not packed.",
        (
            *_MATMUL_WORDS,
            *constant("job", "bytes; for job_channels channels zeros, then factors of 1.0 as the NPU takes them"),
            scratch(
                "memory",
                "the header of a job, its operand and its weights where they are copied, its biases, and results of 4 bytes for each part "
                "of the depth",
            ),
            signed("a_copied", "1: the rows of a are put together in memory; 0: they follow each other in a"),
            signed("b_copied", "1: the columns of b are put together in memory; 0: they follow each other in b"),
            signed(
                "flipped", "bits of each copied element of a that are inverted: 128 where a job takes uint8, else 0"
            ),
            *JOB_WORDS,
        ),
        42,
        ("depth",),
        traits=Traits(
            operands=(Operand("input_a", SameRow()), Operand("input_b"), Operand("memory")),
            cost=Work(CostClass.JOB, inputs="depth"),
        ),
    ),
    *audited(
        Audited.PRODUCT,
        Row(
            "batch_matmul_s8",
            "Products of matrices: a is [batch, row, 1, depth], b [batch, depth, 1, channel] (LiteRT BATCH_MATMUL).",
            _MATMUL_WORDS,
            19,
            ("depth",),
            traits=Traits(
                operands=(Operand("input_a", SameRow()), Operand("input_b")),
                cost=Work(CostClass.MATRIX_PRODUCTS, inputs="depth"),
                batches_apart=True,
            ),
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
    ),
)
