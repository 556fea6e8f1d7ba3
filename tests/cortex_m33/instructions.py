# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions that a Cortex-M executes for a model: the amount of work, not a time.

QEMU gives each instruction one nanosecond of the machine's time, and a timer of the machine counts them by the fifty or fewer. So
the figures are the same on every host.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from openneutron.isa import Program
from openneutron.isa.rows import KERNEL_BY_CODE
from tests.cortex_m33.cases import Case, Flag, run
from tests.cortex_m33.firmware import PORTABLE, SIZE, Image, image, library

BUILDS = {"portable": PORTABLE, "DSP": SIZE}
"""The library without and with its kernels for the DSP extension."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """Of one run: all of neutronRunBlocking, and of each kernel call as (operator's index, kernel, count); the rest is the driver's own."""

    total: int
    calls: tuple[tuple[int, str, int], ...]

    @property
    def kernels(self) -> dict[str, int]:
        """The counts by kernel, the largest first."""
        sums: Counter[str] = Counter()
        for _, kernel, count in self.calls:
            sums[kernel] += count
        return dict(sums.most_common())


def instructions(program: Program, inputs: bytes, firmware: Image | tuple[str, ...] = SIZE) -> Instructions:
    """Counted in one run, and the kernels in another one that is traced. ``firmware``: an image, or the flags of a library for the Cortex-M33."""
    if isinstance(firmware, tuple):
        firmware = image(library(firmware))
    cases = [Case(program, (inputs,)), Case(program, (inputs,), Flag.TRACE)]
    plain, traced = (done.runs[0] for done in run(firmware, cases, count=True))
    assert plain.error == traced.error == 0
    calls = tuple(
        (call.operator, KERNEL_BY_CODE[call.kernel].name, firmware.board.instructions(call.ticks))
        for call in traced.calls
    )
    return Instructions(firmware.board.instructions(plain.ticks), calls)
