# SPDX-License-Identifier: BSD-3-Clause
"""Make a schedule with addresses and constant prefetch from a plan in tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from openneutron.compiler.memory.layout import Layout, lay_out
from openneutron.compiler.memory.place import EXACT_WORK, Item
from openneutron.compiler.memory.prefetch import ENDLESS, ConstantUse, PrefetchPlan, PrefetchSearch, fastest_within
from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.schedule import Cuttable, Schedule, Step, fetched_sizes
from openneutron.compiler.schedule.timeline import overlapped_cycles
from openneutron.compiler.search.call_lists import flow_of, of_one_order, order_by_depth, stays
from openneutron.compiler.search.tiles.borders import overlapped
from openneutron.compiler.search.tiles.groups import in_groups
from openneutron.compiler.search.tiles.search import TilePlan, TileSearch
from openneutron.compiler.search.tiles.streams import Streams, Tiled, steps_of
from openneutron.compiler.search.tiles.traffic import LeastTraffic
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.select import Selection
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT
from openneutron.options import CALLER
from openneutron.targets import Target

GROUPED = (0.84, 0.6)
"""Calls are divided so that a plan exists for this fraction of the memory of the NPU. The second one leaves more to constants."""

FAR = 1.15
"""Calls are divided again where the best schedule takes more than this ratio of a plan's estimate: its kernels wait for constants."""

ENOUGH = 1.01
"""A schedule whose cycles are within this ratio of the first plan's estimate ends the search: later plans have less memory.

Graphs of more than ``FEW_CALLS`` and at most ``MANY_CALLS`` calls have all of their plans compared. With more memory, the first plan is
larger, but its constants have less space. A smaller plan is then faster, such as the one that a smaller memory has.
"""

SHARES = (1.0, 0.92, 0.84, 0.77, 0.7, 0.6, 0.5)
"""A segment may take these fractions of the memory of the NPU with its constants. The rest is for constants of later segments."""

FEW_CALLS = 16
"""A graph of at most so many calls is searched for every size of memory up to the budget."""

MANY_CALLS = 100
"""In a graph of more calls than these, a search is long; it ends with the first schedule that is ``ENOUGH``."""

STEPS = 4
"""The number of these sizes in an octave: 4, 5, 6, 7, 8, 10, 12 KiB and so on."""


@dataclass(frozen=True, slots=True)
class TiledSchedule:
    """A schedule in tiles with addresses. ``cycles`` assume copies in parallel to kernels; ``moved_bytes`` are those of all tiles."""

    schedule: Schedule
    layout: Layout
    storages: Storages
    cycles: int
    moved_bytes: int


Known = dict[int, list[TiledSchedule]]
"""The schedules of a graph for sizes of the memory of the NPU, in bytes: one for each list of its calls that has one."""


def least_tiled(selected: Sequence[Selection], target: Target, above: int, below: int) -> int:
    """Return the first of ``_sizes``, larger than ``above``, for which a selection has a schedule, or ``below`` where that is smaller.

    The next smaller size has no schedule or is not larger than ``above``. It is a fifth smaller at most, or ``ALIGNMENT`` bytes.
    """
    lists = [each for given in _lists(selected) for each in given]
    for size in reversed(_sizes(below - 1)):
        kept: list[TileSearch] = []
        if size > above and any(_fastest_of(given, target, size, kept, ENDLESS) is not None for given in lists):
            return size
    return below


def fastest_tiled(selected: Sequence[Selection], target: Target, budget: int, known: Known) -> TiledSchedule | None:
    """Return the fastest schedule in tiles that is found for ``budget`` bytes of NPU memory; None if no schedule is found.

    ``known``: the schedules of a graph of few calls that were found for other budgets, which get those of this one.

    The first selection of kernel calls counts that has a schedule: the tiles of cascades are the same with the copies of the others, and
    a search takes seconds. A joined call can't be divided into groups of channels, though. Graphs of few calls are searched with all
    selections, see ``_fastest_of_few``.
    """
    budget -= budget % ALIGNMENT
    lists = _lists(selected)
    if _are_few(lists):
        return _fastest_of_few(lists, target, budget, known)
    for given in lists:
        found = _fastest_of_many(given, target, budget)
        if found is not None:
            return found
    return None


def _fastest_of_many(given: Sequence[CallList], target: Target, budget: int) -> TiledSchedule | None:
    kept: list[TileSearch] = []
    for size in dict.fromkeys((budget, *_sizes(budget))):
        found = next(reversed(_schedules([given], target, size, kept)), None)
        # Addresses may be found for a smaller memory alone, whose plan has smaller tensors and stripes.
        if found is not None or 2 * size < budget:
            return found
    return None


def _fastest_of_few(
    lists: Sequence[Sequence[CallList]], target: Target, budget: int, known: Known
) -> TiledSchedule | None:
    """Return the fastest schedule of a graph of few calls.

    A schedule for a smaller memory is valid in a larger one. So the graph is searched for each size of a fixed list up to the budget, and
    a schedule of a larger size is taken only where it is neither slower nor moves more bytes than that of a smaller one.
    """
    kept: list[TileSearch] = []
    found: list[list[TiledSchedule]] = []
    smallest = budget
    for size in _sizes(budget):
        # Addresses may be found for a smaller memory alone, whose plan has smaller tensors and stripes.
        if 2 * size < smallest or (found and _is_divided(lists, target, size)):
            break
        if size not in known:
            known[size] = _schedules(lists, target, size, kept)
        if known[size]:
            found.append(known[size])
            smallest = size
    best: TiledSchedule | None = None
    for each in reversed(found):
        no_worse = [one for one in each if best is None or _is_no_worse(one, best)]
        best = min(no_worse, key=lambda one: (one.cycles, one.moved_bytes), default=best)
    return best


def least_moved_bytes(selected: Sequence[Selection], target: Target, budget: int, most: int) -> int:
    """Return a lower bound of the bytes of tensors that ``fastest_tiled`` could move in ``budget`` bytes of NPU memory.

    The bound is one over the choices of the search, see ``traffic``; for a graph of more than few calls over those of the first selection.
    Constants are not counted. ``most``: the bytes of a schedule that is known.
    """
    lists = _lists(selected)
    are_few = _are_few(lists)
    kept: list[TileSearch] = []
    for size in (budget, *(_sizes(budget) if are_few else ())):
        for given in chain.from_iterable(lists if are_few else lists[:1]):
            for divided_for in _divisions(given, size):
                _search(given, target, divided_for, kept)
    return min(LeastTraffic(search, budget, most).bound() for search in kept)


def _lists(selected: Sequence[Selection]) -> list[list[CallList]]:
    """Return the calls of each selection in their order, and with one branch after the other where this is another order.

    The given order of a detector's heads alternates between branches, so that a cascade of one branch is not a run of neighbouring calls.
    """
    made = []
    for storages, calls in selected:
        flow, given = flow_of(calls, storages, CALLER), tuple(range(len(calls)))
        orders = [given] if stays(flow) else [given, order_by_depth(flow)]
        # The last list has sequences by rows and batches apart, so that all of them can come in tiles.
        made.append([of_one_order([calls[at] for at in order], storages)[-1] for order in dict.fromkeys(orders)])
    return made


def _are_few(lists: Sequence[Sequence[CallList]]) -> bool:
    """Return whether a selection has few calls. The others have some more, since they have copies and parts of joined calls."""
    return any(all(len(each.calls) <= FEW_CALLS for each in given) for given in lists)


def _is_divided(lists: Sequence[Sequence[CallList]], target: Target, size: int) -> bool:
    """Return whether a memory of ``size`` bytes divides a graph of few calls into many.

    A search of many calls takes seconds, and is done only where no larger memory has a schedule: each of the calls is dispatched, and reads
    again what its neighbours read.
    """
    flat = chain.from_iterable(lists)
    divided = (
        len(in_groups(each.calls, each.storages, target, int(size * GROUPED[0]))) - len(each.calls) for each in flat
    )
    return max(divided) > FEW_CALLS


def _sizes(budget: int) -> list[int]:
    """Return the sizes of memory up to ``budget`` that a graph of few calls is searched for, the largest first."""
    octaves = range(ALIGNMENT.bit_length() - 1, budget.bit_length())
    sizes = {aligned((1 << octave) * (STEPS + step) // STEPS) for octave in octaves for step in range(STEPS)}
    return sorted((size for size in sizes if size <= budget), reverse=True)


def _schedules(
    lists: Sequence[Sequence[CallList]], target: Target, budget: int, kept: list[TileSearch]
) -> list[TiledSchedule]:
    """Return a schedule of each list that has one. ``kept``: the searches so far, of which one of the same calls goes on.

    For a graph of few calls the cycles are those of the complete program, which the prefetch estimates. For others, only schedules that are
    faster than those before them are returned.
    """
    made: list[TiledSchedule] = []
    are_few = _are_few(lists)
    for given in chain.from_iterable(lists):
        limit = made[-1].cycles if made and not are_few else ENDLESS
        found = _fastest_of(given, target, budget, kept, limit)
        if found is not None and are_few:
            sizes = fetched_sizes(found.schedule, found.storages)
            found = replace(found, cycles=overlapped_cycles(found.schedule, sizes, target))
        made += [] if found is None else [found]
    return made


def _is_no_worse(one: TiledSchedule, other: TiledSchedule) -> bool:
    return one.cycles <= other.cycles and one.moved_bytes <= other.moved_bytes


def _fastest_of(
    given: CallList, target: Target, budget: int, kept: list[TileSearch], limit: int
) -> TiledSchedule | None:
    """Return the fastest schedule that is found for one list of calls; None where none takes fewer than ``limit`` cycles."""
    best: TiledSchedule | None = None
    is_medium = FEW_CALLS < len(given.calls) <= MANY_CALLS
    for divided_for in _divisions(given, budget):
        search = _search(given, target, divided_for, kept)
        below = limit if best is None else best.cycles
        found, estimate = _fastest_plan(search, target, budget, below, is_medium)
        best = found or best
        known = limit if best is None else best.cycles
        if known <= FAR * estimate:
            break
    return best


def _divisions(given: CallList, budget: int) -> list[int]:
    """Return the sizes of memory that the calls are divided for. Graphs of few calls are searched for smaller memories anyway."""
    return [int(budget * share) for share in (GROUPED if len(given.calls) > FEW_CALLS else GROUPED[:1])]


def _fastest_plan(
    search: TileSearch, target: Target, budget: int, limit: int, is_medium: bool
) -> tuple[TiledSchedule | None, int]:
    """Return the fastest schedule of one search, and the estimated cycles of its first plan. Without a plan these are 0."""
    best: TiledSchedule | None = None
    before = None
    estimate, enough = 0, 0.0
    for share in SHARES:
        if best is not None and best.cycles <= enough and not is_medium:
            break
        plan = search.plan(int(budget * share))
        if plan is None or plan == before:
            continue
        before, estimate = plan, estimate or plan.cycles
        enough = max(enough, plan.cycles * ENOUGH) if share == SHARES[0] else enough
        found = _scheduled(plan, search.streams.storages, target, budget, limit if best is None else best.cycles)
        if found is not None:
            best = found
    return best, estimate


def _search(given: CallList, target: Target, size: int, kept: list[TileSearch]) -> TileSearch:
    """Return the search in ``kept`` for the calls as a memory of ``size`` bytes divides them. A new search is added to ``kept``."""
    divided = in_groups(given.calls, given.storages, target, size)
    for each in kept:
        if each.streams.calls == divided:
            return each
    cuts = given.cuts if divided == given.calls else frozenset()
    kept.append(TileSearch(Streams(divided, given.storages, target), cuts))
    return kept[-1]


def _scheduled(plan: TilePlan, storages: Storages, target: Target, budget: int, limit: int) -> TiledSchedule | None:
    """Return the schedule of a plan with its constants; None where it does not fit, or takes ``limit`` cycles or more."""
    schedule, made = schedule_of(plan, storages)
    best: TiledSchedule | None = None
    for each in dict.fromkeys((overlapped(schedule, made).steps, schedule.steps)):
        found = _with_constants(replace(schedule, steps=each), made, target, budget, limit)
        if found is not None:
            best, limit = found, found.cycles
    return best


def _with_constants(
    schedule: Schedule, made: Storages, target: Target, budget: int, limit: int
) -> TiledSchedule | None:
    search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER), made, target)
    if search.smallest().size_bytes > budget:
        # The gaps between the tensors are too small for constants, which therefore get addresses together with the tensors.
        reserved = [_least(each, schedule, made) for each in search.uses]
        search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER, EXACT_WORK / 8, reserved), made, target)
    if search.arena_bytes > budget:
        return None
    trial = fastest_within(search, budget, limit)
    if trial is None:
        return None
    schedule, layout = PrefetchPlan(search, trial, budget).laid_out(CALLER)
    moved = sum(call.views["output"].distinct_bytes for call in schedule.calls if call.is_transfer)
    return TiledSchedule(schedule, layout, made, trial.cycles, moved)


def _least(use: ConstantUse, schedule: Schedule, made: Storages) -> Item:
    """Return a buffer for the constants of a call, or for those of its smallest piece."""
    size = Cuttable(schedule.calls[use.call], made).piece_bytes(1) if use.blocks > 1 else use.size
    return Item(f"constants of call {use.call}", size, use.first, use.last)


def schedule_of(plan: TilePlan, storages: Storages) -> tuple[Schedule, Storages]:
    """Return the schedule of a plan, without constants, and the storages with those in the memory of the NPU."""
    calls: list[KernelCall] = []
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    own = {
        name: replace(each, external=True) if name in plan.external and each.is_scratch else each
        for name, each in storages.storages.items()
    }
    of = dict(storages.of)
    for index, (_, _, _, part) in enumerate(plan.parts):
        named = {name: f"{name} {index}" for name in part.streamed.copies}
        for name, storage in part.streamed.copies.items():
            own[named[name]] = replace(storage, name=named[name])
            of[named[name]] = named[name]
        steps += _steps(part, named, calls)
        rings |= {named.get(name, name): rows for name, rows in part.stripes.rings.items()}
        overlaps |= {
            (named.get(one, one), named.get(other, other)): by for (one, other), by in part.stripes.overlaps.items()
        }
    schedule = Schedule(tuple(calls), tuple(steps), rings, 0, overlaps, is_tiled=True)
    return schedule, Storages(own, of)


def _steps(part: Tiled, named: dict[str, str], calls: list[KernelCall]) -> list[Step]:
    """Append the calls of a segment and return its steps."""
    streamed = part.streamed

    def number(call: KernelCall) -> int:
        views = {name: _renamed(view, named) for name, view in call.views.items()}
        calls.append(replace(call, views=views))
        return len(calls) - 1

    before = [number(call) for call in streamed.before]
    # A window may read padding alone; then nothing of its tensor is loaded.
    numbers = {position: number(call.call) for position, call in enumerate(streamed.calls) if part.done[position][-1]}
    behind = [number(call) for call in streamed.behind]
    return steps_of(part, numbers, before, behind)


def _renamed(view: View, named: dict[str, str]) -> View:
    return replace(view, tensor=named[view.tensor]) if view.tensor in named else view
