# SPDX-License-Identifier: BSD-3-Clause
"""Run LiteRT files with or without NeutronGraphs: NeutronGraphs on the simulator, all other operators in LiteRT's
interpreter."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from openneutron.compiler.legalize.partition import SHARED_STATE, extract
from openneutron.device.simulator import CallTime, Simulator
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.ir import DType, Tensor
from openneutron.isa import Program
from openneutron.litert import LiteRTModel, read
from openneutron.litert.interpret import InterpreterProcess
from openneutron.litert.neutron_graph import FoundNode, find
from openneutron.litert.write import cut, pack

NAMES_SHOWN = 4
"""The number of kinds of operators that a message lists."""


def _listed(operators: Sequence[str]) -> str:
    """Return the kinds of operators as text: each kind once, at most ``NAMES_SHOWN`` of them, and the number of further kinds."""
    kinds = list(dict.fromkeys(operators))
    more = f" and {len(kinds) - NAMES_SHOWN} more" if len(kinds) > NAMES_SHOWN else ""
    return ", ".join(kinds[:NAMES_SHOWN]) + more


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive operators that LiteRT runs in one call. ``model`` is a ``.tflite`` file of these operators, and
    ``words`` a description of them for messages. ``inputs`` and ``outputs`` are indices of the whole file's tensors."""

    model: bytes = field(repr=False)
    words: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A NeutronGraph, ready to run."""

    found: FoundNode
    simulator: Simulator


@dataclass(frozen=True, slots=True)
class Times:
    """The time that the host took for each step of a run.

    ``calls`` has each kernel call with its program. ``on_cpu`` has for each call of LiteRT the kinds of its operators and the nanoseconds.
    """

    calls: list[tuple[Program, CallTime]] = field(default_factory=list)
    on_cpu: list[tuple[str, int]] = field(default_factory=list)


class FileSimulator:
    """A ``.tflite`` file, ready to run. Operators outside of the NeutronGraphs run in LiteRT's interpreter, those
    before and after a NeutronGraph in separate interpreters.

    Raises InvalidModelError where the file is damaged, or where such separate operators share variables or tables.
    Raises InvalidProgramError or DriverError where a NeutronGraph in the file is damaged.
    """

    def __init__(self, data: bytes | Path) -> None:
        loaded = read(data)
        graph = loaded.graph
        self._index = loaded.tensor_index
        # The new values of states that operators keep in variables are no tensors of the file.
        self._tensors = {self._index[name]: tensor for name, tensor in graph.tensors.items() if name in self._index}
        self.inputs: tuple[Tensor, ...] = tuple(graph[name] for name in graph.inputs)
        self.outputs: tuple[Tensor, ...] = tuple(graph[name] for name in graph.outputs)
        self.nodes: tuple[FoundNode, ...] = tuple(find(loaded.model))
        if self.nodes:
            self._steps = tuple(self._cut(loaded))
        else:
            whole = pack(loaded.model) if loaded.changed else data.read_bytes() if isinstance(data, Path) else data
            words = _listed([node.op for node in graph.nodes])
            self._steps = (_Piece(whole, words, self._places(graph.inputs), self._places(graph.outputs)),)
        pieces = [step for step in self._steps if isinstance(step, _Piece)]
        self._on_cpu = InterpreterProcess([(piece.model, piece.words) for piece in pieces])

    def _places(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self._index[name] for name in names)

    def _cut(self, loaded: LiteRTModel) -> Iterator[_Piece | _Node]:
        graph = loaded.graph
        at = {node.operator: node for node in self.nodes}
        stateful: list[int] = []
        for on_npu, run in groupby(range(len(graph.nodes)), lambda place: place in at):
            places = list(run)
            if on_npu:
                yield from (_Node(at[place], Simulator(at[place].program)) for place in places)
                continue
            stateful += [place for place in places if graph.nodes[place].op in SHARED_STATE][:1]
            piece = extract(graph, places)
            into, out = self._places(piece.inputs), self._places(piece.outputs)
            words = _listed([graph.nodes[place].op for place in places])
            yield _Piece(cut(loaded.model, places, into, out), words, into, out)
        if len(stateful) > 1:
            raise InvalidModelError(
                f"operators {stateful[0]} and {stateful[1]} share LiteRT variables or tables and a NeutronGraph is between them; "
                "the parts of a file run in separate interpreters here, each with variables of its own. Run it on the device."
            )

    def run(self, inputs: Sequence[np.ndarray], times: Times | None = None) -> list[np.ndarray]:
        """Return the outputs in the file's order, with the types and shapes that the file states. The times of the
        run are added to ``times``.

        Raises InvalidOptionError for a wrong count, shape or type of inputs. Raises InvalidModelError where LiteRT
        can't run an operator on the CPU, or crashes, and where a NeutronGraph does not fit the sizes of its tensors.
        """
        self._check(inputs)
        values = {self._index[tensor.name]: value for tensor, value in zip(self.inputs, inputs, strict=True)}
        piece = itertools.count()
        for step in self._steps:
            if isinstance(step, _Piece):
                begun = time.perf_counter_ns()
                results = self._on_cpu.run(next(piece), [values[index] for index in step.inputs])
                if times is not None:
                    times.on_cpu.append((step.words, time.perf_counter_ns() - begun))
                values.update(zip(step.outputs, results, strict=True))
            else:
                self._run_node(step, values, times)
        return [tensor.data if tensor.data is not None else values[self._index[tensor.name]] for tensor in self.outputs]

    def reset(self) -> None:
        """Set the states of the NeutronGraphs to their initial values.

        Operators in LiteRT's interpreter keep no state here: each of their runs starts with a fresh state.
        """
        for step in self._steps:
            if isinstance(step, _Node):
                step.simulator.reset()

    def _run_node(self, step: _Node, values: dict[int, np.ndarray], times: Times | None) -> None:
        given = []
        for index in step.found.inputs:
            tensor, value = self._tensors[index], values[index]
            if value.shape != tensor.shape:
                raise InvalidModelError(
                    f"NeutronGraph '{step.found.name}': its input '{tensor.name}' has shape {list(value.shape)} at run time; "
                    f"it was compiled for {list(tensor.shape)}."
                )
            given.append(value)
        for index, value, binding in zip(step.found.inputs, given, step.simulator.microcode.inputs, strict=True):
            if value.nbytes != binding["size"]:
                raise InvalidModelError(
                    f"NeutronGraph '{step.found.name}': its input '{self._tensors[index].name}' has {value.nbytes} bytes; its program takes "
                    f"{binding['size']}. Compile the model again."
                )
        if times is None:
            results = step.simulator.run(given)
        else:
            results, calls = step.simulator.timed(given)
            times.calls.extend((step.found.program, call) for call in calls)
        for index, result in zip(step.found.outputs, results, strict=True):
            tensor = self._tensors[index]
            if len(result) != tensor.size_bytes:
                raise InvalidModelError(
                    f"NeutronGraph '{step.found.name}': it computes {len(result)} bytes for '{tensor.name}', which has "
                    f"{tensor.size_bytes}. Compile the model again."
                )
            values[index] = result.view(tensor.dtype.numpy).reshape(tensor.shape)

    def _check(self, inputs: Sequence[np.ndarray]) -> None:
        wanted = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in self.inputs)
        if len(inputs) != len(self.inputs):
            raise InvalidOptionError(f"input: {len(inputs)} given; the model takes {len(self.inputs)} ({wanted}).")
        for place, (tensor, value) in enumerate(zip(self.inputs, inputs, strict=True)):
            if tensor.dtype is not DType.OPAQUE and (value.dtype, value.shape) != (tensor.dtype.numpy, tensor.shape):
                raise InvalidOptionError(
                    f"input {place} ('{tensor.name}'): it is {value.dtype}{list(value.shape)}; "
                    f"the model takes {tensor.dtype}{list(tensor.shape)}."
                )
