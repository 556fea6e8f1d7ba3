# SPDX-License-Identifier: BSD-3-Clause
"""Search all selections of a graph's kernel calls within a memory of the NPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.passes import ALL, Passes
from openneutron.compiler.search.fitted import Fitted, Infeasible
from openneutron.compiler.search.tiles.fit import TileFit
from openneutron.compiler.search.tiles.parts import gathered
from openneutron.compiler.search.tiles.searches import Searches
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection
from openneutron.targets import Target


@dataclass(frozen=True, slots=True, eq=False)
class TiledTask:
    """The selections of a graph's kernel calls, with gathered outputs, for a chip whose kernels work on tiles."""

    fit: TileFit

    @staticmethod
    def of(selected: Sequence[Selection], target: Target, passes: Passes = ALL) -> TiledTask:
        """Return the task of a graph. Selections with chained calls are left out, since these have no tiles.

        Norms over all rows in two passes are selections behind the others: where the memory of the NPU does not hold the input of a norm,
        both passes take it in tiles.
        """
        made: list[Selection] = []
        for storages, calls in selected:
            if not any(call.traits.between for call in calls):
                parts, own = gathered(calls, storages)
                made.append((own, list(parts)))
        twice = [each for selection in made for each in _in_two_passes(*selection, passes)]
        return TiledTask(TileFit(Searches.of([*made, *twice], target, passes)))

    @property
    def target(self) -> Target:
        """Return the chip."""
        return self.fit.searches.target

    def within(self, budget: int) -> Fitted | Infeasible:
        """Return the fastest schedule found for ``budget`` bytes of NPU memory, beside inputs and outputs, which are external."""
        found = self.fit.fastest(budget)
        if found is None:
            # The budget is negative where it is smaller than the states, which are outside of it.
            return Infeasible(budget, lambda below: self.fit.least(max(budget, 0), below))
        return Fitted(found.schedule, found.layout, found.storages)


def _in_two_passes(storages: Storages, calls: Sequence[KernelCall], passes: Passes) -> list[Selection]:
    """Return the selection with each norm over all rows in two passes, if there is such a norm. No call is computed again for the second
    pass, since external memory holds its result."""
    made = passes.follow(("sequences", "two-passes"), CallList(tuple(calls), storages), {})
    return [] if made is None else [(made.storages, list(made.calls))]
