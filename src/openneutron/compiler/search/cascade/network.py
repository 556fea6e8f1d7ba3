# SPDX-License-Identifier: BSD-3-Clause
"""Represent a list of kernel calls for the search for cascades: the storages and rows that each call reads and writes,
and segments, the runs of neighbouring calls that may become a cascade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from openneutron.compiler.cost.cycles import call_cost, host_of, issue_cycles
from openneutron.compiler.schedule.schedule import Cuttable, fetched_bytes
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, written_in_place
from openneutron.compiler.select.needs import RowNeeds, row_needs
from openneutron.isa import aligned
from openneutron.targets import Target

if TYPE_CHECKING:
    from openneutron.compiler.search.cascade.patches import Patch


AFTER = 1 << 30
"""The position of an imaginary reader of the graph's outputs, which is after all calls."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A storage as the search for cascades needs it: its bytes in the arena (0 if it is outside the arena), and the
    positions of the calls that write and read it.

    ``first`` is the first writer (-1 for a graph input or a state), and ``last`` the last reader or writer (``AFTER``
    for a graph output or a state). ``row_pitch`` is the bytes of a row, or 0 if no call accesses several rows.
    ``can_roll`` states whether the storage may be a rolling buffer; for that, all calls must agree on its rows.
    ``block_rows`` is set for scratch of calls that compute their rows in blocks: the largest number of rows of the
    scratch that a block uses. It is 0 for other storages.
    """

    name: str
    size: int
    first: int
    last: int
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    row_pitch: int
    rows: int
    can_roll: bool
    block_rows: int = 0


@dataclass(frozen=True, slots=True)
class CallRows:
    """A call, with the number of rows of its output. ``reads`` has for each storage the rows that rows of the output
    need (None: all rows).

    ``offset`` is the row of the output's storage that contains row 0 of the output. ``in_place`` are the storages
    over which the output may be written. ``by_rows`` states whether the output can be computed row by row, and
    ``in_rows`` whether its rows are rows of the storage (they are not in a transposed output). If ``patch`` is given,
    this is a chain of calls in patches, and ``call`` is the last one. If constants are copied to SRAM,
    ``constants_bytes`` is the size of the call's constants, and ``piece_bytes`` that of the constants of its smallest
    piece; otherwise both are 0. ``issue_cycles`` are the cycles before the first output of each stripe. If the call
    computes its rows in blocks, ``blocks_in`` is the name of the scratch whose rows set the size of a block;
    otherwise it is empty.
    """

    call: KernelCall
    output: str
    rows: int
    offset: int
    reads: Mapping[str, RowNeeds | None]
    in_place: frozenset[str]
    by_rows: bool
    in_rows: bool
    compute_cycles: int
    row_cycles: int | None
    constants_bytes: int
    piece_bytes: int
    issue_cycles: int
    patch: Patch | None = None
    blocks_in: str = ""
    _spent: dict[tuple[int, int], int] = field(init=False, default_factory=dict, repr=False, compare=False)

    def cycles(self, begin: int, end: int, target: Target) -> int:
        """Return the modelled cycles of rows [begin, end) of the output. Results are cached, so ``target`` must always
        be the same."""
        key = (begin, end) if self.patch is not None else (0, end - begin)
        spent = self._spent.get(key)
        if spent is None:
            made = self.patch.cycles(begin, end, target) if self.patch is not None else None
            spent = self._spent[key] = call_cost(self.call, target, end - begin).cycles if made is None else made
        return spent


@dataclass(frozen=True, slots=True)
class Network:
    """The calls, each with the rows that it writes and reads, and all storages but constants.

    ``issue_cycles`` is the smallest dispatch overhead: that of the cheapest call, or that of a dispatch to the NPU if
    this is smaller. With ``backwards``, rows are numbered from the last one to the first.
    """

    calls: tuple[CallRows, ...]
    pieces: Mapping[str, Piece]
    target: Target
    issue_cycles: int
    backwards: bool = False


def mirrored(made: Network) -> Network:
    """Return the same network with all rows counted from the last one on: its cascades run from the last rows to the first.

    Kernels still go through the rows of a stripe in ascending order, so that nothing is written in place.
    """
    calls = []
    for each in made.calls:
        reads = {name: needs and needs.mirrored(made.pieces[name].rows) for name, needs in each.reads.items()}
        offset = made.pieces[each.output].rows - each.offset - each.rows
        patch = each.patch and each.patch.mirrored()
        calls.append(replace(each, reads=reads, offset=offset, in_place=frozenset(), patch=patch))
    return replace(made, calls=tuple(calls), backwards=True)


def in_row(view: View, row_pitch: int) -> tuple[int, bool]:
    """Return the row of the storage that contains row 0 of the view. Also return whether the view's rows are in
    consecutive rows of the storage, each of them inside one row; for several batches this is False."""
    offset, inside = divmod(view.offset, row_pitch)
    batches, rows, *_ = view.extents
    return offset, batches == 1 and (view.pitches[1] == row_pitch or rows == 1) and inside + view.reach(2) <= row_pitch


def network(
    calls: Sequence[KernelCall], storages: Storages, target: Target, outside: bool, fetched: bool = False
) -> Network:
    """Return the network that the cascade search works on: for each call its rows (``CallRows``), for each storage
    that is no constant a ``Piece`` with its writers and readers.

    ``outside``: inputs and outputs are in the caller's memory. ``fetched``: constants are copied to SRAM, and their
    bytes count while they are read.
    """
    views: dict[str, list[View]] = {}
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for position, call in enumerate(calls):
        for operand, view in call.views.items():
            storage = storages[view.tensor]
            if storage.constant is not None:
                continue
            for side, used in ((writers, call.writes(operand)), (readers, call.reads(operand))):
                if used and position not in side.setdefault(storage.name, []):
                    side[storage.name].append(position)
            there = views.setdefault(storage.name, [])
            there.insert(0, view) if operand == "output" and len(writers[storage.name]) == 1 else there.append(view)
    pieces = {}
    blocks = _used_in_blocks(calls, storages)
    for name, storage in storages.storages.items():
        if storage.constant is None and (name in views or storage.is_given):
            seen = views.get(name, [])
            piece = _piece(storage, seen, writers.get(name, []), readers.get(name, []), outside)
            pieces[name] = replace(piece, block_rows=_block_rows(target)) if name in blocks else piece
    rows = tuple(call_rows(call, storages, pieces, target, fetched) for call in calls)
    beside = (each.issue_cycles for each in rows if host_of(each.call.row, target) is not None)
    return Network(rows, pieces, target, min((int(target.costs.issue_cycles.value), *beside)))


def _used_in_blocks(calls: Sequence[KernelCall], storages: Storages) -> set[str]:
    """Return the storages that are used only as the scratch of calls that compute their rows in blocks."""
    used: dict[str, bool] = {}
    for call in calls:
        for name, view in call.views.items():
            storage = storages.of.get(view.tensor, "")
            used[storage] = used.get(storage, True) and name in call.traits.in_blocks
    return {storage for storage, in_blocks in used.items() if in_blocks}


def _block_rows(target: Target) -> int:
    """Return the number of rows for a block: the smallest with which a row costs no more cycles than in a large
    block.

    Such a block has rows for all pipelines of each unit. Each loaded weight serves so many of its outputs that the
    memory port is not the limit (``Target.step_bytes``), but at most one for each accumulator of a pipeline.
    """
    most = max(target.pipelines, int(target.npu.accumulators.value))
    port = max(target.arena_memory.bandwidth.value, target.step_bytes)
    read = target.units * target.macs
    enough = (rows for rows in range(target.pipelines, most) if read * (1 + target.pipelines / rows) <= port)
    return target.units * next(enough, most)


def _piece(storage: Storage, views: Sequence[View], writers: list[int], readers: list[int], outside: bool) -> Piece:
    touched = [*writers, *readers]
    first = -1 if storage.is_given else min(touched)
    last = AFTER if storage.is_kept else max(touched, default=-1)
    pitch = next((view.pitches[1] for view in views if view.extents[1] > 1), 0)
    rows = storage.size_bytes // pitch if pitch else 0
    rolls = pitch > 0 and storage.is_scratch and storage.size_bytes == rows * pitch
    for view in views if rolls else ():
        offset, fits = in_row(view, pitch)
        rolls = rolls and fits and offset == 0 and view.extents[1] == rows
    size = 0 if storage.is_outside(outside) else max(aligned(storage.size_bytes), aligned(1))
    return Piece(storage.name, size, first, last, tuple(writers), tuple(readers), pitch, rows, rolls)


def call_rows(
    call: KernelCall, storages: Storages, pieces: Mapping[str, Piece], target: Target, fetched: bool
) -> CallRows:
    output = call.views["output"]
    piece = pieces[storages.of[output.tensor]]
    offset, in_rows = in_row(output, piece.row_pitch) if piece.row_pitch else (0, False)
    reads: dict[str, RowNeeds | None] = {}
    in_place = set()
    overwritten = False
    for name, view in call.views.items():
        storage = storages[view.tensor]
        if name == "output" or storage.constant is not None:
            continue
        source = pieces[storage.name]
        needs = row_needs(call, name)
        start, fits = in_row(view, source.row_pitch) if source.row_pitch else (0, False)
        if needs is not None:
            needs = needs.moved(start) if fits else _of_planes(needs, view, source)
        if storage.name in reads:
            earlier = reads[storage.name]
            needs = None if needs is None or earlier is None else needs.joined(earlier)
        reads[storage.name] = needs
        if written_in_place(call, name, storages.of):
            in_place.add(storage.name)
            overwritten |= needs is None and storage.name == piece.name
    rows = output.extents[1]
    whole = call_cost(call, target).compute_cycles
    even = whole % rows == 0 and call_cost(call, target, 1).compute_cycles * rows == whole
    # A state's new value is written once nobody reads the old one: after the cascades of its readers.
    new_state = storages[output.tensor].state is not None
    by_rows = output.extents[0] == 1 and (in_rows or rows > 1) and not call.has_states and not new_state
    # A stripe of the result would take the place of rows that the next stripe needs.
    by_rows = by_rows and not overwritten
    constants = (fetched_bytes(call, storages), Cuttable(call, storages).piece_bytes(1)) if fetched else (0, 0)
    between = call.traits.between
    blocks_in = storages.of[call.views[between].tensor] if between else ""
    return CallRows(call, piece.name, rows, offset, reads, frozenset(in_place), by_rows, in_rows,
                    whole, whole // rows if even else None, *constants, issue_cycles(call.row, target), blocks_in=blocks_in)  # fmt: skip


def _of_planes(needs: RowNeeds, view: View, source: Piece) -> RowNeeds | None:
    """Return the row needs of an image whose channels are outermost (planes), restated in rows of its storage. Return
    None if the rows of the view are not rows of a plane, or if a call writes the storage.

    Row r of the image is row r of each plane. So after row r is read, the later planes still need their first rows,
    and only the rows before row r of the first plane are free.
    """
    if source.writers or not source.row_pitch or view.extents[0] > 1 or view.pitches[1] != source.row_pitch:
        return None
    first, inside = divmod(view.offset, view.pitches[1])
    further = (inside + view.reach(2) - 1) // view.pitches[1]
    moved = needs.moved(first)
    return replace(moved, high=(0, *(end + further for end in moved.high[1:])))


@dataclass(frozen=True, slots=True)
class Feed:
    """A read of a piece that an earlier call of the same segment writes: the positions of both calls, and which of the
    writer's rows each row of the reader needs."""

    piece: str
    writer: int
    reader: int
    needs: RowNeeds


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls [first, end) as a candidate for a cascade, with the pieces that they access and lower bounds of its memory.

    ``through_bytes`` is the size of the pieces that are live before, during and after the segment. ``dying`` are the
    pieces that are defined before the segment and last used in it, ``made`` those that it defines for later calls, and
    ``inner`` those that only it writes and reads. ``constants_bytes`` is a lower bound of the constants that are in
    SRAM at once.
    """

    network: Network
    first: int
    end: int
    through_bytes: int
    dying: tuple[Piece, ...]
    made: tuple[Piece, ...]
    inner: tuple[Piece, ...]
    constants_bytes: int
    feeds: Mapping[int, tuple[Feed, ...]]
    """The reads of pieces that the segment itself writes, by the position of the reader."""
    first_reads: Mapping[int, int]
    """The first row of each writer that any reader in the segment needs, by the position of the writer."""
    fixed_bytes: int
    """A lower bound of the memory of the segment without its rolling buffers, in bytes."""
    rolling: tuple[tuple[str, int, int], ...]
    """The name, the bytes of a row, and the bytes of each inner piece that can be a rolling buffer."""

    @property
    def positions(self) -> range:
        """Return the positions of the calls among all calls."""
        return range(self.first, self.end)

    @property
    def ends_bytes(self) -> int:
        """Return the bytes of the pieces that are live before the first call or after the last one, whichever are
        more, plus ``constants_bytes``."""
        pieces = self.network.pieces.values()
        before = sum(piece.size for piece in pieces if piece.first < self.first <= piece.last)
        after = sum(piece.size for piece in pieces if piece.first < self.end <= piece.last)
        return self.constants_bytes + max(before, after)

    def least_bytes(self, window_rows: Mapping[str, int], held_rows: Mapping[str, int] = MappingProxyType({})) -> int:
        """Return a lower bound of the segment's memory in bytes.

        A rolling buffer counts with max(w, h) rows, at most all. w is its entry in ``window_rows`` (the result of the
        function of this name). h is its entry in ``held_rows`` (the result of ``held_at_once``), if it has one.
        Pieces that are last used in the segment need not be live together with pieces that it defines for later
        calls, so only the larger of these two sums counts.
        """
        total = self.fixed_bytes
        for name, row_pitch, size in self.rolling:
            rows = window_rows[name]
            if name in held_rows and held_rows[name] > rows:
                rows = held_rows[name]
            total += min(rows * row_pitch, size)
        return total

    def held_at_once(self, pace: int, height: int, even: bool) -> dict[str, int]:
        """Return, for some pieces, a lower bound of the rows that they hold at once if call ``pace`` computes
        ``height`` rows in each iteration.

        A stripe of this call reads all rows that it needs at once, and writes its own rows. Without ``even``, the
        calls before it compute all these rows in the first iteration, so each of them also reads all rows that it
        needs at once.
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
    """Return the segment of calls [first, end). Return None if it has several calls and one of them can't run row by
    row inside it."""
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
    pieces = tuple(dying), tuple(made), tuple(inner)
    return Segment(network, first, end, through, *pieces, constants, feeds, first_reads, fixed, rolling)


def _feeds(network: Network, first: int, reader: int) -> tuple[Feed, ...] | None:
    """Return the reads of call ``reader`` from calls at or after ``first``. Return None if one of these reads needs a
    whole piece at once, or if its writer does not write the piece row by row."""
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
    """Return for each call a lower bound of the number of rows that a cascade computes.

    Rows after the last row that is read, such as those after a pool's last window, are an unread region. Rows of other
    calls that only unread rows need are unread too.
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
    """Return for each piece the largest number of rows that any of its readers needs at once to compute one row. For
    each reader, this is a row from the middle of its rows."""
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
