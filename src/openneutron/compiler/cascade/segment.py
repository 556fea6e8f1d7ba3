# SPDX-License-Identifier: BSD-3-Clause
"""Runs of neighbouring calls that may become a cascade, and the memory they deal with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openneutron.compiler.cascade.needs import RowNeeds
from openneutron.compiler.cascade.network import Network, Piece


@dataclass(frozen=True, slots=True)
class Feed:
    """A call of the segment reads what another one of it writes: by position, and the reader's needs in the writer's rows."""

    writer: int
    reader: int
    needs: RowNeeds


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls [first, end). ``through_bytes`` is what stays live all along; ``dying`` was written before and is read here for
    the last time; ``made`` is written here for what comes later; ``inner`` is written and read here alone."""

    network: Network
    first: int
    end: int
    through_bytes: int
    dying: tuple[Piece, ...]
    made: tuple[Piece, ...]
    inner: tuple[Piece, ...]
    feeds: Mapping[int, tuple[Feed, ...]]
    """By reader."""

    @property
    def positions(self) -> range:
        return range(self.first, self.end)

    def least_bytes(self, window_rows: Mapping[str, int]) -> int:
        """What no way to run the segment stays below: ``window_rows`` of each inner piece, and the larger border."""
        inner = sum(min(window_rows[p.name] * p.row_pitch, p.size) if p.can_roll else p.size for p in self.inner)
        dying, made = sum(p.size for p in self.dying), sum(p.size for p in self.made)
        return self.through_bytes + inner + max(dying, made)


def segment(network: Network, first: int, end: int) -> Segment | None:
    """The segment of calls [first, end), or None where one of them can't run row by row inside it."""
    through = 0
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
    feeds = {}
    if end - first > 1:
        for position in range(first, end):
            if not network.calls[position].by_rows:
                return None
            found = _feeds(network, first, position)
            if found is None:
                return None
            feeds[position] = found
    return Segment(network, first, end, through, tuple(dying), tuple(made), tuple(inner), feeds)


def _feeds(network: Network, first: int, reader: int) -> tuple[Feed, ...] | None:
    """What call ``reader`` reads of the calls from ``first`` on; None where it needs all of it at once."""
    feeds = []
    for name, needs in network.calls[reader].reads.items():
        for writer in network.pieces[name].writers:
            if not first <= writer < reader:
                continue
            if needs is None:
                return None
            offset = network.calls[writer].offset
            feeds.append(Feed(writer, reader, needs.moved(-offset) if offset else needs))
    return tuple(feeds)


def window_rows(network: Network) -> dict[str, int]:
    """For each piece the most rows that one row of a reader's output takes."""
    rows = {}
    for name, piece in network.pieces.items():
        most = 1
        for reader in piece.readers:
            needs = network.calls[reader].reads[name]
            middle = network.calls[reader].rows // 2
            if needs is not None:
                most = max(most, needs.high[middle + 1] - needs.low[middle])
        rows[name] = min(most, piece.rows)
    return rows
