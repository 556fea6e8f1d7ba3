# SPDX-License-Identifier: BSD-3-Clause
"""The schedule for a budget: whole tensors where they fit, otherwise cascades; with copies of constants where asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openneutron.compiler.calls import KernelCall
from openneutron.compiler.cascade import Options, in_place
from openneutron.compiler.effort import DEFAULT, Effort
from openneutron.compiler.layout import Layout, lay_out, with_steps_of
from openneutron.compiler.merge_columns import merge_columns
from openneutron.compiler.prefetch import Plan, choose_plan, prefetch_plans
from openneutron.compiler.schedule import Schedule, fetched_bytes, whole_schedule
from openneutron.compiler.storage import Storages
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Fitted:
    """A schedule with addresses; ``sram_bytes`` is what its arena and its prefetch buffer take."""

    schedule: Schedule
    layout: Layout
    storages: Storages

    @property
    def sram_bytes(self) -> int:
        return self.layout.scratch_bytes + self.schedule.prefetch_bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What schedules are for. ``io`` is where inputs and outputs lie (layout.IO_PLACES)."""

    target: Target
    io: str
    fetch_constants: bool = False
    effort: Effort = DEFAULT


@dataclass(frozen=True, slots=True)
class TooLittle:
    """Nothing fits; ``least_bytes`` would do."""

    least_bytes: int


def fit(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    """The fastest schedule that is known to take at most ``room`` bytes of SRAM, inputs and outputs of the caller's aside.

    More room never makes it slower: by modelled cycles, with copies by those of a port that copies in the background.
    ``storages`` are those before ``in_place``.
    """
    merged = fit_merged(calls, storages, wanted)
    if merged is not None and merged.sram_bytes <= room:
        return merged
    found = fit_plain(calls, in_place(storages, calls), wanted, room)
    if merged is not None and isinstance(found, TooLittle):
        return TooLittle(min(found.least_bytes, merged.sram_bytes))
    return found


def fit_plain(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    """``fit`` with each convolution in one piece, as cascades take it: every stripe of a piece is a call more."""
    whole = whole_schedule(calls)
    layout = lay_out(whole, storages, wanted.io)
    if wanted.fetch_constants:
        return _with_copies(Fitted(whole, layout, storages), wanted, room)
    if layout.scratch_bytes <= room:
        return Fitted(whole, layout, storages)
    options = Options(calls, storages, wanted.target, wanted.io, effort=wanted.effort)
    chosen = options.fastest(room)
    return TooLittle(options.least_bytes()) if chosen is None else Fitted(chosen.schedule, chosen.layout, storages)


def fit_merged(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> Fitted | None:
    """Whole tensors with convolutions in the pieces of ``merge_columns``; None where nothing is faster so."""
    merged = merge_columns(calls, wanted.target)
    if merged == list(calls):
        return None
    whole = _whole(merged, storages, wanted)
    if not wanted.fetch_constants:
        return whole
    # Pieces fetch their constants one by one: what computing gains, copying may lose.
    good, plain = (
        _good_plan(prefetch_plans(each.schedule, each.storages, wanted.target))
        for each in (whole, _whole(calls, storages, wanted))
    )
    return _laid_out(good, whole, wanted.io) if good.cycles <= plain.cycles else None


def _whole(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> Fitted:
    """Every call whole, without copies; ``storages`` are those before ``in_place``."""
    own, schedule = in_place(storages, calls), whole_schedule(calls)
    return Fitted(schedule, lay_out(schedule, own, wanted.io), own)


def _good_plan(plans: Sequence[Plan]) -> Plan:
    """What is chosen where there is room for all of them."""
    good = choose_plan(plans, plans[-1].size_bytes)
    assert good is not None
    return good


def _with_copies(whole: Fitted, wanted: Wanted, room: int) -> Fitted | TooLittle:
    plans = prefetch_plans(whole.schedule, whole.storages, wanted.target)
    good = _good_plan(plans)
    if whole.layout.scratch_bytes + good.size_bytes <= room:
        return _laid_out(good, whole, wanted.io)
    found = [(plan, whole) for plan in plans]
    for option in _cascades(whole, wanted):
        found += [(plan, option) for plan in prefetch_plans(option.schedule, whole.storages, wanted.target)]
    # What would be nearly as good as whole tensors and enough room is left to them, so that more room is never slower.
    slower = [
        (plan.cycles, option.layout.scratch_bytes + plan.size_bytes, plan, option)
        for plan, option in found
        if plan.cycles >= good.cycles
    ]
    fitting = [choice for choice in slower if choice[1] <= room]
    if not fitting:
        return TooLittle(min(size for _, size, *_ in slower))
    _, _, plan, option = min(fitting, key=lambda choice: choice[:2])
    return _laid_out(plan, option, wanted.io)


def _cascades(whole: Fitted, wanted: Wanted) -> Iterator[Fitted]:
    calls, storages = whole.schedule.calls, whole.storages
    largest = max((fetched_bytes(call, storages) for call in calls), default=0)
    for times in wanted.effort.constants:
        options = Options(calls, storages, wanted.target, wanted.io, largest * times, wanted.effort)
        yield from (Fitted(option.schedule, option.layout, storages) for option in options.levels(wanted.effort.levels))


def _laid_out(plan: Plan, without: Fitted, io: str) -> Fitted:
    """A plan at the addresses that were reckoned with: its copies are steps of their own, which moves the others."""
    storages = without.storages
    return Fitted(plan.schedule, with_steps_of(without.layout, plan.schedule, storages, io), storages)
