# SPDX-License-Identifier: BSD-3-Clause
"""Runs of neighbouring calls that may become a cascade, and the memory they deal with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openneutron.compiler.schedule.needs import RowNeeds
from openneutron.compiler.search.cascade.network import AFTER, Network, Piece


@dataclass(frozen=True, slots=True)
class Feed:
    """A call of the segment reads what another one of it writes: by position, and the reader's needs in the writer's rows."""

    writer: int
    reader: int
    needs: RowNeeds


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls [first, end). ``through_bytes`` is what stays live all along; ``dying`` was written before and is read here for
    the last time; ``made`` is written here for what comes later; ``inner`` is written and read here alone;
    ``constants_bytes`` is what its fetched constants take at least."""

    network: Network
    first: int
    end: int
    through_bytes: int
    dying: tuple[Piece, ...]
    made: tuple[Piece, ...]
    inner: tuple[Piece, ...]
    constants_bytes: int
    feeds: Mapping[int, tuple[Feed, ...]]
    """By reader."""

    @property
    def positions(self) -> range:
        """Its calls, by their places among all."""
        return range(self.first, self.end)

    def least_bytes(self, held_rows: Mapping[str, int]) -> int:
        """What the segment can't stay below: ``held_rows`` of each inner piece that rolls, and the larger border."""
        inner = sum(min(held_rows[p.name] * p.row_pitch, p.size) if p.can_roll else p.size for p in self.inner)
        dying, made = sum(p.size for p in self.dying), sum(p.size for p in self.made)
        return self.constants_bytes + self.through_bytes + inner + max(dying, made)

    def held_at_once(self, pace: int, height: int, even: bool, held_rows: Mapping[str, int]) -> dict[str, int]:
        """At least so many rows of each piece are held where call ``pace`` computes ``height`` rows a round.

        Its own stripes take their inputs' rows at once, and make their own; without even rounds the first one asks the same of
        all calls before it.
        """
        held = dict(held_rows)
        asked = {pace: min(height, self.network.calls[pace].rows)}
        for position in range(pace, self.first - 1, -1):
            rows = asked.get(position, 0)
            for feed in self.feeds[position] if rows else ():
                name = self.network.calls[feed.writer].output
                end = feed.needs.high[rows]
                held[name] = max(held[name], end - feed.needs.low[0])
                if not even:
                    asked[feed.writer] = max(asked.get(feed.writer, 0), min(end, self.network.calls[feed.writer].rows))
        reads = [f.needs.low[0] for p in range(pace + 1, self.end) for f in self.feeds[p] if f.writer == pace]
        if reads:
            name = self.network.calls[pace].output
            held[name] = max(held[name], asked[pace] - min(reads))
        return held


def segment(network: Network, first: int, end: int) -> Segment | None:
    """The segment of calls [first, end), or None where one of them can't run row by row inside it."""
    through = 0
    constants = sum(call.constants_bytes for call in network.calls[first:end])
    if end - first == 1:
        constants = network.calls[first].piece_bytes
    dying: list[Piece] = []
    made: list[Piece] = []
    inner: list[Piece] = []
    for piece in network.pieces.values():
        if piece.first >= end or piece.last < first:
            continue
        if piece.first >= first:
            (made if piece.last >= end else inner).append(piece)
        elif piece.last >= end or any(first <= writer < end for writer in piece.writers):
            through += piece.size
        else:
            dying.append(piece)
    feeds: dict[int, tuple[Feed, ...]] = {first: ()}
    if end - first > 1:
        for position in range(first, end):
            if not network.calls[position].by_rows:
                return None
            found = _feeds(network, first, position)
            if found is None:
                return None
            feeds[position] = found
    return Segment(network, first, end, through, tuple(dying), tuple(made), tuple(inner), constants, feeds)


def _feeds(network: Network, first: int, reader: int) -> tuple[Feed, ...] | None:
    """What call ``reader`` reads of the calls from ``first`` on; None where it needs all of it at once."""
    feeds = []
    for name, needs in network.calls[reader].reads.items():
        for writer in network.pieces[name].writers:
            if not first <= writer < reader:
                continue
            if needs is None or not network.calls[writer].in_rows:
                return None
            offset = network.calls[writer].offset
            feeds.append(Feed(writer, reader, needs.moved(-offset) if offset else needs))
    return tuple(feeds)


def rows_computed(network: Network) -> list[int]:
    """For each call its output's rows that a cascade computes at least: those behind the last one read, such as a pool's
    windows leave over, it leaves out, and so on backwards."""
    rows = [call.rows for call in network.calls]
    for position in reversed(range(len(rows))):
        call = network.calls[position]
        piece = network.pieces[call.output]
        readers = [reader for reader in piece.readers if reader > position]
        needs = [(network.calls[reader].reads[piece.name], rows[reader]) for reader in readers]
        ends = [each.high[count] - call.offset for each, count in needs if each is not None]
        if piece.last != AFTER and len(ends) == len(needs) and call.in_rows:
            rows[position] = min(call.rows, max([0, *ends]))
    return rows


def window_rows(network: Network) -> dict[str, int]:
    """For each piece the rows that one row of a reader's output takes: one in the middle, of those that are computed."""
    computed = rows_computed(network)
    rows = {}
    for name, piece in network.pieces.items():
        most = 1
        for reader in piece.readers:
            needs = network.calls[reader].reads[name]
            middle = min(network.calls[reader].rows // 2, computed[reader] - 1)
            if needs is not None and middle >= 0:
                most = max(most, needs.high[middle + 1] - needs.low[middle])
        rows[name] = min(most, piece.rows)
    return rows
