# SPDX-License-Identifier: BSD-3-Clause
"""Make schedules with addresses and prefetch from the plans of a search. Between segments, copies can run in parallel to kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.place.place import EXACT_WORK, Item, Layout, lay_out
from openneutron.compiler.place.prefetch import ENDLESS, ConstantUse, PrefetchPlan, PrefetchSearch, fastest_within
from openneutron.compiler.schedule.schedule import Cuttable, Loop, Schedule, Step, Wait, calls_in
from openneutron.compiler.search.tiles.search import TilePlan, TileSearch
from openneutron.compiler.search.tiles.streams import LOADS, STORES, Tiled, steps_of
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.options import CALLER
from openneutron.targets import Target


def overlapped(schedule: Schedule, storages: Storages) -> Schedule:
    """Return the schedule with loads earlier and waits for stores later, across at most ``furthest_steps`` steps.

    A segment ends with stores that no kernel hides, and the next segment begins with loads that its first kernel waits for. The first loads
    of a segment move before the last kernels of the segment before. The wait for the last stores of a segment moves after the first
    kernels of the next one. Example, where k is the last kernel of a segment and l the first kernel of the next segment::

        before   k  store  wait for stores  load  wait for loads  l
        after    load  k  store  wait for loads  l  wait for stores

    A load stays after the wait for the store of its tensor, and after the last wait for loads, which would wait for this load too. Buffers
    are live for longer; the placement computes their live ranges from the new steps.
    """
    steps = [*schedule.steps]
    border = _Border(schedule.calls, storages)
    for index in range(len(steps)):
        if border.is_load(steps[index]):
            place = border.earliest(steps, index)
            steps.insert(place, steps.pop(index))
    for index in range(len(steps) - 1, -1, -1):
        if steps[index] == Wait(STORES):
            place = border.latest(steps, index)
            if place > index:
                steps.insert(place - 1, steps.pop(index))
    return replace(schedule, steps=tuple(steps))


class _Border:
    """The tensors that steps load and store."""

    def __init__(self, calls: Sequence[KernelCall], storages: Storages) -> None:
        self._calls, self._of = calls, storages.of

    def is_load(self, step: Step) -> bool:
        """Return whether a step is a load outside a loop."""
        return not isinstance(step, Loop) and self._moves(step, LOADS)

    def earliest(self, steps: Sequence[Step], index: int) -> int:
        """Return the first place that the load at ``index`` may move to.

        The load stays after loops, other loads, waits for loads, and steps that write its tensor or wait for a store of it.
        """
        (load,) = calls_in(steps[index])
        tensor, place = self._of[self._calls[load].views["input"].tensor], index
        for at in range(index - 1, max(-1, index - 1 - TUNING.furthest_steps), -1):
            step = steps[at]
            if isinstance(step, Loop) or step == Wait(LOADS) or self._writes(step, tensor) or self._moves(step, LOADS):
                break
            if step == Wait(STORES) and self._is_stored(steps, at, tensor):
                break
            place = at
        return place

    def latest(self, steps: Sequence[Step], index: int) -> int:
        """Return the place of the first step that must stay after the wait for stores at ``index``."""
        stored = self._stored(steps, index)
        for at in range(index + 1, min(len(steps), index + 1 + TUNING.furthest_steps)):
            step = steps[at]
            reads = {
                self._of[self._calls[call].views["input"].tensor]
                for call in calls_in(step)
                if self._calls[call].is_transfer
            }
            if isinstance(step, Loop) or step == Wait(STORES) or self._moves(step, STORES) or reads & stored:
                return at
        return min(len(steps), index + 1 + TUNING.furthest_steps)

    def _moves(self, step: Step, channel: int) -> bool:
        return any(
            self._calls[call].is_transfer and self._calls[call].params["channel"] == channel for call in calls_in(step)
        )

    def _writes(self, step: Step, tensor: str) -> bool:
        return any(self._of[self._calls[call].views["output"].tensor] == tensor for call in calls_in(step))

    def _stored(self, steps: Sequence[Step], wait: int) -> set[str]:
        """Return the tensors that are stored between the last wait for stores before ``wait`` and ``wait``."""
        found: set[str] = set()
        for step in reversed(steps[:wait]):
            if step == Wait(STORES):
                break
            found |= {
                self._of[self._calls[call].views["output"].tensor]
                for call in calls_in(step)
                if self._moves(step, STORES)
            }
        return found

    def _is_stored(self, steps: Sequence[Step], wait: int, tensor: str) -> bool:
        return tensor in self._stored(steps, wait)


@dataclass(frozen=True, slots=True)
class TiledSchedule:
    """A schedule in tiles with addresses.

    ``cycles`` are modelled, with copies in parallel to kernels. ``moved_bytes`` is the sum of the bytes of all tiles that are copied.
    """

    schedule: Schedule
    layout: Layout
    storages: Storages
    cycles: int
    moved_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Unplaced:
    """A schedule without addresses, and its storages."""

    schedule: Schedule
    storages: Storages

    def placed(self, target: Target, budget: int, limit: int, work: float) -> TiledSchedule | None:
        """Return the schedule with addresses and prefetch; None if it exceeds ``budget`` bytes or takes ``limit`` cycles or more."""
        return _with_constants(self.schedule, self.storages, target, budget, limit, work)


def fastest_plan(
    search: TileSearch,
    target: Target,
    budget: int,
    limit: int,
    is_medium: bool,
    is_any: bool = False,
    is_again: bool = False,
) -> tuple[TiledSchedule | None, int]:
    """Return the fastest schedule of one search, and the estimated cycles of its first plan.

    The schedule is None if none fits ``budget`` bytes in fewer than ``limit`` cycles. The estimate is 0 without a plan. With ``is_medium``,
    all plans are compared. With ``is_any``, the first schedule that is found is returned. ``is_again`` means that the calls are divided
    again, and that the search ends as ``hidden_constants_ratio`` states. First fit gives each schedule its addresses. The exact search,
    which takes longer, then places the fastest ``refined`` schedules again, or all if first fit places none and there is no ``limit``.
    """
    best: TiledSchedule | None = None
    tried: list[tuple[_Unplaced, TiledSchedule | None]] = []
    before = None
    estimate, enough, is_enough = 0, 0.0, False
    for share in TUNING.segment_shares:
        if (is_any and best is not None) or (is_enough and not is_medium):
            break
        plan = search.plan(int(budget * share))
        if plan is None or plan == before:
            continue
        before, estimate = plan, estimate or plan.cycles
        if is_again and plan.cycles * TUNING.hidden_constants_ratio >= (limit if best is None else best.cycles):
            break
        enough = max(enough, plan.cycles * TUNING.enough_ratio) if share == TUNING.segment_shares[0] else enough
        for unplaced in _schedules(plan, search.streams.storages):
            below = min(limit, limit if best is None else best.cycles)
            found = unplaced.placed(target, budget, int(below * TUNING.near_ratio), 0)
            tried.append((unplaced, found))
            is_enough |= found is not None and found.cycles <= enough
            best = found if found is not None and found.cycles < below else best
    if is_any and best is not None:
        return best, estimate
    refined = [unplaced for unplaced, _ in tried] if best is None and limit >= ENDLESS else _refined(tried)
    for unplaced in refined:
        found = unplaced.placed(target, budget, limit if best is None else best.cycles, EXACT_WORK)
        best = found or best
    return best, estimate


def _refined(tried: Sequence[tuple[_Unplaced, TiledSchedule | None]]) -> list[_Unplaced]:
    """Return the ``refined`` fastest of the schedules that first fit gave addresses, as schedules without addresses."""
    found = sorted((one.cycles, number) for number, (_, one) in enumerate(tried) if one is not None)
    return [tried[number][0] for _, number in found[: TUNING.refined]]


def _schedules(plan: TilePlan, storages: Storages) -> list[_Unplaced]:
    """Return the schedules of a plan: the one of ``overlapped``, and the one of ``schedule_of`` if it is different."""
    schedule, made = schedule_of(plan, storages)
    steps = dict.fromkeys((overlapped(schedule, made).steps, schedule.steps))
    return [_Unplaced(replace(schedule, steps=each), made) for each in steps]


def _with_constants(
    schedule: Schedule, made: Storages, target: Target, budget: int, limit: int, work: float
) -> TiledSchedule | None:
    search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER, work), made, target)
    if search.smallest().size_bytes > budget:
        # The gaps between the tensors are too small for the constants: the placement reserves space for these.
        reserved = [_least(each, schedule, made) for each in search.uses]
        search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER, work / 8, reserved), made, target)
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
    """Return the schedule of a plan, without prefetch, and the storages, with a storage for each copy in the memory of the NPU."""
    calls: list[KernelCall] = []
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    own = {
        name: replace(each, external=True) if name in plan.external and each.is_scratch else each
        for name, each in storages.storages.items()
    }
    of = dict(storages.of)
    for index, (_, _, _, chosen) in enumerate(plan.parts):
        part = chosen.tiled()
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
    """Append the calls of a segment to ``calls`` and return its steps."""
    streamed = part.streamed

    def number(call: KernelCall) -> int:
        views = {name: _renamed(view, named) for name, view in call.views.items()}
        calls.append(replace(call, views=views))
        return len(calls) - 1

    before = [number(call) for call in streamed.before]
    # A call may read only padding. Then no row of its tensor is loaded.
    numbers = {position: number(call.call) for position, call in enumerate(streamed.calls) if part.done[position][-1]}
    behind = [number(call) for call in streamed.behind]
    return steps_of(part, numbers, before, behind)


def _renamed(view: View, named: dict[str, str]) -> View:
    return replace(view, tensor=named[view.tensor]) if view.tensor in named else view
