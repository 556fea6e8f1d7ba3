# SPDX-License-Identifier: BSD-3-Clause
"""The kernel calls of a program with their modelled cycles, read from its microcode without a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from openneutron.isa.microcode import Microcode, Program, decode


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One operator of a program.

    ``cycles`` are the modelled cycles of one run, over all ``calls`` of its kernel: one call, or one for each stripe or
    window of its output. ``name`` is empty where the program carries no names.
    """

    name: str
    kernel: str
    calls: int
    cycles: int


def profile(program: Program) -> tuple[KernelCost, ...]:
    """Return the cost of each operator, in program order. Copies of constants count for no operator.

    Raises InvalidProgramError where the program is damaged.
    """
    microcode = decode(program)
    calls, cycles = _counted(microcode)
    names = microcode.names or ("",) * len(microcode.operators)
    return tuple(
        KernelCost(names[index], operator.row.name, calls[index], cycles[index])
        for index, operator in enumerate(microcode.operators)
    )


def _counted(microcode: Microcode) -> tuple[Counter[int], Counter[int]]:
    calls, cycles = Counter[int](), Counter[int]()
    times = 1
    words_left = 0
    for instruction in microcode.code:
        if instruction.row.name == "LOOP":
            times, words_left = instruction["count"], instruction["body_words"]
            continue
        if instruction.row.name in ("CALL", "ROWS", "WINDOW"):
            calls[instruction["operator"]] += times
            cycles[instruction["operator"]] += times * instruction["cycles"]
        words_left -= 1 + len(instruction.values)
        if words_left <= 0:
            times = 1
    return calls, cycles
