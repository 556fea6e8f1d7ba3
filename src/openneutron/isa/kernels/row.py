# SPDX-License-Identifier: BSD-3-Clause
"""A row of the microcode: a named record of 32-bit words, and of a kernel its variants."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from openneutron.isa.kernels.traits import NOTHING_DECLARED, Traits


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


class Packing(Enum):
    """The layout of a constant among the weights, and the array that it holds (compiler/emit/packing.py).

    Weights and requantization come in blocks of 8 output channels, whatever the target: the kernels' code has this number in it.
    """

    AS_IT_IS = "the array in C order, little-endian"
    WEIGHT_BLOCKS = "int8 [output, height, width, input] as [output/8][height][width][input/8][8 outputs][8 inputs]"
    CHANNEL_BLOCKS = "int8 [output, height, width, 1] as [output/8][height][width][8 outputs]"
    REQUANTIZATION = "int32 [bias multiplier shift, output] as [output/8][bias multiplier shift][8 outputs]"
    MAPS = "int32 tables of the output's rows, then as many of its columns"


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition that a word of a kernel's parameter block, or of a buffer it refers to (``input.channel_pitch``), has a value."""

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
    ``packings`` are the layouts of constants (key X of the fields X_base and X_offset), for all others AS_IT_IS.
    """

    name: str
    doc: str
    fields: tuple[Field, ...]
    code: int = 0
    taps: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    traits: Traits = NOTHING_DECLARED
    packings: tuple[tuple[str, Packing], ...] = ()

    def packing(self, key: str) -> Packing:
        """Return the layout of a constant."""
        return next((packing for name, packing in self.packings if name == key), Packing.AS_IT_IS)

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


CLAMP = (
    signed("clamp_min", "fused activation's lower bound, stored"),
    signed("clamp_max", "fused activation's upper bound, stored; not below clamp_min"),
)
OUTPUT_RANGE = (signed("output_zero_point", "added after requantization"), *CLAMP)

INPUT_AND_OUTPUT = (buffer("input", "int8"), buffer("output", "int8"))
OPERANDS = (
    buffer("input_a", "int8; a pitch of 0 broadcasts"),
    buffer("input_b", "int8; a pitch of 0 broadcasts"),
)
OPERANDS_AND_OUTPUT = (*OPERANDS, buffer("output", "int8"))
ZERO_POINTS = (signed("a_zero_point", "subtracted from a"), signed("b_zero_point", "subtracted from b"))
RESCALING = (
    signed("output_multiplier", "fixed point, 31 fractional bits"),
    signed("output_shift", "positive shifts left"),
)
KERNEL_AND_STRIDE = (
    signed("kernel_h", "rows"),
    signed("kernel_w", "columns"),
    signed("stride_h", "rows"),
    signed("stride_w", "columns"),
)
