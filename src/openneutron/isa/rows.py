# SPDX-License-Identifier: BSD-3-Clause
"""Declare the microcode's rows: header words, buffers, kernel parameter blocks and instructions. Each field is a
32-bit word.

Encoder, decoder, listing, the C header and the tables of docs/microcode.md all come from these rows.
"""

from __future__ import annotations

from openneutron.isa.kernels import KERNELS as KERNELS
from openneutron.isa.kernels.row import Field, Row, signed, unsigned

MAGIC = 0x64434D6E
"""The public magic of NXP's microcode header, bytes 6E 4D 43 64. A stock ExecuTorch NXP delegate checks it."""

FORMAT_VERSION = 0x4F4E0004
"""Word 1 of the header: 'ON' and a serial number, which rises if a row changes. The driver refuses every other value."""

ALIGNMENT = 16
"""The alignment in bytes of each blob's size, of constants inside the weights, and of placed buffers."""

LANES = 8
"""The number of output channels, and of input channels, of a block of packed weights. The kernels' code contains this
number, so it is the same for every target; the cycle model uses the target's pipelines and multipliers instead."""

# -- header: words 0, 6, 7, 9 to 14 lie where NXP's public version 1 layout has them -----------------------------------

HEADER = Row(
    "header",
    "The microcode's first 32 words.",
    (
        unsigned("magic", "0x64434D6E"),
        unsigned("format_version", f"0x{FORMAT_VERSION:08X}; NXP's own microcode has other values here and is refused"),
        unsigned("microcode_crc", "CRC-32 (zlib's) of the microcode with this word as 0"),
        unsigned("weights_crc", "CRC-32 of the weights; checked by the host tools, not by the driver"),
        unsigned("flags", "reserved, 0"),
        unsigned("kernels_size", "bytes of the kernels blob"),
        unsigned("microcode_size", "bytes of the microcode, header included"),
        unsigned("weights_size", "bytes of the weights"),
        unsigned("target", "CRC-32 of the target's name"),
        unsigned("scratch_size", "bytes of the scratch buffer"),
        unsigned("profile_size", "bytes of the profile buffer; 0 when profiling is off"),
        unsigned(
            "debug_size", "bytes of the far buffer (base FAR), in the place of the debug buffer of NXP's public layout"
        ),
        unsigned("prefetch_size", "bytes of the memory that FETCH and move_s8 copy to, apart from the scratch buffer"),
        unsigned("input_count", "graph inputs"),
        unsigned("output_count", "graph outputs"),
        unsigned("bindings_offset", "word offset of the bindings: inputs first, then outputs"),
        unsigned("buffers_offset", "word offset of the buffer table"),
        unsigned("buffer_count", "buffers"),
        unsigned("operators_offset", "word offset of the table of operator offsets (in words), one word each"),
        unsigned("operator_count", "operators"),
        unsigned("code_offset", "word offset of the first instruction"),
        unsigned("code_words", "words of code, END included"),
        unsigned("cycles_low", "modelled cycles of one run, low 32 bits"),
        unsigned("cycles_high", "modelled cycles of one run, high 32 bits"),
        unsigned(
            "state_size",
            "bytes of the persistent area, which keeps the states between runs; 0: the program has no state",
        ),
        unsigned("states_offset", "word offset of the states; 0 where there are none"),
        unsigned("state_count", "states"),
        *(unsigned(f"reserved{i}", "reserved, 0") for i in range(5)),
    ),
)

BINDING = Row(
    "binding",
    "Where a graph input or output lives. In its own buffer (base INPUT or OUTPUT with its index, offset 0), or inside "
    "the scratch buffer: the driver then copies the caller's bytes in before the run, or out after it, unless the "
    "caller's pointer is already that address.",
    (
        unsigned("base", "see bases; index in bits 8 to 15"),
        unsigned("offset", "bytes from the base"),
        unsigned("size", "bytes"),
    ),
)

STATE = Row(
    "state",
    "A tensor that keeps its value from one run to the next, and its bytes before the first run and after a reset. The bytes of the "
    "persistent area that no state covers are 0 then.",
    (
        unsigned("offset", "bytes from the start of the persistent area"),
        unsigned("size", "bytes"),
        unsigned("source", "bytes into the weights, of the first value; 0xFFFFFFFF: every byte is `fill`"),
        unsigned("fill", "a byte; 0 where `source` is a place in the weights"),
    ),
)

NO_SOURCE = 0xFFFFFFFF
"""The ``source`` of a state whose first value repeats the byte ``fill``."""

BASES = ("INPUT", "OUTPUT", "WEIGHTS", "SCRATCH", "PREFETCH", "STATE", "FAR")
"""The kinds of bases, in bits 0 to 7 of a base word. Bits 8 to 15 have the index of an input or output."""

REGIONS = ("SCRATCH", "PREFETCH", "FAR")
"""The buffers of a program in the first, second and third memory region of a CPU."""

BUFFER = Row(
    "buffer",
    "A window of a 4-D tensor in memory. Element (n, r, c, k) is at `offset + n*batch_pitch + (r mod ring)*row_pitch + "
    "(c - col0)*col_pitch + (k - channel0)*channel_pitch`. A pitch of 0 repeats (broadcasting); ring < rows is a rolling "
    "buffer; pitches in another order than NHWC's are a transposed view.",
    (
        unsigned("base", "see bases"),
        unsigned("offset", "bytes from the base"),
        signed("batches", "extent of the tensor"),
        signed("rows", "extent of the tensor"),
        signed("cols", "extent of the tensor"),
        signed("channels", "extent of the tensor"),
        signed("batch_pitch", "bytes"),
        signed("row_pitch", "bytes"),
        signed("col_pitch", "bytes"),
        signed("channel_pitch", "bytes"),
        signed("ring", "rows held"),
        signed("col0", "first column held"),
        signed("cols_held", "columns held"),
        signed("channel0", "first channel held"),
        signed("channels_held", "channels held"),
    ),
)

# -- instructions ------------------------------------------------------------------------------------------------------

_OPERATOR = Field("operator", "index into the operator table", signed=False, refers="operator")
_CYCLES = unsigned("cycles", "modelled cycles of the call")

INSTRUCTIONS = (
    Row("END", "Ends the run.", (), 0),
    Row("CALL", "Computes the operator's whole output.", (_OPERATOR, _CYCLES), 1),
    Row(
        "ROWS",
        "Computes output rows [row0 + i*step, row1 + i*step), clipped to the tensor's; i counts the enclosing loop.",
        (_OPERATOR, _CYCLES, signed("row0", "first row"), signed("row1", "end"), signed("step", "rows per iteration")),
        2,
    ),
    Row(
        "WINDOW",
        "Computes a window of the output; rows as in ROWS, everything clipped to the tensor's extents.",
        (
            _OPERATOR,
            _CYCLES,
            signed("row0", "first row"),
            signed("row1", "end"),
            signed("step", "rows per iteration"),
            signed("batch0", "first batch"),
            signed("batch1", "end"),
            signed("col0", "first column"),
            signed("col1", "end"),
            signed("channel0", "first channel, a multiple of 8 or 0"),
            signed("channel1", "end"),
        ),
        3,
    ),
    Row(
        "LOOP",
        "Repeats the body that follows, i = 0 .. count-1. Loops do not nest.",
        (unsigned("count", "iterations"), unsigned("body_words", "words of the body")),
        4,
    ),
    Row(
        "FETCH",
        "Starts a copy from the weights to SRAM on a channel.",
        (
            unsigned("source", "bytes into the weights"),
            unsigned("base", "where to: the kind SCRATCH or PREFETCH"),
            unsigned("destination", "bytes from the base"),
            unsigned("size", "bytes"),
            unsigned("channel", "0 to 15"),
        ),
        5,
    ),
    Row("WAIT", "Waits until the channel's copies are done.", (unsigned("channel", "0 to 15"),), 6),
)

KERNEL_BY_NAME = {row.name: row for row in KERNELS}
KERNEL_BY_CODE = {row.code: row for row in KERNELS}
INSTRUCTION_BY_NAME = {row.name: row for row in INSTRUCTIONS}
INSTRUCTION_BY_CODE = {row.code: row for row in INSTRUCTIONS}


def run_by(kernel: str) -> frozenset[str]:
    """Return the kernels that a call of this kernel runs in addition to its own code, directly or through other kernels."""
    own = KERNEL_BY_NAME[kernel].traits.kernels
    return own.union(*map(run_by, own))


def is_job(kernel: str) -> bool:
    """Return whether this kernel, which runs on a CPU core, lets NXP's driver compute its matrix products on the NPU.
    Its name has the form ``<op>_job_<types>``."""
    return "_job_" in kernel
