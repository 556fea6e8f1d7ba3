# SPDX-License-Identifier: BSD-3-Clause
"""Keep the lists of a graph's calls, and the searches for plans of each division of a list.

The size of the memory of the NPU decides how calls are divided. Sizes with equal divisions share a search. All searches share the
segments that were evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.order import flow_of, order_by_depth, stays
from openneutron.compiler.rewrite.passes import ALL, Passes, of_one_order
from openneutron.compiler.search.tiles.groups import Divisions, in_groups
from openneutron.compiler.search.tiles.search import TileSearch
from openneutron.compiler.search.tiles.segments import Segments
from openneutron.compiler.search.tiles.streams import Streams
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.select import Selection
from openneutron.options import CALLER
from openneutron.targets import Target


@dataclass(slots=True, eq=False)
class Searches:
    """The searches so far of a graph's lists of calls. ``lists`` has for each selection the lists of its calls, one for each order."""

    lists: tuple[tuple[CallList, ...], ...]
    target: Target
    _made: list[TileSearch] = field(default_factory=list)
    _segments: Segments = field(default_factory=Segments)
    _divisions: Divisions = field(default_factory=dict)

    @staticmethod
    def of(selected: Sequence[Selection], target: Target, passes: Passes = ALL) -> Searches:
        """Return the searches for each selection, with its calls in the given order and, where that differs, one branch after the other.

        The given order of a detector's heads alternates between branches. The calls of a branch, which could be a cascade, are then not
        neighbours.
        """
        made = []
        for storages, calls in selected:
            flow, given = flow_of(calls, storages, CALLER), tuple(range(len(calls)))
            orders = [given] if stays(flow) or "order" in passes.off else [given, order_by_depth(flow)]
            # The last list has sequences by rows and separate batches, so that all calls can run in tiles.
            made.append(
                tuple(
                    of_one_order([calls[at] for at in order], storages, passes)[-1] for order in dict.fromkeys(orders)
                )
            )
        return Searches(tuple(made), target)

    @property
    def are_few(self) -> bool:
        """Return whether any selection has at most ``few_calls`` calls.

        Other selections have some more calls, since they have copies and the parts of joined calls.
        """
        return any(all(len(each.calls) <= TUNING.few_calls for each in given) for given in self.lists)

    def forget_many(self) -> None:
        """Discard all searches if they have more than ``kept_segments`` segments. Searches of other budgets then start from nothing."""
        if len(self._segments) > TUNING.kept_segments:
            self._made, self._segments = [], Segments()

    def is_divided(self, size: int) -> bool:
        """Return whether a graph of few calls is divided into many calls for a memory of ``size`` bytes.

        A search of many calls takes seconds, and is done only where no larger memory has a schedule. Many calls are slow: each one is
        dispatched, and reads again what its neighbours read.
        """
        flat = chain.from_iterable(self.lists)
        divided = int(size * TUNING.divided_for_shares[0])
        return max(len(self._divided(each, divided)) - len(each.calls) for each in flat) > TUNING.few_calls

    def search(self, given: CallList, size: int) -> TileSearch:
        """Return the search of a list of calls, divided for a memory of ``size`` bytes."""
        divided = self._divided(given, size)
        for each in self._made:
            if each.streams.calls == divided:
                return each
        cuts = given.cuts if divided == given.calls else frozenset()
        self._made.append(TileSearch(Streams(divided, given.storages, self.target), cuts, self._segments))
        return self._made[-1]

    def _divided(self, given: CallList, size: int) -> tuple[KernelCall, ...]:
        return in_groups(given.calls, given.storages, self.target, size, self._divisions)


def divided_for(given: CallList, budget: int) -> list[int]:
    """Return the sizes of memory in bytes for which the calls are divided.

    A list of few calls is divided for one size only, since it is searched for smaller memories anyway.
    """
    shares = TUNING.divided_for_shares
    return [int(budget * share) for share in (shares if len(given.calls) > TUNING.few_calls else shares[:1])]
