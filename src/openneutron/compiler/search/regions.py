# SPDX-License-Identifier: BSD-3-Clause
"""Divide the buffers of a schedule between the memory regions of a CPU, such as tightly coupled memory, SRAM and PSRAM.

The regions are those of ``openneutron.isa.rows.REGIONS``, the fastest one first. A buffer stays in its region for the whole run: the CPU
reads and writes all of them.

The divisions of a schedule that are tried do not depend on the sizes of the regions. Each of them is feasible in all larger regions too,
so that more memory never gives a slower division.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from operator import mul

from openneutron.compiler.place.place import bytes_outside, in_several_buffers, place_in_order
from openneutron.compiler.schedule.schedule import runs_of_calls
from openneutron.compiler.search.fitted import Fitted
from openneutron.ir import Graph
from openneutron.options import CompileOptions, budget_bytes, region_bytes
from openneutron.targets import Target

SIZES = (0, *((8 + part << octave) // 8 for octave in range(6, 32) for part in range(8)))
"""The sizes of memory in bytes for which schedules and divisions are searched: eight for each doubling, from 64 bytes
on."""


def sizes_down(most: int) -> Iterator[int]:
    """Yield the sizes of ``SIZES`` that are at most ``most``, the largest one first."""
    return reversed(SIZES[: bisect_right(SIZES, most)])


def size_above(size: int) -> int:
    """Return the first of ``SIZES`` that is at least ``size``."""
    return SIZES[bisect_left(SIZES, size)]


def least_reaching(size: int) -> int:
    """Return the smallest number of bytes that ``size_above`` rounds up to ``size``, if ``size`` is one of ``SIZES``.
    Return any other size unchanged."""
    place = bisect_left(SIZES, size)
    return SIZES[place - 1] + 1 if place and SIZES[place] == size else size


@dataclass(frozen=True, slots=True)
class Space:
    """The memory that the buffers of a schedule may take: the bytes in each memory region, and the bytes in all regions
    together."""

    regions: tuple[int, ...]
    together: int

    def has(self, *sizes: int) -> bool:
        """Return whether the memory holds buffers of these sizes in bytes, one size for each region from the first
        on. Regions without a size hold nothing."""
        return sum(sizes) <= self.together and all(map(int.__le__, sizes, self.regions))


def space_of(graph: Graph, target: Target, options: CompileOptions) -> Space:
    """Return the memory that buffers may take. A budget that is one number limits all regions together.

    Memory outside the arena, such as the caller's buffers, is subtracted, from the last region first.
    """
    given = options.sram_budget
    outside = bytes_outside(graph, options.place)
    together = budget_bytes(given, target) - outside
    sizes = []
    for size in reversed(region_bytes(given if isinstance(given, tuple) else None, target)):
        sizes.append(max(0, size - outside))
        outside = max(0, outside - size)
    return Space(tuple(reversed(sizes)), together)


def in_regions(fitted: Fitted, space: Space, target: Target) -> Fitted | None:
    """Return the schedule with each buffer in a memory region. Of the divisions between regions that are found, the
    one with the fewest cycles of waiting for slower regions is taken. Return None if no division fits.

    The schedule is returned unchanged if there is only one region, or if the schedule fits the first region.
    """
    if len(space.regions) == 1 or space.has(fitted.layout.scratch_bytes):
        return fitted
    traffic = _Traffic.of(fitted, target)
    for near in _fastest_first(fitted, traffic, space):
        layout = in_several_buffers(fitted.layout, fitted.schedule, near, 0)
        if space.has(*layout.regions_bytes):
            layout = in_several_buffers(fitted.layout, fitted.schedule, near)
            waits = traffic.row_waits(near)
            calls = (
                dataclasses.replace(call, row_wait_cycles=each)
                for call, each in zip(fitted.schedule.calls, waits, strict=True)
            )
            schedule = dataclasses.replace(fitted.schedule, calls=tuple(calls), prefetch_bytes=layout.regions_bytes[1])
            return dataclasses.replace(fitted, schedule=schedule, layout=layout)
    return None


def least_bytes(fitted: Fitted, space: Space, target: Target) -> int | None:
    """Return the smallest number of bytes, summed over all regions, that a division of the schedule's buffers takes.
    The divisions are those of ``_fastest_first`` that fit ``space``. Return None if no division fits."""
    least = None
    for near in _fastest_first(fitted, _Traffic.of(fitted, target), space):
        sizes = in_several_buffers(fitted.layout, fitted.schedule, near, 0).regions_bytes
        if space.has(*sizes) and (least is None or sum(sizes) < least):
            least = sum(sizes)
    return least


Near = tuple[Mapping[str, int], ...]
"""The buffers of the first regions, each with its address: one mapping for each decided region. All other buffers are
in the region after these."""


def _fastest_first(fitted: Fitted, traffic: _Traffic, space: Space) -> Iterator[Near]:
    """Yield divisions of a schedule's buffers between regions. Those with the fewest cycles of waiting for slower
    regions come first (best-first search). The buffers of all regions but the last fit their regions. The caller
    checks the last region and the sum of all regions.

    The search decides one region after the other. The waiting cycles with all undecided buffers in the next region
    are a lower bound, since a buffer costs more in a later region.
    """
    serial = count()
    heap: list[tuple[int, int, Near]] = [(0, next(serial), ())]
    while heap:
        _, _, near = heapq.heappop(heap)
        if len(near) == len(space.regions) - 1:
            yield near
            continue
        for further in _divisions(fitted, traffic, near, space.regions[len(near)]):
            heapq.heappush(heap, (traffic.waits(further), next(serial), further))


def _divisions(fitted: Fitted, traffic: _Traffic, near: Near, most: int) -> Iterator[Near]:
    """Yield extensions of ``near``, the buffers of the decided regions, by the buffers of one more region. These take
    at most ``most`` bytes.

    For each of ``SIZES``, the region is filled up to this size with buffers that have no region yet. They are placed
    one after the other, in descending order of traffic / size. Buffers for which no address is left go to a later
    region.
    """
    moved, taken = traffic.moved, {name for names in near for name in names}
    items = [item for item in fitted.layout.items if item.name not in taken]
    items.sort(key=lambda item: (-moved[item.name] / item.size, item.size, item.name))
    overlaps = fitted.schedule.overlaps_of(item.name for item in items)
    found: Mapping[str, int] | None = None
    for size in SIZES[: bisect_right(SIZES, min(most, fitted.layout.scratch_bytes))]:
        own = place_in_order(items, size, overlaps)
        if own != found:
            found = own
            yield *near, own
    offsets = fitted.layout.placement.offsets
    if near and max((offsets[item.name] + item.size for item in items), default=0) <= most:
        # The last region takes all others at these addresses. So may any region but the first, whatever its size.
        yield *near, {item.name: offsets[item.name] for item in items}


@dataclass(frozen=True, slots=True)
class _Traffic:
    """The traffic between a CPU and the buffers of a schedule.

    ``moved`` has the bytes that a run reads and writes in each buffer. It assumes that adjacent stripes have one row
    in common, which is read twice. ``calls`` has three values for each call: the bytes of each buffer that one
    complete computation reads and writes, the rows of its output, and the rows that all its runs compute together.
    ``byte_waits`` has for each region how many cycles more a byte takes than in the first region.
    """

    moved: Counter[str]
    calls: tuple[tuple[Counter[str], int, int], ...]
    byte_waits: tuple[float, ...]

    @staticmethod
    def of(fitted: Fitted, target: Target) -> _Traffic:
        """Return the traffic of a schedule."""
        schedule, moved, calls = fitted.schedule, Counter[str](), []
        buffers = {item.name for item in fitted.layout.items}
        for call, (runs, computed) in zip(schedule.calls, runs_of_calls(schedule), strict=True):
            own = Counter[str]()
            for view in call.views.values():
                storage, rows = fitted.storages.of[view.tensor], max(view.extents[1], 1)
                name, _ = schedule.allocations.get(storage, (storage, 0))
                if name not in buffers:
                    continue
                own[name] += view.distinct_bytes
                moved[name] += view.distinct_bytes * (rows + max(runs, 1) - 1) // rows
            calls.append((own, call.views["output"].extents[1], computed))
        near, *_ = rates = [region.bandwidth.value for region in target.regions]
        waits = accumulate((max(0.0, 1 / rate - 1 / near) for rate in rates), max)
        return _Traffic(moved, tuple(calls), tuple(waits))

    def row_waits(self, near: Near) -> list[int]:
        """Return for each call the cycles of waiting for slower regions at each row of its output."""
        regions = {name: region for region, names in enumerate(near) for name in names}
        found = []
        for own, rows, _ in self.calls:
            moved = [0] * len(self.byte_waits)
            for name, size in own.items():
                moved[regions.get(name, len(near))] += size
            found.append(math.ceil(sum(map(mul, moved, self.byte_waits)) / rows))
        return found

    def waits(self, near: Near) -> int:
        """Return the cycles in which a run waits for slower regions, for all calls together."""
        return sum(wait * computed for wait, (_, _, computed) in zip(self.row_waits(near), self.calls, strict=True))
