# SPDX-License-Identifier: BSD-3-Clause
"""The direction of each cascade, from the first rows to the last or back, chosen together with the addresses.

The tensors that a cascade defines overlap the tensors that it consumes from below, or from above where the cascade runs backwards.
The arena depends on directions and addresses together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openneutron.compiler.memory.place import exceed, place_near_bound, place_smallest
from openneutron.compiler.memory.placement import Candidate, Item, Parts, Placement
from openneutron.compiler.schedule.schedule import calls_in
from openneutron.compiler.search.cascade.steps import numbered, part_steps
from openneutron.compiler.search.cascade.stripes import Stripes
from openneutron.isa import aligned

Placed = tuple[tuple[Stripes, ...], Placement]
"""The parts in their directions, and their addresses."""


@dataclass(frozen=True, slots=True)
class EitherWay:
    """A plan's parts, each in one direction or in both."""

    choices: Sequence[Sequence[Stripes]]
    candidates: Parts

    def near_bound(self, best: Placement, enough: int) -> Placed | None:
        """See ``place_near_bound``; ``best`` is a placement of the first direction of each part."""
        found = place_near_bound(self.candidates, best, enough)
        return None if found is None else self._placed(*found)

    def smallest(self, best: Placement, work: float) -> Placed:
        """See ``place_smallest``."""
        return self._placed(*place_smallest(self.candidates, best, work))

    def exceed(self, ceiling: int) -> bool:
        """See ``exceed``."""
        return exceed(self.candidates, ceiling)

    def _placed(self, placement: Placement, numbers: Sequence[int]) -> Placed:
        return tuple(part[number] for part, number in zip(self.choices, numbers, strict=True)), placement


def either_way(parts: Sequence[Stripes], others: Sequence[Stripes | None]) -> EitherWay:
    """Return the parts with their alternatives in ``others``, where there are any."""
    choices = [(part,) if other is None else (part, other) for part, other in zip(parts, others, strict=True)]
    return EitherWay(choices, [[Candidate(*live_in(each)) for each in part] for part in choices])


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
