# SPDX-License-Identifier: BSD-3-Clause
"""Search all selections of a graph's kernel calls within a memory of the NPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.passes import in_two_passes, norm_bytes
from openneutron.compiler.schedule.sequences import by_rows
from openneutron.compiler.search.fitted import Fitted, Infeasible
from openneutron.compiler.search.tiles.fit import Known, fastest_tiled, least_tiled
from openneutron.compiler.search.tiles.parts import gathered
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection
from openneutron.targets import Target


@dataclass(frozen=True, slots=True, eq=False)
class TiledTask:
    """The selections of a graph's kernel calls, with gathered outputs, for a chip whose kernels work on tiles."""

    selected: tuple[Selection, ...]
    target: Target
    _known: Known = field(init=False, default_factory=dict)

    @staticmethod
    def of(selected: Sequence[Selection], target: Target) -> TiledTask:
        """Return the task of a graph. Selections with chained calls are left out, since these have no tiles.

        Norms over all rows in two passes are selections behind the others: where the memory of the NPU does not hold the input of a norm,
        both passes take it in tiles.
        """
        made = []
        for storages, calls in selected:
            if not any(call.traits.between for call in calls):
                parts, own = gathered(calls, storages)
                made.append((own, list(parts)))
        return TiledTask((*made, *(passes for each in made for passes in _in_two_passes(*each))), target)

    def within(self, budget: int) -> Fitted | Infeasible:
        """Return the fastest schedule found for ``budget`` bytes of NPU memory, beside inputs and outputs, which are external."""
        found = fastest_tiled(self.selected, self.target, budget, self._known)
        if found is None:
            # The budget is negative where it is smaller than the states, which are outside of it.
            above = max(budget, 0)
            return Infeasible(budget, lambda below: least_tiled(self.selected, self.target, above, below))
        return Fitted(found.schedule, found.layout, found.storages)


def _in_two_passes(storages: Storages, calls: Sequence[KernelCall]) -> list[Selection]:
    """Return the selection with each norm over all rows in two passes, if there is such a norm. No call is computed again for the second
    pass, since external memory holds its result."""
    given = CallList(by_rows(calls), storages)
    made = in_two_passes(given, max(norm_bytes(given.calls, storages), default=0) + 1)
    return [] if made is None else [(made.storages, list(made.calls))]
