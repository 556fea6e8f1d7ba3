# SPDX-License-Identifier: BSD-3-Clause
"""Deployments: models that run only on the NPU, with their inputs, outputs and the places in their arena."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from openneutron.isa import Program, aligned, base, decode
from openneutron.isa.kernel_selection import called_kernels
from openneutron.isa.payload import NxpProgram
from openneutron.isa.rows import ALIGNMENT, REGIONS, is_job
from openneutron.language.model import Interface
from openneutron.targets.target import Memory

ITEM_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4}
"""The types that inputs and outputs can have, with the size of an element in bytes."""

STORED_RANGES = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}
"""The lowest and the highest stored value of each type of quantized inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantization of a tensor: real = scale * (stored - zero_point), where ``least`` <= stored <= ``most``."""

    scale: float
    zero_point: int
    least: int = -128
    most: int = 127


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output of a run, in the memory layout of the program.

    ``shape`` is the model's shape. ``order`` has the dimensions of the shape in their order in memory, outermost
    first. ``model_index`` is the index among the model's inputs or outputs. ``is_float`` states that the model itself
    has a float32 tensor here, and that the caller of the program converts it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    quantization: Quantization | None
    model_index: int
    is_float: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def is_permuted(self) -> bool:
        """Return whether the order in memory differs from that of the shape. Dimensions of size 1 are ignored."""
        return [axis for axis in self.order if self.shape[axis] != 1] != [
            axis for axis in range(len(self.shape)) if self.shape[axis] != 1
        ]


class Where(Enum):
    """The kind of tensor that a program's argument is."""

    INPUT = 0
    OUTPUT = 1
    BETWEEN = 2
    """The output of one program that is the input of another."""


@dataclass(frozen=True, slots=True)
class Place:
    """A reference to a tensor of the run: its kind and its index among the tensors of this kind."""

    where: Where
    index: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a program, with the tensors that are its inputs and outputs."""

    program: Program = field(repr=False)
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


_KEYWORDS = (
    "alignas alignof and asm auto bool break case catch char class const continue decltype default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long main mutable namespace new noexcept not nullptr operator or "
    "private protected public register restrict return short signed sizeof static struct switch template this throw true try typedef "
    "typeid typename union unsigned using virtual void volatile while xor"
)
RESERVED = frozenset(_KEYWORDS.split())
"""Words of C and C++ that name no variable."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model that runs only on the NPU: its calls, its inputs and its outputs. ``between`` has the sizes of the
    tensors between the calls, in bytes. ``regions`` are the memory regions of the chip. ``language`` has the facts of a language model; None
    for another model."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    between: tuple[int, ...] = ()
    regions: tuple[Memory, ...] = field(default=(), repr=False)
    language: Interface | None = None

    @property
    def prefix(self) -> str:
        """Return the name for C: lower-case letters, digits and underscores. It does not begin with a digit or with the prefix of
        other symbols of this project, and is no keyword."""
        plain = re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")
        is_free = re.match(r"(?!openneutron|neutron)[a-z]", plain) and plain not in RESERVED
        return plain if is_free else f"model_{plain}".rstrip("_")

    @property
    def state_bytes(self) -> int:
        """Return the bytes of state that the programs keep between runs. Each program has an area of its own."""
        return sum(aligned(call.program.state_size) for call in self.calls)

    @property
    def takes_frames(self) -> bool:
        """Return whether at least one input can be a camera's frame: a uint8 tensor of four dimensions."""
        return any(tensor.dtype == "uint8" and len(tensor.shape) == 4 for tensor in self.inputs)

    @property
    def has_jobs(self) -> bool:
        """Return whether a program leaves matrix products to NXP's driver for the NPU of i.MX 95. Weights and arena are then in the driver's
        memory."""
        programs = [call.program for call in self.calls if not isinstance(call.program, NxpProgram)]
        return any(is_job(kernel) for kernel in called_kernels(programs))

    def largest(self, size: str) -> int:
        """Return the largest value of a field of the programs' headers, such as ``scratch_size``."""
        return max(call.program.header[size] for call in self.calls)


@dataclass(frozen=True, slots=True)
class Arena:
    """A memory that the runs of models use, of ``size`` bytes.

    ``name`` is its name in C, and ``section`` its linker section (empty: no special section). ``work`` is the size
    without the inputs and outputs at the arena's end. It is enough if the caller gives each of these inputs and
    outputs a memory of its own.
    """

    name: str
    section: str
    work: int
    size: int


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a tensor: the index of its arena, and an offset in bytes."""

    arena: int
    offset: int


@dataclass(frozen=True, slots=True)
class Arenas:
    """The memory of a model's runs, and the places of tensors in it. The scratch buffer is at the beginning of the
    first arena. ``between`` has the offsets of the tensors between programs, all in the last arena."""

    arenas: tuple[Arena, ...]
    prefetch: Spot
    between: tuple[int, ...]
    inputs: tuple[Spot, ...]
    outputs: tuple[Spot, ...]


def arenas_of(deployment: Deployment) -> Arenas:
    """Return the arenas of a model. There is one arena, or one for each memory region of the chip, up to the last
    region that is used.

    The buffers of a program are in the regions of ``openneutron.isa.rows.REGIONS``. If a model has a single program,
    one of these buffers may contain an input or output. The caller then writes or reads it there, without a copy.
    """
    buffers = [aligned(deployment.largest(size)) for size in ("scratch_size", "prefetch_size", "debug_size")]
    while len(buffers) > 1 and not buffers[-1]:
        buffers.pop()
    # A far buffer is always apart. The regions of a chip that does not come with this package are not known here.
    known = [(each.name, each.section) for each in deployment.regions] or [(kind.lower(), "") for kind in REGIONS]
    is_divided = len(buffers) > 2 or (len(buffers) > 1 and len(deployment.regions) > 1)
    names = known[: len(buffers)] if is_divided else [("arena", "")]
    last = len(names) - 1
    starts = [Spot(index, 0) for index in range(len(buffers))] if is_divided else [Spot(0, 0), Spot(0, buffers[0])]
    at = buffers[-1] if is_divided else sum(buffers)
    between = []
    for size in deployment.between:
        between.append(at)
        at += aligned(size)
    work = at
    placed = _in_buffers(deployment, dict(zip(map(base, REGIONS), starts, strict=False)))
    kinds = []
    for kind, tensors in ((Where.INPUT, deployment.inputs), (Where.OUTPUT, deployment.outputs)):
        spots = []
        for index, tensor in enumerate(tensors):
            spots.append(placed.get(Place(kind, index)) or Spot(last, at))
            at += 0 if Place(kind, index) in placed else aligned(tensor.size_bytes)
        kinds.append(tuple(spots))
    sizes = [*((size, size) for size in buffers[:last]), (work, at)]
    arenas = tuple(Arena(*name, works, max(size, ALIGNMENT)) for name, (works, size) in zip(names, sizes, strict=True))
    inputs, outputs = kinds
    return Arenas(arenas, starts[1], tuple(between), inputs, outputs)


def _in_buffers(deployment: Deployment, starts: Mapping[int, Spot]) -> dict[Place, Spot]:
    """Return the places of those inputs and outputs that a model's only program has in its buffers (arena and
    prefetch buffer, for example). ``starts`` has the place of each buffer by the word that names it in microcode. The
    result is empty for a model with several programs, and for a program of NXP's converter."""
    if len(deployment.calls) != 1:
        return {}
    (call,) = deployment.calls
    if isinstance(call.program, NxpProgram):
        return {}
    microcode = decode(call.program)
    bound = (*zip(call.inputs, microcode.inputs, strict=True), *zip(call.outputs, microcode.outputs, strict=True))
    found = {}
    for place, binding in bound:
        start = starts.get(binding["base"])
        if start is not None:
            found[place] = Spot(start.arena, start.offset + binding["offset"])
    return found


@dataclass(frozen=True, slots=True)
class Golden:
    """The inputs and the expected outputs of the example program in the exported folder. Each tensor has the bytes of
    ``frames`` runs one after the other, in the memory order of the program. ``title`` is the origin of the inputs in
    words. ``outputs`` is empty where the outputs are not known."""

    title: str
    inputs: tuple[bytes, ...] = field(repr=False)
    outputs: tuple[bytes, ...] = field(repr=False)
    frames: int = 1
