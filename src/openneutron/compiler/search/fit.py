# SPDX-License-Identifier: BSD-3-Clause
"""The schedule for a budget: whole tensors where they fit and are as fast, otherwise cascades; with copies of constants where asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from openneutron.compiler.memory.layout import Layout, lay_out
from openneutron.compiler.memory.prefetch import ENDLESS, Copies
from openneutron.compiler.memory.prefetch_plans import Plan, fastest_plan, fetched_sizes, good_plan
from openneutron.compiler.schedule.in_place import in_place
from openneutron.compiler.schedule.merge_columns import merge_columns
from openneutron.compiler.schedule.schedule import Schedule, whole_schedule
from openneutron.compiler.schedule.timeline import durations, overlapped_cycles
from openneutron.compiler.schedule.unread import may_leave_out
from openneutron.compiler.search.cascade import Options
from openneutron.compiler.search.effort import DEFAULT, Effort
from openneutron.compiler.search.variants import Variant, for_cascades, for_whole_tensors, of_one_order
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Fitted:
    """A schedule with addresses; ``sram_bytes`` is what its arena and its prefetch buffer take."""

    schedule: Schedule
    layout: Layout
    storages: Storages

    @property
    def sram_bytes(self) -> int:
        """What a run takes beside the inputs and outputs that are the caller's."""
        return self.layout.scratch_bytes + self.schedule.prefetch_bytes

    def cycles(self, target: Target) -> int:
        """Modelled, with a port that copies in the background."""
        sizes = fetched_sizes(self.schedule, self.storages)
        return overlapped_cycles(self.schedule, sizes, durations(self.schedule, target), target)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What schedules are for. ``io`` is where inputs and outputs lie (options.IO_PLACES)."""

    target: Target
    io: str
    fetch_constants: bool = False
    effort: Effort = DEFAULT


@dataclass(frozen=True, slots=True)
class TooLittle:
    """No schedule fits. ``floor_bytes``: a lower bound of all schedules; ``least_below``: see ``least_bytes``."""

    floor_bytes: int
    least_below: Callable[[int], int]

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the sufficient bytes of SRAM, or ``below`` where that is smaller. The search may take as long as a
        compile."""
        return self.least_below(below) if self.floor_bytes < below else below


def fit(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    """The fastest schedule that is known to take at most ``room`` bytes of SRAM, inputs and outputs of the caller's aside.

    More room never makes it slower: by modelled cycles, with copies by those of a port that copies in the background.
    ``storages`` are those before ``in_place``.
    """
    if wanted.fetch_constants:
        return _with_copies(calls, storages, wanted, room)
    own = in_place(storages, calls)
    (order,) = _orders(calls, own, wanted)
    merged = fit_merged(order, storages, wanted)
    fits = merged is not None and merged.sram_bytes <= room
    if merged is not None and fits and not may_leave_out(order, own, wanted.target):
        return merged
    found = fit_plain(calls, own, wanted, room)
    if merged is None:
        return found
    if isinstance(found, TooLittle):
        size = merged.sram_bytes
        return (
            merged
            if fits
            else TooLittle(min(found.floor_bytes, size), lambda below: found.least_bytes(min(below, size)))
        )
    return merged if fits and merged.cycles(wanted.target) <= found.cycles(wanted.target) else found


def fit_plain(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    """``fit`` without copies, with each convolution in one piece, as cascades take it: every stripe of a piece is a call more."""
    (order,) = _orders(calls, storages, wanted)
    whole = _every_call_whole(order, storages, wanted)
    fits = whole.sram_bytes <= room
    if fits and not may_leave_out(order, storages, wanted.target):
        return whole
    best, cycles = (whole, whole.cycles(wanted.target)) if fits else (None, 0)
    found = options_of(calls, storages, wanted)
    for options in found:
        chosen = options.fastest(room)
        if chosen is not None and (best is None or chosen.cycles < cycles):
            best, cycles = Fitted(chosen.schedule, chosen.layout, chosen.storages), chosen.cycles
    return best or TooLittle(
        min(whole.sram_bytes, *(options.floor_bytes for options in found)),
        lambda below: _least_bytes(found, min(below, whole.sram_bytes)),
    )


def _least_bytes(options: Sequence[Options], below: int) -> int:
    """Return the smallest budget for which an option has a schedule, or ``below`` where that is smaller."""
    for each in sorted(options, key=lambda each: each.floor_bytes):
        if each.floor_bytes < below:
            below = min(below, each.least_bytes())
    return below


def options_of(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> list[Options]:
    """The cascades of every variant of the calls; ``storages`` are those of ``in_place``."""
    return [
        Options(variant.calls, variant.storages, wanted.target, wanted.io, False, wanted.effort, variant.cuts)
        for variant in for_cascades(calls, storages, wanted.io)
    ]


def fit_merged(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> Fitted | None:
    """Whole tensors with convolutions in the pieces of ``merge_columns``; None where nothing is faster so.

    ``calls`` are in the order that whole tensors are computed in, ``storages`` are those before ``in_place``.
    """
    merged = merge_columns(calls, wanted.target)
    return None if merged == list(calls) else _every_call_whole(merged, in_place(storages, merged), wanted)


def _orders(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> list[tuple[KernelCall, ...]]:
    """The orders for whole tensors: that of the smallest arena, and, since it matters what is computed while constants come, the
    given one beside it. ``storages`` are those of ``in_place``."""
    ordered, given = for_whole_tensors(calls, storages, wanted.io), tuple(calls)
    return [ordered, given] if wanted.fetch_constants and ordered != given else [ordered]


def _every_call_whole(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> Fitted:
    """Every call whole, without copies; ``storages`` are those of ``in_place``."""
    schedule = whole_schedule(calls)
    return Fitted(schedule, lay_out(schedule, storages, wanted.io), storages)


def _with_copies(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    good, schedules = to_fetch_for(calls, storages, wanted)
    # What would be faster than whole tensors and enough memory is left to them, so that more room is never slower.
    found = good if good.size_bytes <= room else fastest_plan(schedules, room, good.cycles)
    if isinstance(found, int):
        least = min(found, good.size_bytes)
        return TooLittle(least, lambda below: min(below, least))
    schedule, layout = found.laid_out(wanted.io)
    return Fitted(schedule, layout, found.copies.storages)


def to_fetch_for(
    calls: Sequence[KernelCall], storages: Storages, wanted: Wanted
) -> tuple[Plan, list[Iterable[Copies]]]:
    """Whole tensors with enough memory for copies, and the schedules that are tried where there is less: of each order of the
    calls those in less and less memory. ``storages`` are those before ``in_place``."""
    own = in_place(storages, calls)
    wholes, merged, cascades = [], [], []
    for order in _orders(calls, own, wanted):
        whole = _every_call_whole(order, own, wanted)
        wholes.append(_copies(whole, wanted))
        faster = fit_merged(order, storages, wanted)
        if faster is not None:
            merged.append(_copies(faster, wanted))
        cascades += [_cascades(variant, whole.schedule, wanted) for variant in of_one_order(order, own)]
    good = min(map(good_plan, wholes), key=_speed)
    if merged:
        # Pieces fetch their constants one by one: what computing gains, copying may lose.
        better = min(map(good_plan, merged), key=_speed)
        if better.cycles <= good.cycles:
            good = better
            wholes = [*merged, *wholes]
    return good, [*([whole] for whole in wholes), *cascades]


def _speed(plan: Plan) -> tuple[int, int]:
    return plan.cycles, plan.size_bytes


def _copies(fitted: Fitted, wanted: Wanted) -> Copies:
    return Copies(fitted.schedule, fitted.layout, fitted.storages, wanted.target)


def _cascades(variant: Variant, whole: Schedule, wanted: Wanted) -> Iterator[Copies]:
    """Cascades of these calls in less and less memory, from the fastest on; without what is ``whole``."""
    options = Options(variant.calls, variant.storages, wanted.target, wanted.io, True, wanted.effort, variant.cuts)
    before = whole.steps
    for option in options.levels(wanted.effort.levels):
        if option.schedule.steps != before:
            yield Copies(option.schedule, option.layout, option.storages, wanted.target)
        before = option.schedule.steps
