# SPDX-License-Identifier: BSD-3-Clause
"""The microcode's rows: header words, buffers, kernel parameter blocks and instructions, each field one 32-bit word.

Encoder, decoder, listing, the C header and the tables of docs/microcode.md all come from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = 0x64434D6E
"""Bytes 6E 4D 43 64: the public magic of NXP's microcode header, which a stock ExecuTorch NXP delegate checks."""

FORMAT_VERSION = 0x4F4E0001
"""'ON' and a running number in word 1; the driver refuses every other value. Raise it when a row changes."""

ALIGNMENT = 16
"""Bytes; of each blob's size, of constants inside the weights, and of placed buffers."""

LANES = 8
"""Output channels (pipelines) and input channels (MACs) of one packed weight block."""


@dataclass(frozen=True, slots=True)
class Field:
    """One little-endian 32-bit word. ``refers`` is "buffer" where the value is an index into the buffer table."""

    name: str
    doc: str
    signed: bool = True
    refers: str = ""

    def check(self, value: int) -> None:
        low, high = (-(2**31), 2**31) if self.signed else (0, 2**32)
        assert low <= value < high, f"{self.name}={value} does not fit its word"


@dataclass(frozen=True, slots=True)
class Condition:
    """That a word of a kernel's parameter block, or of a buffer it refers to (``input.channel_pitch``), has a value."""

    field: str
    value: int

    def __str__(self) -> str:
        return f"{self.field} == {self.value}"


@dataclass(frozen=True, slots=True)
class Variant:
    """Code of a kernel that takes the calls which meet all conditions, C function ``<kernel>_run_<name>``.

    ``<kernel>_run`` takes every call, and is what the library's own table registers; a kernel selection registers variants
    where these take all calls of its programs. Of several variants that take a call the first one counts. ``not_beside``
    names kernels that share their code with the whole kernel, not with the variant: firmware that has one of them is smaller
    with the whole kernel.
    """

    name: str
    doc: str
    conditions: tuple[Condition, ...]
    not_beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A named record of words. ``code`` is the kernel's id or the opcode, where it has one.

    ``taps`` names the fields whose product is how many input elements a kernel reads for one output element, up to a
    constant; "input" among them stands for the input's rows * columns. The driver bounds a run's length with it.
    """

    name: str
    doc: str
    fields: tuple[Field, ...]
    code: int = 0
    taps: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()

    def index(self, field: str) -> int:
        return next(i for i, candidate in enumerate(self.fields) if candidate.name == field)


def _u(name: str, doc: str) -> Field:
    return Field(name, doc, signed=False)


def _s(name: str, doc: str) -> Field:
    return Field(name, doc)


def _buffer(name: str, doc: str) -> Field:
    return Field(name, doc, signed=False, refers="buffer")


# -- header: words 0, 6, 7, 9 to 14 lie where NXP's public version 1 layout has them -----------------------------------

HEADER = Row(
    "header",
    "The microcode's first 32 words.",
    (
        _u("magic", "0x64434D6E"),
        _u("format_version", "0x4F4E0001; NXP's own microcode has other values here and is refused"),
        _u("microcode_crc", "CRC-32 (zlib's) of the microcode with this word as 0"),
        _u("weights_crc", "CRC-32 of the weights; checked by the host tools, not by the driver"),
        _u("flags", "reserved, 0"),
        _u("kernels_size", "bytes of the kernels blob"),
        _u("microcode_size", "bytes of the microcode, header included"),
        _u("weights_size", "bytes of the weights"),
        _u("target", "CRC-32 of the target's name"),
        _u("scratch_size", "bytes of the scratch buffer"),
        _u("profile_size", "bytes of the profile buffer; 0 when profiling is off"),
        _u("debug_size", "bytes of the debug buffer, 0"),
        _u("prefetch_size", "bytes of the SRAM that FETCH copies constants to"),
        _u("input_count", "graph inputs"),
        _u("output_count", "graph outputs"),
        _u("bindings_offset", "word offset of the bindings: inputs first, then outputs"),
        _u("buffers_offset", "word offset of the buffer table"),
        _u("buffer_count", "buffers"),
        _u("operators_offset", "word offset of the table of operator offsets (in words), one word each"),
        _u("operator_count", "operators"),
        _u("code_offset", "word offset of the first instruction"),
        _u("code_words", "words of code, END included"),
        _u("cycles_low", "modelled cycles of one run, low 32 bits"),
        _u("cycles_high", "modelled cycles of one run, high 32 bits"),
        *(_u(f"reserved{i}", "reserved, 0") for i in range(8)),
    ),
)

BINDING = Row(
    "binding",
    "Where a graph input or output lives. In its own buffer (base INPUT or OUTPUT with its index, offset 0), or inside "
    "the scratch buffer: the driver then copies the caller's bytes in before the run, or out after it, unless the "
    "caller's pointer is already that address.",
    (
        _u("base", "see bases; index in bits 8 to 15"),
        _u("offset", "bytes from the base"),
        _u("size", "bytes"),
    ),
)

BASES = ("INPUT", "OUTPUT", "WEIGHTS", "SCRATCH", "PREFETCH")
"""Base kinds, in bits 0 to 7 of a base word; bits 8 to 15 hold the index of an input or output."""

BUFFER = Row(
    "buffer",
    "A window of a 4-D tensor in memory. Element (n, r, c, k) lies at offset + n*batch_pitch + (r mod ring)*row_pitch + "
    "(c - col0)*col_pitch + (k - channel0)*channel_pitch. A pitch of 0 repeats (broadcasting); ring < rows is a rolling "
    "buffer; pitches in another order than NHWC's are a transposed view.",
    (
        _u("base", "see bases"),
        _u("offset", "bytes from the base"),
        _s("batches", "extent of the tensor"),
        _s("rows", "extent of the tensor"),
        _s("cols", "extent of the tensor"),
        _s("channels", "extent of the tensor"),
        _s("batch_pitch", "bytes"),
        _s("row_pitch", "bytes"),
        _s("col_pitch", "bytes"),
        _s("channel_pitch", "bytes"),
        _s("ring", "rows held"),
        _s("col0", "first column held"),
        _s("cols_held", "columns held"),
        _s("channel0", "first channel held"),
        _s("channels_held", "channels held"),
    ),
)

# -- kernels and their parameter blocks --------------------------------------------------------------------------------

_CLAMP = (
    _s("clamp_min", "fused activation's lower bound, stored"),
    _s("clamp_max", "fused activation's upper bound, stored; not below clamp_min"),
)
_OUTPUT_RANGE = (_s("output_zero_point", "added after requantization"), *_CLAMP)

_CONV_FIELDS = (
    _buffer("input", "int8 activations"),
    _buffer("output", "int8 activations"),
    _u("weights_base", "see bases"),
    _u("weights_offset", "bytes; packed weights of the channels held"),
    _u("requant_base", "see bases"),
    _u("requant_offset", "bytes; for each 8 channels held: int32 bias[8], multiplier[8], shift[8]"),
    _s("constant_channel0", "first output channel that weights and requant hold, a multiple of 8"),
    _s("constant_channels", "output channels that they hold"),
    _s("kernel_h", "rows"),
    _s("kernel_w", "columns"),
    _s("stride_h", "rows"),
    _s("stride_w", "columns"),
    _s("dilation_h", "rows"),
    _s("dilation_w", "columns"),
    _s("pad_top", "rows before the first; what lies below and to the right follows from the output's extents"),
    _s("pad_left", "columns before the first"),
    _s("group_inputs", "input channels of a group; output channel k reads from (k / group_outputs) * group_inputs on"),
    _s("group_outputs", "output channels of a group"),
    _s("input_zero_point", "the value of padding; biases already hold -zero_point * sum(weights)"),
    _s(
        "single_rounding",
        "0: requantization rounds twice, as LiteRT's convolutions; 1: once, halves up, and bits 8 to 27 of a shift are 20 "
        "more bits of its multiplier",
    ),
    *_OUTPUT_RANGE,
)

_POOL_FIELDS = (
    _buffer("input", "int8 activations"),
    _buffer("output", "int8 activations"),
    _s("kernel_h", "rows"),
    _s("kernel_w", "columns"),
    _s("stride_h", "rows"),
    _s("stride_w", "columns"),
    _s("pad_top", "rows; padding takes no part in the result"),
    _s("pad_left", "columns"),
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
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("a_multiplier", "fixed point, 31 fractional bits"),
            _s("a_shift", "0 or below: shifts right"),
            _s(
                "b_multiplier",
                "fixed point, 31 fractional bits; where it is negative, b times its magnitude is subtracted",
            ),
            _s("b_shift", "0 or below: shifts right"),
            _s("output_multiplier", "fixed point, 31 fractional bits"),
            _s("output_shift", "positive shifts left"),
            *_OUTPUT_RANGE,
        ),
        4,
    ),
    Row(
        "mul_s8",
        "Product of two tensors (LiteRT MUL).",
        (
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("output_multiplier", "fixed point, 31 fractional bits"),
            _s("output_shift", "positive shifts left"),
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
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _s("input_zero_point", "subtracted from each element"),
            _s("output_multiplier", "fixed point, 31 fractional bits; holds the division by the elements' number"),
            _s("output_shift", "positive shifts left"),
            *_OUTPUT_RANGE,
        ),
        8,
        ("input",),
    ),
    Row(
        "pad_s8",
        "The input with a constant around it.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _s("pad_batch", "batches before the first"),
            _s("pad_top", "rows before the first"),
            _s("pad_left", "columns before the first"),
            _s("pad_channel", "channels before the first"),
            _s("value", "stored value of the padding"),
        ),
        9,
    ),
    Row(
        "copy_s8",
        "Element (n, r, c, k) of the input to the same place of the output: slice, concatenation and transpose, by views.",
        (_buffer("input", "int8"), _buffer("output", "int8")),
        10,
    ),
    Row(
        "softmax_s8",
        "Softmax over the channels; output scale 1/256, zero point -128.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _u("exp_base", "see bases"),
            _u(
                "exp_offset",
                "bytes, a multiple of 4; int32 exponential, 31 fractional bits, of each difference 0, 1, 2 ... "
                "from the largest value",
            ),
            _s("exp_count", "entries, at most 256; greater differences count as 0"),
            _s("channels", "the input's and the output's channels"),
        ),
        11,
        ("channels",),
    ),
    Row(
        "lookup_s8",
        "A 256-entry table, indexed by the stored value + 128.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _u("table_base", "see bases"),
            _u("table_offset", "bytes"),
        ),
        12,
    ),
    Row(
        "resize_nearest_neighbor_s8",
        "Each output row and column copies the input row and column that the maps name.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _u("map_base", "see bases"),
            _u(
                "map_offset", "bytes; int32 input row of each output row, then int32 input column of each output column"
            ),
        ),
        13,
    ),
    Row(
        "maximum_s8",
        "The larger of two stored values, or the smaller one.",
        (
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
            _s("smaller", "0: the larger (LiteRT MAXIMUM), 1: the smaller (MINIMUM)"),
        ),
        14,
    ),
    Row(
        "prelu_s8",
        "a where it is positive, a times b elsewhere (LiteRT PRELU).",
        (
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8, the slopes; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("positive_multiplier", "of a where it is positive; fixed point, 31 fractional bits"),
            _s("positive_shift", "positive shifts left"),
            _s("negative_multiplier", "of the product; fixed point, 31 fractional bits"),
            _s("negative_shift", "positive shifts left"),
            _s("output_zero_point", "added after requantization"),
        ),
        15,
    ),
    Row(
        "squared_difference_s8",
        "Square of a difference (LiteRT SQUARED_DIFFERENCE): operands shifted left by 7 bits and rescaled to a common scale.",
        (
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("a_multiplier", "fixed point, 31 fractional bits; with its shift at most 1/2"),
            _s("a_shift", "0 or below: shifts right"),
            _s("b_multiplier", "fixed point, 31 fractional bits; with its shift at most 1/2"),
            _s("b_shift", "0 or below: shifts right"),
            _s("output_multiplier", "fixed point, 31 fractional bits"),
            _s("output_shift", "0 or below: shifts right"),
            _s("output_zero_point", "added after requantization"),
        ),
        16,
    ),
    Row(
        "reduce_max_s8",
        "Largest stored value of all rows and columns, or the smallest; the output has one row and one column.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _s("smaller", "0: the largest (LiteRT REDUCE_MAX), 1: the smallest (REDUCE_MIN)"),
        ),
        17,
        ("input",),
    ),
    Row(
        "resize_bilinear_s8",
        "Each output element is a mean of four elements, weighted by 10 bits for rows and 10 for columns.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _u("map_base", "see bases"),
            _u(
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
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8; one column"),
            _s("depth", "channels of a and rows of b that are taken, at most 32768"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("output_multiplier", "fixed point, 31 fractional bits"),
            _s("output_shift", "positive shifts left"),
            _s("output_zero_point", "added after requantization"),
        ),
        19,
        ("depth",),
    ),
    Row(
        "arg_max_s8",
        "Where the largest stored value of a line of channels stands, or the smallest; the first of several.",
        (
            _buffer("input", "int8"),
            _buffer("output", "positions, little-endian: a column each, a channel for each of its bytes (4 or 8)"),
            _s("depth", "channels of the input that are compared"),
            _s("smaller", "0: the largest (LiteRT ARG_MAX), 1: the smallest (ARG_MIN)"),
        ),
        23,
        ("depth",),
    ),
    Row(
        "compare_s8",
        "Whether a relation holds between two tensors (LiteRT EQUAL, LESS ...): differences from the zero points, shifted left "
        "by 8 bits and rescaled. The output holds 1 or 0.",
        (
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "bool, a byte each"),
            _s("a_zero_point", "subtracted from a"),
            _s("b_zero_point", "subtracted from b"),
            _s("a_multiplier", "fixed point, 31 fractional bits"),
            _s("a_shift", "0 or below: shifts right"),
            _s("b_multiplier", "fixed point, 31 fractional bits"),
            _s("b_shift", "0 or below: shifts right"),
            _s(
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
            _buffer("condition", "bool, a byte each; a pitch of 0 broadcasts"),
            _buffer("input_a", "int8; a pitch of 0 broadcasts"),
            _buffer("input_b", "int8; a pitch of 0 broadcasts"),
            _buffer("output", "int8"),
        ),
        25,
    ),
    Row(
        "gather_s8",
        "Column c of the output is the input's column that index c of the batch names (LiteRT GATHER). An index below 0 counts "
        "from the end; one that names no column ends the run with an error.",
        (
            _buffer("input", "int8"),
            _buffer(
                "indices", "little-endian, signed: a column each, a channel for each of its bytes (4 or 8); row 0 alone"
            ),
            _buffer("output", "int8"),
        ),
        26,
    ),
    Row(
        "log_softmax_s8",
        "Logarithm of softmax over the channels (LiteRT LOG_SOFTMAX); output scale 1/16, zero point 127.",
        (
            _buffer("input", "int8"),
            _buffer("output", "int8"),
            _u("table_base", "see bases"),
            _u(
                "table_offset",
                "bytes, a multiple of 4; int32 exponential, 19 fractional bits, of each difference 0, 1, 2 ... from the "
                "largest value, then the int32 differences themselves, 0 or below, 26 fractional bits",
            ),
            _s("table_count", "entries of either, at most 256; the results of greater differences are -128"),
            _s("channels", "the input's and the output's channels"),
        ),
        34,
        ("channels",),
    ),
)

# -- instructions ------------------------------------------------------------------------------------------------------

_OPERATOR = Field("operator", "index into the operator table", signed=False, refers="operator")
_CYCLES = _u("cycles", "modelled cycles of the call")

INSTRUCTIONS = (
    Row("END", "Ends the run.", (), 0),
    Row("CALL", "Computes the operator's whole output.", (_OPERATOR, _CYCLES), 1),
    Row(
        "ROWS",
        "Computes output rows [row0 + i*step, row1 + i*step), clipped to the tensor's; i counts the enclosing loop.",
        (_OPERATOR, _CYCLES, _s("row0", "first row"), _s("row1", "end"), _s("step", "rows per iteration")),
        2,
    ),
    Row(
        "WINDOW",
        "Computes a window of the output; rows as in ROWS, everything clipped to the tensor's extents.",
        (
            _OPERATOR,
            _CYCLES,
            _s("row0", "first row"),
            _s("row1", "end"),
            _s("step", "rows per iteration"),
            _s("batch0", "first batch"),
            _s("batch1", "end"),
            _s("col0", "first column"),
            _s("col1", "end"),
            _s("channel0", "first channel, a multiple of 8 or 0"),
            _s("channel1", "end"),
        ),
        3,
    ),
    Row(
        "LOOP",
        "Repeats the body that follows, i = 0 .. count-1. Loops do not nest.",
        (_u("count", "iterations"), _u("body_words", "words of the body")),
        4,
    ),
    Row(
        "FETCH",
        "Starts a copy from the weights to the prefetch buffer on a channel.",
        (
            _u("source", "bytes into the weights"),
            _u("destination", "bytes into the prefetch buffer"),
            _u("size", "bytes"),
            _u("channel", "0 to 15"),
        ),
        5,
    ),
    Row("WAIT", "Waits until the channel's copies are done.", (_u("channel", "0 to 15"),), 6),
)

KERNEL_BY_NAME = {row.name: row for row in KERNELS}
KERNEL_BY_CODE = {row.code: row for row in KERNELS}
INSTRUCTION_BY_NAME = {row.name: row for row in INSTRUCTIONS}
INSTRUCTION_BY_CODE = {row.code: row for row in INSTRUCTIONS}
