# SPDX-License-Identifier: BSD-3-Clause
"""Divide chains of calls into patches: stripe by stripe, and in each stripe piece by piece, so that the tensors between
the calls stay small.

A piece is a range of columns (patches, as in MCUNetV2, arXiv 2110.15352). If every call but the first works channel by
channel, it may be a range of channels instead (as in fused depthwise tiling). All calls of the chain compute one piece
before the next piece begins. A tensor between two calls exists only for one piece of one stripe. So the rows and
columns at its edges are computed again by the neighbouring stripe or piece, and all pieces share one allocation.
Putting chains in patches bounds the memory between the calls of a chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from openneutron.compiler.cost.cycles import call_cost, issue_cycles, least_compute_cycles
from openneutron.compiler.search.cascade.network import AFTER, CallRows, Network, Piece, Segment, segment
from openneutron.compiler.search.tuning import Effort
from openneutron.compiler.select.calls import KernelCall, Storage, dense_pitches
from openneutron.compiler.select.needs import (
    NEVER,
    RowNeeds,
    Span,
    channel_by_channel,
    columns_needed,
    only_input,
    some_channels,
    some_columns,
    takes_channels,
    takes_columns,
)
from openneutron.isa import aligned
from openneutron.isa.rows import LANES
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Patch:
    """A chain of calls that is divided into pieces.

    ``name`` is the name of the first tensor between its calls. ``pieces`` has the calls of each piece, in order.
    ``rows`` has the number of rows of each call's output. ``needs[i]`` gives the rows of call i that rows of call i + 1
    need, and ``row_bytes[i]`` the bytes of such a row in the widest piece.
    """

    name: str
    pieces: tuple[tuple[KernelCall, ...], ...]
    rows: tuple[int, ...]
    needs: tuple[RowNeeds, ...]
    row_bytes: tuple[int, ...]
    storages: tuple[tuple[Storage, ...], ...]
    """The tensors between the calls of each piece."""
    row_cycles: tuple[int | None, ...]
    """The compute cycles of one row of each call, for all pieces together; None if its rows do not all cost the same."""

    def cycles(self, begin: int, end: int, target: Target) -> int:
        """Return the modelled cycles of all pieces for the stripe [begin, end) of the last call's rows."""
        total = 0
        for index, (first, last) in enumerate(stripe(self.needs, begin, end)):
            each = self.row_cycles[index]
            if first < last and each is not None:
                total += (last - first) * each + len(self.pieces) * issue_cycles(self.pieces[0][index].row, target)
            elif first < last:
                total += sum(call_cost(piece[index], target, last - first).cycles for piece in self.pieces)
        return total

    def least_cycles(self, rows: int, target: Target) -> int:
        """Return a lower bound of the cycles of ``rows`` rows of the last call, for any number of stripes."""
        total = 0
        for index, count in enumerate(least_rows(self.needs, rows)):
            issue = issue_cycles(self.pieces[0][index].row, target)
            computed = [least_compute_cycles(piece[index], target, count) + issue for piece in self.pieces]
            total += sum(computed) if count else 0
        return total

    def mirrored(self) -> Patch:
        """Return the same chain with rows numbered from the last one to the first."""
        needs = tuple(each.mirrored(rows) for each, rows in zip(self.needs, self.rows, strict=False))
        return replace(self, needs=needs)


def stripe(needs: Sequence[RowNeeds], begin: int, end: int) -> list[Span]:
    """Return for each call of a chain the range of rows that a stripe [begin, end) of the last call needs; an empty
    range if it needs none."""
    spans = [(begin, end)]
    for each in reversed(needs):
        begin, end = spans[-1]
        low, high = (each.low[begin], each.high[end]) if begin < end else (0, 0)
        spans.append((low, high) if low < high else (0, 0))
    return spans[::-1]


def least_rows(needs: Sequence[RowNeeds], rows: int) -> list[int]:
    """Return for each call of a chain a lower bound of the number of rows that it computes for the first ``rows`` rows
    of the last call, whatever the stripes.

    If a stride is larger than its window, the rows between two stripes are never read.
    """
    counts = [0] * (len(needs) + 1)
    ends = [0] * len(counts)
    for row in range(rows):
        for index, (first, end) in enumerate(stripe(needs, row, row + 1)):
            counts[index] += max(0, end - max(first, ends[index]))
            ends[index] = max(ends[index], end)
    return counts


def held_rows(needs: Sequence[RowNeeds], progress: Sequence[int]) -> list[int]:
    """Return the number of rows that each tensor between the calls of a chain holds at once. ``progress`` has the end
    of each stripe of the last call."""
    spans = [stripe(needs, begin, end) for begin, end in pairwise(sorted({0, *progress}))]
    return [max([1, *(each[index][1] - each[index][0] for each in spans)]) for index in range(len(needs))]


def offsets(held: Sequence[int], row_bytes: Sequence[int]) -> list[int]:
    """Return the offsets in bytes of the tensors between the calls, laid out one after the other, and as last entry the
    end of the last tensor."""
    return list(accumulate((aligned(rows * size) for rows, size in zip(held, row_bytes, strict=True)), initial=0))


def composed(outer: RowNeeds, inner: RowNeeds) -> RowNeeds:
    """Return the composition of two needs. ``outer`` gives the rows of a tensor that output rows need, and ``inner``
    the rows of an earlier tensor that those rows need. The result gives the rows of the earlier tensor that output
    rows need."""
    low = tuple(inner.low[row] if row != NEVER else NEVER for row in outer.low)
    return RowNeeds(low, tuple(inner.high[row] for row in outer.high))


def even_spans(extent: int, count: int, unit: int) -> Iterator[Span]:
    """Yield ``count`` ranges that cover ``extent`` in nearly equal parts. The size of each but the last is a multiple
    of ``unit``."""
    units = -(-extent // unit)
    edges = [min(extent, units * part // count * unit) for part in range(count + 1)]
    yield from pairwise(edges)


def cuts(calls: Sequence[KernelCall], by_channels: bool, count: int) -> list[list[Span]] | None:
    """Return for each of ``count`` pieces the range of columns or channels of each call's output.

    Return None if the extent is too small for so many pieces, or if a piece would read nothing but padding.
    """
    last = calls[-1].views["output"]
    extent, unit = (last.extents[3], LANES) if by_channels else (last.extents[2], 1)
    if not 1 < count <= -(-extent // unit):
        return None
    made = []
    for span in even_spans(extent, count, unit):
        spans = [span]
        for call in reversed(calls):
            spans.append(spans[-1] if by_channels else columns_needed(call, spans[-1]))
        if any(first >= end for first, end in spans):
            return None
        made.append(spans[-2::-1])
    return made


def widest_rows(calls: Sequence[KernelCall], made: Sequence[Sequence[Span]], by_channels: bool) -> list[int]:
    """Return the bytes of a row of each tensor between the calls, in the piece where the row is widest."""
    written = [call.views["output"] for call in calls[:-1]]
    others = [view.extents[2 if by_channels else 3] * view.element_bytes for view in written]
    return [other * max(spans[i][1] - spans[i][0] for spans in made) for i, other in enumerate(others)]


def patch(
    calls: Sequence[KernelCall], needs: Sequence[RowNeeds], by_channels: bool, count: int, target: Target
) -> Patch | None:
    """Return the chain divided into ``count`` pieces; None if ``cuts`` finds no division."""
    made = cuts(calls, by_channels, count)
    if made is None:
        return None
    some = some_channels if by_channels else some_columns
    pieces = [
        _with_storages([some(call, span) for call, span in zip(calls, spans, strict=True)], number)
        for number, spans in enumerate(made)
    ]
    between = [[call.views["output"] for call in piece[:-1]] for piece in pieces]
    storages = tuple(tuple(Storage(v.tensor, v.extents[1] * v.pitches[1]) for v in views) for views in between)
    rows = tuple(call.views["output"].extents[1] for call in calls)
    row_bytes = tuple(widest_rows(calls, made, by_channels))
    row_cycles = tuple(_row_cycles([piece[i] for piece in pieces], each, target) for i, each in enumerate(rows))
    name = calls[0].views["output"].tensor
    return Patch(name, tuple(pieces), rows, tuple(needs), row_bytes, storages, row_cycles)


def _row_cycles(calls: Sequence[KernelCall], rows: int, target: Target) -> int | None:
    one = [call_cost(call, target, 1).compute_cycles for call in calls]
    whole = [call_cost(call, target).compute_cycles for call in calls]
    return sum(one) if whole == [each * rows for each in one] else None


def _with_storages(calls: Sequence[KernelCall], number: int) -> tuple[KernelCall, ...]:
    """Return the calls of piece ``number``, with new tensors between them that only this piece uses."""
    named = [replace(call, name=f"{call.name}/{number}") for call in calls]
    for index in range(len(named) - 1):
        output = named[index].views["output"]
        pitches = dense_pitches(output.extents, output.element_bytes)
        view = replace(output, tensor=f"{output.tensor}#{number}", pitches=pitches, offset=0)
        for at, name in ((index, "output"), (index + 1, only_input(named[index + 1]))):
            named[at] = replace(named[at], views={**named[at].views, name: view})
    return tuple(named)


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls [first, end) as a chain in patches."""

    first: int
    end: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class PatchedNetwork:
    """A network in which each chain in patches is represented by one call.

    ``at[i]`` is the index in this network of call i of the original network. It is -1 for the calls of a chain except
    the last, which has the index of the chain.
    """

    network: Network
    chains: tuple[Chain, ...]
    at: tuple[int, ...]
    patched: tuple[int, ...]
    """For each cut of the original network, the number of calls before it that are in chains."""

    def segment(self, first: int, end: int, longest: int) -> Segment | None:
        """Return the segment of the calls [first, end) of the original network.

        Return None if it has no chain, if it contains only a part of a chain, if it has more than ``longest`` calls of
        this network, or if one of its calls can't run row by row.
        """
        if self.patched[first] == self.patched[end] or self.at[end - 1] < 0 or (first and self.at[first - 1] < 0):
            return None
        start = self.at[first - 1] + 1 if first else 0
        return segment(self.network, start, self.at[end - 1] + 1) if self.at[end - 1] + 1 - start <= longest else None


def patched_networks(network: Network, effort: Effort) -> list[PatchedNetwork]:
    """Return the networks with chains in patches that an effort tries. They differ in the chains or in the number of
    pieces."""
    handed = [(reader, _handed_on(network, reader, False)) for reader in range(1, len(network.calls))]
    largest = max((_ring_bytes(network, reader, needs) for reader, needs in handed if needs is not None), default=0)
    found: list[PatchedNetwork] = []
    seen: set[tuple[tuple[int, int, int, bool], ...]] = set()
    for by_channels, part in effort.patches:
        inside = list(chains(network, largest // part, by_channels, effort.pieces))
        key = tuple((chain.first, chain.end, len(chain.patch.pieces), by_channels) for chain in inside)
        if inside and key not in seen:
            seen.add(key)
            found.append(patched_network(network, inside))
    return found


def _ring_bytes(network: Network, reader: int, needs: RowNeeds) -> int:
    """Return the size in bytes of those rows of the previous call that one row in the middle of call ``reader`` needs."""
    middle = network.calls[reader].rows // 2
    return (needs.high[middle + 1] - needs.low[middle]) * network.pieces[network.calls[reader - 1].output].row_pitch


def chains(network: Network, most_bytes: int, by_channels: bool, most_pieces: int) -> Iterator[Chain]:
    """Yield disjoint chains that are worth dividing into pieces. Undivided, the rolling buffer of a chain's first
    inner tensor would take more than ``most_bytes``. Divided, all inner tensors of the chain together take at most
    ``most_bytes``.

    Each chain has the smallest number of pieces with which this holds.
    """
    first = 0
    while first < len(network.calls) - 1:
        found = _chain(network, first, most_bytes, by_channels, most_pieces)
        if found is not None:
            yield found
        first = found.end if found is not None else first + 1


def _chain(network: Network, first: int, most_bytes: int, by_channels: bool, most_pieces: int) -> Chain | None:
    end = first + 1
    handed = _handed_on(network, end, by_channels)
    if handed is None or _ring_bytes(network, end, handed) <= most_bytes:
        return None
    end += 1
    # From where much is handed on to where little is.
    while end < len(network.calls) and _size(network, end) < _size(network, end - 1):
        if _handed_on(network, end, by_channels) is None:
            break
        end += 1
    calls, needs = _calls_and_needs(network, first, end, by_channels)
    if needs is None:
        return None
    held = held_rows(needs, range(1, network.calls[end - 1].rows + 1))
    for count in range(2, most_pieces + 1):
        made = cuts(calls, by_channels, count)
        if made is not None and offsets(held, widest_rows(calls, made, by_channels))[-1] <= most_bytes:
            return chain_at(network, first, end, by_channels, count)
    return None


def chain_at(network: Network, first: int, end: int, by_channels: bool, count: int) -> Chain | None:
    """Return calls [first, end) as a chain of ``count`` pieces; None if they can't be divided into so many."""
    calls, needs = _calls_and_needs(network, first, end, by_channels)
    made = None if needs is None else patch(calls, needs, by_channels, count, network.target)
    return None if made is None else Chain(first, end, made)


def _calls_and_needs(
    network: Network, first: int, end: int, by_channels: bool
) -> tuple[list[KernelCall], list[RowNeeds] | None]:
    """Return the calls [first, end), and for each but the first the rows of the previous call that it needs (None in
    place of the list if the calls can't be a chain)."""
    calls = [network.calls[position].call for position in range(first, end)]
    takes = takes_channels(calls[0]) if by_channels else takes_columns(calls[0])
    if not (takes and network.calls[first].by_rows) or None in network.calls[first].reads.values():
        return calls, None
    needs = [_handed_on(network, reader, by_channels) for reader in range(first + 1, end)]
    known = [each for each in needs if each is not None]
    return calls, known if len(known) == len(needs) else None


def _size(network: Network, position: int) -> int:
    return network.pieces[network.calls[position].output].size


def _handed_on(network: Network, reader: int, by_channels: bool) -> RowNeeds | None:
    """Return the rows of the previous call that call ``reader`` needs; None if the two calls can't be neighbours in a
    chain.

    They can't if the tensor between them has other readers or writers, can't be a rolling buffer, or is not read as
    it is written. Nor can they if ``reader`` reads another tensor too, or can't be divided by columns (with
    ``by_channels``, by channels).
    """
    call, before = network.calls[reader], network.calls[reader - 1]
    piece = network.pieces[before.output]
    if piece.writers != (reader - 1,) or piece.readers != (reader,) or not piece.can_roll or piece.last == AFTER:
        return None
    suits = channel_by_channel(call.call) if by_channels else takes_columns(call.call)
    if not (suits and call.by_rows and set(call.reads) == {piece.name}):
        return None
    written, read = before.call.views["output"], call.call.views[only_input(call.call)]
    if (
        written.extents != read.extents
        or written.pitches != read.pitches
        or written.element_bytes != read.element_bytes
        or written.extents[2] * written.extents[3] * written.element_bytes != piece.row_pitch
    ):
        return None
    return call.reads[piece.name]


def patched_network(network: Network, found: Sequence[Chain]) -> PatchedNetwork:
    """Return the network with these chains in patches."""
    starts = {chain.first: chain for chain in found}
    calls: list[CallRows] = []
    at: list[int] = []
    patched = [0]
    position = 0
    while position < len(network.calls):
        chain = starts.get(position)
        if chain is None:
            at.append(len(calls))
            patched.append(patched[-1])
            calls.append(network.calls[position])
            position += 1
            continue
        inside = chain.end - chain.first
        at += [-1] * (inside - 1) + [len(calls)]
        patched += [patched[-1]] * (inside - 1) + [patched[-1] + inside]
        calls.append(_as_one(network, chain))
        position = chain.end
    gone = {network.calls[i].output for chain in found for i in range(chain.first, chain.end - 1)}
    # Whatever touches a chain's first call touches the call that stands for it.
    moved = [*at]
    for chain in found:
        for i in range(chain.first, chain.end):
            moved[i] = at[chain.end - 1]
    pieces = {name: _moved(piece, moved) for name, piece in network.pieces.items() if name not in gone}
    return PatchedNetwork(replace(network, calls=tuple(calls), pieces=pieces), tuple(found), tuple(at), tuple(patched))


def _as_one(network: Network, chain: Chain) -> CallRows:
    first, last = network.calls[chain.first], network.calls[chain.end - 1]
    reads: Mapping[str, RowNeeds | None] = first.reads
    for needs in chain.patch.needs:
        reads = {name: None if inner is None else composed(needs, inner) for name, inner in reads.items()}
    inside = network.calls[chain.first : chain.end]
    return replace(
        last,
        reads=reads,
        in_place=frozenset(),
        compute_cycles=sum(each.compute_cycles for each in inside),
        row_cycles=None,
        constants_bytes=sum(each.constants_bytes for each in inside),
        patch=chain.patch,
    )


def _moved(piece: Piece, moved: Sequence[int]) -> Piece:
    def there(position: int) -> int:
        return moved[position] if 0 <= position < len(moved) else position

    writers, readers = (tuple(dict.fromkeys(map(there, each))) for each in (piece.writers, piece.readers))
    return replace(piece, first=there(piece.first), last=there(piece.last), writers=writers, readers=readers)
