# SPDX-License-Identifier: BSD-3-Clause
"""The same network with some chains of its calls in patches, which bounds the memory between the calls of a chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.schedule.needs import RowNeeds, channel_by_channel, only_input, takes_channels, takes_columns
from openneutron.compiler.search.cascade.network import AFTER, CallRows, Network, Piece, Segment, segment
from openneutron.compiler.search.cascade.patches import Patch, composed, cuts, held_rows, offsets, patch, widest_rows
from openneutron.compiler.search.effort import Effort
from openneutron.compiler.select.calls import KernelCall


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls [first, end) in patches."""

    first: int
    end: int
    patch: Patch


@dataclass(frozen=True, slots=True)
class PatchedNetwork:
    """A network whose call ``at[i]`` is the original's call i; -1 inside a chain, whose last call stands for all of it."""

    network: Network
    chains: tuple[Chain, ...]
    at: tuple[int, ...]
    patched: tuple[int, ...]
    """The number of the original's calls in chains below each cut."""

    def segment(self, first: int, end: int, longest: int) -> Segment | None:
        """Return the segment of the original's calls [first, end), of at most ``longest`` calls here.

        None where no chain is inside, a cut goes through one, or a call of it can't run row by row.
        """
        if self.patched[first] == self.patched[end] or self.at[end - 1] < 0 or (first and self.at[first - 1] < 0):
            return None
        start = self.at[first - 1] + 1 if first else 0
        return segment(self.network, start, self.at[end - 1] + 1) if self.at[end - 1] + 1 - start <= longest else None


def patched_networks(network: Network, effort: Effort) -> list[PatchedNetwork]:
    """Return the networks that an effort tries, each with other chains or pieces."""
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
    """Return the bytes of the call before ``reader`` that a row in the middle of ``reader`` needs."""
    middle = network.calls[reader].rows // 2
    return (needs.high[middle + 1] - needs.low[middle]) * network.pieces[network.calls[reader - 1].output].row_pitch


def chains(network: Network, most_bytes: int, by_channels: bool, most_pieces: int) -> Iterator[Chain]:
    """Yield disjoint chains whose rings between calls take more than ``most_bytes``, and whose patches do not.

    Each chain is in as few pieces as that takes.
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
    """Return calls [first, end) in so many patches; None where they can't be cut so."""
    calls, needs = _calls_and_needs(network, first, end, by_channels)
    made = None if needs is None else patch(calls, needs, by_channels, count, network.target)
    return None if made is None else Chain(first, end, made)


def _calls_and_needs(
    network: Network, first: int, end: int, by_channels: bool
) -> tuple[list[KernelCall], list[RowNeeds] | None]:
    """Return the calls, and the rows that each but the first needs of the call before; None where they can't be a chain."""
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
    """Return the rows that call ``reader`` needs of the call before; None where the two calls do not share a tensor of their own."""
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
        or written.extents[2] * written.extents[3] != piece.row_pitch
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
