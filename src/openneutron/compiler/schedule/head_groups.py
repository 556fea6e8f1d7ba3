# SPDX-License-Identifier: BSD-3-Clause
"""Divide the layers of attention by groups of heads, each group's queries, keys and values as one linear layer.

One layer for all heads takes the fewest calls, and its result is three times as large as its input. Computed group by group, the result of one
group is in memory, beside the attention's input and its result. A group is one linear layer and one attention, so that few groups take
few calls. The call in front of the layers, such as a normalization, is repeated for each group, so that a chained kernel can include it.

Without groups, the layers of keys and values become one layer, and the layer of queries follows alone: a cascade then computes some queries,
their attention, and the calls behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.heads import Source, sources_of
from openneutron.compiler.schedule.needs import columns_of, some_channels
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, dense_pitches
from openneutron.compiler.select.chaining import CHAINED, chain
from openneutron.compiler.select.merging import side_by_side
from openneutron.compiler.select.uses import Uses
from openneutron.isa.kernels.row import SameRow
from openneutron.isa.rows import LANES


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
