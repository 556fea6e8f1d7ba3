# SPDX-License-Identifier: BSD-3-Clause
"""Traits of kernels: the facts that the compiler may use beside a kernel's parameter block.

Every default is conservative. A kernel that declares nothing compiles correctly: it needs all of its operands, is not written in
place, not cut and not exchanged, and has a high cost. Names in traits are those of the row's parameters; pairs are of rows and
of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Pair = tuple[str, str]
"""A parameter of rows, and the same one of columns."""

# -- access patterns: compiler/schedule/needs.py has a rule for each ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everything:
    """Any element of the output may need any element of the operand."""


@dataclass(frozen=True, slots=True)
class SameRow:
    """A row of the output needs the same row of the operand alone."""


@dataclass(frozen=True, slots=True)
class SameElement:
    """An element of the output needs the element at the same place of the operand alone.

    ``in_place``: the kernel goes through the output in ascending order, reads the operand's element before it writes there, and
    never reads it again (runtime/kernels/elements.h). So the output may start at the operand's address or before it.
    """

    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window. Behind the input the padding follows from the extents.

    ``summed``: the parameter of a kernel that adds products over the window and over so many input channels alike: columns of
    the window may be stated as channels.
    """

    kernel: Pair = ("kernel_h", "kernel_w")
    stride: Pair = ("stride_h", "stride_w")
    pad: Pair = ("pad_top", "pad_left")
    dilation: Pair | None = None
    summed: str = ""


@dataclass(frozen=True, slots=True)
class Padded:
    """The operand is so many rows and columns inside the output."""

    pad: Pair = ("pad_top", "pad_left")


@dataclass(frozen=True, slots=True)
class Mapped:
    """The first ``maps`` tables of each axis in a constant name the rows and columns that are read."""

    constant: str
    maps: int = 1


Access = Everything | SameRow | SameElement | Window | Padded | Mapped

# -- cost classes: compiler/cost/cycles.py has a rule for each ----------------------------------------------------------


class CostClass(Enum):
    """The work of a call, which grows with its output unless stated otherwise."""

    UNKNOWN = "all that is read and written, one element after the other; a part costs as much as the whole"
    PRODUCTS = "products of each tap and input; so many outputs share an operand vector"
    CHANNEL_PRODUCTS = "products of each tap in one channel, so that a single multiplier of a pipeline works"
    MATRIX_PRODUCTS = "products of each input; output channels share an operand vector"
    PER_OUTPUT = "so many steps for each tap, with output channels on the pipelines"
    PER_INPUT = "a step for each input element, with channels on the pipelines"
    PER_COLUMN = "a step for each input, with output columns on the pipelines"
    MOVED = "so many bytes of output in a cycle"
    EXPONENTIALS = "a function of 32 bits for each output element"


@dataclass(frozen=True, slots=True)
class Work:
    """A cost class with its parameters: the product of ``taps``, and ``inputs`` and ``outputs`` that go together."""

    kind: CostClass
    taps: tuple[str, ...] = ()
    inputs: str = ""
    outputs: str = ""
    steps: int = 1


# -- a kernel's traits --------------------------------------------------------------------------------------------------

EVERYTHING = Everything()
INT8 = ("int8",)
BOOL = ("bool",)
POSITIONS = ("int32", "int64")
_UNKNOWN = Work(CostClass.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer that the kernel reads. ``elements`` are its types by LiteRT's names; none: any type, byte by byte."""

    name: str
    access: Access = EVERYTHING
    elements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A buffer that the kernel writes. ``state``: its bytes stay from one run to the next."""

    name: str = "output"
    elements: tuple[str, ...] = ()
    state: bool = False


class Function(Enum):
    """Functions of one element that other calls can include."""

    IDENTITY = "identity"
    TABLE = "table"
    """The entry of the constant of this name at the stored value + 128."""


@dataclass(frozen=True, slots=True)
class Channels:
    """A call for some of the output channels is the call with a narrower output.

    ``same``: it reads the same channels of its input, otherwise all of them. ``counts`` are the parameters that state the number
    of output channels, and have to where a call is cut; ``single`` are parameters that have to be 1.
    """

    same: bool
    counts: tuple[str, ...] = ()
    single: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts about one kernel.

    ``exchanged``: rows and columns may be exchanged, along with these pairs of parameters; None: they may not.
    ``batches_apart``: where all tensors have as many batches, each batch is computed by itself. ``function``: the call is that
    function of its only operand.
    """

    operands: tuple[Operand, ...] = ()
    results: tuple[Result, ...] = (Result(),)
    cost: Work = _UNKNOWN
    exchanged: tuple[Pair, ...] | None = None
    batches_apart: bool = False
    channels: Channels | None = None
    function: Function | None = None

    def access(self, name: str) -> Access:
        """Return the access pattern of an operand."""
        return next((operand.access for operand in self.operands if operand.name == name), EVERYTHING)


NOTHING_DECLARED = Traits()
