# SPDX-License-Identifier: BSD-3-Clause
"""The kernels' rows: their ids, parameter blocks and variants."""

from __future__ import annotations

from openneutron.isa.row import Condition, Row, Variant, buffer, signed, unsigned

_CLAMP = (
    signed("clamp_min", "fused activation's lower bound, stored"),
    signed("clamp_max", "fused activation's upper bound, stored; not below clamp_min"),
)
_OUTPUT_RANGE = (signed("output_zero_point", "added after requantization"), *_CLAMP)

_INPUT_AND_OUTPUT = (buffer("input", "int8"), buffer("output", "int8"))
_OPERANDS = (
    buffer("input_a", "int8; a pitch of 0 broadcasts"),
    buffer("input_b", "int8; a pitch of 0 broadcasts"),
)

_CONV_FIELDS = (
    buffer("input", "int8 activations"),
    buffer("output", "int8 activations"),
    unsigned("weights_base", "see bases"),
    unsigned("weights_offset", "bytes; packed weights of the channels held"),
    unsigned("requant_base", "see bases"),
    unsigned("requant_offset", "bytes; for each 8 channels held: int32 bias[8], multiplier[8], shift[8]"),
    signed("constant_channel0", "first output channel that weights and requant hold, a multiple of 8"),
    signed("constant_channels", "output channels that they hold"),
    signed("kernel_h", "rows"),
    signed("kernel_w", "columns"),
    signed("stride_h", "rows"),
    signed("stride_w", "columns"),
    signed("dilation_h", "rows"),
    signed("dilation_w", "columns"),
    signed("pad_top", "rows before the first; what lies below and to the right follows from the output's extents"),
    signed("pad_left", "columns before the first"),
    signed(
        "group_inputs", "input channels of a group; output channel k reads from (k / group_outputs) * group_inputs on"
    ),
    signed("group_outputs", "output channels of a group"),
    signed("input_zero_point", "the value of padding; biases already hold -zero_point * sum(weights)"),
    signed(
        "single_rounding",
        "0: requantization rounds twice, as LiteRT's convolutions; 1: once, halves up, and bits 8 to 27 of a shift are 20 "
        "more bits of its multiplier",
    ),
    *_OUTPUT_RANGE,
)

_POOL_FIELDS = (
    buffer("input", "int8 activations"),
    buffer("output", "int8 activations"),
    signed("kernel_h", "rows"),
    signed("kernel_w", "columns"),
    signed("stride_h", "rows"),
    signed("stride_w", "columns"),
    signed("pad_top", "rows; padding takes no part in the result"),
    signed("pad_left", "columns"),
    *_CLAMP,
)

_CONV_TAPS = ("kernel_h", "kernel_w", "group_inputs")
_POOL_TAPS = ("kernel_h", "kernel_w")

# Ids are the opCode of profile events; 6 stays free, since ExecuTorch's NXP delegate takes it for the end of its events.
KERNELS = (
    Row(
        "conv_2d_s8",
        "Convolution. Weights [k/8][kernel_h][kernel_w][group_inputs/8][8 k][8 inputs].",
        _CONV_FIELDS,
        1,
        _CONV_TAPS,
    ),
    Row(
        "conv_2d_1x1_s8",
        "Pointwise convolution and fully connected: kernel 1x1, no padding, one group. Weights [k/8][inputs/8][8 k][8].",
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
    ),
    Row(
        "depthwise_conv_2d_s8",
        "Depthwise convolution: group_inputs 1, group_outputs = depth multiplier. Weights [k/8][kernel_h][kernel_w][8 k].",
        _CONV_FIELDS,
        3,
        _CONV_TAPS,
    ),
    Row(
        "add_s8",
        "Sum of two tensors, each shifted left by 20 bits and rescaled to a common scale (LiteRT ADD and SUB).",
        (
            *_OPERANDS,
            buffer("output", "int8"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("a_multiplier", "fixed point, 31 fractional bits"),
            signed("a_shift", "0 or below: shifts right"),
            signed(
                "b_multiplier",
                "fixed point, 31 fractional bits; where it is negative, b times its magnitude is subtracted",
            ),
            signed("b_shift", "0 or below: shifts right"),
            signed("output_multiplier", "fixed point, 31 fractional bits"),
            signed("output_shift", "positive shifts left"),
            *_OUTPUT_RANGE,
        ),
        4,
    ),
    Row(
        "mul_s8",
        "Product of two tensors (LiteRT MUL).",
        (
            *_OPERANDS,
            buffer("output", "int8"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("output_multiplier", "fixed point, 31 fractional bits"),
            signed("output_shift", "positive shifts left"),
            *_OUTPUT_RANGE,
        ),
        5,
    ),
    Row("average_pool_2d_s8", "Mean over a window, rounded half away from 0.", _POOL_FIELDS, 63, _POOL_TAPS),
    Row("max_pool_2d_s8", "Largest value in a window.", _POOL_FIELDS, 7, _POOL_TAPS),
    Row(
        "mean_s8",
        "Mean over all rows and columns (LiteRT MEAN); the output has one row and one column.",
        (
            *_INPUT_AND_OUTPUT,
            signed("input_zero_point", "subtracted from each element"),
            signed("output_multiplier", "fixed point, 31 fractional bits; holds the division by the elements' number"),
            signed("output_shift", "positive shifts left"),
            *_OUTPUT_RANGE,
        ),
        8,
        ("input",),
    ),
    Row(
        "pad_s8",
        "The input with a constant around it.",
        (
            *_INPUT_AND_OUTPUT,
            signed("pad_batch", "batches before the first"),
            signed("pad_top", "rows before the first"),
            signed("pad_left", "columns before the first"),
            signed("pad_channel", "channels before the first"),
            signed("value", "stored value of the padding"),
        ),
        9,
    ),
    Row(
        "copy_s8",
        "Element (n, r, c, k) of the input to the same place of the output: slice, concatenation and transpose, by views.",
        _INPUT_AND_OUTPUT,
        10,
    ),
    Row(
        "softmax_s8",
        "Softmax over the channels; output scale 1/256 and zero point -128, or a quantization of its own.",
        (
            *_INPUT_AND_OUTPUT,
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
    ),
    Row(
        "lookup_s8",
        "A 256-entry table, indexed by the stored value + 128.",
        (
            *_INPUT_AND_OUTPUT,
            unsigned("table_base", "see bases"),
            unsigned("table_offset", "bytes"),
        ),
        12,
    ),
    Row(
        "resize_nearest_neighbor_s8",
        "Each output row and column copies the input row and column that the maps name.",
        (
            *_INPUT_AND_OUTPUT,
            unsigned("map_base", "see bases"),
            unsigned(
                "map_offset", "bytes; int32 input row of each output row, then int32 input column of each output column"
            ),
        ),
        13,
    ),
    Row(
        "maximum_s8",
        "The larger of two stored values, or the smaller one.",
        (
            *_OPERANDS,
            buffer("output", "int8"),
            signed("smaller", "0: the larger (LiteRT MAXIMUM), 1: the smaller (MINIMUM)"),
        ),
        14,
    ),
    Row(
        "prelu_s8",
        "a where it is positive, a times b elsewhere (LiteRT PRELU).",
        (
            buffer("input_a", "int8; a pitch of 0 broadcasts"),
            buffer("input_b", "int8, the slopes; a pitch of 0 broadcasts"),
            buffer("output", "int8"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("positive_multiplier", "of a where it is positive; fixed point, 31 fractional bits"),
            signed("positive_shift", "positive shifts left"),
            signed("negative_multiplier", "of the product; fixed point, 31 fractional bits"),
            signed("negative_shift", "positive shifts left"),
            signed("output_zero_point", "added after requantization"),
        ),
        15,
    ),
    Row(
        "squared_difference_s8",
        "Square of a difference (LiteRT SQUARED_DIFFERENCE): operands shifted left by 7 bits and rescaled to a common scale.",
        (
            *_OPERANDS,
            buffer("output", "int8"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("a_multiplier", "fixed point, 31 fractional bits; with its shift at most 1/2"),
            signed("a_shift", "0 or below: shifts right"),
            signed("b_multiplier", "fixed point, 31 fractional bits; with its shift at most 1/2"),
            signed("b_shift", "0 or below: shifts right"),
            signed("output_multiplier", "fixed point, 31 fractional bits"),
            signed("output_shift", "0 or below: shifts right"),
            signed("output_zero_point", "added after requantization"),
        ),
        16,
    ),
    Row(
        "reduce_max_s8",
        "Largest stored value of all rows and columns, or the smallest; the output has one row and one column.",
        (
            *_INPUT_AND_OUTPUT,
            signed("smaller", "0: the largest (LiteRT REDUCE_MAX), 1: the smallest (REDUCE_MIN)"),
        ),
        17,
        ("input",),
    ),
    Row(
        "resize_bilinear_s8",
        "Each output element is a mean of four elements, weighted by 10 bits for rows and 10 for columns.",
        (
            *_INPUT_AND_OUTPUT,
            unsigned("map_base", "see bases"),
            unsigned(
                "map_offset",
                "bytes, a multiple of 4; int32 for each output row its first input row, then for each its second one, then "
                "for each the second's weight in 1/1024, then the same for columns",
            ),
        ),
        18,
    ),
    Row(
        "batch_matmul_s8",
        "Products of matrices: a is [batch, row, 1, depth], b [batch, depth, 1, channel] (LiteRT BATCH_MATMUL).",
        (
            *_OPERANDS,
            buffer("output", "int8; one column"),
            signed("depth", "channels of a and rows of b that are taken, at most 32768"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("output_multiplier", "fixed point, 31 fractional bits"),
            signed("output_shift", "positive shifts left"),
            signed("output_zero_point", "added after requantization"),
        ),
        19,
        ("depth",),
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
    ),
    Row(
        "compare_s8",
        "Whether a relation holds between two tensors (LiteRT EQUAL, LESS ...): differences from the zero points, shifted left "
        "by 8 bits and rescaled. The output holds 1 or 0.",
        (
            *_OPERANDS,
            buffer("output", "bool, a byte each"),
            signed("a_zero_point", "subtracted from a"),
            signed("b_zero_point", "subtracted from b"),
            signed("a_multiplier", "fixed point, 31 fractional bits"),
            signed("a_shift", "0 or below: shifts right"),
            signed("b_multiplier", "fixed point, 31 fractional bits"),
            signed("b_shift", "0 or below: shifts right"),
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
    ),
    Row(
        "select_s8",
        "a where the condition is not 0, b elsewhere (LiteRT SELECT_V2).",
        (
            buffer("condition", "bool, a byte each; a pitch of 0 broadcasts"),
            *_OPERANDS,
            buffer("output", "int8"),
        ),
        25,
    ),
    Row(
        "gather_s8",
        "Column c of the output is the input's column that index c of the batch names (LiteRT GATHER). An index below 0 counts "
        "from the end; one that names no column ends the run with an error.",
        (
            buffer("input", "int8"),
            buffer(
                "indices", "little-endian, signed: a column each, a channel for each of its bytes (4 or 8); row 0 alone"
            ),
            buffer("output", "int8"),
        ),
        26,
    ),
    Row(
        "log_softmax_s8",
        "Logarithm of softmax over the channels (LiteRT LOG_SOFTMAX); output scale 1/16, zero point 127.",
        (
            *_INPUT_AND_OUTPUT,
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
    ),
    Row(
        "l2_normalization_s8",
        "Each line of channels divided by the root of the sum of its squares (LiteRT L2_NORMALIZATION); output scale 1/128, zero "
        "point 0.",
        (
            *_INPUT_AND_OUTPUT,
            signed("channels", "the input's and the output's channels"),
            signed("input_zero_point", "subtracted from each element"),
        ),
        35,
        ("channels",),
    ),
)
