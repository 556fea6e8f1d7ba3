# SPDX-License-Identifier: BSD-3-Clause
"""Programs that neutronModelCheck and neutronModelPrepare refuse: one small change each to the program of a real model.

The table is for any program that is compiled with ``prefetch_constants`` and ends in softmax, and has a convolution
first and a sum of two tensors among its operators: ResNet-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from openneutron.isa import Microcode, Program, Record, base, rows
from tests.support import programs
from tests.support.altered_programs import CODES, altered, changed, with_header, with_word

ACCEPTED = "accepted"
UNKNOWN_KERNEL = 12345
EXTENT = 2**15
HALF_A_HEADER = 2 * len(rows.HEADER.fields)
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change, and the errors' names. ``prepare`` differs from ``check`` where the former trusts the header's sizes."""

    name: str
    change: Callable[[Program], Program]
    check: str
    prepare: str | None = None

    @property
    def codes(self) -> tuple[int, int]:
        """Of neutronModelCheck and of neutronModelPrepare."""
        return code(self.check), code(self.prepare or self.check)


def code(name: str) -> int:
    """An error's number; one of an unregistered kernel names UNKNOWN_KERNEL (NeutronErrors.h)."""
    if name == ACCEPTED:
        return 0
    return CODES[name] | (UNKNOWN_KERNEL << 16 if name == "KERNEL" else 0)


def header(**fields: int) -> Callable[[Program], Program]:
    return lambda program: with_header(program, **fields)


def resized(change: Callable[[int], int]) -> Callable[[Program], Program]:
    return lambda program: with_header(program, microcode_size=change(len(program.microcode)))


def behind(section: str) -> Callable[[Program], Program]:
    """A section that begins where the microcode ends."""
    return lambda program: with_header(program, **{f"{section}_offset": len(program.microcode) // 4})


def word(place: Callable[[Program], int], value: int) -> Callable[[Program], Program]:
    return lambda program: with_word(program, place(program), value)


def word_at(program: Program, at: int) -> int:
    return int.from_bytes(program.microcode[4 * at : 4 * at + 4], "little")


def operator_offset(program: Program) -> int:
    """Return the position of the word that leads to the first operator."""
    return program.header["operators_offset"]


def operator_record(program: Program) -> int:
    """Return the position of the first operator."""
    return word_at(program, operator_offset(program))


def one(field: str, index: int, **values: int) -> Callable[[Program], Program]:
    """Another value in one buffer, binding or operator."""

    def change(microcode: Microcode) -> dict[str, Any]:
        items = list(getattr(microcode, field))
        items[index] = changed(items[index], **values)
        return {field: tuple(items)}

    return lambda program: altered(program, change)


def coded(change: Callable[[tuple[Record, ...]], tuple[Record, ...]]) -> Callable[[Program], Program]:
    """Other code."""
    return lambda program: altered(program, lambda microcode: {"code": change(microcode.code)})


def first(kind: str, **values: int) -> Callable[[Program], Program]:
    """Another value in the first instruction of a kind."""

    def change(code: tuple[Record, ...]) -> tuple[Record, ...]:
        at = next(index for index, item in enumerate(code) if item.row.name == kind)
        return (*code[:at], changed(code[at], **values), *code[at + 1 :])

    return coded(change)


def before(*items: Record) -> Callable[[Program], Program]:
    """Instructions in front of the code."""
    return coded(lambda code: (*items, *code))


def endless(program: Program) -> Program:
    """The sum alone, of two tensors of 2^45 elements each, which are all the same byte."""

    def change(microcode: Microcode) -> dict[str, Any]:
        at = next(i for i, operator in enumerate(microcode.operators) if operator.row.name == "add_s8")
        extents = dict.fromkeys(("rows", "cols", "channels", "ring", "cols_held", "channels_held"), EXTENT)
        still = dict.fromkeys(("row_pitch", "col_pitch", "channel_pitch"), 0)
        buffers = list(microcode.buffers)
        for field in ("input_a", "input_b", "output"):
            index = microcode.operators[at][field]
            buffers[index] = changed(buffers[index], **extents, **still)
        return {"buffers": tuple(buffers), "code": (programs.call(at), programs.END)}

    return altered(program, change)


def without_a_bit(program: Program) -> Program:
    blob = bytearray(program.microcode)
    blob[-20] ^= 1
    return replace(program, microcode=bytes(blob))


LOOP = programs.instruction("LOOP", count=2, body_words=3)

REFUSALS = (
    Refusal("another file", header(magic=0x12345678), "MAGIC"),
    Refusal("another compiler's version word", header(format_version=0x00020003), "FOREIGN"),
    Refusal("a later format", header(format_version=rows.FORMAT_VERSION + 1), "VERSION"),
    # What prepare reads behind the end is whatever lies there.
    Refusal("cut microcode", lambda p: replace(p, microcode=p.microcode[:-16]), "TRUNCATED", "CHECKSUM"),
    Refusal("less than a header", lambda p: replace(p, microcode=p.microcode[:HALF_A_HEADER]), "TRUNCATED", "CHECKSUM"),
    Refusal("a size below the header's", resized(lambda _: HALF_A_HEADER), "LAYOUT"),
    Refusal("a size above the file's", resized(lambda size: size + 16), "TRUNCATED", "CHECKSUM"),
    Refusal("cut weights", lambda p: replace(p, weights=p.weights[:-16]), "TRUNCATED", ACCEPTED),
    Refusal("a bit", without_a_bit, "CHECKSUM"),
    Refusal("a wrong checksum", header(microcode_crc=1), "CHECKSUM"),
    Refusal("a size that is not aligned", resized(lambda size: size - 4), "LAYOUT"),
    Refusal("a flag", header(flags=1), "LAYOUT"),
    Refusal("a reserved word", header(reserved0=1), "LAYOUT"),
    Refusal("too many inputs", header(input_count=256), "LAYOUT"),
    Refusal("too many outputs", header(output_count=256), "LAYOUT"),
    Refusal("bindings outside", behind("bindings"), "LAYOUT"),
    Refusal("buffers outside", behind("buffers"), "LAYOUT"),
    Refusal("operators outside", behind("operators"), "LAYOUT"),
    Refusal("code outside", behind("code"), "LAYOUT"),
    Refusal("far too many buffers", header(buffer_count=0xFFFFFFFF), "LAYOUT"),
    Refusal("an operator outside", lambda p: with_word(p, operator_offset(p), len(p.microcode) // 4), "LAYOUT"),
    Refusal("an operator far outside", word(operator_offset, 0xFFFFFFFF), "LAYOUT"),
    Refusal("a short operator", word(operator_record, rows.KERNEL_BY_NAME["conv_2d_s8"].code | 3 << 16), "LAYOUT"),
    Refusal("a kernel that is not registered", word(operator_record, UNKNOWN_KERNEL | 23 << 16), "KERNEL"),
    Refusal("an input that is no input", one("inputs", 0, base=base("OUTPUT")), "BUFFER"),
    Refusal("an output with an offset", one("outputs", 0, offset=16), "BUFFER"),
    Refusal("a buffer of a row more", one("buffers", 0, rows=33, ring=33), "BUFFER"),
    Refusal("a buffer of nothing", one("buffers", 0, channels=0), "BUFFER"),
    Refusal("a buffer before its memory", one("buffers", 0, row_pitch=-96), "BUFFER"),
    Refusal("a buffer of no memory", one("buffers", 0, base=9), "BUFFER"),
    Refusal("little scratch", header(scratch_size=16), "BUFFER"),
    Refusal("an output that is no buffer", one("operators", 0, output=999), "CALL"),
    Refusal("an output into the input", one("operators", 0, output=0), "CALL"),
    Refusal("an input that is no buffer", one("operators", 0, input=999), "CALL"),
    Refusal("weights outside", one("operators", 0, weights_offset=0xFFFFFFF0), "CALL"),
    Refusal("no filter", one("operators", 0, kernel_h=0), "CALL"),
    Refusal("a stride of nothing", one("operators", 0, stride_w=0), "CALL"),
    Refusal("a table of nothing", one("operators", -1, exp_count=0), "CALL"),
    Refusal("no end", coded(lambda code: code[:-1]), "INSTRUCTION"),
    Refusal("an end too early", before(programs.END), "INSTRUCTION"),
    Refusal("no code", coded(lambda code: ()), "INSTRUCTION"),
    Refusal("an unknown instruction", word(lambda p: p.header["code_offset"], 99 | 4 << 16), "INSTRUCTION"),
    Refusal("a long instruction", word(lambda p: p.header["code_offset"], 5 | 0xFFFF << 16), "INSTRUCTION"),
    Refusal("a call of no operator", first("CALL", operator=99), "INSTRUCTION"),
    Refusal("a fetch on no channel", first("FETCH", channel=16), "INSTRUCTION"),
    Refusal("a fetch from behind the weights", first("FETCH", source=0xFFFFFFF0), "INSTRUCTION"),
    Refusal("a fetch to behind the buffer", first("FETCH", destination=0xFFFFFFF0), "INSTRUCTION"),
    Refusal("a wait for no channel", first("WAIT", channel=16), "INSTRUCTION"),
    Refusal("a loop of no rounds", before(changed(LOOP, count=0), programs.call(0)), "INSTRUCTION"),
    Refusal("a loop past the end", before(changed(LOOP, body_words=2**20), programs.call(0)), "INSTRUCTION"),
    Refusal("a loop in a loop", before(changed(LOOP, body_words=6), LOOP, programs.call(0)), "INSTRUCTION"),
    Refusal("hours of work", endless, "WORK"),
)
