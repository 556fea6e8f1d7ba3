# SPDX-License-Identifier: BSD-3-Clause
"""The driver refuses each single change to a sound program with its code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from openneutron.device.simulator import Simulator, library, require
from openneutron.errors import DriverError
from openneutron.isa import Microcode, Record, base, rows
from tests.support import programs
from tests.support.altered_programs import CODES, altered, changed, refusal, with_header, with_word


def test_every_error_has_words() -> None:
    texts = [library().neutronErrorText(code).decode() for code in (0, *CODES.values())]
    assert len(CODES) == 27
    assert len(set(texts)) == len(texts)
    assert "unknown error" not in texts
    assert library().neutronErrorText(12345).decode() == "unknown error"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"magic": 0x12345678}, "MAGIC"),
        ({"format_version": 3}, "FOREIGN"),
        ({"format_version": 0x4F4F0001}, "FOREIGN"),
        ({"format_version": 0x4F4E0002}, "VERSION"),
        ({"microcode_crc": 1}, "CHECKSUM"),
        ({"microcode_size": 1 << 20}, "TRUNCATED"),
        ({"weights_size": 272}, "TRUNCATED"),
        ({"flags": 1}, "LAYOUT"),
        ({"reserved4": 1}, "LAYOUT"),
        ({"input_count": 256}, "LAYOUT"),
        ({"output_count": 0xFFFFFFFF}, "LAYOUT"),
        ({"bindings_offset": 0xFFFFFFFF}, "LAYOUT"),
        ({"buffers_offset": 0x7FFFFFFF}, "LAYOUT"),
        ({"buffer_count": 0x40000000}, "LAYOUT"),
        ({"operators_offset": 0xFFFFFFF0}, "LAYOUT"),
        ({"operator_count": 0xFFFFFFFF}, "LAYOUT"),
        ({"code_offset": 0xFFFFFFFF}, "LAYOUT"),
        ({"code_words": 0}, "INSTRUCTION"),
        ({"code_words": 6}, "INSTRUCTION"),
        ({"scratch_size": 105}, "BUFFER"),
    ],
)
def test_header_words(fields: dict[str, int], name: str) -> None:
    assert refusal(with_header(programs.inverted_twice(), **fields)) == name


@pytest.mark.parametrize("version", [0, 1, 3, 0x00020003, 0x4F4F0001, 0xFFFFFFFF])
def test_microcode_of_another_compiler(version: int) -> None:
    """Only the magic word and some sizes are public of NXP's microcode, so that it is whatever is not marked as ours."""
    with pytest.raises(DriverError) as caught:
        Simulator(with_header(programs.inverted_twice(), format_version=version))
    assert str(caught.value) == (
        "program: the driver says that this is microcode of another compiler, such as NXP's eIQ Neutron converter, which "
        "NXP's firmware runs and OpenNeutron's driver does not; compile the model with OpenNeutron, or link NXP's driver "
        f"(detail 0x{version:x}); error 0x1213."
    )


def test_microcode_of_another_openneutron() -> None:
    with pytest.raises(DriverError, match=r"another version of OpenNeutron's format.* \(detail 0x4f4e0002\)"):
        Simulator(with_header(programs.inverted_twice(), format_version=0x4F4E0002))


def test_short_blobs() -> None:
    program = programs.inverted_twice()
    assert refusal(dataclasses.replace(program, microcode=program.microcode[:-16])) == "TRUNCATED"
    assert refusal(dataclasses.replace(program, microcode=program.microcode[:127])) == "TRUNCATED"
    assert refusal(dataclasses.replace(program, microcode=b"")) == "TRUNCATED"
    assert refusal(dataclasses.replace(program, weights=program.weights[:-16])) == "TRUNCATED"


@pytest.mark.parametrize(
    ("buffer", "fields"),
    [
        (0, {"rows": 7, "ring": 7}),
        (0, {"offset": 1}),
        (0, {"ring": 0}),
        (0, {"ring": 7}),
        (0, {"batches": 0}),
        (0, {"batches": -1}),
        (0, {"batches": 2}),
        (0, {"cols": 0}),
        (0, {"col0": 1}),
        (0, {"col0": -1}),
        (0, {"cols_held": 6}),
        (0, {"channels": 2}),
        (0, {"channel0": 2}),
        (0, {"row_pitch": -15}),
        (0, {"row_pitch": 0x7FFFFFFF}),
        (0, {"channel_pitch": 0x7FFFFFFF, "col_pitch": 0x7FFFFFFF, "row_pitch": 0x7FFFFFFF}),
        (0, {"cols": 0x7FFFFFFF, "col0": 0x7FFFFFF0, "col_pitch": 0x7FFFFFFF}),
        (0, {"base": base("INPUT", 1)}),
        (0, {"base": base("SCRATCH") | 1 << 8}),
        (0, {"base": 5}),
        (1, {"offset": 0xFFFFFFFF}),
        (1, {"base": base("PREFETCH")}),
    ],
)
def test_buffers(buffer: int, fields: dict[str, int]) -> None:
    def change(microcode: Microcode) -> dict[str, Any]:
        buffers = list(microcode.buffers)
        buffers[buffer] = changed(buffers[buffer], **fields)
        return {"buffers": tuple(buffers)}

    assert refusal(altered(programs.inverted_twice(), change)) == "BUFFER"


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (0, {"base": base("INPUT", 1)}),
        (0, {"base": base("OUTPUT")}),
        (0, {"offset": 1}),
        (0, {"base": base("WEIGHTS")}),
        (0, {"base": base("SCRATCH"), "offset": 0xFFFFFFFF}),
        (0, {"base": base("SCRATCH"), "offset": 23}),
        (1, {"base": base("INPUT")}),
        (1, {"base": base("OUTPUT", 1)}),
    ],
)
def test_bindings(index: int, fields: dict[str, int]) -> None:
    program = programs.inverted_twice()
    at = program.header["bindings_offset"] + 3 * index
    for name, value in fields.items():
        program = with_word(program, at + ("base", "offset", "size").index(name), value)
    assert refusal(program) == "BUFFER"


def test_kernel_that_is_not_registered() -> None:
    program = programs.inverted_twice()
    at = int.from_bytes(program.microcode[4 * program.header["operators_offset"] :][:4], "little")
    with pytest.raises(DriverError) as caught:
        Simulator(with_word(program, at, 12345 | 4 << 16))
    assert str(caught.value) == (
        "program: kernel of an unknown name (12345) is not registered: link the kernel selection of this model; "
        "error 0x30390613."
    )
    with pytest.raises(DriverError, match=r"^program: kernel of an unknown name \(16383\) is not registered: "):
        Simulator(with_word(program, at, 65535 | 4 << 16))


def test_the_kernel_that_an_error_names() -> None:
    with pytest.raises(DriverError) as caught:
        require("program", CODES["KERNEL"] | 1 << 16)
    assert str(caught.value) == (
        "program: kernel conv_2d_s8 (1) is not registered: link the kernel selection of this model; error 0x10613."
    )
    with pytest.raises(DriverError) as caught:
        require("program", CODES["KERNEL"] | 24 << 16 | 1 << 30)
    assert str(caught.value) == (
        "program: a variant that the program calls of kernel compare_s8 (24) is not registered: link the kernel selection "
        "of this model; error 0x40180613."
    )
    text, name = library().neutronErrorText, library().neutronErrorKernelName
    assert text(CODES["KERNEL"] | 1 << 16).decode() == (
        "the microcode calls a kernel that is not registered; link the kernel selection of this model"
    )
    assert text(CODES["KERNEL"] | 1 << 30).decode() == (
        "the microcode calls a kernel of which no registered variant takes the call; link the kernel selection of this model"
    )
    for row in rows.KERNELS:
        assert name(CODES["KERNEL"] | row.code << 16).decode() == row.name
        assert name(CODES["CALL"] | row.code << 16) is None


def test_operator_records() -> None:
    program = programs.inverted_twice()
    table = program.header["operators_offset"]
    at = int.from_bytes(program.microcode[4 * table :][:4], "little")
    assert refusal(with_word(program, at, 12 | 5 << 16)) == "LAYOUT"
    assert refusal(with_word(program, table, len(program.microcode) // 4)) == "LAYOUT"
    assert refusal(with_word(program, table, 0xFFFFFFFF)) == "LAYOUT"
    assert refusal(with_word(program, at + 2, 99)) == "CALL"  # the output's buffer
    assert refusal(with_word(program, at + 2, 0)) == "CALL"  # the output is the input, which nothing may write
    assert refusal(with_word(program, at + 1, 99)) == "CALL"  # the input's buffer
    assert refusal(with_word(program, at + 4, 1)) == "CALL"  # the table overhangs the weights


def loop(count: int, body_words: int) -> Record:
    return programs.instruction("LOOP", count=count, body_words=body_words)


def fetch(**fields: int) -> Record:
    whole = {"source": 0, "base": base("PREFETCH"), "destination": 64, "size": 256, "channel": 3}
    return programs.instruction("FETCH", **{**whole, **fields})


WINDOW = {"cycles": 1, "row0": 0, "row1": 1, "step": 0, "batch0": 0, "batch1": 1, "col0": 0, "col1": 1}
CALL, END = programs.call(0), programs.END


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ((), "INSTRUCTION"),
        ((CALL,), "INSTRUCTION"),
        ((END, CALL, END), "INSTRUCTION"),
        ((programs.call(1), END), "INSTRUCTION"),
        ((programs.call(0xFFFFFFFF), END), "INSTRUCTION"),
        ((loop(2, 3), CALL, END), "accepted"),
        ((loop(2, 4), CALL, END), "INSTRUCTION"),
        ((loop(2, 2), CALL, END), "INSTRUCTION"),
        ((loop(2, 0), CALL, END), "INSTRUCTION"),
        ((loop(2, 0xFFFFFFFF), CALL, END), "INSTRUCTION"),
        ((loop(0, 3), CALL, END), "INSTRUCTION"),
        ((loop(65535, 3), CALL, END), "accepted"),
        ((loop(65536, 3), CALL, END), "INSTRUCTION"),
        ((loop(2, 6), loop(2, 3), CALL, END), "INSTRUCTION"),
        ((loop(2, 3), CALL, loop(2, 3), CALL, END), "accepted"),
        ((fetch(), END), "accepted"),
        ((fetch(channel=16), END), "INSTRUCTION"),
        ((fetch(size=257), END), "INSTRUCTION"),
        ((fetch(source=1), END), "INSTRUCTION"),
        ((fetch(source=0xFFFFFFFF), END), "INSTRUCTION"),
        ((fetch(destination=65), END), "INSTRUCTION"),
        ((fetch(destination=0xFFFFFF00), END), "INSTRUCTION"),
        ((fetch(base=base("SCRATCH")), END), "INSTRUCTION"),
        ((fetch(base=base("SCRATCH"), size=0, destination=0), END), "accepted"),
        ((fetch(base=base("PREFETCH") | 1 << 8), END), "INSTRUCTION"),
        ((fetch(base=base("WEIGHTS"), destination=0), END), "INSTRUCTION"),
        ((fetch(base=base("OUTPUT"), destination=0, size=64), END), "INSTRUCTION"),
        ((fetch(base=base("INPUT"), destination=0, size=64), END), "INSTRUCTION"),
        ((fetch(base=5), END), "INSTRUCTION"),
        ((programs.instruction("WAIT", channel=15), END), "accepted"),
        ((programs.instruction("WAIT", channel=16), END), "INSTRUCTION"),
        ((programs.instruction("WINDOW", operator=0, channel0=8, channel1=16, **WINDOW), END), "accepted"),
        ((programs.instruction("WINDOW", operator=0, channel0=4, channel1=8, **WINDOW), END), "INSTRUCTION"),
        ((programs.rows(0, -(2**31), 2**31 - 1, 2**31 - 1), END), "accepted"),
    ],
)
def test_code(code: tuple[Record, ...], name: str) -> None:
    assert refusal(altered(programs.fetched(), lambda _: {"code": code})) == name


def test_instruction_lengths() -> None:
    program = programs.fetched()
    at = program.header["code_offset"]
    assert refusal(with_word(program, at, 5 | 3 << 16)) == "INSTRUCTION"
    assert refusal(with_word(program, at, 5 | 0xFFFF << 16)) == "INSTRUCTION"
    assert refusal(with_word(program, at, 7 | 4 << 16)) == "INSTRUCTION"


def test_work_is_bounded() -> None:
    """A run that would take hours is refused, however it comes about."""
    shape = (1, 2**15, 2**15, 2**15)
    still = {"batch_pitch": 0, "row_pitch": 0, "col_pitch": 0, "channel_pitch": 0}
    program = programs.program(
        inputs=(programs.binding("INPUT", 0, 1),),
        outputs=(programs.binding("OUTPUT", 0, 1),),
        buffers=(programs.dense("INPUT", 0, shape, **still), programs.dense("OUTPUT", 0, shape, **still)),
        operators=(programs.lookup(0, 1),),
        code=(CALL, END),
    )
    assert refusal(program) == "WORK"
    one_row = programs.rows(0, 0, 1)
    assert refusal(altered(program, lambda _: {"code": (one_row, END)})) == "accepted"
    looped = (loop(2000, 6), one_row, END)
    assert refusal(altered(program, lambda _: {"code": looped})) == "WORK"
