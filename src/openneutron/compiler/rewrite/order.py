# SPDX-License-Identifier: BSD-3-Clause
"""Put calls in the order in which the fewest bytes are live at once.

Any order in which each call comes after the calls whose results it reads computes the same. Example: a and b read x (1 KiB), a'
reads a (4 KiB), b' reads b (3 KiB), and c reads the results of a' and b' (1 KiB each). The bytes live during each call, in KiB::

    a  b  a' b' c       a  a' b  b' c
    5  8  8  5  3       5  6  5  5  3

The second order has a peak of 6 KiB instead of 8: it goes through one branch after the other. The six orders of the branches share
nine sets of calls that are done, among them {a, b} for both a b and b a. The bytes live after a set are the same for each order of
its calls, here a and b, 7 KiB. A set therefore keeps only its best order, and the best order of all calls is a shortest path over
sets (dynamic programming, as in SERENITY, arXiv 2003.02369). Sets above a known peak are dropped. Where more sets are left than
``STEPS`` allows, the best of each size are kept, and the result may be above the minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import KernelCall, Storage, Storages
from openneutron.isa import aligned
from openneutron.options import CALLER

STEPS = 1 << 16
"""The approximate number of transitions, from a set of calls to one with one more call, that a search may take. Each
size of sets gets an equal share; the best set of a size may take all of its transitions."""

MOST_CALLS = 512
"""The largest number of calls that are reordered; a longer list keeps its order. Lists get longer when tensors are
split, some into a thousand pieces."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The dependences between calls, for the search for an order. A set of calls is a bit mask.

    ``before`` has for each call the set of calls that must precede it, and ``touched`` the indices of the storages
    that it reads or writes. ``users`` has for each storage the set of calls that access it; a storage that is live
    after the run has one more user, which is never done. ``sizes`` has the bytes of each storage in the arena (0 for
    a storage outside the arena). ``from_start`` is True for a storage that is live before the first call, as inputs
    are.
    """

    before: tuple[int, ...]
    touched: tuple[tuple[int, ...], ...]
    users: tuple[int, ...]
    sizes: tuple[int, ...]
    from_start: tuple[bool, ...]

    @property
    def at_start(self) -> int:
        """Return the bytes live before the first call."""
        return sum(size for size, there in zip(self.sizes, self.from_start, strict=True) if there)

    def step(self, done: int, call: int, live: int) -> tuple[int, int]:
        """Return the bytes live during a call, and the bytes live after it. ``done`` is the set of calls before it, and
        ``live`` the bytes live after those."""
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
        """Return a lower bound of the peak of all orders, in bytes. During a call, at least two kinds of storages are
        live: those that the call accesses, and those that every order defines before it and uses after it."""
        ahead, behind = list(self.before), [0] * len(self.before)
        for number, needed in enumerate(self.before):
            for earlier in bits(needed):
                ahead[number] |= ahead[earlier]
        for number in reversed(range(len(self.before))):
            for earlier in bits(self.before[number]):
                behind[earlier] |= behind[number] | 1 << number
        everything = (1 << len(self.before)) - 1
        here = [0] * len(self.before)
        for size, users, there in zip(self.sizes, self.users, self.from_start, strict=True):
            defined = everything if there else 0
            # The extra user of an output comes after all calls.
            used = everything if users > everything else 0
            for user in bits(users & everything):
                defined, used = defined | behind[user], used | ahead[user]
            for number in bits(defined & used | users & everything):
                here[number] += size
        return max(here, default=0)

    def peak_bytes(self, order: Sequence[int]) -> int:
        """Return the largest number of bytes that are live during a call of this order."""
        live, done, most = self.at_start, 0, 0
        for call in order:
            here, live = self.step(done, call, live)
            most, done = max(most, here), done | 1 << call
        return most


def flow_of(calls: Sequence[KernelCall], storages: Storages, io: str) -> Flow:
    """Return the dependences between calls: a reader of a storage comes after its earlier writers, a writer after
    its earlier readers."""
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
                users.append(1 << len(calls) if storage.is_kept else 0)
                sizes.append(_arena_bytes(storage, io))
                from_start.append(storage.is_given)
            if call.writes(field):
                needed |= readers.get(place, 0)
                own.append((writers, place))
            if call.reads(field):
                needed |= writers.get(place, 0)
                own.append((readers, place))
            used.append(place)
            users[place] |= 1 << number
        for side, place in own:
            side[place] = side.get(place, 0) | 1 << number
        before.append(needed)
        touched.append(tuple(dict.fromkeys(used)))
    return Flow(tuple(before), tuple(touched), tuple(users), tuple(sizes), tuple(from_start))


def _arena_bytes(storage: Storage, io: str) -> int:
    if storage.is_outside(io == CALLER):
        return 0
    return max(aligned(storage.size_bytes), aligned(1))


def stays(flow: Flow) -> bool:
    """Return whether the given order is kept: because it is the only one (each call needs the one before it), or
    because there are more than MOST_CALLS calls."""
    return len(flow.before) > MOST_CALLS or all(
        needed >> number - 1 & 1 for number, needed in enumerate(flow.before) if number
    )


def order_of_least_peak(flow: Flow) -> tuple[int, ...]:
    """Return the order with the smallest peak of live bytes that the search finds; the given order if it has no
    larger peak."""
    given = tuple(range(len(flow.before)))
    peak = flow.peak_bytes(given)
    if peak == flow.least_bytes():
        return given
    return _search(flow, peak - 1, by_peak=True) or given


def order_of_least_sum(flow: Flow, peak_bytes: int) -> tuple[int, ...] | None:
    """Return an order with a peak of at most ``peak_bytes``, in which the sum of live bytes over all calls is the
    smallest that the search finds. Return None if it finds no such order.

    An order with a small sum computes one branch after the other, which suits cascades.
    """
    return _search(flow, peak_bytes, by_peak=False)


def order_by_depth(flow: Flow) -> tuple[int, ...]:
    """Return an order that computes one branch after the other, the longest first. The depth of a call is the length
    of the longest path of calls that leads to it. The deepest call comes first, preceded by all calls that it needs,
    then the deepest one that is left. Of the calls that one call needs, the deepest comes first.

    Short branches of a long network, such as the features that a segmentation head joins at the end, are then
    computed last.
    """
    depth: list[int] = []
    for needed in flow.before:
        depth.append(1 + max((depth[earlier] for earlier in bits(needed)), default=0))
    order: list[int] = []
    done = 0
    last_first = sorted(range(len(depth)), key=lambda number: (-depth[number], number))
    stack = list(reversed(last_first))
    while stack:
        number = stack[-1]
        missing = flow.before[number] & ~done
        if done >> number & 1:
            stack.pop()
        elif missing:
            stack += sorted(bits(missing), key=lambda earlier: (depth[earlier], -earlier))
        else:
            stack.pop()
            order.append(number)
            done |= 1 << number
    return tuple(order)


_Key = tuple[int, ...]
"""The quantity that the search minimizes: (peak, sum) or (sum,) of the live bytes."""


@dataclass(frozen=True, slots=True)
class _Done:
    """A set of calls that are done, and the best order found for it: that of the set ``earlier``, followed by the
    call ``last``.

    ``live`` are the bytes live after these calls, and ``ready`` is the set of calls that can come next.
    """

    key: _Key
    live: int
    ready: int
    last: int
    earlier: _Done | None

    def order(self) -> tuple[int, ...]:
        calls: list[int] = []
        at = self
        while at.earlier is not None:
            calls.append(at.last)
            at = at.earlier
        return tuple(reversed(calls))


def _search(flow: Flow, limit: int, by_peak: bool) -> tuple[int, ...] | None:
    """Return the best order with at most ``limit`` live bytes, or None if the search finds none. With ``by_peak``,
    the best order has the smallest peak, and among equal peaks the smallest sum of live bytes over all calls;
    otherwise it has the smallest sum.

    A level holds sets of the same number of calls, each with its best order. The next level has the sets with one
    more call.
    """
    count = len(flow.before)
    followers: list[list[int]] = [[] for _ in range(count)]
    for number, needed in enumerate(flow.before):
        for earlier in bits(needed):
            followers[earlier].append(number)
    ready = sum(1 << number for number, needed in enumerate(flow.before) if not needed)
    level = {0: _Done((0, 0) if by_peak else (0,), flow.at_start, ready, -1, None)}
    for _ in range(count):
        following: dict[int, _Done] = {}
        for done, state in level.items():
            for call, most, live in _steps(flow, done, state, by_peak):
                if most > limit:
                    continue
                total = state.key[-1] + most
                key = (max(state.key[0], most), total) if by_peak else (total,)
                after = done | 1 << call
                known = following.get(after)
                if known is None:
                    ready = _ready(flow, after, state.ready & ~(1 << call), followers[call])
                    following[after] = _Done(key, live, ready, call, state)
                elif key < known.key:
                    following[after] = _Done(key, live, known.ready, call, state)
        level = _thinned(following, STEPS // max(1, count))
    if not level:
        return None
    (last,) = level.values()
    return last.order()


def _steps(flow: Flow, done: int, state: _Done, by_peak: bool) -> list[tuple[int, int, int]]:
    """Return the calls that are tried next, each with the bytes live during it and after it.

    With ``by_peak``, a call that raises neither the peak nor the live bytes is the only one tried: an order that runs this
    call later has no smaller peak.
    """
    steps = [(call, *flow.step(done, call, state.live)) for call in bits(state.ready)]
    if by_peak:
        for step in steps:
            if step[1] <= state.key[0] and step[2] <= state.live:
                return [step]
    return steps


def _ready(flow: Flow, done: int, ready: int, followers: Sequence[int]) -> int:
    """Return the set ``ready``, extended by those of ``followers`` all of whose predecessors are in the set ``done``."""
    for other in followers:
        if not flow.before[other] & ~done:
            ready |= 1 << other
    return ready


def _thinned(level: dict[int, _Done], share: int) -> dict[int, _Done]:
    """Return the best sets of a level, at least one, and so many that going on from them takes about ``share``
    transitions."""
    if sum(state.ready.bit_count() for state in level.values()) <= share:
        return level
    best = sorted(level.items(), key=lambda each: (each[1].key, each[1].live, each[0]))
    steps = accumulate(state.ready.bit_count() for _, state in best)
    return dict(best[: max(1, sum(each <= share for each in steps))])


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set, ascending."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def reordered(edit: Edit, order: Sequence[int]) -> None:
    """Put the calls in another order."""
    edit.restate([edit.given.calls[number] for number in order])


def in_order_of_least_peak(edit: Edit) -> None:
    """Put the calls in the order of ``order_of_least_peak``."""
    flow = flow_of(edit.given.calls, edit.storages, edit.io)
    if stays(flow):
        edit.skip(Cause.TOO_MANY_CALLS if len(edit) > MOST_CALLS else Cause.UNCHANGED)
    else:
        reordered(edit, order_of_least_peak(flow))
