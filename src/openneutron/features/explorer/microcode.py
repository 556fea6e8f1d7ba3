# SPDX-License-Identifier: BSD-3-Clause
"""The kernel calls of a program, with the calls that compute the bytes that each of them reads."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.isa import Microcode, Program, Record, decode
from openneutron.isa.kernels.row import Field
from openneutron.isa.listing import profile

INPUT_BASE = -1
"""Writers below this are inputs: ``INPUT_BASE - i`` is input ``i``."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A kernel call of a program. ``reads`` are calls by their numbers, and inputs (see ``INPUT_BASE``)."""

    name: str
    kernel: str
    cycles: int
    calls: int
    output: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Addresses from ``start`` to ``stop`` at a base word. ``is_dense``: all of them are touched."""

    base: int
    start: int
    stop: int
    is_dense: bool

    def overlaps(self, other: _Span) -> bool:
        return self.base == other.base and self.start < other.stop and other.start < self.stop

    def covers(self, other: _Span) -> bool:
        return self.is_dense and self.base == other.base and self.start <= other.start and other.stop <= self.stop


def program_calls(program: Program) -> tuple[tuple[ProgramCall, ...], tuple[tuple[int, ...], ...]]:
    """Return the kernel calls in order, and for each output of the program the calls that write it.

    Raises InvalidProgramError where the program is damaged.
    """
    microcode = decode(program)
    written = [(INPUT_BASE - index, _bound(binding)) for index, binding in enumerate(microcode.inputs)]
    calls = []
    for index, (operator, cost) in enumerate(zip(microcode.operators, profile(program), strict=True)):
        buffers = {column.name: microcode.buffers[operator[column.name]] for column in _buffer_fields(operator)}
        spans = {name: _span(buffer, operator.row.element_bytes(name)) for name, buffer in buffers.items()}
        reads = {source for name, span in spans.items() if name != "output" for source in _writers(written, span)}
        shape = tuple(buffers["output"][axis] for axis in ("batches", "rows", "cols", "channels"))
        calls.append(ProgramCall(cost.name, cost.kernel, cost.cycles, cost.calls, shape, tuple(sorted(reads))))
        written.append((index, spans["output"]))
    return tuple(calls), _outputs(microcode, written)


def _buffer_fields(operator: Record) -> list[Field]:
    return [column for column in operator.row.fields if column.refers == "buffer"]


def _outputs(microcode: Microcode, written: list[tuple[int, _Span]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(_writers(written, _bound(binding)))) for binding in microcode.outputs)


def _writers(written: list[tuple[int, _Span]], span: _Span) -> set[int]:
    """Return the last writers of the addresses of a span."""
    found = set()
    for writer, other in reversed(written):
        if other.overlaps(span):
            found.add(writer)
            if other.covers(span):
                break
    return found


def _bound(binding: Record) -> _Span:
    return _Span(binding["base"], binding["offset"], binding["offset"] + binding["size"], True)


def _span(buffer: Record, element_bytes: int) -> _Span:
    extents = (buffer["batches"], min(buffer["rows"], buffer["ring"]), buffer["cols"], buffer["channels"])
    pitches = tuple(buffer[f"{axis}_pitch"] for axis in ("batch", "row", "col", "channel"))
    reach = sum((extent - 1) * pitch for extent, pitch in zip(extents, pitches, strict=True)) + element_bytes
    touched = element_bytes
    for extent, pitch in zip(extents, pitches, strict=True):
        touched *= extent if pitch else 1
    return _Span(buffer["base"], buffer["offset"], buffer["offset"] + reach, touched >= reach)
