# SPDX-License-Identifier: BSD-3-Clause
"""Find the fastest schedule in tiles of all selections of a graph within a budget, and the least budget that has a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.passes import ALL, Passes
from openneutron.compiler.schedule.schedule import fetched_sizes
from openneutron.compiler.schedule.timeline import overlapped_cycles
from openneutron.compiler.search.fitted import Fitted, Infeasible
from openneutron.compiler.search.tiles.groups import gathered
from openneutron.compiler.search.tiles.placed import TiledSchedule, fastest_plan
from openneutron.compiler.search.tiles.searches import Searches, divided_for
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT
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


@dataclass(slots=True, eq=False)
class TileFit:
    """The schedules in tiles of a graph that were found so far.

    ``_known``: the schedules of a graph of few calls by sizes of the memory of the NPU, one for each list of its calls that has one.
    ``_feasible``: the sizes of ``sizes_up_to`` that were asked for; ``_least``: the least budgets, by the next size of ``sizes_up_to``.
    """

    searches: Searches
    _known: dict[int, list[TiledSchedule]] = field(default_factory=dict)
    _feasible: dict[int, bool] = field(default_factory=dict)
    _least: dict[int, int] = field(default_factory=dict)

    def fastest(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule that is found for ``budget`` bytes of NPU memory; None if no schedule is found.

        A budget has a schedule where a smaller one has: a size of ``sizes_up_to`` up to it, or the least budget before the first of these sizes.
        Of a graph of many calls the first selection of kernel calls counts that has a schedule: the tiles of cascades are the same with
        the copies of the others, and a search takes seconds. A joined call can't be divided into groups of channels, though.
        """
        budget -= budget % ALIGNMENT
        self.searches.forget_many()
        found = self._fastest_of_few(budget) if self.searches.are_few else self._fastest_of_many(budget)
        if found is not None or budget <= 0:
            return found
        # ``least`` may be a budget between two of ``sizes_up_to``.
        larger = _next_size(budget)
        least = self._refined(larger) if self._is_feasible(larger) else larger
        return self._of_least(least, larger) if least <= budget else None

    def least(self, above: int, below: int) -> int:
        """Return the least budget above ``above`` that has a schedule, or ``below`` where that is smaller.

        The first of ``sizes_up_to`` is taken that has a schedule, and then the least budget between this size and the one before it.
        """
        size = _next_size(above)
        while size < below:
            if self._is_feasible(size):
                return min(self._refined(size), below)
            size = _next_size(size)
        return below

    def _refined(self, size: int) -> int:
        """Return the least budget that has a schedule, between a size that has one and the size of ``sizes_up_to`` before it.

        A budget that is ``ALIGNMENT`` bytes smaller has no schedule, or is the size before.
        """
        if size not in self._least:
            low, high = sizes_up_to(size - 1)[0] if size > ALIGNMENT else 0, size
            while high - low > ALIGNMENT:
                middle = (low + high) // 2 // ALIGNMENT * ALIGNMENT
                low, high = (low, middle) if self._of_least(middle, size, is_any=True) is not None else (middle, high)
            self._least[size] = high
        return self._least[size]

    def _is_feasible(self, size: int) -> bool:
        if size not in self._feasible:
            flat = chain.from_iterable(self.searches.lists)
            self._feasible[size] = (
                bool(self._of_few(size))
                if self.searches.are_few
                else any(self._fastest_of(given, size, ENDLESS, is_any=True) is not None for given in flat)
            )
        return self._feasible[size]

    def _of_least(self, budget: int, size: int, is_any: bool = False) -> TiledSchedule | None:
        """Return a schedule for a budget that is smaller than ``size``, a size of ``sizes_up_to``; None if no schedule is found.

        Of a graph of few calls, the schedule is neither faster nor moves fewer bytes than the one of ``size``.
        ``is_any``: any schedule will do, so that its search is short.
        """
        if not self.searches.are_few:
            each = (self._fastest_of(given, budget, ENDLESS, is_any) for given in chain(*self.searches.lists))
            return next((one for one in each if one is not None), None)
        larger = min(self._of_few(size), key=_cost)
        found = [one for one in self._schedules(self.searches.lists, budget) if _is_no_worse(larger, one)]
        return min(found, key=_cost, default=None)

    def _fastest_of_many(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of a graph of many calls; None where no size of ``sizes_up_to`` up to the budget has a schedule.

        The budget itself is searched, too. Its schedule alone does not make it feasible: a larger budget would have to be refused where its
        own search finds no addresses.
        """
        each = (self._fastest_of_one(given, budget) for given in self.searches.lists)
        found = next((one for one in each if one is not None), None)
        size = next((size for size in sizes_up_to(budget) if self._is_feasible(size)), None)
        if size is None or found is not None:
            return None if size is None else found
        each = (self._fastest_of_one(given, size) for given in self.searches.lists)
        return next(one for one in each if one is not None)

    def _fastest_of_one(self, given: Sequence[CallList], budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of one selection for the budget, or for a size of ``sizes_up_to`` down to half of it."""
        for size in dict.fromkeys((budget, *sizes_up_to(budget))):
            found = next(reversed(self._schedules([given], size)), None)
            if found is not None:
                self._feasible.setdefault(size, True)
            # Addresses may be found for a smaller memory alone, whose plan has smaller tensors and stripes.
            if found is not None or 2 * size < budget:
                return found
        return None

    def _fastest_of_few(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of a graph of few calls.

        A schedule for a smaller memory is valid in a larger one. So the graph is searched for each size of a fixed list up to the budget,
        and a schedule of a larger size is taken only where it is neither slower nor moves more bytes than that of a smaller one.
        """
        found: list[list[TiledSchedule]] = []
        for size in sizes_up_to(budget):
            # Addresses may be found for a smaller memory alone, whose plan has smaller tensors and stripes.
            if found and self.searches.is_divided(size):
                break
            if self._of_few(size):
                found.append(self._of_few(size))
        best: TiledSchedule | None = None
        for each in reversed(found):
            no_worse = [one for one in each if best is None or _is_no_worse(one, best)]
            best = min(no_worse, key=_cost, default=best)
        return best

    def _of_few(self, size: int) -> list[TiledSchedule]:
        if size not in self._known:
            self._known[size] = self._schedules(self.searches.lists, size)
        return self._known[size]

    def _schedules(self, lists: Sequence[Sequence[CallList]], budget: int) -> list[TiledSchedule]:
        """Return a schedule of each list that has one.

        For a graph of few calls the cycles are those of the complete program, which the prefetch estimates. For others, only schedules that
        are faster than those before them are returned.
        """
        made: list[TiledSchedule] = []
        are_few = self.searches.are_few
        for given in chain.from_iterable(lists):
            found = self._fastest_of(given, budget, made[-1].cycles if made and not are_few else ENDLESS)
            if found is not None and are_few:
                sizes = fetched_sizes(found.schedule, found.storages)
                found = replace(found, cycles=overlapped_cycles(found.schedule, sizes, self.searches.target))
            made += [] if found is None else [found]
        return made

    def _fastest_of(self, given: CallList, budget: int, limit: int, is_any: bool = False) -> TiledSchedule | None:
        """Return the fastest schedule that is found for one list of calls; None where none takes fewer than ``limit`` cycles.

        ``is_any``: the first schedule that is found is returned.
        """
        best: TiledSchedule | None = None
        is_medium = TUNING.few_calls < len(given.calls) <= TUNING.many_calls
        for number, size in enumerate(divided_for(given, budget)):
            search = self.searches.search(given, size)
            below = limit if best is None else best.cycles
            found, estimate = fastest_plan(
                search, self.searches.target, budget, below, is_medium, is_any, is_again=number > 0
            )
            best = found or best
            known = limit if best is None else best.cycles
            if known <= TUNING.divided_again_ratio * estimate or (is_any and best is not None):
                break
        return best


def sizes_up_to(budget: int) -> list[int]:
    """Return the sizes of memory up to ``budget`` that a graph of few calls is searched for, the largest first."""
    octaves = range(ALIGNMENT.bit_length() - 1, budget.bit_length())
    sizes = {
        aligned((1 << octave) * (TUNING.sizes_in_octave + step) // TUNING.sizes_in_octave)
        for octave in octaves
        for step in range(TUNING.sizes_in_octave)
    }
    return sorted((size for size in sizes if size <= budget), reverse=True)


def _next_size(budget: int) -> int:
    """Return the smallest of ``sizes_up_to`` that is larger than a budget."""
    return next(size for size in reversed(sizes_up_to(2 * max(budget, ALIGNMENT))) if size > budget)


def _is_no_worse(one: TiledSchedule, other: TiledSchedule) -> bool:
    return one.cycles <= other.cycles and one.moved_bytes <= other.moved_bytes


def _cost(one: TiledSchedule) -> tuple[int, int]:
    return one.cycles, one.moved_bytes
