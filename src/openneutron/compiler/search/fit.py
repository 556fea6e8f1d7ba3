# SPDX-License-Identifier: BSD-3-Clause
"""The fastest schedule within the SRAM budget: whole tensors where they fit and are as fast, otherwise cascades; or the error that
names the least budget and other options. Constant prefetch is an option."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from openneutron.compiler.memory.layout import Layout, io_outside, lay_out
from openneutron.compiler.memory.prefetch import ENDLESS, PrefetchSearch
from openneutron.compiler.memory.prefetch_plans import PrefetchPlan, fastest_plan, good_plan
from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.needs import in_place, merge_columns, parts_may_be_faster
from openneutron.compiler.schedule.schedule import Schedule, durations, fetched_sizes, overlapped_cycles, whole_schedule
from openneutron.compiler.search.call_lists import for_cascades, for_whole_tensors, of_one_order
from openneutron.compiler.search.cascade import CascadeSearch
from openneutron.compiler.search.effort import BY_NAME
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection
from openneutron.errors import BudgetError, InvalidOptionError, Suggestions
from openneutron.ir import Graph
from openneutron.options import ARENA, CALLER, CompileOptions
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
        return overlapped_cycles(self.schedule, sizes, durations(self.schedule, target), target)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No schedule is feasible. ``floor_bytes``: a lower bound of all schedules; ``least_below``: see ``least_bytes``."""

    floor_bytes: int
    least_below: Callable[[int], int]

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the sufficient bytes of SRAM, or ``below`` where that is smaller. The search may take as long as a
        compile."""
        return self.least_below(below) if self.floor_bytes < below else below


def fit(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions, budget: int
) -> Fitted | Infeasible:
    """Return the fastest schedule found that takes at most ``budget`` bytes of SRAM, beside inputs and outputs of the caller.

    A greater budget never gives a slower schedule. Cycles are modelled; with constant prefetch they are those of a port that
    copies in the background. ``storages`` are those before ``in_place``.
    """
    if options.prefetch_constants:
        return _with_prefetch(calls, storages, target, options, budget)
    own = in_place(storages, calls)
    (order,) = _orders(calls, own, options)
    merged = fit_merged(order, storages, target, options)
    fits = merged is not None and merged.sram_bytes <= budget
    if merged is not None and fits and not parts_may_be_faster(order, own, target):
        return merged
    found = fit_plain(calls, own, target, options, budget)
    if merged is None:
        return found
    if isinstance(found, Infeasible):
        size = merged.sram_bytes
        return (
            merged
            if fits
            else Infeasible(min(found.floor_bytes, size), lambda below: found.least_bytes(min(below, size)))
        )
    return merged if fits and merged.cycles(target) <= found.cycles(target) else found


def fit_plain(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions, budget: int
) -> Fitted | Infeasible:
    """Return the result of ``fit`` without constant prefetch and with each convolution in one piece.

    Cascades take convolutions in one piece: each stripe of each piece would be another kernel call. ``storages`` are those of
    ``in_place``.
    """
    (order,) = _orders(calls, storages, options)
    whole = _every_call_whole(order, storages, options)
    fits = whole.sram_bytes <= budget
    if fits and not parts_may_be_faster(order, storages, target):
        return whole
    best, cycles = (whole, whole.cycles(target)) if fits else (None, 0)
    searches = cascade_searches(calls, storages, target, options)
    for search in searches:
        chosen = search.fastest(budget)
        if chosen is not None and (best is None or chosen.cycles < cycles):
            best, cycles = Fitted(chosen.schedule, chosen.layout, chosen.storages), chosen.cycles
    return best or Infeasible(
        min(whole.sram_bytes, *(search.floor_bytes for search in searches)),
        lambda below: _least_bytes(searches, min(below, whole.sram_bytes)),
    )


def _least_bytes(searches: Sequence[CascadeSearch], below: int) -> int:
    """Return the smallest budget for which a search has a feasible schedule, or ``below`` where that is smaller."""
    for each in sorted(searches, key=lambda each: each.floor_bytes):
        if each.floor_bytes < below:
            below = each.least_bytes(below)
    return below


def cascade_searches(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions
) -> list[CascadeSearch]:
    """Return the search for cascades of every list of the calls; ``storages`` are those of ``in_place``."""
    return [
        CascadeSearch(each.calls, each.storages, target, options.place, False, BY_NAME[options.effort], each.cuts)
        for each in for_cascades(calls, storages, options.place)
    ]


def fit_merged(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions
) -> Fitted | None:
    """Return whole tensors with convolutions in the pieces of ``merge_columns``, or None where no convolution is faster in pieces.

    ``calls`` are in the order that whole tensors are computed in, ``storages`` are those before ``in_place``.
    """
    merged = merge_columns(calls, target)
    return None if merged == list(calls) else _every_call_whole(merged, in_place(storages, merged), options)


def _orders(calls: Sequence[KernelCall], storages: Storages, options: CompileOptions) -> list[tuple[KernelCall, ...]]:
    """Return the orders for whole tensors: the order of the smallest arena, and with constant prefetch the given order too.

    With prefetch the order also decides which computation hides which copy. ``storages`` are those of ``in_place``.
    """
    ordered, given = for_whole_tensors(calls, storages, options.place), tuple(calls)
    return [ordered, given] if options.prefetch_constants and ordered != given else [ordered]


def _every_call_whole(calls: Sequence[KernelCall], storages: Storages, options: CompileOptions) -> Fitted:
    """Return every call whole, without prefetch; ``storages`` are those of ``in_place``."""
    schedule = whole_schedule(calls)
    return Fitted(schedule, lay_out(schedule, storages, options.place), storages)


def _with_prefetch(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions, budget: int
) -> Fitted | Infeasible:
    good, schedules = prefetch_searches(calls, storages, target, options)
    # No candidate may be faster than ``good``: with a greater budget ``good`` is taken, and a greater budget is never slower.
    found = good if good.size_bytes <= budget else fastest_plan(schedules, budget, good.cycles)
    if isinstance(found, int):
        least = min(found, good.size_bytes)
        return Infeasible(least, lambda below: min(below, least))
    schedule, layout = found.laid_out(options.place)
    return Fitted(schedule, layout, found.search.storages)


def prefetch_searches(
    calls: Sequence[KernelCall], storages: Storages, target: Target, options: CompileOptions
) -> tuple[PrefetchPlan, list[Iterable[PrefetchSearch]]]:
    """Return the plan for whole tensors with ample memory for prefetch, and the candidates for smaller budgets.

    The candidates are one list for each order of the calls, by falling memory. ``storages`` are those before ``in_place``.
    """
    own = in_place(storages, calls)
    wholes, merged, cascades = [], [], []
    for order in _orders(calls, own, options):
        whole = _every_call_whole(order, own, options)
        wholes.append(_prefetch(whole, target))
        faster = fit_merged(order, storages, target, options)
        if faster is not None:
            merged.append(_prefetch(faster, target))
        cascades += [_cascades(each, whole.schedule, target, options) for each in of_one_order(order, own)]
    good = min(map(good_plan, wholes), key=_speed)
    if merged:
        # Pieces fetch their constants one by one, which may cost more than merged columns gain.
        better = min(map(good_plan, merged), key=_speed)
        if better.cycles <= good.cycles:
            good = better
            wholes = [*merged, *wholes]
    return good, [*([whole] for whole in wholes), *cascades]


def _speed(plan: PrefetchPlan) -> tuple[int, int]:
    return plan.cycles, plan.size_bytes


def _prefetch(fitted: Fitted, target: Target) -> PrefetchSearch:
    return PrefetchSearch(fitted.schedule, fitted.layout, fitted.storages, target)


def _cascades(each: CallList, whole: Schedule, target: Target, options: CompileOptions) -> Iterator[PrefetchSearch]:
    """Yield the cascades of a list of calls from the fastest to the smallest, without the schedule ``whole``."""
    search = CascadeSearch(each.calls, each.storages, target, options.place, True, BY_NAME[options.effort], each.cuts)
    before = whole.steps
    for found in search.levels(BY_NAME[options.effort].levels):
        if found.schedule.steps != before:
            yield PrefetchSearch(found.schedule, found.layout, found.storages, target)
        before = found.schedule.steps


def budget_bytes(given: int | None, target: Target) -> int:
    """Return the budget in bytes; without one, the target's whole SRAM. Raises InvalidOptionError where the target has less."""
    there = int(target.sram.value * 1024)
    if given is None:
        return there
    if given > there:
        raise InvalidOptionError(
            f"sram_budget: it is {-(-given // 1024)} KiB; {target.name} has {there // 1024} KiB of SRAM. Give at most that."
        )
    return given


class OverBudget(Protocol):
    """A graph that needs more SRAM than its budget, see ``BudgetError``."""

    @property
    def least_bytes(self) -> int: ...
    @property
    def suggestions(self) -> Suggestions: ...


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The bytes of SRAM that would suffice for a graph without a feasible schedule, and its suggestions."""

    least_bytes: int
    suggestions: Suggestions


def over_budget(name: str, graphs: Sequence[OverBudget], count: int, budget: int) -> BudgetError:
    """Return the error for a model of ``count`` partitions, of which ``graphs`` need more than ``budget`` bytes each.

    The message names only suggestions that all of ``graphs`` have. Where another partition fits as it is, the message names only
    the suggestion that never takes more memory: to leave out the constant prefetch.
    """
    least = max(each.least_bytes for each in graphs)
    kib = -(-least // 1024)
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    sizes = {
        words: max(each.suggestions[words] for each in graphs)
        for words in graphs[0].suggestions
        if all(words in each.suggestions for each in graphs) and (len(graphs) == count or words == WITHOUT_PREFETCH)
    }
    others = ", ".join(f"{words} it takes {_kib(size)}" for words, size in sizes.items())
    others = f" {others[0].upper()}{others[1:]}." if others else ""
    return BudgetError(
        f"'{name}': it needs {_kib(least)} of SRAM{where}; the budget is {_kib(budget)}. "
        f"Give it at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python), or a smaller input.{others}",
        least,
        sizes,
    )


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"


WITHOUT_PREFETCH = "without --prefetch-constants"
ELSEWHERE = {ARENA: "with --io-place caller", CALLER: "with --io-place arena"}


def suggestions(
    graph: Graph,
    calls: Sequence[KernelCall],
    storages: Storages,
    target: Target,
    options: CompileOptions,
    budget: int,
) -> Suggestions:
    """Return the other options under which a graph fits ``budget`` bytes, in words, and the bytes it then takes.

    A combination of two options is a suggestion only where neither option suffices alone. ``storages`` are those before
    ``in_place``.
    """
    # No option makes the inputs or the outputs smaller.
    io_bytes = [sum(graph[name].size_bytes for name in names) for names in (graph.inputs, graph.outputs)]
    found: dict[str, int] = {}
    for words, other in _others(options).items():
        outside = io_outside(graph, other.place)
        if max(outside, *io_bytes) > budget or any(each in words for each in found):
            continue
        fitted = fit(calls, storages, target, other, budget - outside)
        if isinstance(fitted, Fitted):
            found[words] = fitted.sram_bytes + outside
    return found


def _others(options: CompileOptions) -> dict[str, CompileOptions]:
    """Return the options that are tried instead, in words, single changes before their combination."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    if not options.prefetch_constants:
        return {ELSEWHERE[options.place]: elsewhere}
    return {
        WITHOUT_PREFETCH: replace(options, prefetch_constants=False),
        ELSEWHERE[options.place]: elsewhere,
        f"{WITHOUT_PREFETCH} and {ELSEWHERE[options.place]}": replace(elsewhere, prefetch_constants=False),
    }


def within_budget(graph: Graph, selected: Sequence[Selection], target: Target, options: CompileOptions) -> Fitted:
    """Return the fastest feasible schedule of all selections of a graph. Raises BudgetError where there is no such schedule."""
    budget = budget_bytes(options.sram_budget, target)
    outside = io_outside(graph, options.place)
    found = [fit(calls, storages, target, options, budget - outside) for storages, calls in selected]
    feasible = [each for each in found if not isinstance(each, Infeasible)]
    if feasible:
        return min(feasible, key=lambda each: (each.cycles(target), each.sram_bytes))
    too_little = [(each, pair) for each, pair in zip(found, selected, strict=True) if isinstance(each, Infeasible)]
    least, (storages, calls) = _least(too_little)
    others = suggestions(graph, calls, storages, target, options, budget)
    raise over_budget(graph.name, [Shortfall(least + outside, others)], 1, budget)


def _least(found: Sequence[tuple[Infeasible, Selection]]) -> tuple[int, Selection]:
    """Return the smallest sufficient size in bytes and its selection; of equal sizes the first selection."""
    best: tuple[int, int] | None = None
    for index in sorted(range(len(found)), key=lambda index: found[index][0].floor_bytes):
        # One byte more: an earlier selection of the same size wins.
        least = found[index][0].least_bytes() if best is None else found[index][0].least_bytes(best[0] + 1)
        best = (least, index) if best is None else min(best, (least, index))
    assert best is not None
    return best[0], found[best[1]][1]
