# SPDX-License-Identifier: BSD-3-Clause
"""Define the types of the microcode's rows: named records of 32-bit words, and for a kernel its variants and its
traits.

Traits are the facts about a kernel that the compiler uses beside its parameter block. Every default is conservative: a
kernel without traits compiles correctly, but each call reads all of its operands, writes none of them in place, is not
divided, and has a high cost. Names in traits are names of the row's parameters. A pair is a parameter for rows and the
same parameter for columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

Pair = tuple[str, str]
"""The names of a parameter for rows and of the same parameter for columns."""

# -- access patterns: compiler/select/needs.py has a rule for each ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everything:
    """An access pattern: any element of the output may need any element of the operand.

    ``in_place``: a call that computes its whole output may write it over the operand. Such a kernel works in two
    phases. In the first it reads the whole operand and writes no output. In the second it reads and writes in the
    order that ``SameElement`` states.
    """

    in_place: bool = False


@dataclass(frozen=True, slots=True)
class SameRow:
    """An access pattern: a row of the output needs only the same row of the operand."""


@dataclass(frozen=True, slots=True)
class SameElement:
    """An access pattern: an element of the output needs only the operand's element at the same position.

    ``in_place``: the output may start at the operand's address or before it. The kernel writes the output in ascending
    order, and reads each element of the operand before it writes that position (runtime/kernels/elements.h).
    """

    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """An access pattern: an element of the output needs a sliding window of the operand. The fields name the
    parameters of the window. There is no parameter for the padding at the bottom and on the right, since it follows
    from the extents of operand and output.

    ``summed`` is the parameter with the number of input channels, for a kernel that sums products over the window and
    these channels. The compiler can turn columns of such a window into channels.
    """

    kernel: Pair = ("kernel_h", "kernel_w")
    stride: Pair = ("stride_h", "stride_w")
    pad: Pair = ("pad_top", "pad_left")
    dilation: Pair | None = None
    summed: str = ""


@dataclass(frozen=True, slots=True)
class Padded:
    """An access pattern: element (row, column) of the operand is element (row + pad, column + pad) of the output, with
    the parameters ``pad`` for rows and columns."""

    pad: Pair = ("pad_top", "pad_left")


@dataclass(frozen=True, slots=True)
class Mapped:
    """An access pattern: tables list the row and the column of the operand that each output row and each output
    column reads. They are the first ``maps`` tables of the constant ``constant``."""

    constant: str
    maps: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """An access pattern: row r of the output needs the rows of block r of the operand. The parameter ``rows`` is the
    number of rows of a block."""

    rows: str


Access = Everything | Block | SameRow | SameElement | Window | Padded | Mapped

# -- cost classes: compiler/cost/cycles.py has a rule for each ----------------------------------------------------------


class CostClass(Enum):
    """The kind of work of a call, which decides its cost rule. The work grows with the output unless stated otherwise."""

    UNKNOWN = "all that is read and written, one element after the other; a part costs as much as the whole"
    PRODUCTS = "products of each tap and input; the outputs of a group share an operand vector"
    CHANNEL_PRODUCTS = "products of each tap in one channel: few multipliers of a pipeline work"
    MATRIX_PRODUCTS = "products of each input; output channels share an operand vector"
    PER_OUTPUT = "`steps` steps for each tap, with output channels on the pipelines"
    PER_INPUT = "a step for each input element, with channels on the pipelines"
    PER_COLUMN = "a step for each input, with output columns on the pipelines"
    MOVED = "a fixed number of bytes of output in a cycle"
    COPIED = "a copy for each column of the output, from the memory that has the constants, one after the other"
    TRANSFERRED = "a fixed number of bytes of output in a cycle of the copy engine, beside the kernels"
    EXPONENTIALS = "a function of 32 bits for each output element"
    SUMMED = "`steps` steps for each tap, with the input's channels on the pipelines"
    NORMALIZED = "`steps` steps for each element, with channels on the pipelines, and a root of 32 bits for each line"
    FILTERED = "products of each input for each filter, then of each result that a filter keeps"
    ATTENTION = (
        "products of each query with each key, their softmax, products of each key's probability with its values"
    )
    PARTS = "the work of each kernel that the call runs"
    JOB = "products that the NPU's driver takes as jobs, and the rescaling of each result on the CPU"
    RECURRENT = "products of each gate, unit and input in every step, then `steps` functions of 16 bits for each unit"


@dataclass(frozen=True, slots=True)
class Work:
    """The kind of a kernel's work in the cost model, and the parameters that scale it.

    The number of taps (positions of a window) is the product of the parameters ``taps``. ``inputs`` and ``outputs``
    name the parameters with the input and output channels of a group. ``moved`` is the number of further passes over
    the output, each with the cost of a kernel of class ``MOVED``.
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

    ``copied_by_kernel``: the kernel itself copies the bytes that it needs from any memory, through the driver's port
    (its code for one chip). A constant operand then stays in the memory that stores constants, such as flash, and is
    never copied whole.
    """

    name: str
    access: Access = EVERYTHING
    copied_by_kernel: bool = False


class Function(Enum):
    """Functions of one element that other calls can include."""

    IDENTITY = "identity"
    TABLE = "table"
    """A look-up: entry number (stored value + 128) of the constant ``table``."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The way in which a call can be divided by output channels. Each part is the same call with fewer output
    channels.

    ``same``: a part reads only those channels of the input that it writes of the output. Otherwise it reads all
    channels. ``counts`` are the parameters that state the number of output channels. In a part they state the part's
    number. ``single`` are parameters that must be 1, or the call can't be divided.
    """

    same: bool
    counts: tuple[str, ...] = ()
    single: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts about one kernel.

    * ``exchanged``: rows and columns of all tensors may be exchanged, if both parameters of each of these pairs are
      exchanged too. None: they may not.
    * ``batches_apart``: each batch is computed separately if all tensors have the same number of batches.
    * ``columns_apart``: each output column is computed separately, from the same column of each operand. If an
      operand has fewer columns, several neighbouring output columns read one of its columns. Such columns may be
      parts of a row's channels, as the heads of attention are.
    * ``function``: the function that the call applies to each element of its only operand; None for other kernels.
    * ``passes``: the two kernels whose calls can replace a call of this kernel, or None.
    * ``joins``: two kernels that a call runs one after the other, or None. The second one changes the output of the
      first one in place.
    * ``parts``: the kernels that a call runs, each once and in this order; empty for a kernel that is not combined of
      others in this way.
    * ``between``: the scratch buffer through which each part passes its output to the next part.
    * ``in_blocks``: scratch buffers that may hold fewer rows than the output. The kernel then computes the output in blocks of that many
      rows, and writes a block before it reads the operands of the next block.
    * ``of_batch``: the scratch buffer for the result of the first part. It holds one batch, and the call computes its
      batches one by one.
    * ``runs``: other kernels whose code the kernel calls.
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
    copied_by_kernel: frozenset[str] = field(init=False, compare=False, repr=False)
    """The operands that the kernel copies itself."""

    def __post_init__(self) -> None:
        copied = frozenset(operand.name for operand in self.operands if operand.copied_by_kernel)
        object.__setattr__(self, "copied_by_kernel", copied)

    @property
    def chain(self) -> tuple[str, str] | None:
        """Return the two kernels of a call that runs them through a scratch buffer; None for another call."""
        if not self.between:
            return None
        first, second = self.parts
        return first.kernel, second.kernel

    @property
    def kernels(self) -> frozenset[str]:
        """Return the kernels that a call runs in addition to its own code."""
        return frozenset((*(self.joins or ()), *self.runs, *(part.kernel for part in self.parts)))

    def access(self, name: str) -> Access:
        """Return the access pattern of an operand; EVERYTHING if the traits do not have the operand."""
        for operand in self.operands:
            if operand.name == name:
                return operand.access
        return EVERYTHING


@dataclass(frozen=True, slots=True)
class Part:
    """One of the kernels that a combined kernel runs.

    Its parameters are those of the combined kernel with the prefix ``prefix``. ``buffers`` are pairs: the part's name
    of a buffer, and the combined kernel's name of it. ``flag`` is the parameter that is 0 if a call leaves the part
    out.
    """

    kernel: str
    prefix: str
    buffers: tuple[tuple[str, str], ...]
    flag: str = ""


@dataclass(frozen=True, slots=True)
class Passes:
    """The two kernels that can replace a norm: ``first`` computes statistics of the input, and ``second`` the output
    from the statistics.

    ``first`` divides the input into at most ``blocks`` blocks of rows. It writes ``bytes`` bytes for each group of
    channels in each block. ``second`` reads them as its buffer ``statistics``, and computes any elements of the
    output. Three fields name parameters: ``group`` (channels of a group), ``rows`` (rows of a block), ``count``
    (elements of a group in all blocks).
    """

    first: str
    second: str
    group: str
    rows: str
    count: str
    statistics: str
    bytes: int
    blocks: int


NOTHING_DECLARED = Traits()


def of_one_input(
    access: Access, cost: Work, exchanged: tuple[Pair, ...] = (), channels: Channels | None = None
) -> Traits:
    """Return the traits of a kernel that computes each batch of its input by itself."""
    return Traits((Operand("input", access),), cost, exchanged, True, channels)


@dataclass(frozen=True, slots=True)
class Field:
    """One little-endian 32-bit word of a row.

    ``refers`` is "buffer" if the value is an index into the buffer table, otherwise empty. For such a word,
    ``element_bytes`` is the size of an element of the buffer. ``written``: the buffer is a state or scratch, which
    the kernel reads and writes. The field named "output" is not marked: the kernel only writes it. ``scratch``: the
    kernel reads no byte of the buffer that the same call has not written, whichever rows it computes.
    """

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
    """The layout of a constant among the weights, and the array that it holds (compiler/emit/emit.py).

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
    JOB_WEIGHTS = "int8 or int4 [output, input], with zeros up to the sizes that a job has, in the order of the NPU's release (device/neutron_jobs.py)"
    MAPS = "int32 tables of the output's rows, then as many of its columns"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a variant: a word of the parameter block, or of a buffer to which the block refers
    (``input.channel_pitch``), has this value."""

    field: str
    value: int

    def __str__(self) -> str:
        return f"{self.field} == {self.value}"


@dataclass(frozen=True, slots=True)
class Variant:
    """A specialized form of a kernel for the calls that meet all conditions: the C function ``<kernel>_run_<name>``.

    The whole kernel, ``<kernel>_run``, can run every call. By default firmware contains the whole kernel. A kernel
    selection replaces it by variants, to save code, if the variants can run all calls of the selection's programs. If
    several variants can run a call, the first one does. ``not_beside`` names kernels that share code with the whole
    kernel but not with the variant. If firmware contains one of them, it is smaller with the whole kernel.
    """

    name: str
    doc: str
    conditions: tuple[Condition, ...]
    not_beside: tuple[str, ...] = ()


class Audited(Enum):
    """The part of each input that a call reads to compute a window of its output. Rows are left out: the access
    patterns of the traits state them.

    The audit checks programs against it (``compiler/emit/accesses.py`` has a rule for each member). The scheduler
    does not use it, so that the audit also finds mistakes in traits.
    """

    EVERYTHING = "all columns and channels of the same batches"
    SAME = "the same elements"
    LINES = "all channels of the same places"
    GROUPS = "all columns of the groups of channels"
    REDUCED = "all columns of the same batches and channels"
    SAMPLED = "the same channels of the places under a sliding window or in a table"
    CONVOLUTION = "the channels of the same groups, under a sliding window"
    JOINED = "of `input` as CONVOLUTION, of another operand the same elements"
    CHAINED = "of `input` all channels of the same places, of another operand the same elements"
    PADDED = "the same elements inside the padding"
    BY_SUMS = "all sums of the same batches, and the same elements"
    PRODUCT = "the whole depth of a, and the columns of b"
    GATHERED = "any column, and the indices of the same columns"
    LOOKED_UP = "any entry of the table, and the indices of the same columns"
    ATTENDED = "queries, masks, and the keys and values of their heads"
    PROJECTED = "the input of the layers in the same batches, and the mask as ATTENDED"
    SEQUENCE = "all steps, and a state that is not set at the start"


_ALL_AXES = ("batches", "rows", "cols", "channels")

_APART: dict[Audited, tuple[str, ...]] = {
    Audited.SAME: _ALL_AXES,
    Audited.PADDED: _ALL_AXES,
    Audited.SAMPLED: _ALL_AXES,
    Audited.CONVOLUTION: _ALL_AXES,
    Audited.JOINED: _ALL_AXES,
    Audited.BY_SUMS: _ALL_AXES,
    Audited.GATHERED: _ALL_AXES,
    Audited.LINES: ("batches", "rows", "cols"),
    Audited.ATTENDED: ("batches", "rows", "cols"),
    Audited.CHAINED: ("batches", "rows", "cols"),
    Audited.PRODUCT: ("batches", "rows", "channels"),
    Audited.GROUPS: ("batches", "channels"),
    Audited.REDUCED: ("batches", "channels"),
    Audited.PROJECTED: ("batches",),
}
"""The axes of the output that threads can divide without repeating work, by what a call reads of its inputs."""


@dataclass(frozen=True, slots=True)
class Row:
    """The definition of a record in the microcode: a name and a list of 32-bit words. ``code`` is the number of the
    kernel or instruction, if the record is one.

    ``taps`` names the words whose product is the number of input elements that a kernel reads for one output element,
    up to a constant factor. "input" among them stands for the input's rows * columns. The driver uses the product to
    reject programs whose runs take too long. ``packings`` has pairs: the name X of a constant with the words X_base
    and X_offset, and its layout. All other constants have the layout AS_IT_IS. ``audited`` states which part of its
    inputs a call may read.
    """

    name: str
    doc: str
    fields: tuple[Field, ...]
    code: int = 0
    taps: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    traits: Traits = NOTHING_DECLARED
    packings: tuple[tuple[str, Packing], ...] = ()
    audited: Audited = Audited.EVERYTHING
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The names of the fields."""
    results: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that the kernel writes, the output first."""
    read: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that the kernel may read before it writes them: all except the output and scratch."""
    scratch: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The buffers that are scratch of a call."""
    unsigned: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The indices of the fields without a sign."""
    is_transfer: bool = field(init=False, compare=False, repr=False)
    """Whether the copy engine does the kernel's work: a call starts a copy on a channel, and WAIT ends it."""
    is_wide: bool = field(init=False, compare=False, repr=False)
    """Whether an operand or the output is of int16. States and scratch of int16 do not count."""
    places: dict[str, int] = field(init=False, compare=False, repr=False)
    """The index of each field, by its name."""

    def __post_init__(self) -> None:
        buffers = [each for each in self.fields if each.refers == "buffer"]
        for name, value in (
            ("names", tuple(each.name for each in self.fields)),
            ("results", ("output", *(each.name for each in self.fields if each.written))),
            ("read", tuple(each.name for each in buffers if each.name != "output" and not each.scratch)),
            ("scratch", tuple(each.name for each in self.fields if each.scratch)),
            ("unsigned", tuple(place for place, each in enumerate(self.fields) if not each.signed)),
            ("is_transfer", self.traits.cost.kind is CostClass.TRANSFERRED),
            ("is_wide", any(each.element_bytes == 2 and not each.written for each in buffers)),
            ("places", {each.name: place for place, each in enumerate(self.fields)}),
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
        return self.fields[self.places[buffer]].element_bytes

    @property
    def shared_axes(self) -> tuple[str, ...]:
        """Return the axes of the output along which threads can divide a call without repeating work.

        There are none for a kernel with a state, nor for a kernel that starts copies, whose calls must keep the order
        of the program.
        """
        ordered = self.results[1:] != self.scratch or self.is_transfer or self.traits.copied_by_kernel
        return () if ordered else _APART.get(self.audited, ())


def audited(part: Audited, *rows: Row) -> tuple[Row, ...]:
    """Return the rows of kernels with ``audited`` set to this member."""
    return tuple(replace(row, audited=part) for row in rows)


def unsigned(name: str, doc: str) -> Field:
    """Return the field of a word that holds a number of at least 0."""
    return Field(name, doc, signed=False)


def signed(name: str, doc: str) -> Field:
    """Return the field of a word that holds a number that may be negative."""
    return Field(name, doc)


def buffer(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return the field of a word that holds an index into the buffer table."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes)


def state(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return the field of a word that holds the index of a buffer that the kernel reads and writes."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes, written=True)


def scratch(name: str, doc: str, element_bytes: int = 1) -> Field:
    """Return the field of a word that holds the index of a scratch buffer: the kernel reads only bytes of it that the
    same call has written."""
    return Field(name, doc, signed=False, refers="buffer", element_bytes=element_bytes, written=True, scratch=True)


def factor(name: str, doc: str) -> tuple[Field, Field]:
    """Return the fields of two words that hold a fixed-point factor: a multiplier and a shift."""
    return signed(f"{name}_multiplier", doc), signed(f"{name}_shift", "positive shifts left")


def constant(name: str, doc: str) -> tuple[Field, Field]:
    """Return the fields of two words that hold the address of a constant: its base and its offset."""
    return unsigned(f"{name}_base", "see bases"), unsigned(f"{name}_offset", doc)


JOB_WORDS = (
    signed("job_rows", "most rows of a job, at most 2048"),
    signed("job_inputs", "inputs of a job, a multiple of 16; the last part of them may have fewer"),
    signed("job_channels", "output channels, with those that only fill up a block"),
    signed("job_kind", "word 0 of a job's header"),
)
"""The fields for jobs with int8 weights, as the NPU of i.MX 95 takes them."""

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
RESCALING = factor("output", "fixed point, 31 fractional bits")
KERNEL_AND_STRIDE = (
    signed("kernel_h", "rows"),
    signed("kernel_w", "columns"),
    signed("stride_h", "rows"),
    signed("stride_w", "columns"),
)
