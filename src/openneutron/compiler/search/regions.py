# SPDX-License-Identifier: BSD-3-Clause
"""Divide the buffers of a schedule between two memory regions of a CPU, such as tightly coupled memory and SRAM.

The first region is the scratch buffer of the program, the second one the prefetch buffer. A buffer stays in its region for the whole
run: the CPU reads and writes both.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from openneutron.compiler.place.layout import bytes_outside, in_two_buffers
from openneutron.compiler.place.place import Item, place
from openneutron.compiler.schedule.schedule import spent_on_calls
from openneutron.compiler.search.fitted import Fitted
from openneutron.compiler.select.calls import KernelCall
from openneutron.ir import Graph
from openneutron.options import CompileOptions, region_bytes
from openneutron.targets import Target


def region_sizes(graph: Graph, target: Target, options: CompileOptions) -> tuple[int, ...]:
    """Return the bytes of each memory region that buffers may take.

    Memory outside the arena, such as the caller's buffers, is taken from the last region first.
    """
    sizes, outside = [], bytes_outside(graph, options.place)
    for size in reversed(region_bytes(options.sram_budget, target)):
        sizes.append(max(0, size - outside))
        outside = max(0, outside - size)
    return tuple(reversed(sizes))


def in_regions(fitted: Fitted, sizes: tuple[int, ...], target: Target) -> Fitted | None:
    """Return the schedule with each buffer in a region; None if they do not fit.

    ``sizes`` are the bytes of the regions, the fastest one first. Buffers of which a run moves the most bytes for each byte of their size
    have the first choice. A schedule that fits the first region is returned as it is.
    """
    if len(sizes) == 1 or fitted.layout.scratch_bytes <= sizes[0]:
        return fitted
    moved, schedule = _moved_bytes(fitted, target), fitted.schedule
    near: list[Item] = []
    for item in sorted(fitted.layout.items, key=lambda item: (-moved[item.name] / item.size, item.size, item.name)):
        items = [*near, item]
        if place(items, schedule.overlaps_of(each.name for each in items), 0).size <= sizes[0]:
            near = items
    for chosen in (near, []):
        layout = in_two_buffers(fitted.layout, schedule, chosen)
        if layout.scratch_bytes <= sizes[0] and layout.far_bytes <= sizes[1]:
            far = {item.name for item in layout.far_items}
            calls = tuple(_with_waits(call, far, fitted, target) for call in schedule.calls)
            schedule = dataclasses.replace(schedule, calls=calls, prefetch_bytes=layout.far_bytes)
            return dataclasses.replace(fitted, schedule=schedule, layout=layout)
    return None


def _with_waits(call: KernelCall, far: set[str], fitted: Fitted, target: Target) -> KernelCall:
    """Return the call with the cycles in which the CPU waits for its buffers in the second region. It reads and writes each byte once."""
    moved = sum(view.distinct_bytes for view in call.views.values() if fitted.storages.of[view.tensor] in far)
    near, slow = (region.bandwidth.value for region in target.regions)
    waits = math.ceil(moved * max(0.0, 1 / slow - 1 / near) / call.views["output"].extents[1])
    return dataclasses.replace(call, row_wait_cycles=waits)


def _moved_bytes(fitted: Fitted, target: Target) -> Counter[str]:
    """Return the bytes that a run reads and writes in each storage.

    Stripes read again the rows that they share with the stripe before; one row for each stripe is assumed.
    """
    moved: Counter[str] = Counter()
    schedule = fitted.schedule
    for call, (runs, _) in zip(schedule.calls, spent_on_calls(schedule, target), strict=True):
        for view in call.views.values():
            rows = max(view.extents[1], 1)
            moved[fitted.storages.of[view.tensor]] += view.distinct_bytes * (rows + max(runs, 1) - 1) // rows
    return moved
