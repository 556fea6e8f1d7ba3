# SPDX-License-Identifier: BSD-3-Clause
"""The direction of each cascade, from the first rows to the last or back, chosen together with the addresses.

The tensors that a cascade defines overlap the tensors that it consumes from below, or from above where the cascade runs backwards.
The arena depends on directions and addresses together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openneutron.compiler.memory.place import place_parts
from openneutron.compiler.memory.placement import Candidate, Item, Placement
from openneutron.compiler.schedule.schedule import calls_in
from openneutron.compiler.search.cascade.steps import numbered, part_steps
from openneutron.compiler.search.cascade.stripes import Stripes
from openneutron.isa import aligned


def placed_either_way(
    parts: Sequence[Stripes], others: Sequence[Stripes | None], best: Placement, work: float, enough: int
) -> tuple[tuple[Stripes, ...], Placement]:
    """Return the parts, each as it is or as its alternative in ``others``, and their placement.

    The placement is the smallest that is found, or one of ``enough`` bytes; where nothing is smaller, the parts as they are with
    ``best``. ``work``: see ``place``.
    """
    either = [(part,) if other is None else (part, other) for part, other in zip(parts, others, strict=True)]
    candidates = [[Candidate(*live_in(each)) for each in part] for part in either]
    placement, choices = place_parts(candidates, best, work, enough)
    return tuple(part[choice] for part, choice in zip(either, choices, strict=True)), placement


def live_in(part: Stripes) -> tuple[tuple[Item, ...], Mapping[tuple[str, str], int]]:
    """Return the items live while a part runs, in its own steps, and the overlaps allowed among them."""
    network, first, end = part.segment.network, part.segment.first, part.segment.end
    numbers = numbered(part, [])
    positions = {number: position for position, pieces in numbers.items() for piece in pieces for number in piece}
    steps = part_steps(part, numbers)
    touched: dict[str, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        for number in calls_in(step):
            call = network.calls[positions[number]]
            for name in (call.output, *call.reads, *((part.between,) if call.patch is not None else ())):
                touched[name] = (touched.get(name, (index,))[0], index)
    items = [Item(part.between, part.between_bytes, *touched[part.between])] if part.between else []
    for piece in network.pieces.values():
        if not piece.size or piece.first >= end or (piece.last < first and (first or piece.last >= 0)):
            continue
        begin, last = touched.get(piece.name, (0, 0))
        begin = 0 if piece.first < first else begin
        last = len(steps) if piece.last >= end else last
        ring = part.rings.get(piece.name)
        items.append(Item(piece.name, aligned(ring * piece.row_pitch) if ring else piece.size, begin, last))
    return tuple(items), part.overlaps
