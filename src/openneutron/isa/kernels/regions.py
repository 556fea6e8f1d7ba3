# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels of which an output element needs other input elements than its own: pools, reductions, pads,
resizes, gathers, lines of channels, and normalizations by statistics of a line of channels or of a group of channels over an image.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels.row import (
    CLAMP,
    EVERYTHING,
    INPUT_AND_OUTPUT,
    KERNEL_AND_STRIDE,
    OUTPUT_RANGE,
    WIDE_INPUT_AND_OUTPUT,
    Audited,
    Block,
    Channels,
    CostClass,
    Field,
    Mapped,
    Operand,
    Packing,
    Padded,
    Passes,
    Row,
    SameElement,
    SameRow,
    Traits,
    Window,
    Work,
    audited,
    buffer,
    constant,
    factor,
    of_one_input,
    signed,
    unsigned,
)

_POOL_WORDS = (
    *KERNEL_AND_STRIDE,
    signed("pad_top", "rows; padding takes no part in the result"),
    signed("pad_left", "columns"),
    *CLAMP,
)
"""The words that pools of all types of activations share."""

_POOL_FIELDS = (buffer("input", "int8 activations"), buffer("output", "int8 activations"), *_POOL_WORDS)

_POOL_TAPS = ("kernel_h", "kernel_w")
_WINDOW = Window()
_POOL = of_one_input(
    _WINDOW,
    Work(CostClass.PER_OUTPUT, _POOL_TAPS),
    exchanged=(_WINDOW.kernel, _WINDOW.stride, _WINDOW.pad),
    channels=Channels(True),
)
_PER_INPUT = Work(CostClass.PER_INPUT)
_SUM_SCALE = signed(
    "scale",
    "bits of a float32, 0 or above: the input's scale over the output's. The sum times the scale is rounded to float32",
)
_MAPS = (("map", Packing.MAPS),)
_ACTIVATIONS = (buffer("input", "int16 activations", 2), buffer("output", "int16 activations", 2))
_WIDE_INPUT, _WIDE_OUTPUT = WIDE_INPUT_AND_OUTPUT
_MAPS_OF_TWO = constant(
    "map",
    "bytes, a multiple of 4; int32 for each output row its first input row, then for each its second one, then for each the "
    "second's weight in 1/1024, then the same for columns",
)
_EXPONENTIALS = of_one_input(SameRow(), Work(CostClass.EXPONENTIALS))

_REGIONS = (
    *audited(
        Audited.SAMPLED,
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
            "average_pool_2d_s16",
            "Mean over a window of at most 65534 elements, rounded half away from 0.",
            (*_ACTIVATIONS, *_POOL_WORDS),
            127,
            _POOL_TAPS,
            traits=_POOL,
        ),
        Row(
            "max_pool_2d_s16", "Largest value in a window.", (*_ACTIVATIONS, *_POOL_WORDS), 71, _POOL_TAPS, traits=_POOL
        ),
        Row(
            "resize_nearest_neighbor_s8",
            "Each output row and column copies the input row and column that the maps name.",
            (
                *INPUT_AND_OUTPUT,
                *constant(
                    "map", "bytes; int32 input row of each output row, then int32 input column of each output column"
                ),
            ),
            13,
            traits=of_one_input(Mapped("map"), Work(CostClass.MOVED)),
            packings=_MAPS,
        ),
        Row(
            "resize_bilinear_s8",
            "Each output element is a mean of four elements, weighted by 10 bits for rows and 10 for columns.",
            (
                *INPUT_AND_OUTPUT,
                *_MAPS_OF_TWO,
            ),
            18,
            traits=of_one_input(Mapped("map", maps=2), Work(CostClass.PER_OUTPUT, steps=4)),
            packings=_MAPS,
        ),
        Row(
            "resize_bilinear_s16",
            "Each output element is a mean of four int16 elements, weighted by 10 bits for rows and 10 for columns.",
            (*WIDE_INPUT_AND_OUTPUT, *_MAPS_OF_TWO),
            82,
            traits=of_one_input(Mapped("map", maps=2), Work(CostClass.PER_OUTPUT, steps=4)),
            packings=_MAPS,
        ),
    ),
    *audited(
        Audited.REDUCED,
        Row(
            "mean_s8",
            "Mean over all rows and columns (LiteRT MEAN, or DEPTHWISE_CONV_2D with equal weights); the output has one row and one column.",
            (
                *INPUT_AND_OUTPUT,
                signed("input_zero_point", "subtracted from each element"),
                signed("weight", "multiplies the sum, which then has finer steps: 1 (LiteRT MEAN) to 127"),
                *factor(
                    "output",
                    "fixed point, 31 fractional bits; holds the division by the elements' number and the weight",
                ),
                *OUTPUT_RANGE,
            ),
            8,
            ("input",),
            traits=of_one_input(EVERYTHING, _PER_INPUT),
        ),
        Row(
            "sum_s8",
            "Sum over all rows and columns, at most 2^23 elements (LiteRT SUM); the output has one row and one column.",
            (
                *INPUT_AND_OUTPUT,
                _SUM_SCALE,
                signed("bias", "bits of a float32: -(number of elements * zero point * scale), added to the product"),
                signed(
                    "output_zero_point",
                    "added to the result, which is rounded to an integer before, halves away from 0",
                ),
            ),
            27,
            ("input",),
            traits=of_one_input(EVERYTHING, _PER_INPUT),
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
            traits=of_one_input(EVERYTHING, _PER_INPUT),
        ),
        Row(
            "mean_s16",
            "Mean over all rows and columns, at most 65534 elements (LiteRT MEAN); the output has one row and one column.",
            (
                *_ACTIVATIONS,
                *factor("output", "fixed point, 31 fractional bits; holds the division by the elements' number"),
                *CLAMP,
            ),
            72,
            ("input",),
            traits=of_one_input(EVERYTHING, _PER_INPUT),
        ),
        Row(
            "sum_s16",
            "Sum over all rows and columns, at most 65534 elements (LiteRT SUM); the output has one row and one column.",
            (*_ACTIVATIONS, _SUM_SCALE),
            91,
            ("input",),
            traits=of_one_input(EVERYTHING, _PER_INPUT),
        ),
        Row(
            "reduce_max_s16",
            "Largest stored value of all rows and columns, or the smallest; the output has one row and one column.",
            (*_ACTIVATIONS, signed("smaller", "0: the largest (LiteRT REDUCE_MAX), 1: the smallest (REDUCE_MIN)")),
            81,
            ("input",),
            traits=of_one_input(EVERYTHING, _PER_INPUT),
        ),
    ),
    *audited(
        Audited.PADDED,
        Row(
            "pad_s8",
            "The input with a constant around it.",
            (
                *INPUT_AND_OUTPUT,
                signed("pad_batch", "batches before the first"),
                signed("pad_top", "rows before the first"),
                signed("pad_left", "columns before the first"),
                signed("pad_channel", "channels before the first"),
                signed("value", "stored value of the padding"),
            ),
            9,
            traits=of_one_input(Padded(), Work(CostClass.MOVED), (Padded().pad,)),
        ),
    ),
    *audited(
        Audited.GATHERED,
        Row(
            "gather_s8",
            "Column c of the output is the input's column that index c of the batch names (LiteRT GATHER). An index below 0 counts "
            "from the end; one that names no column ends the run with an error.",
            (
                buffer("input", "int8"),
                buffer(
                    "indices",
                    "little-endian, signed: a column each, a channel for each of its bytes (4 or 8); row 0 alone",
                ),
                buffer("output", "int8"),
            ),
            26,
            traits=Traits(
                operands=(Operand("input", SameRow()), Operand("indices")),
                cost=Work(CostClass.MOVED),
                batches_apart=True,
            ),
        ),
    ),
    *audited(
        Audited.LOOKED_UP,
        Row(
            "embedding_lookup_s8",
            "Column c of a row of the output is the entry of a table that index c of the row names (LiteRT EMBEDDING_LOOKUP). The table "
            "is in another memory, and the port copies the entries that are named, on a channel that the kernel waits for. Indices are "
            "those of gather_s8.",
            (
                buffer(
                    "input", "int8, of another base than the output: an entry in each row or in each column, one batch"
                ),
                buffer(
                    "indices",
                    "little-endian, signed: rows and columns of the output, a channel for each of its bytes (4 or 8)",
                ),
                buffer("output", "int8"),
                unsigned("channel", "of the port's copies, below 16"),
            ),
            28,
            traits=Traits(
                operands=(Operand("input", copied_by_kernel=True), Operand("indices", SameRow())),
                cost=Work(CostClass.COPIED),
                exchanged=(),
            ),
        ),
    ),
    *audited(
        Audited.LINES,
        Row(
            "softmax_s8",
            "Softmax over the channels; output scale 1/256 and zero point -128, or a quantization of its own.",
            (
                *INPUT_AND_OUTPUT,
                *constant(
                    "exp",
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
            traits=_EXPONENTIALS,
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
                    "reciprocal",
                    "bytes, a multiple of 2; 513 int16 entries of 1 / (1 + x) from 0 to 1, 15 fractional bits",
                ),
            ),
            75,
            ("channels",),
            traits=of_one_input(SameRow(), Work(CostClass.EXPONENTIALS)),
        ),
        Row(
            "log_softmax_s8",
            "Logarithm of softmax over the channels (LiteRT LOG_SOFTMAX); output scale 1/16, zero point 127.",
            (
                *INPUT_AND_OUTPUT,
                *constant(
                    "table",
                    "bytes, a multiple of 4; int32 exponential, 19 fractional bits, of each difference 0, 1, 2 ... from the "
                    "largest value, then the int32 differences themselves, 0 or below, 26 fractional bits",
                ),
                signed("table_count", "entries of either, at most 256; the results of greater differences are -128"),
                signed("channels", "the input's and the output's channels"),
            ),
            34,
            ("channels",),
            traits=_EXPONENTIALS,
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
            traits=_EXPONENTIALS,
        ),
        Row(
            "arg_max_s8",
            "The position of the largest stored value of a line of channels, or of the smallest; the first of several.",
            (
                buffer("input", "int8"),
                buffer("output", "positions, little-endian: a column each, a channel for each of its bytes (4 or 8)"),
                signed("depth", "channels of the input that are compared"),
                signed("smaller", "0: the largest (LiteRT ARG_MAX), 1: the smallest (ARG_MIN)"),
            ),
            23,
            ("depth",),
            traits=of_one_input(SameRow(), Work(CostClass.PER_COLUMN, inputs="depth")),
        ),
    ),
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


_NORMALIZATIONS = (
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

KERNELS = (*_REGIONS, *_NORMALIZATIONS)
