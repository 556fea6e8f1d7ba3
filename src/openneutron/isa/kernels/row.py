# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the microcode: named records of 32-bit words, and of a kernel its variants and its traits.

Traits are the facts that the compiler may use beside a kernel's parameter block. Every default is conservative. A kernel that
declares nothing compiles correctly: it needs all of its operands, is not written in place, not cut and not exchanged, and has a high
cost. Names in traits are those of the row's parameters; pairs are of rows and of columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from openneutron.isa.kernels.several import Part, Passes

Pair = tuple[str, str]
"""A parameter of rows, and the same one of columns."""

# -- access patterns: compiler/select/needs.py has a rule for each ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everything:
    """Any element of the output may need any element of the operand.

    ``in_place``: the kernel first reads all of the operand for other purposes, then goes through it as ``SameElement`` states. So a call
    of the whole output may write it at the operand's address.
    """

    in_place: bool = False


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


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the output needs as many rows of the operand as the parameter ``rows`` states, behind those of the row before."""

    rows: str


Access = Everything | Block | SameRow | SameElement | Window | Padded | Mapped

# -- cost classes: compiler/cost/cycles.py has a rule for each ----------------------------------------------------------


class CostClass(Enum):
    """The work of a call, which grows with its output unless stated otherwise."""

    UNKNOWN = "all that is read and written, one element after the other; a part costs as much as the whole"
    PRODUCTS = "products of each tap and input; so many outputs share an operand vector"
    CHANNEL_PRODUCTS = "products of each tap in one channel, so that few multipliers of a pipeline work"
    MATRIX_PRODUCTS = "products of each input; output channels share an operand vector"
    PER_OUTPUT = "so many steps for each tap, with output channels on the pipelines"
    PER_INPUT = "a step for each input element, with channels on the pipelines"
    PER_COLUMN = "a step for each input, with output columns on the pipelines"
    MOVED = "so many bytes of output in a cycle"
    COPIED = "a copy for each column of the output, from the memory that has the constants, one after the other"
    TRANSFERRED = "so many bytes of output in a cycle of the copy engine, beside the kernels"
    EXPONENTIALS = "a function of 32 bits for each output element"
    SUMMED = "so many steps for each tap, with the input's channels on the pipelines"
    NORMALIZED = "so many steps for each element, with channels on the pipelines, and a root of 32 bits for each line"
    FILTERED = "products of each input for each filter, then of each result that a filter keeps"
    ATTENTION = (
        "products of each query with each key, their softmax, products of each key's probability with its values"
    )
    PARTS = "the work of each kernel that the call runs"
    RECURRENT = "products of each gate, unit and input in every step, then so many functions of 16 bits for each unit"


@dataclass(frozen=True, slots=True)
class Work:
    """A cost class with its parameters: the product of ``taps``, and ``inputs`` and ``outputs`` that go together.

    ``moved``: the number of further passes over the output, each with the cost of a kernel of ``MOVED``.
    """

    kind: CostClass
    taps: tuple[str, ...] = ()
    inputs: str = ""
    outputs: str = ""
    steps: int = 1
    moved: int = 0


# -- a kernel's traits --------------------------------------------------------------------------------------------------

EVERYTHING = Everything()
_UNKNOWN = Work(CostClass.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer that the kernel reads.

    ``copied_by_kernel``: the kernel has the port copy the bytes that it needs, from any memory. So a constant operand stays in the memory
    that has the constants between runs, and is never copied whole.
    """

    name: str
    access: Access = EVERYTHING
    copied_by_kernel: bool = False


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

    ``columns_apart``: each column of the output is computed separately from the same column of an operand; in an operand with fewer columns,
    neighbouring columns share one. Columns may then be parts of a row's channels, as heads are.
    ``exchanged``: rows and columns may be exchanged, along with these pairs of parameters; None: they may not.
    ``batches_apart``: where all tensors have as many batches, each batch is computed by itself. ``function``: the call is that
    function of its only operand. ``passes``: the call can be two calls. ``joins``: the call is one of the first kernel, then one of the
    second on its output, in place. ``parts``: the call is one of each of these kernels, in this order; with ``between``, each is on the output
    of the one before it, through this scratch buffer. ``in_blocks``: scratch buffers of which fewer rows than those of the output suffice, since
    the kernel then goes through its rows in blocks of as many: it has written a block of the output before it reads the operands of the next
    one. ``of_batch``: the scratch buffer for one batch of the first part's result, where
    the call goes through its batches. ``runs``: other kernels whose code it calls.
    """

    operands: tuple[Operand, ...] = ()
    cost: Work = _UNKNOWN
    exchanged: tuple[Pair, ...] | None = None
    batches_apart: bool = False
    channels: Channels | None = None
    function: Function | None = None
    joins: tuple[str, str] | None = None
    between: str = ""
    in_blocks: tuple[str, ...] = ()
    of_batch: str = ""
    runs: tuple[str, ...] = ()
    passes: Passes | None = None
    columns_apart: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def chain(self) -> tuple[str, str] | None:
        """Return the two kernels of a call that runs them through a scratch buffer; None for another call."""
        if not self.between:
            return None
        first, second = self.parts
        return first.kernel, second.kernel

    @property
    def copied_by_kernel(self) -> frozenset[str]:
        """Return the operands that the kernel copies itself."""
        return frozenset(operand.name for operand in self.operands if operand.copied_by_kernel)

    @property
    def kernels(self) -> frozenset[str]:
        """Return the kernels that a call runs beside its own code."""
        return frozenset((*(self.joins or ()), *self.runs, *(part.kernel for part in self.parts)))

    def access(self, name: str) -> Access:
        """Return the access pattern of an operand."""
        for operand in self.operands:
            if operand.name == name:
                return operand.access
        return EVERYTHING


NOTHING_DECLARED = Traits()


def of_one_input(
    access: Access, cost: Work, exchanged: tuple[Pair, ...] = (), channels: Channels | None = None
) -> Traits:
    """Return the traits of a kernel that computes each batch of its input by itself."""
    return Traits((Operand("input", access),), cost, exchanged, True, channels)


@dataclass(frozen=True, slots=True)
class Field:
    """One little-endian 32-bit word. ``refers`` is "buffer" where the value is an index into the buffer table; ``element_bytes``
    are then those of an element that the kernel reads or writes there. ``written``: a state or scratch, which the kernel reads and
    writes; the buffer "output" is written alone. ``scratch``: the kernel reads only bytes that the same call has written, for any
    rows of the output."""

    name: str
    doc: str
    signed: bool = True
    refers: str = ""
    element_bytes: int = 1
    written: bool = False
    scratch: bool = False

    def check(self, value: int) -> None:
        low, high = (-(2**31), 2**31) if self.signed else (0, 2**32)
        assert low <= value < high, f"{self.name}={value} does not fit its word"


class Packing(Enum):
    """The layout of a constant among the weights, and the array that it holds (compiler/emit/packing.py).

    Weights and requantization come in blocks of 8 output channels, whatever the target: the kernels' code has this number in it
    (docs/explanation/programs.md, the machine).
    """

    AS_IT_IS = "the array in C order, little-endian"
    WEIGHT_BLOCKS = "int8 [output, height, width, input] as [output/8][height][width][input/8][8 outputs][8 inputs]"
    CHANNEL_BLOCKS = "int8 [output, height, width, 1] as [output/8][height][width][8 outputs]"
    REQUANTIZATION = "int32 [bias multiplier shift, output] as [output/8][bias multiplier shift][8 outputs]"
    WIDE_REQUANTIZATION = (
        "int32 [low high multiplier shift, output] as [output/8][low high multiplier shift][8 outputs]; low and high are the words "
        "of an int64 bias"
    )
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
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The names of the fields."""
    results: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that the kernel writes, the output first."""
    read: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that the kernel may read before it has written them: all but the output and scratch."""
    scratch: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that are scratch of a call."""
    unsigned: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The places of the fields without a sign."""
    _places: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        buffers = [each for each in self.fields if each.refers == "buffer"]
        for name, value in (
            ("names", tuple(each.name for each in self.fields)),
            ("results", ("output", *(each.name for each in self.fields if each.written))),
            ("read", tuple(each.name for each in buffers if each.name != "output" and not each.scratch)),
            ("scratch", tuple(each.name for each in self.fields if each.scratch)),
            ("unsigned", tuple(place for place, each in enumerate(self.fields) if not each.signed)),
            ("_places", {each.name: place for place, each in enumerate(self.fields)}),
        ):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(self.name)

    def packing(self, key: str) -> Packing:
        """Return the layout of a constant."""
        for name, packing in self.packings:
            if name == key:
                return packing
        return Packing.AS_IT_IS

    def element_bytes(self, buffer: str) -> int:
        """Return the bytes of an element of a buffer field."""
        return self.fields[self._places[buffer]].element_bytes

    @property
    def is_transfer(self) -> bool:
        """Return whether the copy engine does the kernel's work: a call starts the work on a channel, and WAIT ends it."""
        return self.traits.cost.kind is CostClass.TRANSFERRED

    def index(self, name: str) -> int:
        """Return the place of a field."""
        return self._places[name]


def unsigned(name: str, doc: str) -> Field:
    """Return a word for a number from 0 up."""
    return Field(name, doc, signed=False)


def signed(name: str, doc: str) -> Field:
    """Return a word for a number that may be below 0."""
    return Field(name, doc)


def buffer(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return a word for a buffer's number in the table."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes)


def state(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return a word for the number of a buffer that the kernel reads and writes."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes, written=True)


def scratch(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return a word for the number of a buffer of which the kernel reads only bytes that the same call has written."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes, written=True, scratch=True)


def constant(name: str, doc: str) -> tuple[Field, Field]:
    """Return the words of a constant."""
    return unsigned(f"{name}_base", "see bases"), unsigned(f"{name}_offset", doc)


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
WIDE_INPUT_AND_OUTPUT = (buffer("input", "int16", 2), buffer("output", "int16", 2))
WIDE_OPERANDS = (
    buffer("input_a", "int16; a pitch of 0 broadcasts", 2),
    buffer("input_b", "int16; a pitch of 0 broadcasts", 2),
)
WIDE_OPERANDS_AND_OUTPUT = (*WIDE_OPERANDS, buffer("output", "int16", 2))
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
