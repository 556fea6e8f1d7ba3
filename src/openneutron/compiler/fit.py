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
from openneutron.compiler.variants import for_cascades, for_whole_tensors, of_one_order
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
    own = in_place(storages, calls)
    merged = fit_merged(_orders(calls, own, wanted), storages, wanted)
    if merged is not None and merged.sram_bytes <= room:
        return merged
    found = fit_plain(calls, own, wanted, room)
    if merged is not None and isinstance(found, TooLittle):
        return TooLittle(min(found.least_bytes, merged.sram_bytes))
    return found


def fit_plain(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, room: int) -> Fitted | TooLittle:
    """``fit`` with each convolution in one piece, as cascades take it: every stripe of a piece is a call more."""
    wholes = [_every_call_whole(order, storages, wanted) for order in _orders(calls, storages, wanted)]
    if wanted.fetch_constants:
        return _with_copies(wholes, wanted, room)
    (whole,) = wholes
    if whole.sram_bytes <= room:
        return whole
    best: Fitted | None = None
    cycles = 0
    found = options_of(calls, storages, wanted)
    for options in found:
        chosen = options.fastest(room)
        if chosen is not None and (best is None or chosen.cycles < cycles):
            best, cycles = Fitted(chosen.schedule, chosen.layout, chosen.storages), chosen.cycles
    return best or TooLittle(min(options.least_bytes() for options in found))


def options_of(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> list[Options]:
    """The cascades of every variant of the calls; ``storages`` are those of ``in_place``."""
    return [
        Options(variant.calls, variant.storages, wanted.target, wanted.io, effort=wanted.effort)
        for variant in for_cascades(calls, storages, wanted.io)
    ]


def fit_merged(orders: Sequence[Sequence[KernelCall]], storages: Storages, wanted: Wanted) -> Fitted | None:
    """Whole tensors with convolutions in the pieces of ``merge_columns``; None where nothing is faster so.

    ``orders`` are those of the calls that whole tensors are computed in, ``storages`` those before ``in_place``.
    """
    merged = [merge_columns(calls, wanted.target) for calls in orders]
    if merged[0] == list(orders[0]):
        return None
    wholes = [_every_call_whole(calls, in_place(storages, calls), wanted) for calls in merged]
    if not wanted.fetch_constants:
        return wholes[0]
    # Pieces fetch their constants one by one: what computing gains, copying may lose.
    good, whole = _good_plan(wholes, wanted)
    plain, _ = _good_plan([_every_call_whole(calls, in_place(storages, calls), wanted) for calls in orders], wanted)
    return _laid_out(good, whole, wanted.io) if good.cycles <= plain.cycles else None


def _orders(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> list[tuple[KernelCall, ...]]:
    """The orders for whole tensors: that of the smallest arena, and, since it matters what is computed while constants come, the
    given one beside it. ``storages`` are those of ``in_place``."""
    ordered, given = for_whole_tensors(calls, storages, wanted.io), tuple(calls)
    return [ordered, given] if wanted.fetch_constants and ordered != given else [ordered]


def _every_call_whole(calls: Sequence[KernelCall], storages: Storages, wanted: Wanted) -> Fitted:
    """Every call whole, without copies; ``storages`` are those of ``in_place``."""
    schedule = whole_schedule(calls)
    return Fitted(schedule, lay_out(schedule, storages, wanted.io), storages)


def _good_plan(wholes: Sequence[Fitted], wanted: Wanted) -> tuple[Plan, Fitted]:
    """What is chosen where there is room for everything, and the order it is in."""
    found = []
    for whole in wholes:
        plans = prefetch_plans(whole.schedule, whole.storages, wanted.target)
        good = choose_plan(plans, plans[-1].size_bytes)
        assert good is not None
        found.append((good, whole))
    return min(found, key=lambda choice: (choice[0].cycles, choice[0].size_bytes + choice[1].layout.scratch_bytes))


def _with_copies(wholes: Sequence[Fitted], wanted: Wanted, room: int) -> Fitted | TooLittle:
    """``wholes`` are whole tensors in several orders."""
    good, whole = _good_plan(wholes, wanted)
    if whole.layout.scratch_bytes + good.size_bytes <= room:
        return _laid_out(good, whole, wanted.io)
    found: list[tuple[Plan, Fitted]] = []
    for option in (option for each in wholes for option in (each, *_cascades(each, wanted))):
        found += [(plan, option) for plan in prefetch_plans(option.schedule, option.storages, wanted.target)]
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
    """In the order of ``whole``."""
    calls, storages = whole.schedule.calls, whole.storages
    largest = max((fetched_bytes(call, storages) for call in calls), default=0)
    for variant in of_one_order(calls, storages):
        for times in wanted.effort.constants:
            options = Options(variant.calls, variant.storages, wanted.target, wanted.io, largest * times, wanted.effort)
            for option in options.levels(wanted.effort.levels):
                yield Fitted(option.schedule, option.layout, option.storages)


def _laid_out(plan: Plan, without: Fitted, io: str) -> Fitted:
    """A plan at the addresses that were reckoned with: its copies are steps of their own, which moves the others."""
    storages = without.storages
    return Fitted(plan.schedule, with_steps_of(without.layout, plan.schedule, storages, io), storages)
