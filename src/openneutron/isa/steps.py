# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a run, in the order of the program: kernel calls, copies of constants and waits, loops unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openneutron.isa.microcode import Microcode, Record


@dataclass(frozen=True, slots=True)
class CallStep:
    """A kernel call of the operator with this index; ``rows`` are the output's rows [first, end) that it computes."""

    operator: int
    cycles: int
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CopyStep:
    """The start of a copy of constants from the weights to SRAM; ``base`` and ``destination`` are those of its FETCH."""

    size_bytes: int
    channel: int
    base: int
    destination: int


@dataclass(frozen=True, slots=True)
class WaitStep:
    """A wait for all copies of the channel."""

    channel: int


Step = CallStep | CopyStep | WaitStep


def steps(microcode: Microcode) -> Iterator[Step]:
    """Yield the steps of a run. The calls among them are those of a profile: a window without elements makes no call."""
    code = microcode.code
    at = 0
    while at < len(code):
        if code[at].row.name != "LOOP":
            yield from _step(microcode, code[at], 0)
            at += 1
            continue
        end, words = at + 1, 0
        while words < code[at]["body_words"]:
            words += 1 + len(code[end].values)
            end += 1
        for iteration in range(code[at]["count"]):
            for instruction in code[at + 1 : end]:
                yield from _step(microcode, instruction, iteration)
        at = end


def calls(microcode: Microcode) -> list[CallStep]:
    """Return the kernel calls of a run."""
    return [step for step in steps(microcode) if isinstance(step, CallStep)]


def _step(microcode: Microcode, instruction: Record, iteration: int) -> Iterator[Step]:
    name = instruction.row.name
    if name == "FETCH":
        yield CopyStep(*(instruction[key] for key in ("size", "channel", "base", "destination")))
    elif name == "WAIT":
        yield WaitStep(instruction["channel"])
    elif name in ("CALL", "ROWS", "WINDOW"):
        rows = _rows(microcode, instruction, iteration)
        if rows is not None:
            yield CallStep(instruction["operator"], instruction["cycles"], rows)


def _rows(microcode: Microcode, call: Record, iteration: int) -> tuple[int, int] | None:
    """Return the output's rows that a call computes; None where its window has no elements."""
    output = microcode.buffers[microcode.operators[call["operator"]]["output"]]
    name = call.row.name
    first, end = 0, output["rows"]
    if name != "CALL":
        moved = call["step"] * iteration
        first, end = (min(max(call[key] + moved, 0), output["rows"]) for key in ("row0", "row1"))
    others = [("batch", "batches"), ("col", "cols"), ("channel", "channels")] if name == "WINDOW" else []
    empty = any(max(call[f"{axis}0"], 0) >= min(call[f"{axis}1"], output[extent]) for axis, extent in others)
    return None if empty or first >= end else (first, end)
