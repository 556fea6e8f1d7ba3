# SPDX-License-Identifier: BSD-3-Clause
"""What a row of the microcode is: a named record of 32-bit words, and of a kernel its variants."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.isa.traits import NOTHING_DECLARED, Traits


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
    traits: Traits = NOTHING_DECLARED

    def index(self, field: str) -> int:
        return next(i for i, candidate in enumerate(self.fields) if candidate.name == field)


def unsigned(name: str, doc: str) -> Field:
    """A word from 0 up."""
    return Field(name, doc, signed=False)


def signed(name: str, doc: str) -> Field:
    """A word that may be below 0."""
    return Field(name, doc)


def buffer(name: str, doc: str) -> Field:
    """A buffer's number in the table."""
    return Field(name, doc, signed=False, refers="buffer")
