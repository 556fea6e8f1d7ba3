# SPDX-License-Identifier: BSD-3-Clause
"""Deployments: models that run only on the NPU, with their inputs, outputs and the places in their arena."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import Enum

from openneutron.isa import Program, aligned, base, decode
from openneutron.isa.rows import ALIGNMENT

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

    ``shape`` is the model's shape. ``order`` has the dimensions of the shape in their order in memory, outermost first.
    ``model_index`` is the index among the model's inputs or outputs. ``is_float`` states that the model has float32
    here, which its caller converts.
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


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model that runs only on the NPU: its calls, its inputs and its outputs. ``between`` has the sizes of the
    tensors between the calls, in bytes."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    between: tuple[int, ...] = ()

    @property
    def prefix(self) -> str:
        """Return the name for C: lower-case letters, digits and underscores, not beginning with a digit or with the prefix of
        other symbols of this project."""
        plain = re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")
        return plain if re.match(r"(?!openneutron|neutron)[a-z]", plain) else f"model_{plain}".rstrip("_")

    @property
    def state_bytes(self) -> int:
        """Return the bytes of state that the programs keep between runs. Each program has an area of its own."""
        return sum(aligned(call.program.state_size) for call in self.calls)

    def largest(self, size: str) -> int:
        """Return the largest value of a field of the programs' headers, such as ``scratch_size``."""
        return max(call.program.header[size] for call in self.calls)


@dataclass(frozen=True, slots=True)
class Arena:
    """The places in the memory of a run, as offsets in bytes: scratch buffer, prefetch buffer, tensors between programs, and the
    inputs and outputs that are not in the scratch buffer. ``work`` is the size without the latter."""

    prefetch: int
    between: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    work: int
    size: int


SCRATCH = base("SCRATCH")


def arena_of(deployment: Deployment) -> Arena:
    """Return the places of a model's tensors in its arena.

    An input or output that a model's only program has in its scratch buffer is used there, without a copy.
    """
    at = prefetch = aligned(deployment.largest("scratch_size"))
    at += aligned(deployment.largest("prefetch_size"))
    between = []
    for size in deployment.between:
        between.append(at)
        at += aligned(size)
    work = at
    in_scratch = _in_scratch(deployment)
    kinds = []
    for kind, tensors in ((Where.INPUT, deployment.inputs), (Where.OUTPUT, deployment.outputs)):
        places = []
        for index, tensor in enumerate(tensors):
            there = in_scratch.get(Place(kind, index))
            places.append(at if there is None else there)
            at += aligned(tensor.size_bytes) if there is None else 0
        kinds.append(tuple(places))
    inputs, outputs = kinds
    return Arena(prefetch, tuple(between), inputs, outputs, work, max(at, ALIGNMENT))


def _in_scratch(deployment: Deployment) -> dict[Place, int]:
    """Return the offsets of the inputs and outputs that the model's only program has in its scratch buffer."""
    if len(deployment.calls) != 1:
        return {}
    (call,) = deployment.calls
    microcode = decode(call.program)
    bound = (*zip(call.inputs, microcode.inputs, strict=True), *zip(call.outputs, microcode.outputs, strict=True))
    return {place: binding["offset"] for place, binding in bound if binding["base"] == SCRATCH}


@dataclass(frozen=True, slots=True)
class Golden:
    """The inputs and the expected outputs of the example. Each tensor has the bytes of ``frames`` runs one after the
    other, in the memory order of the program. ``title`` is the origin of the inputs in words."""

    title: str
    inputs: tuple[bytes, ...] = field(repr=False)
    outputs: tuple[bytes, ...] = field(repr=False)
    frames: int = 1
