# SPDX-License-Identifier: BSD-3-Clause
"""Cases for runner.c: programs with inputs, and what a board made of them.

done = run(image(library()), [Case(program, (inputs,))])
done[0].runs[0].outputs
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError
from openneutron.isa import Program, decode
from tests.cortex_m33.firmware import Image, execute

FAULT = 254
"""The exit code of a program that faults; it prints the fault's registers."""

MOST_STACK = 4096
"""Bytes that neutronModelPrepare and neutronRunBlocking may use below their entry."""


class Flag(IntFlag):
    """The settings of a run of a case."""

    PLAIN = 0
    FLASH = 1
    """The weights lie in a flash that faults when anything but the copy callback reads it."""
    ASYNCHRONOUS = 2
    """Copies begin with poison at their destination, and the data arrives when they are waited for."""
    TRACE = 4
    """The ticks of each kernel call are taken, by the trace hook."""
    STACK = 8
    """The run's stack is painted and measured; ticks count the painting."""


class Misuse(IntEnum):
    """One deviation from the proper use of the API; ODD is an address that is not aligned as it must be."""

    NONE = 0
    NULL_CONFIG = 1
    NULL_MICROCODE = 2
    NULL_WEIGHTS = 3
    NULL_HANDLE = 4
    NULL_CONTEXT = 5
    ODD_MICROCODE = 6
    ODD_WEIGHTS = 7
    ODD_CONTEXT = 8
    NOT_INITIALISED = 9
    SUSPENDED = 10
    UNPREPARED = 11
    NO_HANDLE = 12
    NULL_DATA = 13
    NULL_INPUTS = 14
    NULL_INPUT = 15
    NULL_OUTPUTS = 16
    NULL_OUTPUT = 17
    NULL_SCRATCH = 18
    NULL_PREFETCH = 19
    ODD_SCRATCH = 20
    ODD_PREFETCH = 21


@dataclass(frozen=True, slots=True)
class Case:
    """A program and, for each of its runs, the bytes of all its inputs one after the other."""

    program: Program
    inputs: tuple[bytes, ...] = ()
    flags: Flag = Flag.PLAIN
    misuse: Misuse = Misuse.NONE

    def encoded(self) -> bytes:
        program = self.program
        each = len(self.inputs[0]) if self.inputs else 0
        assert all(len(data) == each for data in self.inputs)
        sizes = (len(program.microcode), len(program.weights), each, self.output_size(), len(self.inputs))
        head = struct.pack("<7I", self.flags, self.misuse, *sizes)
        return b"".join((head, program.microcode, program.weights, *self.inputs))

    def output_size(self) -> int:
        """Bytes of all outputs; 0 for a case that never runs, whose program may be damaged."""
        return sum(item["size"] for item in decode(self.program).outputs) if self.inputs else 0


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call of a traced run."""

    operator: int
    kernel: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the driver's code, its outputs, bytes of stack, the timer's ticks, and bytes fetched on each channel."""

    error: int
    outputs: bytes
    stack: int
    ticks: int
    fetched: tuple[int, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The results of neutronModelCheck and neutronModelPrepare, the latter's stack in bytes, and the runs of a prepared model."""

    check: int
    detail: int
    prepare: int
    prepare_stack: int
    runs: tuple[Run, ...]


def run(image: Image, cases: Sequence[Case], *, count: bool = False) -> list[Done]:
    """Return the result of each case. ``count``: the ticks, by ``image.board.instructions``, are instructions.
    Fails where the program faults or leaves anything out."""
    done = execute(image, {"cases": encoded(cases)}, count=count)
    assert done.exit_code == 0, (done.exit_code, done.console)
    return decoded(cases, done.files["results"])


def encoded(cases: Sequence[Case]) -> bytes:
    """Return the file that runner.c reads."""
    return b"".join(case.encoded() for case in cases)


def decoded(cases: Sequence[Case], written: bytes) -> list[Done]:
    """Return the result of each case, from the file that runner.c writes. Fails where the file has anything else."""
    reader = _Reader(written)
    results = [_done(case, reader) for case in cases]
    assert reader.at == len(reader.data)
    return results


def inputs_and_outputs(program: Program, random: np.random.Generator) -> tuple[bytes, bytes]:
    """Return random inputs, zeros where those can't be the indices that some are, and the host's outputs."""
    with Simulator(program) as simulator:
        inputs = [random.integers(0, 256, item["size"], np.uint8) for item in simulator.microcode.inputs]
        try:
            outputs = simulator.run(inputs)
        except DriverError:
            inputs = [np.zeros_like(values) for values in inputs]
            outputs = simulator.run(inputs)
    return b"".join(data.tobytes() for data in inputs), b"".join(data.tobytes() for data in outputs)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def words(self, kinds: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{kinds}", self.data, self.at)
        self.at += struct.calcsize(f"<{kinds}")
        return values

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]


def _done(case: Case, reader: _Reader) -> Done:
    check, detail, prepare, stack = reader.words("iIiI")
    runs = tuple(_one_run(case, reader) for _ in case.inputs) if prepare == 0 else ()
    return Done(check, detail, prepare, stack, runs)


def _one_run(case: Case, reader: _Reader) -> Run:
    error, stack, ticks, count, *fetched = reader.words("iIII16I")
    calls = tuple(Call(*reader.words("3I")) for _ in range(count))
    return Run(error, reader.bytes(case.output_size()), stack, ticks, tuple(fetched), calls)
