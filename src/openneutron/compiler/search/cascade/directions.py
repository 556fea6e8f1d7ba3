# SPDX-License-Identifier: BSD-3-Clause
"""Which cascades run from the last rows to the first, chosen along with the addresses.

What a cascade makes lies below what it consumes, or above it where it runs backwards; only together do directions and
addresses say how small the arena gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openneutron.compiler.memory.place import place_one_way
from openneutron.compiler.memory.placement import Item, Placement, Way
from openneutron.compiler.schedule.schedule import calls_in
from openneutron.compiler.search.cascade.steps import numbered, part_steps
from openneutron.compiler.search.cascade.stripes import Stripes
from openneutron.isa import aligned


def placed_either_way(
    parts: Sequence[Stripes], others: Sequence[Stripes | None], best: Placement, work: float, enough: int
) -> tuple[tuple[Stripes, ...], Placement]:
    """How the parts run, each as it is or as the other in its place, and the addresses.

    The smallest arena that is found, or one of ``enough`` bytes; as they are, with ``best``, where nothing is smaller. ``work``: see
    ``place``.
    """
    either = [(part,) if other is None else (part, other) for part, other in zip(parts, others, strict=True)]
    placement, taken = place_one_way([[Way(*live_in(each)) for each in ways] for ways in either], best, work, enough)
    return tuple(ways[number] for ways, number in zip(either, taken, strict=True)), placement


def live_in(part: Stripes) -> tuple[tuple[Item, ...], Mapping[tuple[str, str], int]]:
    """What is live while a part runs, in its own steps, and what of it may overlap."""
    network, first, end = part.segment.network, part.segment.first, part.segment.end
    numbers = numbered(part, [])
    positions = {number: position for position, pieces in numbers.items() for piece in pieces for number in piece}
    steps = part_steps(part, numbers)
    touched: dict[str, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        for number in calls_in(step):
            call = network.calls[positions[number]]
            for name in (call.output, *call.reads, *((part.room,) if call.patch is not None else ())):
                touched[name] = (touched.get(name, (index,))[0], index)
    items = [Item(part.room, part.room_bytes, *touched[part.room])] if part.room else []
    for piece in network.pieces.values():
        if not piece.size or piece.first >= end or (piece.last < first and (first or piece.last >= 0)):
            continue
        begin, last = touched.get(piece.name, (0, 0))
        begin = 0 if piece.first < first else begin
        last = len(steps) if piece.last >= end else last
        ring = part.rings.get(piece.name)
        items.append(Item(piece.name, aligned(ring * piece.row_pitch) if ring else piece.size, begin, last))
    return tuple(items), part.overlaps
