# SPDX-License-Identifier: BSD-3-Clause
"""A simulated run of a schedule whose constants are copied to SRAM while kernels compute: which copy starts when, and where.

Copies keep the order of their use, and one transfer runs at a time. Each copy starts at the earliest step from which on its
bytes are free until the last step that reads them. Example: three steps of 10 cycles each read the constants a, b and c of
2 KiB; a copy takes 6 cycles.

With 4 KiB free, only the copy of a takes time. The copy of b fits beside a, and c replaces a after step 0::

    cycle     0     6         16        26        36
    copies    aaaaaabbbbbb    cccccc
    steps           000000000011111111112222222222

With 2 KiB free, each copy waits for the step before, and nothing is hidden: the run takes 3 * (6 + 10) = 48 cycles.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CHANNELS = 16
"""The most copies under way at a time; the driver's NEUTRON_CHANNELS."""

CONSTANT_CHANNELS = 14
"""Constants have these channels where tensors are copied too; tensors have the last two."""

ORDERS = LOWEST, HIGHEST, NEXT = ("lowest", "highest", "next")
"""The address of a constant: the lowest free one, the highest free one, or the next free one behind the constant before it."""

Gap = tuple[int, int]
"""Free addresses: start and end."""


class Transfer(NamedTuple):
    """The copy of one constant: its bytes and cycles, and the first and the last step that read the constant."""

    size: int
    cycles: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CutSteps:
    """A schedule's steps, with some calls divided into pieces; each piece is a step.

    ``spent`` are the cycles of each step, ``moving`` those of them in which tiles of tensors are copied and constants wait,
    ``origins`` the step of the uncut schedule that each one is a piece of.
    """

    spent: Sequence[int]
    origins: Sequence[int]
    transfers: Sequence[Transfer]
    compute_cycles: int
    copy_cycles: int
    moving: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PrefetchTrial:
    """Copies that are feasible, and the run they give.

    ``counts`` are the pieces of the calls that are cut. ``copies`` are, in the order of use, the step in front of which each copy
    starts (pieces counted) and its address. ``cycles``: with a port that copies in the background; ``size_bytes``: the SRAM that
    tensors and constants take.
    """

    counts: Mapping[int, int]
    copies: Sequence[tuple[int, int]]
    cycles: int
    size_bytes: int


@dataclass(slots=True)
class Simulation:
    """One run in the making. ``free`` gives the addresses without tensors during the steps of the uncut schedule [first, last].

    ``held`` are the constants in SRAM by address: start, end, and the last step that reads them. ``ready`` gives, for each step
    that waits for copies, the cycle at which the last of these copies ends.
    """

    cut: CutSteps
    free: Callable[[int, int], Sequence[Gap]]
    capacity: int
    order: str
    channels: int = CHANNELS
    held: list[tuple[int, int, int]] = field(default_factory=list)
    ready: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """For each copy so far the step that waits for it."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    step: int = 0
    """The next step to compute."""
    now: int = 0
    copied: int = 0
    """The cycle at which the last copy so far ends."""
    top: int = 0
    behind: int = 0

    def run(self, limit: int, ahead: bool) -> bool:
        """Simulate all copies and steps; False where some copy does not fit, or the run takes ``limit`` cycles or more.

        ``ahead``: copies start as early as possible, otherwise right in front of the step that reads them.
        """
        computing, copying = self.cut.compute_cycles, self.cut.copy_cycles
        if max(computing, copying) >= limit:
            return False
        for transfer in self.cut.transfers:
            found = self._earliest(transfer, self.step if ahead else transfer.first)
            if found is None:
                return False
            begin, address = found
            computing -= self._compute_up_to(begin)
            copying -= transfer.cycles
            self._start(transfer, address)
            if self.now + computing >= limit or self.copied + copying >= limit:
                return False
        self._compute_up_to(len(self.cut.spent))
        return self.now < limit

    def _earliest(self, transfer: Transfer, begin: int) -> tuple[int, int] | None:
        """Return the first step from ``begin`` on in front of which the copy can start, and its address; None without one."""
        first = transfer.first
        while begin <= first:
            if len(self.waiting) >= self.channels and self.waiting[-self.channels] >= begin:
                # The channel's earlier copy must have been waited for.
                begin = min(first, self.waiting[-self.channels] + 1)
            self.held = [piece for piece in self.held if piece[2] >= begin]
            origins = self.cut.origins
            address = self._address(self.free(origins[begin], origins[transfer.last]), transfer.size)
            if address >= 0:
                return begin, address
            begin = self._next_change(begin, first)
        return None

    def _next_change(self, begin: int, first: int) -> int:
        """Return the first step behind ``begin`` with other free addresses, or the one behind ``first`` where that comes before.

        Pieces of one call have the same tensors: between two of them, only a constant that is no longer read frees addresses.
        """
        origins, changed = self.cut.origins, begin + 1
        while (
            changed <= first and origins[changed] == origins[begin] and all(last >= changed for _, _, last in self.held)
        ):
            changed += 1
        return changed

    def _address(self, gaps: Sequence[Gap], size: int) -> int:
        """Return an address with ``size`` free bytes, as ``order`` takes them, or -1."""
        if self.order == HIGHEST:
            return highest(gaps, self.held, size, self.capacity)
        if self.order == NEXT:
            address = lowest(gaps, self.held, size, self.capacity, self.behind)
            if address >= 0:
                return address
        return lowest(gaps, self.held, size, self.capacity, 0)

    def _compute_up_to(self, end: int) -> int:
        """Compute the steps in front of ``end``, each once its constants are there. Return the cycles of the kernels alone."""
        computed = 0
        for step in range(self.step, end):
            spent, begun = self.cut.spent[step], max(self.now, self.ready.get(step, 0))
            if self.cut.moving and self.cut.moving[step]:
                self._delay(step, begun)
            self.now = begun + spent
            computed += spent
        self.step = end
        return computed

    def _delay(self, step: int, begun: int) -> None:
        """Delay the copies that are under way at the beginning of a step by the time of the tiles that the step copies."""
        if self.copied > begun:
            self.copied += self.cut.moving[step]
            for later, there in self.ready.items():
                if later > step and there > begun:
                    self.ready[later] = there + self.cut.moving[step]

    def _start(self, transfer: Transfer, address: int) -> None:
        self.copied = max(self.now, self.copied) + transfer.cycles
        self.ready[transfer.first] = self.copied
        self.waiting.append(transfer.first)
        self.behind = address + transfer.size
        insort(self.held, (address, self.behind, transfer.last))
        self.top = max(self.top, self.behind)
        self.copies.append((self.step, address))


def lowest(gaps: Sequence[Gap], held: Sequence[tuple[int, int, int]], size: int, capacity: int, above: int) -> int:
    """Return the lowest address from ``above`` on with ``size`` bytes free below ``capacity``, or -1.

    ``gaps`` are free of tensors; ``held`` are constants in the order of their addresses, which the gaps may contain.
    """
    for start, end in gaps:
        end = min(end, capacity)
        start = max(start, above)
        for begin, behind, _ in held:
            if behind <= start:
                continue
            if begin - start >= size or begin >= end:
                break
            start = behind
        if end - start >= size:
            return start
    return -1


def highest(gaps: Sequence[Gap], held: Sequence[tuple[int, int, int]], size: int, capacity: int) -> int:
    """Return the highest address with ``size`` bytes free below ``capacity``, or -1. ``gaps`` and ``held``: see ``lowest``."""
    for start, end in reversed(gaps):
        end = min(end, capacity)
        for begin, behind, _ in reversed(held):
            if begin >= end:
                continue
            if end - behind >= size or behind <= start:
                break
            end = begin
        if end - start >= size:
            return end - size
    return -1
