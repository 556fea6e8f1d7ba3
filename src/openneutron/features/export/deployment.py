# SPDX-License-Identifier: BSD-3-Clause
"""The part of a model that runs on the device: its programs in order, and the model's inputs and outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from openneutron.isa import Program, aligned

ITEM_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4}
"""The possible types of inputs and outputs, and the bytes of one element."""

STORED_RANGES = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}
"""The lowest and the highest stored value of each type of quantized inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """real = scale * (stored - zero_point), where stored is from ``least`` to ``most``."""

    scale: float
    zero_point: int
    least: int = -128
    most: int = 127


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output of a run, in the memory layout of the program.

    ``shape`` is that of the model, ``order`` the memory order of its dimensions, outermost first. ``model_index`` is the index
    of the model's input or output; ``is_float`` is True where the model itself has float32.
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
        """Return whether the order in memory differs from the order of the shape's dimensions."""
        return [axis for axis in self.order if self.shape[axis] != 1] != [
            axis for axis in range(len(self.shape)) if self.shape[axis] != 1
        ]


class Where(Enum):
    """The kind of a program's argument."""

    INPUT = 0
    OUTPUT = 1
    BETWEEN = 2
    """An output of one program and input of another."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of the run: an input, an output, or one in between, by its index among those."""

    where: Where
    index: int


@dataclass(frozen=True, slots=True)
class Call:
    """A program's run, with the place of each of its inputs and outputs."""

    program: Program = field(repr=False)
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A fully delegated model. ``between`` are the sizes in bytes of the tensors between the calls."""

    name: str
    calls: tuple[Call, ...]
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    between: tuple[int, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Return the bytes that the programs keep between runs, each in an area of its own."""
        return sum(aligned(call.program.state_size) for call in self.calls)

    def largest(self, size: str) -> int:
        """Return the largest value that a size in the header, such as ``scratch_size``, has among the programs."""
        return max(call.program.header[size] for call in self.calls)
