# SPDX-License-Identifier: BSD-3-Clause
"""Reorder the layers around attention: head by head, and each layer of queries directly in front of its attention.

The keys and values of attention are in memory whole while rows of queries are computed. So the layers of keys and values come first, and
the layer of queries last: one cascade then computes some queries, their attention, and the calls behind it. A layer that computes queries,
keys and values together is divided into three. Heads can also be computed one after the other: only the keys and values of one group of
heads are then in memory, beside the attention's input and its result. Each layer is divided by output channels, so that no work is
repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.needs import Span, columns_of, some_channels, takes_channels
from openneutron.compiler.schedule.positions import goes_by_position
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View
from openneutron.compiler.select.uses import Uses
from openneutron.isa.kernels.row import SameRow
from openneutron.isa.rows import LANES


@dataclass(frozen=True, slots=True)
class Source:
    """An operand of attention that one layer computes: the index of the layer, and the channels of its output in a head."""

    name: str
    layer: int
    heads: int
    first: int
    pitch: int
    channels: int

    def span(self, part: int, parts: int) -> Span:
        """Return the layer's output channels of a part of the heads."""
        heads = self.heads // parts
        first = self.first + part * heads * self.pitch
        return first, first + (heads - 1) * self.pitch + self.channels


def heads_apart(given: CallList, all_heads: bool) -> CallList | None:
    """Return the calls with the layers of keys, values and queries in front of each attention, in this order, and head by head with
    ``all_heads``; None where nothing changes."""
    calls, storages = given.calls, given.storages
    uses = Uses.of(storages, calls)
    gone: set[int] = set()
    there: dict[int, list[KernelCall]] = {}
    pieces, of = dict(storages.storages), dict(storages.of)
    for place, call in enumerate(calls):
        sources = sources_of(uses, place) if call.traits.columns_apart else None
        if not sources:
            continue
        parts = min(source.heads for source in sources) if all_heads else 1
        if any(source.span(part, parts)[0] % LANES for source in sources for part in range(parts)):
            parts = 1
        if any(source.first % LANES for source in sources):
            continue
        made: list[KernelCall] = []
        for part in range(parts):
            for one, storage in _part(uses, place, sources, part, parts):
                made.append(one)
                if storage is not None:
                    pieces[storage.name], of[storage.name] = storage, storage.name
        there[place] = made
        gone |= {source.layer for source in sources}
        for source in sources:
            tensor = calls[source.layer].views["output"].tensor
            pieces.pop(storages.of[tensor], None)
    kept = {tensor: name for tensor, name in of.items() if name in pieces}
    left: list[KernelCall] = []
    cuts: set[int] = set()
    for place, call in enumerate(calls):
        cuts |= {len(left)} if place in given.cuts else set()
        left += [] if place in gone else there.get(place, [call])
    return CallList(tuple(left), Storages(pieces, kept), frozenset(cuts)) if there else None


def sources_of(uses: Uses, place: int, batches: bool = False) -> list[Source] | None:
    """Return the operands that layers compute for the attention alone, those that it needs whole first; None where another operand is found,
    or several batches, unless these are permitted."""
    call = uses[place]
    if call.views["output"].extents[0] > 1 and not batches:
        return None
    found: list[Source] = []
    operands = sorted(call.traits.operands, key=lambda each: isinstance(each.access, SameRow))
    for operand in operands:
        view = call.views[operand.name]
        if call.is_scratch(operand.name) or uses.storages[view.tensor].constant is not None:
            continue
        if any(view == call.views[source.name] for source in found):
            continue
        source = _source(uses, place, operand.name)
        if source is None:
            return None
        found.append(source)
    return found


def _source(uses: Uses, place: int, name: str) -> Source | None:
    view = uses[place].views[name]
    layer = uses.writer(view.tensor)
    if layer is None or not takes_channels(uses[layer]) or not goes_by_position(uses[layer]):
        return None
    output, channels = uses[layer].views["output"], uses[layer].traits.channels
    width = output.extents[3]
    if any(at != place for at, _ in uses.readers_of_result(layer)) or channels is None or channels.same:
        return None
    rows_only = view.extents[0] == 1 or view.pitches[0] == view.extents[1] * width
    by_rows = rows_only and view.pitches[1] == width and view.has_dense_channels and view.element_bytes == 1
    if not uses.is_flat(output) or not by_rows or _is_overtaken(uses, layer, place):
        return None
    return Source(name, layer, view.extents[2], view.offset, view.pitches[2], view.extents[3])


def _is_overtaken(uses: Uses, layer: int, place: int) -> bool:
    """Return whether a call between the two writes what the layer reads."""
    read = {uses.storages.of[view.tensor] for name, view in uses[layer].views.items() if uses[layer].reads(name)}
    return any(layer < at < place for name in read for at in uses.writers.get(name, ()))


def _part(
    uses: Uses, place: int, sources: Sequence[Source], part: int, parts: int
) -> Iterator[tuple[KernelCall, Storage | None]]:
    """Yield the calls of a part of the heads, with the storages of the layers' outputs."""
    call = uses[place]
    views = dict(call.views)
    for source in sources:
        layer = uses[source.layer]
        output, span = layer.views["output"], source.span(part, parts)
        width, wide = span[1] - span[0], output.extents[3]
        name = uses.unused(f"{call.name}/{source.name}/{part}")
        batch, row, col, _ = (pitch * width // wide for pitch in output.pitches)
        made = View(name, (*output.extents[:3], width), (batch, row, col, 1))
        piece = some_channels(layer, span) if width < wide else layer
        yield (
            replace(piece, name=f"{layer.name}/{part}/{source.name}", views={**piece.views, "output": made}),
            Storage(name, output.size_bytes // wide * width),
        )
        own = call.views[source.name]
        rows, heads, channels = own.extents[1], source.heads // parts, own.extents[3]
        views[source.name] = View(
            name, (1, rows, heads, channels), (rows * width, width, source.pitch if heads > 1 else channels, 1)
        )
    made_here = {source.name for source in sources}
    for name, view in call.views.items():
        if name in made_here or call.is_scratch(name):
            continue
        same = next((each for each in made_here if call.views[each] == view), None)
        columns = view.extents[2] // parts
        views[name] = views[same] if same else columns_of(view, (part * columns, (part + 1) * columns))
    yield replace(call, name=f"{call.name}/{part}" if parts > 1 else call.name, views=views), None
