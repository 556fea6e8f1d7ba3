# SPDX-License-Identifier: BSD-3-Clause
"""Orders of kernel calls: which branch first, so that fewer bytes are live.

Any order in which each call comes after those whose results it reads computes the same. What is live between two calls follows from
which calls are done, however they were ordered; so the best order is a shortest path over sets of calls that are done (dynamic
programming, as in SERENITY, arXiv 2003.02369). A set keeps its best order alone. Sets that go above what is known to do are
dropped; where more are left than the limit allows, the best of each size go on, and the result may be above the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storage, Storages
from openneutron.isa import aligned
from openneutron.options import CALLER

STEPS = 1 << 16
"""Steps from a set to a larger one that are looked at, about: an even share for each size of sets, at least those from the best."""

MOST_CALLS = 512
"""Above so many calls the order stays as it is. A split of one tensor into a thousand is that many calls."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Calls as bits: ``before`` are those that must be done for each of them, ``touched`` the storages each needs.

    ``users`` are all calls that touch a storage; an output has one more that is never done. ``from_start``: inputs are live before the
    first call.
    """

    before: tuple[int, ...]
    touched: tuple[tuple[int, ...], ...]
    users: tuple[int, ...]
    sizes: tuple[int, ...]
    from_start: tuple[bool, ...]

    @property
    def at_start(self) -> int:
        """Bytes live before the first call."""
        return sum(size for size, there in zip(self.sizes, self.from_start, strict=True) if there)

    def step(self, done: int, call: int, live: int) -> tuple[int, int]:
        """Bytes live while a call runs, and after it; ``live`` are those before it."""
        after = done | 1 << call
        most = live
        for place in self.touched[call]:
            if not self.from_start[place] and not self.users[place] & done:
                most += self.sizes[place]
        left = most
        for place in self.touched[call]:
            if not self.users[place] & ~after:
                left -= self.sizes[place]
        return most, left

    def least_bytes(self) -> int:
        """What no order stays below: what a call touches, and what comes from before it and is used behind it in any order."""
        ahead, behind = list(self.before), [0] * len(self.before)
        for number, needed in enumerate(self.before):
            for earlier in bits(needed):
                ahead[number] |= ahead[earlier]
        for number, needed in enumerate(ahead):
            for earlier in bits(needed):
                behind[earlier] |= 1 << number
        never = 1 << len(self.before)
        most = 0
        for number in range(len(self.before)):
            here = 0
            for size, users, there in zip(self.sizes, self.users, self.from_start, strict=True):
                kept = (there or users & ahead[number]) and users & (behind[number] | never)
                if kept or users >> number & 1:
                    here += size
            most = max(most, here)
        return most

    def peak_bytes(self, order: Sequence[int]) -> int:
        """The most bytes live while a call runs."""
        live, done, most = self.at_start, 0, 0
        for call in order:
            here, live = self.step(done, call, live)
            most, done = max(most, here), done | 1 << call
        return most


def flow_of(calls: Sequence[KernelCall], storages: Storages, io: str) -> Flow:
    """What the calls need of each other: a reader comes after those who wrote before it, a writer after those who read."""
    places: dict[str, int] = {}
    users: list[int] = []
    sizes: list[int] = []
    from_start: list[bool] = []
    writers: dict[int, int] = {}
    readers: dict[int, int] = {}
    before, touched = [], []
    for number, call in enumerate(calls):
        needed, used = 0, []
        own: list[tuple[dict[int, int], int]] = []
        for field, view in call.views.items():
            storage = storages[view.tensor]
            if storage.constant is not None:
                continue
            place = places.setdefault(storage.name, len(places))
            if place == len(users):
                users.append(1 << len(calls) if storage.output is not None else 0)
                sizes.append(_arena_bytes(storage, io))
                from_start.append(storage.input is not None)
            needed |= (readers if field == "output" else writers).get(place, 0)
            own.append((writers if field == "output" else readers, place))
            used.append(place)
            users[place] |= 1 << number
        for side, place in own:
            side[place] = side.get(place, 0) | 1 << number
        before.append(needed)
        touched.append(tuple(dict.fromkeys(used)))
    return Flow(tuple(before), tuple(touched), tuple(users), tuple(sizes), tuple(from_start))


def _arena_bytes(storage: Storage, io: str) -> int:
    if io == CALLER and (storage.input is not None or storage.output is not None):
        return 0
    return max(aligned(storage.size_bytes), aligned(1))


def stays(flow: Flow) -> bool:
    """Whether there is nothing to choose, since each call needs the one in front of it, or too much."""
    return len(flow.before) > MOST_CALLS or all(
        needed >> number - 1 & 1 for number, needed in enumerate(flow.before) if number
    )


def order_of_least_peak(flow: Flow) -> tuple[int, ...]:
    """The order with the fewest bytes live at once, the given one where none has fewer."""
    given = tuple(range(len(flow.before)))
    peak = flow.peak_bytes(given)
    if peak == flow.least_bytes():
        return given
    return _search(flow, peak - 1, by_peak=True) or given


def order_of_least_sum(flow: Flow, peak_bytes: int) -> tuple[int, ...] | None:
    """Of the orders with at most ``peak_bytes`` live one with the fewest bytes live over all steps: it goes through one branch
    after the other, as cascades like it. None where none was found."""
    return _search(flow, peak_bytes, by_peak=False)


_Key = tuple[int, ...]
"""What is least: (peak, sum) or (sum,) of the bytes live."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A set of calls that are done, in its best order: ``last`` of them after those of ``earlier``. ``ready``: what can come next."""

    key: _Key
    live: int
    ready: int
    last: int
    earlier: _Done | None


def _search(flow: Flow, limit: int, by_peak: bool) -> tuple[int, ...] | None:
    """The best order of those that stay within ``limit`` bytes."""
    count = len(flow.before)
    share = STEPS // max(1, count)
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, needed in enumerate(flow.before):
        for earlier in bits(needed):
            followers[earlier].append(number)
    ready = sum(1 << number for number, needed in enumerate(flow.before) if not needed)
    level = {0: _Done((0, 0) if by_peak else (0,), flow.at_start, ready, -1, None)}
    for _ in range(count):
        following: dict[int, _Done] = {}
        for done, state in level.items():
            steps = [(call, *flow.step(done, call, state.live)) for call in bits(state.ready)]
            if by_peak:
                # What takes no more than before, neither now nor behind it, can come first whatever else does.
                free = (step for step in steps if step[1] <= state.key[0] and step[2] <= state.live)
                steps = [step for step in (next(free, None),) if step is not None] or steps
            for call, most, live in steps:
                if most > limit:
                    continue
                total = state.key[-1] + most
                key = (max(state.key[0], most), total) if by_peak else (total,)
                after = done | 1 << call
                known = following.get(after)
                if known is not None and known.key <= key:
                    continue
                if known is not None:
                    ready = known.ready
                else:
                    ready = state.ready & ~(1 << call)
                    for other in followers[call]:
                        if not flow.before[other] & ~after:
                            ready |= 1 << other
                following[after] = _Done(key, live, ready, call, state)
        if sum(state.ready.bit_count() for state in following.values()) > share:
            best = sorted(following.items(), key=lambda each: (each[1].key, each[1].live, each[0]))
            steps_left = [share - steps for steps in accumulate(state.ready.bit_count() for _, state in best)]
            following = dict(best[: max(1, sum(left >= 0 for left in steps_left))])
        level = following
    if not level:
        return None
    (last,) = level.values()
    order: list[int] = []
    while last.earlier is not None:
        order.append(last.last)
        last = last.earlier
    return tuple(reversed(order))


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set, ascending."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found
