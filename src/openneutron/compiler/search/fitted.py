# SPDX-License-Identifier: BSD-3-Clause
"""Define the results of a search within a budget: a schedule with addresses, or the memory that would suffice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openneutron.compiler.place.layout import Layout
from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.schedule.schedule import Schedule, fetched_sizes
from openneutron.compiler.schedule.timeline import overlapped_cycles
from openneutron.compiler.select.calls import Storages
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Fitted:
    """A schedule with addresses; ``sram_bytes`` is what its arena and its prefetch buffer take."""

    schedule: Schedule
    layout: Layout
    storages: Storages

    @property
    def sram_bytes(self) -> int:
        """Return the SRAM of a run beside the caller's inputs and outputs."""
        return self.layout.scratch_bytes + self.schedule.prefetch_bytes

    def cycles(self, target: Target) -> int:
        """Return the modelled cycles with a port that copies in the background."""
        sizes = fetched_sizes(self.schedule, self.storages)
        return overlapped_cycles(self.schedule, sizes, target)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No schedule is feasible. ``floor_bytes``: a lower bound of all schedules; ``least_below``: see ``least_bytes``."""

    floor_bytes: int
    least_below: Callable[[int], int]

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the sufficient bytes of SRAM, or ``below`` where that is smaller. The search may take as long as a compile."""
        return self.least_below(below) if self.floor_bytes < below else below
