# SPDX-License-Identifier: BSD-3-Clause
"""Reorder and divide the layers around attention, by heads or batch by batch.

The keys and values of attention are in memory whole while rows of queries are computed. So the layers of keys and values come first, and
the layer of queries last: one cascade then computes some queries, their attention, and the calls after it. A layer that computes queries,
keys and values together is divided into three. Heads can also be computed one after the other: only the keys and values of one group of
heads are then in memory, together with the attention's input and its result. Each layer is divided by output channels, so that no work is
repeated.

In groups of heads, the queries, keys and values of a group are one linear layer. One layer for all heads takes the
fewest calls, but its result is three times as large as its input. Group by group, only the result of one group is in
memory at a time. The call before the layers, such as a normalization, is repeated for each group, so that a chained
kernel can include it. Without groups, the layers of keys and values become one layer, and the layer of queries follows.

Attention of several batches and its layers can also be one call. Its kernel computes batch by batch, with scratch for
the layers' result of one batch. Example: the layers' result of 4 series of 6 tokens with 32 channels has 2,304 bytes,
and the scratch has 576.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.rewrite.batches import has_batches_apart
from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.rewrite.chain import CHAINED, macs_of_channel, side_by_side
from openneutron.compiler.rewrite.rows import goes_by_position
from openneutron.compiler.select.calls import KernelCall, View, dense_pitches
from openneutron.compiler.select.needs import Span, columns_of, some_channels, takes_channels
from openneutron.isa import rows
from openneutron.isa.kernels.row import Row, SameRow
from openneutron.isa.rows import LANES


@dataclass(frozen=True, slots=True)
class Source:
    """An operand of attention that one layer computes. ``layer`` is the index of the layer's call.

    The operand has ``heads`` heads of ``channels`` channels each. Head h begins at output channel ``first`` + h *
    ``pitch`` of the layer.
    """

    name: str
    layer: int
    heads: int
    first: int
    pitch: int
    channels: int

    def span(self, part: int, parts: int) -> Span:
        """Return the span of the layer's output channels that has part number ``part`` of ``parts`` equal parts
        of the heads."""
        heads = self.heads // parts
        first = self.first + part * heads * self.pitch
        return first, first + (heads - 1) * self.pitch + self.channels


def heads_apart(edit: Edit, all_heads: bool) -> None:
    """Put the layers of keys, values and queries directly before each attention, in this order. ``all_heads``:
    compute one head after the other."""
    changes: dict[int, list[KernelCall] | None] = {}
    for place, call in enumerate(edit.given.calls):
        sources = sources_of(edit, place) if call.traits.columns_apart else None
        if not sources or any(source.first % LANES for source in sources):
            if call.traits.columns_apart:
                edit.skip(Cause.DIVISION, call)
            continue
        parts = min(source.heads for source in sources) if all_heads else 1
        if any(source.span(part, parts)[0] % LANES for source in sources for part in range(parts)):
            parts = 1
        changes |= dict.fromkeys(source.layer for source in sources)
        changes[place] = [one for part in range(parts) for one in _part(edit, place, sources, part, parts)]
    edit.replace(changes)


def sources_of(edit: Edit, place: int, batches: bool = False) -> list[Source] | None:
    """Return the operands that layers compute only for the attention, those that it needs whole first. Return
    None if another call computes an operand, or if the attention has several batches and ``batches`` is False."""
    call = edit[place]
    if call.views["output"].extents[0] > 1 and not batches:
        return None
    found: list[Source] = []
    operands = sorted(call.traits.operands, key=lambda each: isinstance(each.access, SameRow))
    for operand in operands:
        view = call.views[operand.name]
        if call.is_scratch(operand.name) or edit.storages[view.tensor].constant is not None:
            continue
        if any(view == call.views[source.name] for source in found):
            continue
        source = _source(edit, place, operand.name)
        if source is None:
            return None
        found.append(source)
    return found


def _source(edit: Edit, place: int, name: str) -> Source | None:
    view = edit[place].views[name]
    layer = edit.writer(view.tensor)
    if layer is None or not takes_channels(edit[layer]) or not goes_by_position(edit[layer]):
        return None
    output, channels = edit[layer].views["output"], edit[layer].traits.channels
    width = output.extents[3]
    if any(at != place for at, _ in edit.readers_of_result(layer)) or channels is None or channels.same:
        return None
    rows_only = view.extents[0] == 1 or view.pitches[0] == view.extents[1] * width
    by_rows = rows_only and view.pitches[1] == width and view.has_dense_channels and view.element_bytes == 1
    if not edit.is_flat(output) or not by_rows or _is_overtaken(edit, layer, place):
        return None
    return Source(name, layer, view.extents[2], view.offset, view.pitches[2], view.extents[3])


def _is_overtaken(edit: Edit, layer: int, place: int) -> bool:
    """Return whether a call between the layer and the attention at ``place`` writes what the layer reads."""
    read = {edit.storages.of[view.tensor] for name, view in edit[layer].views.items() if edit[layer].reads(name)}
    return any(layer < at < place for name in read for at in edit.writers(name))


def _part(edit: Edit, place: int, sources: Sequence[Source], part: int, parts: int) -> Iterator[KernelCall]:
    """Yield the calls of one part of the heads: the layers, whose outputs are new scratch, and the attention."""
    call = edit[place]
    views = dict(call.views)
    for source in sources:
        layer = edit[source.layer]
        output, span = layer.views["output"], source.span(part, parts)
        width, wide = span[1] - span[0], output.extents[3]
        name = edit.store(f"{call.name}/{source.name}/{part}", output.size_bytes // wide * width)
        batch, row, col, _ = (pitch * width // wide for pitch in output.pitches)
        made = View(name, (*output.extents[:3], width), (batch, row, col, 1))
        piece = some_channels(layer, span) if width < wide else layer
        yield replace(piece, name=f"{layer.name}/{part}/{source.name}", views={**piece.views, "output": made})
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
    yield replace(call, name=f"{call.name}/{part}" if parts > 1 else call.name, views=views)


def head_groups(edit: Edit, parts: int | None, batches: bool = False) -> None:
    """Divide the heads of each attention into ``parts`` groups, with one layer for the queries, keys and values of a
    group. In a single group, the queries have a layer of their own. None: as many groups as the attention with the
    fewest heads has heads.

    The calls are on sequences of one row, with their storages before ``in_place``. ``batches``: also divide attention
    of several batches.
    """
    found: dict[int, Sequence[Source]] = {}
    for place, call in enumerate(edit.given.calls):
        sources = sources_of(edit, place, batches) if call.traits.columns_apart else None
        if sources and not any(source.first % LANES for source in sources):
            found[place] = sources
    heads = min((source.heads for sources in found.values() for source in sources), default=0)
    if heads < (parts or 3):
        # With fewer than 3 heads, a group for each head is the same as one group or two.
        edit.skip(Cause.DIVISION)
        return
    _Division(edit, parts or heads).divide(found)


@dataclass(slots=True)
class _Division:
    """The division of each attention of a list of calls into ``parts`` groups of heads."""

    edit: Edit
    parts: int

    def divide(self, found: Mapping[int, Sequence[Source]]) -> None:
        """Divide each attention in ``found`` whose heads and layers can be divided into this number of groups."""
        changes: dict[int, list[KernelCall] | None] = {}
        for place, sources in found.items():
            groups = self._groups(place, sources)
            if groups is None:
                self.edit.skip(Cause.DIVISION, self.edit[place])
                continue
            front = self._in_front(sources)
            changes |= dict.fromkeys(source.layer for source in sources)
            changes |= {} if front is None else {front: None}
            changes[place] = [*self._calls(place, groups, front)]
        self.edit.replace(changes)

    def _groups(self, place: int, sources: Sequence[Source]) -> list[list[Source]] | None:
        """Return the operands in lists; one layer computes a list side by side. Return None if the heads or the
        layers can't be divided into this number of groups."""
        spans = [source.span(part, self.parts) for source in sources for part in range(self.parts)]
        aligned = all(first % LANES == 0 and end % LANES == 0 for first, end in spans)
        if not aligned or any(source.heads % self.parts for source in sources):
            return None
        # Attention of several batches is not computed by rows, but batch by batch, together with its layers.
        if self.parts > 1 or self.edit[place].views["output"].extents[0] > 1:
            return [list(sources)]
        traits = self.edit[place].traits
        apart = [[s for s in sources if isinstance(traits.access(s.name), SameRow) == rows] for rows in (False, True)]
        return apart if all(apart) else None

    def _in_front(self, sources: Sequence[Source]) -> int | None:
        """Return the place of the call that computes the input of all layers, if a chained kernel can run it
        together with each layer; otherwise None."""
        layers = {source.layer for source in sources}
        source = self.edit[min(layers)].views["input"]
        place = self.edit.writer(source.tensor)
        if place is None or any(at not in layers for at, _ in self.edit.readers_of_result(place)):
            return None
        kernels = {self.edit[layer].kernel for layer in layers}
        return place if all((self.edit[place].kernel, kernel) in CHAINED for kernel in kernels) else None

    def _calls(self, place: int, groups: list[list[Source]], front: int | None) -> Iterator[KernelCall]:
        call = self.edit[place]
        for part in range(self.parts):
            views = dict(call.views)
            for number, group in enumerate(groups):
                label = f"{part}" if len(groups) == 1 else f"{part}/{number}"
                given = self.edit[group[0].layer].views["input"]
                if front is not None:
                    ahead = self._copied(front, label)
                    yield ahead
                    given = replace(given, tensor=ahead.views["output"].tensor)
                yield self._layers(group, part, label, given, views, call)
            for name, view in call.views.items():
                if call.is_scratch(name):
                    # Each attention gets scratch of its own, which is then not live between two of them.
                    size = self.edit.storages[view.tensor].size_bytes
                    views[name] = replace(view, tensor=self.edit.store(f"{view.tensor}/{part}", size))
                if view is not views[name]:
                    continue
                same = next((each.name for group in groups for each in group if call.views[each.name] == view), None)
                columns = view.extents[2] // self.parts
                views[name] = views[same] if same else columns_of(view, (part * columns, (part + 1) * columns))
            yield replace(call, name=f"{call.name}/{part}" if self.parts > 1 else call.name, views=views)

    def _copied(self, front: int, label: str) -> KernelCall:
        """Return a copy of the call at ``front`` that writes a new result."""
        call = self.edit[front]
        output = call.views["output"]
        name = self.edit.store(f"{output.tensor}/{label}", self.edit.storages[output.tensor].size_bytes)
        return replace(call, name=f"{call.name}/{label}", views={**call.views, "output": replace(output, tensor=name)})

    def _layers(
        self, group: Sequence[Source], part: int, label: str, given: View, views: dict[str, View], call: KernelCall
    ) -> KernelCall:
        """Return one layer that computes the operands of a group, and set their ``views`` to parts of its result."""
        members = []
        for source in group:
            piece = some_channels(self.edit[source.layer], source.span(part, self.parts))
            members.append(replace(piece, views={**piece.views, "input": given}))
        own = [piece.views["output"].extents[3] for piece in members]
        extents = (*members[0].views["output"].extents[:3], sum(own))
        pitches = dense_pitches(extents)
        name = self.edit.store(f"{call.name}/layers/{label}", pitches[0])
        for at, source in enumerate(group):
            view, heads = call.views[source.name], source.heads // self.parts
            batches, rows, _, channels = view.extents
            kept = (batches, rows, heads, channels)
            own_pitches = (rows * sum(own), sum(own), source.pitch if heads > 1 else view.extents[3], 1)
            views[source.name] = View(name, kept, own_pitches, sum(own[:at]))
        return replace(side_by_side(members, own, View(name, extents, pitches)), name=f"{members[0].name}/{label}")


JOINED: Mapping[tuple[str, str], Row] = {
    (row.traits.parts[0].kernel, row.traits.parts[1].kernel): row for row in rows.KERNELS if row.traits.of_batch
}
"""The kernel that runs two others batch by batch, by the names of the two."""


def attention_of_layers(edit: Edit) -> None:
    """Join each attention of several batches to the layers directly before it, if a kernel runs both."""
    for place in range(1, len(edit)):
        joined = _joined(edit, place)
        if joined is not None:
            tensor = edit[place - 1].views["output"].tensor
            edit.resize(tensor, edit.storages[tensor].size_bytes // edit[place].views["output"].extents[0])
            edit.replace({place - 1: joined, place: None})


def _joined(edit: Edit, place: int) -> KernelCall | None:
    """Return one call that runs the layers and the attention at ``place`` after them; None if no kernel can."""
    layers, call = edit.find(place - 1), edit.find(place)
    if layers is None or call is None:
        return None
    row = JOINED.get((layers.kernel, call.kernel))
    batches = call.views["output"].extents[0]
    if row is None or batches == 1 or not _goes_by_batch(edit, layers, batches):
        return None
    storage = edit.storages[layers.views["output"].tensor]
    readers = edit.readers_of_result(place - 1)
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


def _goes_by_batch(edit: Edit, layers: KernelCall, batches: int) -> bool:
    """Return whether the layers compute each batch of their result from the same batch of their input, and the
    result covers its storage."""
    same = all(view.extents[0] == batches for view in layers.views.values())
    return same and layers.traits.batches_apart and edit.is_flat(layers.views["output"])
