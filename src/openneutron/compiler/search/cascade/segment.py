# SPDX-License-Identifier: BSD-3-Clause
"""Runs of neighbouring calls that may become a cascade, and the pieces that they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from openneutron.compiler.schedule.needs import RowNeeds
from openneutron.compiler.search.cascade.network import AFTER, Network, Piece


@dataclass(frozen=True, slots=True)
class Feed:
    """A call of the segment reads a piece that another one writes: by position, and the reader's needs in the writer's rows."""

    piece: str
    writer: int
    reader: int
    needs: RowNeeds


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls [first, end). ``through_bytes`` are the pieces live throughout; ``dying`` are defined before and last used here; ``made``
    are defined here for later calls; ``inner`` are written and read here alone; ``constants_bytes`` is a lower bound of the fetched
    constants."""

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
    first_reads: Mapping[int, int]
    """By writer the first of its rows that a reader of the segment needs."""
    fixed_bytes: int
    """A lower bound of the memory without the rolling pieces."""
    rolling: tuple[tuple[str, int, int], ...]
    """Of each inner piece that can roll the name, the bytes of a row, and the bytes."""

    @property
    def positions(self) -> range:
        """Return the positions of the calls among all calls."""
        return range(self.first, self.end)

    def least_bytes(self, window_rows: Mapping[str, int], held_rows: Mapping[str, int] = MappingProxyType({})) -> int:
        """Return a lower bound of the segment's memory: at least these rows of each rolling piece, and the larger end.

        ``window_rows``: of all pieces, see ``window_rows``; ``held_rows``: of some pieces, see ``held_at_once``.
        """
        total = self.fixed_bytes
        for name, row_pitch, size in self.rolling:
            rows = window_rows[name]
            if name in held_rows and held_rows[name] > rows:
                rows = held_rows[name]
            total += min(rows * row_pitch, size)
        return total

    def held_at_once(self, pace: int, height: int, even: bool) -> dict[str, int]:
        """Return a lower bound of the rows held of some pieces when call ``pace`` computes ``height`` rows per iteration.

        A stripe of the pacing call reads all rows that it needs at once, and writes its own. Without even iterations, the first
        one needs the rows of all calls before the pacing call in the same manner.
        """
        held: dict[str, int] = {}
        calls = self.network.calls
        rows_of = {pace: min(height, calls[pace].rows)}
        for position in range(pace, self.first - 1, -1):
            rows = rows_of.get(position, 0)
            for feed in self.feeds[position] if rows else ():
                end = feed.needs.high[rows]
                held[feed.piece] = max(held.get(feed.piece, 0), end - feed.needs.low[0])
                if not even:
                    rows_of[feed.writer] = max(rows_of.get(feed.writer, 0), min(end, calls[feed.writer].rows))
        first_read = self.first_reads.get(pace)
        if first_read is not None:
            name = calls[pace].output
            held[name] = max(held.get(name, 0), rows_of[pace] - first_read)
        return held


def segment(network: Network, first: int, end: int) -> Segment | None:
    """Return the segment of calls [first, end), or None where one of them can't run row by row inside it."""
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
    for position in range(first, end) if end - first > 1 else ():
        found = _feeds(network, first, position) if network.calls[position].by_rows else None
        if found is None:
            return None
        feeds[position] = found
    first_reads: dict[int, int] = {}
    for feed in (feed for each in feeds.values() for feed in each):
        row = feed.needs.low[0]
        first_reads[feed.writer] = min(row, first_reads.get(feed.writer, row))
    fixed = constants + through + sum(piece.size for piece in inner if not piece.can_roll)
    fixed += max(sum(piece.size for piece in dying), sum(piece.size for piece in made))
    rolling = tuple((piece.name, piece.row_pitch, piece.size) for piece in inner if piece.can_roll)
    return Segment(
        network,
        first,
        end,
        through,
        tuple(dying),
        tuple(made),
        tuple(inner),
        constants,
        feeds,
        first_reads,
        fixed,
        rolling,
    )


def _feeds(network: Network, first: int, reader: int) -> tuple[Feed, ...] | None:
    """Return what call ``reader`` reads of the calls from ``first`` on; None where it needs a whole piece at once."""
    feeds = []
    for name, needs in network.calls[reader].reads.items():
        for writer in network.pieces[name].writers:
            if not first <= writer < reader:
                continue
            if needs is None or not network.calls[writer].in_rows:
                return None
            offset = network.calls[writer].offset
            feeds.append(Feed(name, writer, reader, needs.moved(-offset) if offset else needs))
    return tuple(feeds)


def rows_computed(network: Network) -> list[int]:
    """Return for each call a lower bound of the rows that a cascade computes.

    Rows behind the last row that is read, such as those behind a pool's last window, are an unread region. The rows of other calls
    that only unread rows need are unread too.
    """
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
    """Return for each piece the rows that one row of a reader needs: a computed row in the middle."""
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
