# SPDX-License-Identifier: BSD-3-Clause
"""Find the fastest schedule within the SRAM budget: whole tensors where they fit and are as fast, otherwise cascades.

Where no schedule is feasible, the error names the least budget and other options. Constant prefetch is an option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.place.place import bytes_outside, lay_out
from openneutron.compiler.place.prefetch import ENDLESS, PrefetchPlan, PrefetchSearch, fastest_plan, good_plan
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.order import flow_of
from openneutron.compiler.rewrite.passes import Passes, for_cascades, of_one_order, selections, takes_routes, with_jobs
from openneutron.compiler.schedule.schedule import Schedule, whole_schedule
from openneutron.compiler.search.cascade.choose import CascadeSchedule, CascadeSearch
from openneutron.compiler.search.fitted import (
    WITHOUT_PREFETCH,
    Fitted,
    Infeasible,
    Shortfall,
    indivisible,
    layers_at_peak,
    over_budget,
)
from openneutron.compiler.search.regions import (
    Space,
    in_regions,
    least_bytes,
    least_reaching,
    size_above,
    sizes_down,
    space_of,
)
from openneutron.compiler.search.tiles.fit import TiledTask
from openneutron.compiler.search.tuning import BY_NAME
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.needs import in_place, parts_may_be_faster
from openneutron.compiler.select.select import Selection
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError, Suggestions
from openneutron.ir import Graph
from openneutron.options import ARENA, CALLER, OPEN, CompileOptions, budget_bytes
from openneutron.targets import DEFAULT, Target


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The search for schedules of one selection of kernel calls, for one target and one set of options.

    ``separate`` are the storages before in-place assignment (``in_place``), and ``storages`` those after it. ``passes``
    are the passes that the search applies.
    """

    calls: Sequence[KernelCall]
    separate: Storages
    target: Target
    options: CompileOptions
    storages: Storages = field(init=False)
    passes: Passes = field(init=False)
    _cascades: list[CascadeSearch] = field(init=False, default_factory=list)
    _orders: list[tuple[KernelCall, ...]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "storages", in_place(self.separate, self.calls))
        passes = Passes(self.target, self.options.place, frozenset(self.options.without_passes))
        object.__setattr__(self, "passes", passes)

    def within(self, budget: int) -> Fitted | Infeasible:
        """Return the fastest schedule found whose SRAM is at most ``budget`` bytes; ``Infeasible`` if there is none.
        The caller's input and output buffers do not count.

        A larger budget never gives a slower schedule. Cycles are modelled; with constant prefetch they are those of a
        port that copies in the background.
        """
        if self.options.prefetch_constants:
            return self._with_prefetch(budget)
        (order,) = self.orders()
        merged = self.merged(order)
        fits = merged is not None and merged.sram_bytes <= budget
        if merged is not None and fits and not parts_may_be_faster(order, self.storages, self.target):
            return merged
        found = self.plain(budget)
        if merged is None:
            return found
        if isinstance(found, Infeasible):
            size = merged.sram_bytes
            if fits:
                return merged
            return Infeasible(min(found.floor_bytes, size), lambda below: found.least_bytes(min(below, size)))
        return merged if fits and merged.cycles(self.target) <= found.cycles(self.target) else found

    def plain(self, budget: int, always: bool = False) -> Fitted | Infeasible:
        """Return the result of ``within`` without constant prefetch and with each convolution in one piece.

        With ``always``, cascades are searched even where whole tensors fit. A cascade has each convolution in one piece, since each stripe
        of each piece would be another kernel call.
        """
        (order,) = self.orders()
        whole = self.whole(order)
        fits = whole.sram_bytes <= budget
        if fits and not always and not parts_may_be_faster(order, self.storages, self.target):
            return whole
        best, cycles = (whole, whole.cycles(self.target)) if fits else (None, 0)
        searches = self.cascades()
        for search in searches:
            if best is not None and search.least_cycles >= cycles:
                continue
            chosen = search.fastest(budget)
            if chosen is not None and (best is None or chosen.cycles < cycles):
                best, cycles = Fitted(chosen.schedule, chosen.layout, chosen.storages), chosen.cycles
        return best or Infeasible(
            min(whole.sram_bytes, *(search.floor_bytes for search in searches)),
            lambda below: _least_bytes(searches, min(below, whole.sram_bytes)),
        )

    def cascades(self) -> list[CascadeSearch]:
        """Return one search for cascades for each list of calls of the selection. A search keeps the candidates that it
        has evaluated."""
        if not self._cascades:
            lists = for_cascades(CallList(tuple(self.calls), self.separate), self.storages, self.passes)
            self._cascades.extend(self._search(each, False) for each in lists)
        return self._cascades

    def _search(self, each: CallList, fetched: bool) -> CascadeSearch:
        place, effort = self.options.place, BY_NAME[self.options.effort]
        return CascadeSearch(each.calls, each.storages, self.target, place, fetched, effort, each.cuts)

    def merged(self, order: Sequence[KernelCall]) -> Fitted | None:
        """Return the schedule of whole tensors after the pass "columns", which divides convolutions. Return None if
        the pass makes no convolution faster."""
        merged = self.passes.run("columns", CallList(tuple(order), self.separate))
        return None if merged is None else self.whole(merged.calls, in_place(self.separate, merged.calls))

    def orders(self) -> list[tuple[KernelCall, ...]]:
        """Return the orders of the calls that are tried for whole tensors. Of the given order and that of the pass
        "order", the one with the smaller arena is tried.

        With constant prefetch, the given order is always tried too, since the order then also decides which kernels
        run during which copies.
        """
        if not self._orders:
            given = CallList(tuple(self.calls), self.storages)
            ordered = self.passes.run("order", given)
            if ordered is not None and self._is_smaller(ordered.calls):
                self._orders.append(ordered.calls)
            if not self._orders or self.options.prefetch_constants:
                self._orders.append(given.calls)
        return self._orders

    def _is_smaller(self, ordered: Sequence[KernelCall]) -> bool:
        """Return whether an order has a smaller arena than the given order, once its buffers have addresses (which may
        leave gaps)."""
        storages, place = self.storages, self.options.place
        # The arena of the given order is at least as large as the peak of its live bytes.
        peak = flow_of(self.calls, storages, place).peak_bytes(range(len(self.calls)))
        if lay_out(whole_schedule(ordered), storages, place, 0).scratch_bytes <= peak:
            return True
        sizes = [lay_out(whole_schedule(each), storages, place).scratch_bytes for each in (self.calls, ordered)]
        return sizes[1] < sizes[0]

    def whole(self, order: Sequence[KernelCall], storages: Storages | None = None) -> Fitted:
        """Return the schedule that runs each call whole, in this order, without prefetch."""
        schedule, storages = whole_schedule(order), storages or self.storages
        return Fitted(schedule, lay_out(schedule, storages, self.options.place), storages)

    def _with_prefetch(self, budget: int) -> Fitted | Infeasible:
        good, schedules = self.prefetches()
        # Budgets from the size of ``good`` on give ``good``. No smaller budget may give a faster plan, so that such plans are left out.
        found = good if good.size_bytes <= budget else fastest_plan(schedules, budget, good.cycles)
        if isinstance(found, int):
            least = min(found, good.size_bytes)
            return Infeasible(least, lambda below: min(below, least))
        schedule, layout = found.laid_out(self.options.place)
        return Fitted(schedule, layout, found.search.storages)

    def prefetches(self) -> tuple[PrefetchPlan, list[Iterable[PrefetchSearch]]]:
        """Return the plan for unlimited prefetch memory, and the candidates for smaller budgets. The plan has whole
        tensors, unless a cascade is faster because it does not compute rows that no call reads.

        The candidates are families for ``fastest_plan``. First come whole tensors with divided convolutions
        (``merged``), if they are no slower. Then come the whole tensors of each order, and the cascades of each list
        of calls, from the fastest to the smallest.
        """
        wholes, merged, cascades = [], [], []
        orders = self.orders()
        for order in orders:
            whole = self.whole(order)
            wholes.append(self._prefetch(whole))
            faster = self.merged(order)
            if faster is not None:
                merged.append(self._prefetch(faster))
            lists = of_one_order(order, self.storages, self.passes)
            cascades += [(self._search(each, True), whole.schedule) for each in lists]
        good = min(map(good_plan, wholes), key=_speed)
        if merged:
            # Each piece fetches its own constants, which may cost more cycles than the pieces save.
            better = min(map(good_plan, merged), key=_speed)
            if better.cycles <= good.cycles:
                good = better
                wholes = [*merged, *wholes]
        if any(parts_may_be_faster(order, self.storages, self.target) for order in orders):
            # The cycles of each piece's copy are rounded down.
            copying = min(sum(fetch_cycles(use.size, self.target) - use.blocks for use in each.uses) for each in wholes)
            faster_parts = [each for each in cascades if each[0].least_cycles + copying < good.cycles]
            good = _as_fast_as_smallest(good, [self._levels(*each) for each in faster_parts])
        return good, [*([whole] for whole in wholes), *(self._levels(*each) for each in cascades)]

    def _prefetch(self, fitted: Fitted | CascadeSchedule) -> PrefetchSearch:
        return PrefetchSearch(fitted.schedule, fitted.layout, fitted.storages, self.target)

    def _levels(self, search: CascadeSearch, whole: Schedule) -> Iterator[PrefetchSearch]:
        """Yield the prefetch searches of the cascades of ``search``, from the fastest cascade to the smallest. The
        schedule ``whole`` is left out."""
        before = whole.steps
        for found in search.levels(BY_NAME[self.options.effort].levels):
            if found.schedule.steps != before:
                yield self._prefetch(found)
            before = found.schedule.steps


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """The tasks of all selections of a graph, which are made on demand.

    A task does not depend on the budget. With ``kept``, options that differ only in the budget give the same tasks
    again, with the results of earlier searches. For a chip with tiles there is one task for all selections.
    """

    legal: Graph
    known: Mapping[str, list[KernelCall]] = field(default_factory=dict)
    kept: bool = False
    _selected: dict[frozenset[str], Sequence[Selection]] = field(init=False, default_factory=dict)
    _made: dict[tuple[Target, CompileOptions], Sequence[Task | TiledTask]] = field(init=False, default_factory=dict)

    @property
    def selected(self) -> Sequence[Selection]:
        """Return the graph's selections of kernel calls, with no pass switched off."""
        return self._selections(frozenset())

    def _selections(self, off: frozenset[str]) -> Sequence[Selection]:
        if off not in self._selected:
            self._selected[off] = selections(self.legal, self.known, Passes(off=off))
        return self._selected[off]

    def of(self, target: Target, options: CompileOptions) -> Sequence[Task | TiledTask]:
        """Return a task for each selection, or one task for all selections if the target moves tiles."""
        # ``options.target`` may name a target with other numbers than ``target``, so that it must not be a part of the key.
        name = DEFAULT if target.jobs is None else options.target
        options = replace(options, target=name, threads=1, converter=OPEN, sram_budget=None, check=False, profile=False)
        key = (target, options)
        tasks = self._made.get(key) or self._new(target, options)
        if self.kept:
            self._made[key] = tasks
        return tasks

    def _new(self, target: Target, options: CompileOptions) -> Sequence[Task | TiledTask]:
        off = frozenset(options.without_passes)
        selected = self._selections(off)
        if target.moves_tiles:
            return [TiledTask.of(selected, target, Passes(target, off=off))]
        if target.jobs is not None:
            apart = partial(self._selections, off | {"attention"})
            selected = with_jobs(selected, apart, Passes(target, options.place, off, rescale=options.rescale))
        return [Task(calls, storages, target, options) for storages, calls in selected]


def _least_bytes(searches: Sequence[CascadeSearch], below: int) -> int:
    """Return the smallest budget in bytes for which one of the searches has a feasible schedule, but at most ``below``."""
    for each in sorted(searches, key=lambda each: each.floor_bytes):
        if each.floor_bytes < below:
            below = each.least_bytes(below)
    return below


def _as_fast_as_smallest(good: PrefetchPlan, families: Iterable[Iterable[PrefetchSearch]]) -> PrefetchPlan:
    """Return ``good``, or a faster plan if there is a schedule whose smallest plan is already faster than ``good``.

    ``fastest_plan`` returns no plan that is faster than ``good``. Without this function it would refuse such a
    smallest plan even for the least budget that the error names. A cascade can have such a plan, since it does not
    compute unread regions.
    """
    for family in families:
        for search in family:
            if search.compute_cycles >= good.cycles:
                break
            smallest = search.smallest()
            if smallest.cycles < good.cycles:
                good = min(good_plan(search), PrefetchPlan(search, smallest, smallest.size_bytes), key=_speed)
    return good


def _speed(plan: PrefetchPlan) -> tuple[int, int]:
    return plan.cycles, plan.size_bytes


ELSEWHERE = {ARENA: "with --io-place caller", CALLER: "with --io-place arena"}


def suggestions(graph: Graph, task: Task, budget: int) -> Suggestions:
    """Return changes of the options with which the graph fits ``budget`` bytes, in words, each with the bytes that the
    graph then takes.

    Two changes together are suggested only if neither of them suffices alone.
    """
    # No option makes the inputs or the outputs smaller.
    io_bytes = [sum(graph[name].size_bytes for name in names) for names in (graph.inputs, graph.outputs)]
    found: dict[str, int] = {}
    for words, other in _others(task.options).items():
        outside = bytes_outside(graph, other.place)
        if max(outside, *io_bytes) > budget or any(each in words for each in found):
            continue
        fitted = replace(task, options=other).within(budget - outside)
        if isinstance(fitted, Fitted):
            found[words] = fitted.sram_bytes + outside
    return found


def _others(options: CompileOptions) -> dict[str, CompileOptions]:
    """Return the changed options that are tried as suggestions, by the words that describe the change. Single changes
    come before combinations."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    if not options.prefetch_constants:
        return {ELSEWHERE[options.place]: elsewhere}
    return {
        WITHOUT_PREFETCH: replace(options, prefetch_constants=False),
        ELSEWHERE[options.place]: elsewhere,
        f"{WITHOUT_PREFETCH} and {ELSEWHERE[options.place]}": replace(elsewhere, prefetch_constants=False),
    }


def _searched_again(tasks: Sequence[Task | TiledTask], found: Sequence[Fitted | Infeasible]) -> list[Task]:
    """Return the feasible tasks for which cascades must be searched although their whole tensors fit. There are such
    tasks if the whole tensors of an infeasible task would be faster than every feasible schedule.

    In that case, the cascades of a feasible task may be faster than its own whole tensors. They are searched for
    smaller budgets, which the whole tensors exceed. So they must be searched for this budget too: a larger budget
    must not give a slower schedule.
    """
    plain = [(task, each) for task, each in zip(tasks, found, strict=True) if isinstance(task, Task)]
    feasible = {task: each.cycles(task.target) for task, each in plain if isinstance(each, Fitted)}
    wholes = (sum(call_cost(call, task.target).cycles for call in task.calls) for task, _ in plain)
    slower = bool(feasible) and min(feasible.values()) > min(wholes)
    return [task for task in feasible if takes_routes(task.calls)] if slower else []


def within_budget(graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions) -> Fitted:
    """Return the fastest feasible schedule of a graph over all of its selections, with each buffer in a memory region
    of the target.

    Raises BudgetError if no schedule is feasible for the budget, and InvalidModelError if none is feasible for any
    size of memory. Raises InvalidOptionError for constant prefetch on a target with several memory regions.
    """
    if len(target.regions) == 1:
        return _within_one_buffer(graph, all_tasks, target, options)
    if options.prefetch_constants:
        raise InvalidOptionError(
            f"prefetch_constants: {target.name} has several memory regions, and reads constants in place. Leave the option out."
        )
    space, tasks = space_of(graph, target, options), all_tasks.of(target, options)
    _, unlimited = _fastest(tasks, target, options, ENDLESS)
    if unlimited is not None and space.has(unlimited.sram_bytes):
        return unlimited
    near = min(space.together, space.regions[0])
    _, best = _fastest(tasks, target, options, near) if near > 0 else ([], None)
    for _, fitted in _for_regions(tasks, target, options, space.together, unlimited) if near < space.together else ():
        # Waits for the slower region only add to the cycles of a schedule, and schedules of less memory are no faster.
        if best is not None and fitted.cycles(target) >= best.cycles(target):
            break
        divided = in_regions(fitted, space, target)
        if divided is not None and (best is None or divided.cycles(target) < best.cycles(target)):
            best = divided
    if best is None:
        raise _not_in_regions(graph, all_tasks, target, options, space)
    return best


def _for_regions(
    tasks: Sequence[Task | TiledTask], target: Target, options: CompileOptions, most: int, unlimited: Fitted | None
) -> Iterator[tuple[int, Fitted]]:
    """Yield pairs (size, schedule): the sizes of memory that are tried for a budget of ``most`` bytes, the largest
    first, each with its fastest schedule.

    The sizes are those of ``SIZES``, up to the memory of ``unlimited`` (the fastest schedule of all), and at last the
    least memory that has a schedule. The first size may be above ``most``, since its schedule may take less. So a
    larger ``most`` only adds schedules.
    """
    enough = ENDLESS if unlimited is None else size_above(unlimited.sram_bytes)
    for size in sizes_down(min(size_above(most), enough)):
        _, fastest = _fastest(tasks, target, options, size)
        if fastest is None:
            least = _least(tasks, target, options)
            if least <= most:
                _, fastest = _fastest(tasks, target, options, least)
                assert fastest is not None, "a schedule does not fit the memory that it needs"
                yield least, fastest
            return
        yield size, fastest


def _least(tasks: Sequence[Task | TiledTask], target: Target, options: CompileOptions) -> int:
    """Return the smallest memory, in bytes, for which any task has a schedule."""
    found, fastest = _fastest(tasks, target, options, 0)
    return 0 if fastest is not None else min(each.least_bytes() for each in found if isinstance(each, Infeasible))


def _not_in_regions(
    graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions, space: Space
) -> BudgetError:
    """Return the error for a graph whose buffers no schedule can divide between the memory regions.

    If even one buffer of the budget's size does not suffice, raise the error of ``_within_one_buffer`` instead.
    """
    tasks, whole = all_tasks.of(target, options), space_of(graph, target, replace(options, sram_budget=None))
    least, budget = _least(tasks, target, options), budget_bytes(options.sram_budget, target)
    if least > space.together and (least <= max(whole.regions) or least >= ENDLESS):
        _within_one_buffer(graph, all_tasks, target, options)
    outside = budget - space.together
    if not isinstance(options.sram_budget, tuple):
        _, unlimited = _fastest(tasks, target, options, ENDLESS)
        divided = (
            (size, least_bytes(fitted, whole, target))
            for size, fitted in _for_regions(tasks, target, options, whole.together, unlimited)
        )
        needed = min((max(least_reaching(size), taken) for size, taken in divided if taken is not None), default=None)
        if needed is not None:
            return over_budget(graph.name, [Shortfall(needed + outside, {})], 1, budget, target)
    return indivisible(graph.name, least, outside, space.regions, target)


def _fastest(
    tasks: Sequence[Task | TiledTask], target: Target, options: CompileOptions, size: int
) -> tuple[list[Fitted | Infeasible], Fitted | None]:
    """Return the result of each task for a memory of ``size`` bytes, and the fastest schedule among them (None if no
    schedule is feasible)."""
    found = [task.within(size) for task in tasks]
    if not options.prefetch_constants and options.sram_budget is not None and target.cpu is None:
        found += [task.plain(size, always=True) for task in _searched_again(tasks, found)]
    feasible = (each for each in found if isinstance(each, Fitted))
    return found, min(feasible, key=lambda each: (each.cycles(target), each.sram_bytes), default=None)


def _within_one_buffer(graph: Graph, all_tasks: Tasks, target: Target, options: CompileOptions) -> Fitted:
    """Return the fastest feasible schedule of a graph over all of its selections, with all buffers in one memory.

    Raises BudgetError if no schedule is feasible for the budget, and InvalidModelError if none is feasible for any size
    of memory.
    """
    budget = budget_bytes(options.sram_budget, target)
    outside = bytes_outside(graph, ARENA if target.moves_tiles else options.place)
    tasks = all_tasks.of(target, options)
    found, fastest = _fastest(tasks, target, options, budget - outside)
    if fastest is not None:
        return fastest
    infeasible = [(each, task) for each, task in zip(found, tasks, strict=True) if isinstance(each, Infeasible)]
    # The first selection of the smallest size is taken. An earlier selection may have the same size: its search ends one byte above it.
    best: tuple[int, int] | None = None
    for index in sorted(range(len(infeasible)), key=lambda index: infeasible[index][0].floor_bytes):
        least = infeasible[index][0].least_bytes(*(() if best is None else (best[0] + 1,)))
        best = (least, index) if best is None else min(best, (least, index))
    assert best is not None
    if best[0] >= ENDLESS:
        raise InvalidModelError(
            f"'{graph.name}': there is no schedule for {target.name} at any size of its memory. "
            "Leave an operator to the CPU with operators_not_to_delegate."
        )
    task = infeasible[best[1]][1]
    others = {} if isinstance(task, TiledTask) else suggestions(graph, task, budget)
    smallest = task.within(best[0])
    layers: tuple[str, ...] = ()
    if isinstance(smallest, Fitted):
        layers = layers_at_peak(graph, smallest.schedule, smallest.layout, smallest.storages)
    raise over_budget(graph.name, [Shortfall(best[0] + outside, others, layers)], 1, budget, target)
