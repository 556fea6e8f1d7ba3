# SPDX-License-Identifier: BSD-3-Clause
"""Define the results of a search within a budget: a schedule with addresses, or the memory that would suffice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openneutron.compiler.place.place import Layout
from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.schedule.schedule import Schedule, fetched_sizes, overlapped_cycles
from openneutron.compiler.select.calls import Storages
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Fitted:
    """A schedule with addresses."""

    schedule: Schedule
    layout: Layout
    storages: Storages

    @property
    def sram_bytes(self) -> int:
        """Return the bytes of SRAM that the arena, the prefetch buffer and the buffers of a third region take together."""
        return self.layout.scratch_bytes + self.schedule.prefetch_bytes + self.layout.third_bytes

    def cycles(self, target: Target) -> int:
        """Return the modelled cycles of a run, with a port that copies in the background."""
        sizes = fetched_sizes(self.schedule, self.storages)
        return overlapped_cycles(self.schedule, sizes, target)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The result of a search that found no schedule for a budget.

    ``floor_bytes`` is a lower bound of the memory of all schedules. ``least_below`` computes the result of ``least_bytes``.
    """

    floor_bytes: int
    least_below: Callable[[int], int]

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the smallest budget that has a schedule, or ``below`` where that is smaller, in bytes.

        The search may take as long as a compile.
        """
        return self.least_below(below) if self.floor_bytes < below else below
