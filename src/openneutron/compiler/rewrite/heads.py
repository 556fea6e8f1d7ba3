# SPDX-License-Identifier: BSD-3-Clause
"""Reorder and divide the layers around attention, by heads or batch by batch.

The keys and values of attention are in memory whole while rows of queries are computed. So the layers of keys and values come first, and
the layer of queries last: one cascade then computes some queries, their attention, and the calls behind it. A layer that computes queries,
keys and values together is divided into three. Heads can also be computed one after the other: only the keys and values of one group of
heads are then in memory, beside the attention's input and its result. Each layer is divided by output channels, so that no work is
repeated.

In groups of heads, the queries, keys and values of a group are one linear layer. One layer for all heads takes the fewest calls, and its
result is three times as large as its input; computed group by group, the result of one group is in memory. The call in front of the
layers, such as a normalization, is repeated for each group, so that a chained kernel can include it. Without groups, the layers of keys
and values become one layer, and the layer of queries follows alone.

Attention of several batches can also be one call with its layers, which a kernel runs batch by batch with memory for the layers' result of
one batch. Example: 4 series of 6 tokens with 32 channels have a result of 2,304 bytes, and scratch of 576.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openneutron.compiler.rewrite.batches import has_batches_apart
from openneutron.compiler.rewrite.call_list import CallList, Uses
from openneutron.compiler.rewrite.chain import CHAINED, chain, macs_of_channel, side_by_side
from openneutron.compiler.rewrite.rows import goes_by_position
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, dense_pitches
from openneutron.compiler.select.needs import Span, columns_of, some_channels, takes_channels
from openneutron.isa import rows
from openneutron.isa.kernels.row import Row, SameRow
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


def head_groups(given: CallList, batches: bool = False) -> list[CallList]:
    """Return the lists of calls with the heads of each attention in two groups, one by one, and with queries apart from keys and values;
    neighbouring calls are chained.

    ``given``: calls on sequences of one row, with their storages before ``in_place``. ``batches``: attention of several batches too.
    """
    uses = Uses.of(given.storages, given.calls)
    found: dict[int, Sequence[Source]] = {}
    for place, call in enumerate(given.calls):
        sources = sources_of(uses, place, batches) if call.traits.columns_apart else None
        if sources and not any(source.first % LANES for source in sources):
            found[place] = sources
    heads = min((source.heads for sources in found.values() for source in sources), default=0)
    lists = (_Division(uses, parts).made(found) for parts in dict.fromkeys((1, 2, heads)) if heads and heads >= parts)
    made = []
    for each in lists:
        if each is not None:
            calls = chain(each.storages, each.calls, last_first=False)
            made.append(CallList(tuple(calls), each.storages))
    return made


@dataclass(slots=True)
class _Division:
    """The division of all attention of a list of calls into so many ``parts``."""

    uses: Uses
    parts: int
    pieces: dict[str, Storage] = field(init=False)
    of: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces, self.of = dict(self.uses.storages.storages), dict(self.uses.storages.of)

    def made(self, found: dict[int, Sequence[Source]]) -> CallList | None:
        """Return the calls with each attention in parts; None where no attention can be divided so."""
        gone: set[int] = set()
        there: dict[int, list[KernelCall]] = {}
        for place, sources in found.items():
            groups = self._groups(place, sources)
            if groups is not None:
                front = self._in_front(sources)
                there[place] = [*self._calls(place, groups, front)]
                gone |= {source.layer for source in sources} | ({front} if front is not None else set())
        left: list[KernelCall] = []
        for place in range(len(self.uses.calls)):
            left += there.get(place, [self.uses[place]]) if place not in gone else []
        if not there:
            return None
        for place in gone:
            self.pieces.pop(self.uses.storages.of[self.uses[place].views["output"].tensor], None)
        of = {tensor: name for tensor, name in self.of.items() if name in self.pieces}
        return CallList(tuple(left), Storages(self.pieces, of))

    def _groups(self, place: int, sources: Sequence[Source]) -> list[list[Source]] | None:
        """Return the operands that are computed side by side; None where the heads or the layers can't be divided so."""
        spans = [source.span(part, self.parts) for source in sources for part in range(self.parts)]
        aligned = all(first % LANES == 0 and end % LANES == 0 for first, end in spans)
        if not aligned or any(source.heads % self.parts for source in sources):
            return None
        # Attention of several batches can't be computed by rows, but with its layers batch by batch.
        if self.parts > 1 or self.uses[place].views["output"].extents[0] > 1:
            return [list(sources)]
        traits = self.uses[place].traits
        apart = [[s for s in sources if isinstance(traits.access(s.name), SameRow) == rows] for rows in (False, True)]
        return apart if all(apart) else None

    def _in_front(self, sources: Sequence[Source]) -> int | None:
        """Return the call that computes the input of all layers, where a chained kernel runs it and a layer; otherwise None."""
        layers = {source.layer for source in sources}
        source = self.uses[min(layers)].views["input"]
        place = self.uses.writer(source.tensor)
        if place is None or any(at not in layers for at, _ in self.uses.readers_of_result(place)):
            return None
        kernels = {self.uses[layer].kernel for layer in layers}
        return place if all((self.uses[place].kernel, kernel) in CHAINED for kernel in kernels) else None

    def _calls(self, place: int, groups: list[list[Source]], front: int | None) -> Iterator[KernelCall]:
        call = self.uses[place]
        for part in range(self.parts):
            views = dict(call.views)
            for number, group in enumerate(groups):
                label = f"{part}" if len(groups) == 1 else f"{part}/{number}"
                given = self.uses[group[0].layer].views["input"]
                if front is not None:
                    ahead = self._copied(front, label)
                    yield ahead
                    given = replace(given, tensor=ahead.views["output"].tensor)
                yield self._layers(group, part, label, given, views, call)
            for name, view in call.views.items():
                if call.is_scratch(name):
                    # Scratch of its own is not live between two attentions.
                    size = self.uses.storages[view.tensor].size_bytes
                    views[name] = replace(view, tensor=self._stored(f"{view.tensor}/{part}", size))
                    self.pieces.pop(self.uses.storages.of[view.tensor], None)
                if view is not views[name]:
                    continue
                same = next((each.name for group in groups for each in group if call.views[each.name] == view), None)
                columns = view.extents[2] // self.parts
                views[name] = views[same] if same else columns_of(view, (part * columns, (part + 1) * columns))
            yield replace(call, name=f"{call.name}/{part}" if self.parts > 1 else call.name, views=views)

    def _copied(self, front: int, label: str) -> KernelCall:
        """Return the call in front with a result of its own."""
        call = self.uses[front]
        output = call.views["output"]
        name = self._stored(f"{output.tensor}/{label}", self.uses.storages[output.tensor].size_bytes)
        return replace(call, name=f"{call.name}/{label}", views={**call.views, "output": replace(output, tensor=name)})

    def _layers(
        self, group: Sequence[Source], part: int, label: str, given: View, views: dict[str, View], call: KernelCall
    ) -> KernelCall:
        """Return one layer for the operands of a group, and set their ``views`` of it."""
        members = []
        for source in group:
            piece = some_channels(self.uses[source.layer], source.span(part, self.parts))
            members.append(replace(piece, views={**piece.views, "input": given}))
        own = [piece.views["output"].extents[3] for piece in members]
        extents = (*members[0].views["output"].extents[:3], sum(own))
        pitches = dense_pitches(extents)
        name = self._stored(f"{call.name}/layers/{label}", pitches[0])
        for at, source in enumerate(group):
            view, heads = call.views[source.name], source.heads // self.parts
            batches, rows, _, channels = view.extents
            kept = (batches, rows, heads, channels)
            own_pitches = (rows * sum(own), sum(own), source.pitch if heads > 1 else view.extents[3], 1)
            views[source.name] = View(name, kept, own_pitches, sum(own[:at]))
        return replace(side_by_side(members, own, View(name, extents, pitches)), name=f"{members[0].name}/{label}")

    def _stored(self, wanted: str, size_bytes: int) -> str:
        name = self.uses.unused(wanted)
        while name in self.pieces:
            name += "'"
        self.pieces[name], self.of[name] = Storage(name, size_bytes), name
        return name


JOINED: Mapping[tuple[str, str], Row] = {
    (row.traits.parts[0].kernel, row.traits.parts[1].kernel): row for row in rows.KERNELS if row.traits.of_batch
}
"""Kernels that run two others batch by batch, by the pair of kernels."""


def attention_of_layers(given: CallList) -> CallList:
    """Return the calls with each attention of several batches joined to the layers directly in front of it, where a kernel runs both."""
    assert not given.cuts, "the places of cuts would change"
    calls: list[KernelCall] = []
    pieces = dict(given.storages.storages)
    uses = Uses.of(given.storages, given.calls)
    for place, call in enumerate(given.calls):
        joined = _joined(uses, place) if place else None
        if joined is None:
            calls.append(call)
            continue
        calls[-1] = joined
        storage = uses.storages[uses[place - 1].views["output"].tensor]
        pieces[storage.name] = replace(storage, size_bytes=storage.size_bytes // call.views["output"].extents[0])
    if len(calls) == len(given.calls):
        return given
    return CallList(tuple(calls), Storages(pieces, given.storages.of))


def _joined(uses: Uses, place: int) -> KernelCall | None:
    """Return the one call of the layers and of the attention behind them, or None."""
    layers, call = uses[place - 1], uses[place]
    row = JOINED.get((layers.kernel, call.kernel))
    batches = call.views["output"].extents[0]
    if row is None or batches == 1 or not _goes_by_batch(uses, layers, batches):
        return None
    storage = uses.storages[layers.views["output"].tensor]
    readers = uses.readers_of_result(place - 1)
    named = {name for name in row.scratch if name in call.views and call.reads(name)}
    unread = {"mask"} if not call.params["masked"] else set()
    if {at for at, _ in readers} != {place} or {name for _, name in readers} - unread != named:
        return None
    if not all(has_batches_apart(call.views[name], storage.size_bytes, batches) for name in named):
        return None
    first, _ = row.traits.parts
    result = layers.views["output"]
    views = {
        **{
            name: replace(view, pitches=(0, *view.pitches[1:])) if name in named else view
            for name, view in call.views.items()
        },
        "input": layers.views["input"],
        row.traits.of_batch: replace(result, pitches=(0, *result.pitches[1:])),
    }
    views |= dict.fromkeys(unread, layers.views["input"])
    lines, results = result.extents[1:], call.views["output"].extents[1:]
    more = macs_of_channel(layers) * lines[0] * lines[1] * lines[2]
    params = {f"{first.prefix}{name}": value for name, value in layers.params.items()} | dict(call.params)
    params["work"] += -(-more // (results[0] * results[1] * results[2]))
    constants = {f"{first.prefix}{key}": constant for key, constant in layers.constants.items()} | dict(call.constants)
    return KernelCall(row.name, layers.name, views, params, constants)


def _goes_by_batch(uses: Uses, layers: KernelCall, batches: int) -> bool:
    """Return whether the layers compute each batch of their whole result from the same batch of their input."""
    same = all(view.extents[0] == batches for view in layers.views.values())
    return same and layers.traits.batches_apart and uses.is_flat(layers.views["output"])
