# SPDX-License-Identifier: BSD-3-Clause
"""Divide the buffers of a schedule between two memory regions of a CPU, such as tightly coupled memory and SRAM.

The first region is the scratch buffer of the program, the second one the prefetch buffer. A buffer stays in its region for the whole
run: the CPU reads and writes both.

The divisions of a schedule that are tried do not depend on the sizes of the regions. Each of them is feasible in all larger regions too,
so that more memory never gives a slower division.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from openneutron.compiler.place.layout import bytes_outside, in_two_buffers
from openneutron.compiler.place.place import place_in_order
from openneutron.compiler.schedule.schedule import runs_of_calls
from openneutron.compiler.search.fitted import Fitted
from openneutron.ir import Graph
from openneutron.options import CompileOptions, budget_bytes, region_bytes
from openneutron.targets import Target

SIZES = (0, *((8 + part << octave) // 8 for octave in range(6, 32) for part in range(8)))
"""The sizes of memory for which schedules and divisions are searched, in bytes: eight for each doubling from 64 bytes on."""


def sizes_down(most: int) -> Iterator[int]:
    """Yield the sizes of ``SIZES`` that are at most ``most``, the largest one first."""
    return reversed(SIZES[: bisect_right(SIZES, most)])


def size_above(size: int) -> int:
    """Return the first of ``SIZES`` that is at least ``size``."""
    return SIZES[bisect_left(SIZES, size)]


def least_reaching(size: int) -> int:
    """Return the fewest bytes of memory for which ``size_above`` is at least ``size``; a size that is not in ``SIZES`` is its own."""
    place = bisect_left(SIZES, size)
    return SIZES[place - 1] + 1 if place and SIZES[place] == size else size


@dataclass(frozen=True, slots=True)
class Space:
    """The bytes that the buffers of a schedule may take in each memory region, and in all regions together."""

    regions: tuple[int, ...]
    together: int

    def has(self, *sizes: int) -> bool:
        """Return whether buffers of these sizes fit, one size for each region."""
        return sum(sizes) <= self.together and all(map(int.__le__, sizes, self.regions))


def space_of(graph: Graph, target: Target, options: CompileOptions) -> Space:
    """Return the memory that buffers may take. One number as a budget is that of all regions together.

    Memory outside the arena, such as the caller's buffers, is taken from the last region first.
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
    """Return the schedule with each buffer in a region, with the fewest cycles that are found; None if no division fits.

    A schedule that fits the first region is returned as it is.
    """
    if len(space.regions) == 1 or space.has(fitted.layout.scratch_bytes, 0):
        return fitted
    traffic = _Traffic.of(fitted, target)
    for near in sorted(_divisions(fitted, traffic, space.regions[0]), key=traffic.waits):
        layout = in_two_buffers(fitted.layout, fitted.schedule, near, 0)
        if space.has(layout.scratch_bytes, layout.far_bytes):
            layout = in_two_buffers(fitted.layout, fitted.schedule, near)
            waits = traffic.row_waits(near)
            calls = (
                dataclasses.replace(call, row_wait_cycles=each)
                for call, each in zip(fitted.schedule.calls, waits, strict=True)
            )
            schedule = dataclasses.replace(fitted.schedule, calls=tuple(calls), prefetch_bytes=layout.far_bytes)
            return dataclasses.replace(fitted, schedule=schedule, layout=layout)
    return None


def least_bytes(fitted: Fitted, space: Space, target: Target) -> int | None:
    """Return the fewest bytes that a division of the schedule takes in the regions of ``space``; None if no division fits them."""
    least = None
    for near in _divisions(fitted, _Traffic.of(fitted, target), space.regions[0]):
        layout = in_two_buffers(fitted.layout, fitted.schedule, near, 0)
        size = layout.scratch_bytes + layout.far_bytes
        if space.has(layout.scratch_bytes, layout.far_bytes) and (least is None or size < least):
            least = size
    return least


Near = Mapping[str, int]
"""The buffers in the first region, each with its address."""


def _divisions(fitted: Fitted, traffic: _Traffic, most: int) -> Iterator[Near]:
    """Yield the divisions of a schedule whose first region takes at most ``most`` bytes.

    For each of ``SIZES``, the buffers take the first region up to this size, one after the other. Buffers of which a run moves the most bytes
    for each byte of their size have the first choice. The second region has all buffers for which no address is left.
    """
    moved = traffic.moved
    items = sorted(fitted.layout.items, key=lambda item: (-moved[item.name] / item.size, item.size, item.name))
    overlaps = fitted.schedule.overlaps_of(item.name for item in items)
    found: list[Near] = []
    for size in SIZES[: bisect_right(SIZES, min(most, fitted.layout.scratch_bytes))]:
        near = place_in_order(items, size, overlaps)
        if not found or near != found[-1]:
            found.append(near)
            yield near


@dataclass(frozen=True, slots=True)
class _Traffic:
    """The traffic between a CPU and the buffers of a schedule.

    ``moved`` are the bytes that a run reads and writes in each buffer. Stripes read again the rows that they share with the stripe before; one
    row for each stripe is assumed. ``calls`` has for each call the bytes of each buffer that it reads and writes once, the rows of its output,
    and the rows that all its runs compute. ``byte_wait`` is the wait for a byte of the second region in cycles.
    """

    moved: Counter[str]
    calls: tuple[tuple[Counter[str], int, int], ...]
    byte_wait: float

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
        near, slow = (region.bandwidth.value for region in target.regions)
        return _Traffic(moved, tuple(calls), max(0.0, 1 / slow - 1 / near))

    def row_waits(self, near: Near) -> list[int]:
        """Return the cycles in which each call waits for the second region at each row of its output."""
        return [
            math.ceil(sum(size for name, size in own.items() if name not in near) * self.byte_wait / rows)
            for own, rows, _ in self.calls
        ]

    def waits(self, near: Near) -> int:
        """Return the cycles in which a run waits for the second region."""
        return sum(wait * computed for wait, (_, _, computed) in zip(self.row_waits(near), self.calls, strict=True))
