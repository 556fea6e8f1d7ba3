# SPDX-License-Identifier: BSD-3-Clause
"""Programs of a single kernel call of language models, whose buffers are inputs and outputs of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from openneutron import targets
from openneutron.compiler.driver import finish
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.calls import Constant, KernelCall, Storage, Storages, View, dense_pitches
from openneutron.compiler.select.states import storages_of_states
from openneutron.ir import DType, Graph, State, Tensor
from openneutron.isa import Program
from openneutron.options import CompileOptions
from openneutron.targets import Target
from tests.language.arithmetic import Floats

TYPES = {1: DType.INT8, 4: DType.FLOAT32, 8: DType.INT64}


@dataclass(slots=True)
class Single:
    """The parts of a call: views of ``inputs`` in the order of the program's inputs, and of the output, scratch and states."""

    kernel: str
    params: Mapping[str, int]
    constants: Mapping[str, Constant]
    views: dict[str, View] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)

    def add(self, name: str, rows: int, channels: int, size: int) -> None:
        """Add a buffer with so many rows and channels of elements of ``size`` bytes."""
        extents = (1, rows, 1, channels)
        self.tensors[name] = Tensor(name, (rows, channels), TYPES[size])
        self.views[name] = View(name, extents, dense_pitches(extents, size), element_bytes=size)

    def floats(self, name: str, rows: int, channels: int) -> None:
        self.add(name, rows, channels, 4)
        if name != "output":
            self.inputs.append(name)

    def integers(self, name: str, count: int) -> None:
        self.add(name, 1, count, 8)
        self.inputs.append(name)

    def state(self, name: str, size_bytes: int) -> None:
        self.add(name, 1, size_bytes, 1)
        self.states.append(name)

    def memory(self, name: str, size_bytes: int) -> None:
        self.add(name, 1, size_bytes, 1)
        del self.tensors[name]
        self.scratch[name] = size_bytes

    def program(self, target: Target | None = None) -> Program:
        target = targets.described("cortex-a55") if target is None else target
        call = KernelCall(self.kernel, "call", self.views, self.params, self.constants)
        states = tuple(State(name, name) for name in self.states)
        graph = Graph("single", self.tensors, (), tuple(self.inputs), ("output",), states)
        storages = {storage.name: storage for storage in storages_of_states(graph)}
        for position, name in enumerate(self.inputs):
            storages[name] = Storage(name, self.tensors[name].size_bytes, input=position)
        storages["output"] = Storage("output", self.tensors["output"].size_bytes, output=0)
        storages |= {name: Storage(name, size) for name, size in self.scratch.items()}
        made = Storages(storages, {name: name for name in storages})
        return finish(graph, graph, made, whole_schedule([call]), target, CompileOptions(target=target.name)).program


def span(position: int, count: int) -> npt.NDArray[np.int64]:
    return np.array([position, count], np.int64)


def floats_of(outputs: Sequence[npt.NDArray[np.uint8]], rows: int) -> Floats:
    """Return the only output, a row for each token."""
    (output,) = outputs
    return output.view(np.float32).reshape(rows, -1)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))
