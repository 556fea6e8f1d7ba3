# SPDX-License-Identifier: BSD-3-Clause
"""decode(encode(x)) == x, and what a damaged program says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.errors import InvalidProgramError
from openneutron.isa import Microcode, Program, Record, base, decode, encode, listing, record, rows
from openneutron.isa.kernels.row import Row
from scripts import runtime_headers
from tests.support.altered_programs import with_header

RUNTIME = Path(__file__).parents[2] / "runtime"


def records(row: Row) -> st.SearchStrategy[Record]:
    words = [st.integers(-(2**31), 2**31 - 1) if column.signed else st.integers(0, 2**32 - 1) for column in row.fields]
    return st.tuples(*words).map(lambda values: Record(row, values))


def many(*choices: Row) -> st.SearchStrategy[tuple[Record, ...]]:
    return st.lists(st.one_of([records(row) for row in choices]), max_size=5).map(tuple)


@st.composite
def microcodes(draw: st.DrawFn) -> Microcode:
    operators = draw(many(*rows.KERNELS))
    names = tuple(draw(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8)) for _ in operators)
    return Microcode(
        inputs=draw(many(rows.BINDING)),
        outputs=draw(many(rows.BINDING)),
        buffers=draw(many(rows.BUFFER)),
        operators=operators,
        code=draw(many(*rows.INSTRUCTIONS)),
        scratch_size=draw(st.integers(0, 2**32 - 1)),
        prefetch_size=draw(st.integers(0, 2**32 - 1)),
        target=draw(st.integers(0, 2**32 - 1)),
        cycles=draw(st.integers(0, 2**64 - 1)),
        names=names,
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(microcodes(), st.integers(0, 4))
def test_decode_gives_back_what_was_encoded(microcode: Microcode, blocks: int) -> None:
    program = encode(microcode, bytes(range(16)) * blocks)
    assert decode(program) == microcode
    assert program == encode(decode(program), program.weights)


def small_program() -> Program:
    binding = record(rows.BINDING, base=base("INPUT"), offset=0, size=16)
    output = record(rows.BINDING, base=base("OUTPUT"), offset=0, size=16)
    shape = {"batches": 1, "rows": 1, "cols": 1, "channels": 16}
    pitches = {"batch_pitch": 0, "row_pitch": 0, "col_pitch": 16, "channel_pitch": 1}
    held = {"ring": 1, "col0": 0, "cols_held": 1, "channel0": 0, "channels_held": 16}
    buffers = tuple(
        record(rows.BUFFER, base=base(kind), offset=0, **shape, **pitches, **held) for kind in ("INPUT", "OUTPUT")
    )
    copy = record(rows.KERNEL_BY_NAME["copy_s8"], input=0, output=1)
    instructions = rows.INSTRUCTION_BY_NAME
    code = (
        record(instructions["LOOP"], count=2, body_words=6),
        record(instructions["ROWS"], operator=0, cycles=9, row0=0, row1=1, step=1),
        record(instructions["CALL"], operator=0, cycles=7),
        record(instructions["END"]),
    )
    return encode(Microcode((binding,), (output,), buffers, (copy,), code, 0, cycles=25, names=("the copy",)), b"")


def test_listing_shows_every_record() -> None:
    assert listing(decode(small_program())) == (
        "; scratch 0 B, prefetch 0 B, 25 cycles\n"
        "input 0: INPUT0+0x0 16 B\n"
        "output 0: OUTPUT0+0x0 16 B\n"
        "buffer b0: INPUT0+0x0 1x1x1x16 pitch 0,0,16,1\n"
        "buffer b1: OUTPUT0+0x0 1x1x1x16 pitch 0,0,16,1\n"
        "operator 0 the copy: copy_s8 input=b0 output=b1\n"
        "  LOOP count=2 body_words=6\n"
        "    ROWS operator=0 cycles=9 row0=0 row1=1 step=1\n"
        "  CALL operator=0 cycles=7\n"
        "  END\n"
    )


def damaged(blob: bytes, at: int, value: int) -> bytes:
    return blob[:at] + bytes([blob[at] ^ value]) + blob[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: blob[:40], "microcode: it is 40 bytes; its header alone has 128."),
        (
            lambda blob: damaged(blob, 0, 1),
            "microcode: its first word is 0x64434d6f; microcode starts with 0x64434d6e.",
        ),
        (
            lambda blob: damaged(blob, 4, 2),
            "microcode: its format is 0x4f4e0006; this version reads 0x4f4e0004 alone. Compile the model again.",
        ),
        (lambda blob: damaged(blob, 200, 1), "program: the microcode's checksum is wrong. The file is corrupt."),
        (
            lambda blob: blob[:-16],
            "program: its microcode is 336 bytes; its header says 352. The file is truncated.",
        ),
    ],
)
def test_a_damaged_program_says_what_is_wrong(damage, message: str) -> None:
    program = small_program()
    with pytest.raises(InvalidProgramError) as caught:
        decode(Program(damage(program.microcode), program.weights, program.kernels))
    assert str(caught.value) == message


def test_generated_c_files_are_up_to_date() -> None:
    assert (RUNTIME / "include" / "neutron_isa.h").read_text() == runtime_headers.header_text()
    assert (RUNTIME / "kernels" / "kernels.def").read_text() == runtime_headers.kernels_def_text()
    assert (RUNTIME / "driver" / "parts.def").read_text() == runtime_headers.parts_def_text()


def test_rows_are_told_apart() -> None:
    assert len({row.code for row in rows.KERNELS}) == len(rows.KERNELS)
    assert len({row.code for row in rows.INSTRUCTIONS}) == len(rows.INSTRUCTIONS)
    for row in (rows.HEADER, rows.BINDING, rows.BUFFER, *rows.KERNELS, *rows.INSTRUCTIONS):
        names = [column.name for column in row.fields]
        assert len(set(names)) == len(names), row.name
    assert len(rows.HEADER.fields) == 32


@pytest.mark.parametrize(
    ("field", "size", "most"),
    [
        ("profile_size", 2**31, 65584),
        ("profile_size", 65585, 65584),
        ("debug_size", 1, 0),
        ("state_size", 2**31, 65536),
    ],
)
def test_a_buffer_that_a_run_does_not_fill_is_refused(field: str, size: int, most: int) -> None:
    """A header of a few bytes may ask for gigabytes of events. The three calls of a run here leave 16 bytes each, beside 64 KiB of
    room."""
    program = with_header(small_program(), **{field: size})
    name = field.removesuffix("_size")
    with pytest.raises(InvalidProgramError) as caught:
        program.verify()
    assert str(caught.value) == (
        f"program: its header asks for a {name} buffer of {size} bytes; a run writes at most {most}. The file is corrupt."
    )
