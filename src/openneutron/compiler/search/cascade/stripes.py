# SPDX-License-Identifier: BSD-3-Clause
"""Compute the progress of each call of a segment in stripes, and the exact memory and cycles of the segment.

In an iteration every call of the segment runs at most once, in order, on the rows between its progress before and its
progress after. The pacing call computes a fixed number of rows per iteration, the stripe height. A call before it
computes the rows that its readers need, and a call after it computes all rows that it can.

Example: convolutions a, b and c of 3x3 with 8 rows each. Row r of b needs rows r - 1 to r + 1 of a; c needs b alike.
With c as the pacing call and a stripe height of 2, the rows done after each iteration are::

    iteration   0  1  2  3
    a           4  6  8  8
    b           3  5  7  8
    c           2  4  6  8

In iteration 1, a computes rows 4 and 5 while b has done 3 rows: row 3 of b needs row 2 of a. Rows 2 to 5 of a are
held at once, so the output of a is a rolling buffer of 4 rows instead of 8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import sub
from typing import NamedTuple

from openneutron.compiler.place.place import Item, live_bound
from openneutron.compiler.schedule.schedule import Loop, Rows, Step, Wait
from openneutron.compiler.search.cascade.network import Network, Piece, Segment, segment
from openneutron.compiler.search.cascade.patches import held_rows, offsets
from openneutron.compiler.select.needs import NEVER
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT

PERIODS = (1, 2, 3, 4)
"""The numbers of iterations that the body of a loop may have. Where rows are doubled, only every second iteration is
equal."""

Round = tuple[Rows | Wait, ...]


def compressed(all_rounds: Sequence[Round]) -> list[Step]:
    """Return the same stripes in the same order, with loops for repeated iterations."""
    steps: list[Step] = []
    at = 0
    while at < len(all_rounds):
        best_saved, best = 0, (1, 1)
        for period in PERIODS:
            count = _repeats(all_rounds, at, period)
            saved = sum(len(each) for each in all_rounds[at : at + (count - 1) * period])
            if saved > best_saved:
                best_saved, best = saved, (period, count)
        period, count = best
        body = [*chain.from_iterable(all_rounds[at : at + period])]
        if count > 1:
            after = [*chain.from_iterable(all_rounds[at + period : at + 2 * period])]
            steps.append(
                Loop(count, tuple(_moving(one, by) for one, by in zip(body, _moves(body, after), strict=True)))
            )
        else:
            steps += body
        at += period * count
    return steps


def _moving(part: Rows | Wait, by: int) -> Rows | Wait:
    return replace(part, step=by) if isinstance(part, Rows) else part


def _repeats(all_rounds: Sequence[Round], at: int, period: int) -> int:
    """Return how often the ``period`` iterations from index ``at`` run one after the other, the first time included.
    Each time has the same stripes as the time before, at other rows. A stripe moves by the same number of rows every
    time, but different stripes may move by different numbers."""

    def body(index: int) -> list[Rows | Wait]:
        start = at + index * period
        return [*chain.from_iterable(all_rounds[start : start + period])] if start + period <= len(all_rounds) else []

    first, second = body(0), body(1)
    if not first or not _alike(first, second):
        return 1
    moved = _moves(first, second)
    count, before = 2, second
    while True:
        after = body(count)
        if not _alike(before, after) or _moves(before, after) != moved:
            return count
        count, before = count + 1, after


def _moves(one: Sequence[Rows | Wait], other: Sequence[Rows | Wait]) -> list[int]:
    """Return for each stripe the number of rows by which it moves from one iteration to another that is equal
    otherwise; 0 for a wait."""
    return [
        b.row0 - a.row0 if isinstance(a, Rows) and isinstance(b, Rows) else 0 for a, b in zip(one, other, strict=True)
    ]


def _alike(one: Sequence[Rows | Wait], other: Sequence[Rows | Wait]) -> bool:
    """Return whether two iterations have the same calls, with the same numbers of rows, and the same waits."""
    return len(one) == len(other) and all(
        a.call == b.call and a.row1 - a.row0 == b.row1 - b.row0
        if isinstance(a, Rows) and isinstance(b, Rows)
        else a == b
        for a, b in zip(one, other, strict=True)
    )


Progress = Sequence[int]
"""The number of output rows that are done after each iteration."""


class Pacing(NamedTuple):
    """The division of a segment into stripes. The call at position ``pace``, the pacing call, computes ``height``
    rows in each iteration. ``even`` states whether iterations are even (see ``rounds``)."""

    pace: int
    height: int
    even: bool


def rounds(segment: Segment, pace: int, height: int, even: bool = False) -> dict[int, Progress]:
    """Return the progress of every call of the segment (its rows that are done after each iteration) if call ``pace``
    computes ``height`` rows in each iteration.

    With ``even``, no call computes more than its share of rows in an iteration, which is ``height`` in proportion to
    its rows. This takes a few more iterations at the start and at the end. Without ``even``, the first iteration also
    computes the halos, the rows that windows read beyond the stripe. The last iteration has padding in their place.
    """
    done = Paced.of(segment, Pacing(pace, height, even)).progress(segment)
    count = max(map(len, done.values()))
    return {position: [0] * (count - len(progress)) + progress for position, progress in done.items()}


@dataclass(slots=True)
class Paced:
    """The progress of the last calls of a segment with a given pacing: the rows of each call that are done after each
    iteration. It is computed from the call before cut ``end`` backwards, for as many calls as were needed so far.

    The progress of a call does not depend on where the segment begins. So all segments that end at ``end`` share it.
    ``cycles`` has for each call the modelled cycles of this call and all later ones.
    """

    network: Network
    end: int
    pacing: Pacing
    done: dict[int, list[int]]
    most: int
    """The number of iterations of the pacing call and of the calls after it."""
    cycles: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, segment: Segment, pacing: Pacing) -> Paced:
        """Return the progress of the pacing call, and of the calls that read its output directly or through other
        calls."""
        total = segment.network.calls[pacing.pace].rows
        height = pacing.height
        done = {pacing.pace: [min(total, (i + 1) * height) for i in range(-(-total // height))]}
        made = cls(segment.network, segment.end, pacing, done, 0, {segment.end: 0})
        _go_on_behind(segment, pacing.pace, done, made._share)
        made.most = max(map(len, done.values()))
        return made

    def _share(self, position: int) -> int | None:
        calls, (pace, height, even) = self.network.calls, self.pacing
        return -(-calls[position].rows * height // calls[pace].rows) if even else None

    def progress(self, segment: Segment) -> dict[int, list[int]]:
        """Return the progress of all calls of a segment that ends at ``end``. The segment must not begin later than
        any segment for which this was called before.

        A call that does not depend on the pacing call computes in each iteration the rows that its readers need. The
        lists may have different lengths. They are aligned at their ends: a shorter list begins in a later iteration.
        """
        for position in range(self.end - 1, segment.first - 1, -1):
            if position not in self.done:
                self.done[position] = self._before(segment, position)
        return self.done

    def reaching(self, segment: Segment) -> dict[int, list[int]]:
        """Return the result of ``progress`` and add the cycles of the calls to ``cycles``."""
        self.progress(segment)
        for position in range(self.end - len(self.cycles), segment.first - 1, -1):
            self.cycles[position] = self.cycles[position + 1] + _cycles(self.network, position, self.done[position])
        return self.done

    def _before(self, segment: Segment, position: int) -> list[int]:
        """Return the progress of a call, from the known progress of its readers."""
        call = self.network.calls[position]
        piece = self.network.pieces[call.output]
        progress: list[int] | None = None
        for reader in piece.readers:
            for feed in segment.feeds[reader] if position < reader < self.end else ():
                if feed.writer == position:
                    high = feed.needs.high
                    demand = [high[x] for x in self.done[reader]]
                    if demand[-1] > call.rows or min(demand) < 0:
                        demand = [min(call.rows, max(0, row)) for row in demand]
                    progress = demand if progress is None else _later(progress, demand)
        if progress is None or piece.last >= self.end:
            # Later calls or the graph's output need all rows: they are computed in equal steps.
            equal = [-(-call.rows * (i + 1) // self.most) for i in range(self.most)]
            progress = equal if progress is None else _later(progress, equal)
        most = self._share(position)
        return progress if most is None else _begun_early(progress, most)


def _go_on_behind(segment: Segment, pace: int, done: dict[int, list[int]], share: Callable[[int], int | None]) -> None:
    """Add the progress of the calls that depend on the pacing call, directly or through other calls. Each computes all
    rows that it can."""
    calls = segment.network.calls
    for position in range(pace + 1, segment.end):
        rows, paced = calls[position].rows, None
        for feed in segment.feeds[position]:
            if feed.writer in done:
                possible = _possible(done[feed.writer], calls[feed.writer].rows, feed.needs.high, rows)
                paced = possible if paced is None else _merged(min, paced, possible)
        if paced is not None:
            most = share(position)
            done[position] = paced if most is None else _held_back(paced, most)
    count = max(map(len, done.values()))
    for position, progress in done.items():
        done[position] = progress + progress[-1:] * (count - len(progress))


def _later(one: list[int], other: list[int]) -> list[int]:
    """Return the larger value of two progresses in each iteration. The lists are aligned at their ends."""
    return _merged(max, one[::-1], other[::-1])[::-1]


def _merged(choose: Callable[[int, int], int], one: list[int], other: list[int]) -> list[int]:
    """Return ``choose`` of the two progresses for each iteration. The shorter list is continued with its last value."""
    length = max(len(one), len(other))
    one, other = (each + each[-1:] * (length - len(each)) for each in (one, other))
    return [*map(choose, one, other)]


def _held_back(progress: list[int], share: int) -> list[int]:
    """Return the progress limited to ``share`` rows in each iteration. Rows move to later iterations, so that there may
    be more iterations at the end."""
    held: list[int] = []
    now = 0
    for there in progress:
        now = min(there, now + share)
        held.append(now)
    while now < progress[-1]:
        now = min(progress[-1], now + share)
        held.append(now)
    return held


def _begun_early(progress: list[int], share: int) -> list[int]:
    """Return the progress limited to ``share`` rows in each iteration. Rows move to earlier iterations, so that there
    may be more iterations at the start."""
    begun: list[int] = []
    now = progress[-1]
    for there in reversed(progress):
        now = max(there, now - share)
        begun.append(now)
    while now > share:
        now -= share
        begun.append(now)
    return begun[::-1]


def _possible(written: Sequence[int], written_rows: int, high: Sequence[int], rows: int) -> list[int]:
    """Return for each entry of a writer's progress how many rows its reader can then compute."""
    found = {x: rows if x == written_rows else bisect_right(high, x) - 1 for x in set(written)}
    return [found[x] for x in written]


def cycles_of(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Return the modelled cycles of all calls of the segment."""
    return sum(_cycles(segment.network, position, done[position]) for position in segment.positions)


def _cycles(network: Network, position: int, progress: Progress) -> int:
    call, ends = network.calls[position], {*progress, 0}
    if call.row_cycles is not None:
        return call.row_cycles * progress[-1] + call.issue_cycles * (len(ends) - 1)
    _, *steps = sorted(ends)
    return sum(call.cycles(begin, end, network.target) for begin, end in zip((0, *steps), steps, strict=False))


@dataclass(frozen=True, slots=True)
class Stripes:
    """An evaluated candidate for a segment: its pacing (see ``rounds``), memory and cycles.

    ``rings`` has the number of rows that each rolling inner piece holds. ``overlaps`` has pairs (made, dying) of
    pieces: ``made`` is defined here, and ``dying`` is used here for the last time. The value is the largest allowed
    number of bytes from the start of ``dying`` to the start of ``made``; it is negative if ``made`` must begin before
    ``dying``. In the result of ``turned`` the pair is (dying, made), and the bytes are those from the start of
    ``made`` to the start of ``dying``. ``between_bytes`` is the size of one allocation, in which all chains in
    patches keep the tensors between their calls. ``peak_bytes`` includes ``constants_bytes``, the constants that are
    copied to SRAM.
    """

    segment: Segment = field(repr=False)
    pace: int
    height: int
    even: bool
    rings: Mapping[str, int]
    overlaps: Mapping[tuple[str, str], int]
    between_bytes: int
    peak_bytes: int
    constants_bytes: int
    cycles: int

    @property
    def is_whole(self) -> bool:
        """Return whether this is one call that computes all its rows at once."""
        call = self.segment.network.calls[self.pace]
        return self.segment.end - self.segment.first == 1 and call.patch is None and self.height >= call.rows

    @property
    def between(self) -> str:
        """Return the name of the allocation that all chains in patches share between their calls; empty without chains."""
        patches = (self.segment.network.calls[position].patch for position in self.segment.positions)
        return next((f"{patch.name} in patches" for patch in patches if patch is not None), "")


def _inside(segment: Segment, positions: Sequence[int]) -> list[int]:
    return [position for position in positions if segment.first <= position < segment.end]


def _still_needed(
    segment: Segment, piece: Piece, done: Mapping[int, Progress], writer: int, in_place: bool
) -> list[int]:
    """Return for each iteration the first row of a piece that any call still reads while call ``writer`` runs, or
    afterwards.

    With ``in_place``, the rows that the writer itself reads in this iteration do not count.
    """
    low: list[int] | None = None
    for reader in _inside(segment, piece.readers):
        needs = segment.network.calls[reader].reads[piece.name]
        progress = done[reader]
        if not (reader < writer or (reader == writer and in_place)):
            progress = (0, *progress[:-1])
        if needs is None:
            rows = segment.network.calls[reader].rows
            here = [NEVER if x == rows else 0 for x in progress]
        else:
            here = [needs.low[x] for x in progress]
        low = here if low is None else [*map(min, low, here)]
    return low if low is not None else [NEVER] * len(done[writer])


def _ring(segment: Segment, piece: Piece, done: Mapping[int, Progress]) -> int:
    """Return the number of rows that the rolling buffer of an inner piece must hold."""
    held = 1
    for writer in piece.writers:
        call = segment.network.calls[writer]
        is_scratch = call.output != piece.name
        held = max(held, *map(sub, done[writer], _still_needed(segment, piece, done, writer, False)))
        if segment.network.backwards or is_scratch or call.call.is_transfer:
            # The kernel writes a stripe's last rows first, in the order that is counted here, and a transfer in any order: no row may overlap
            # another. Scratch holds all rows of a stripe.
            held = max(held, *map(sub, done[writer], (0, *done[writer])))
    return min(held, piece.rows, piece.block_rows or piece.rows)


def _in_blocks(
    segment: Segment, done: Mapping[int, Progress], writer: int, rings: Mapping[str, int]
) -> Mapping[int, Progress]:
    """Return the progress after each block of rows of call ``writer``, in place of the progress after each iteration.
    Return ``done`` if the call has no blocks, if a block holds all rows of each iteration, or if the network is
    mirrored. ``rings`` are those of ``Stripes``.

    The writer has written a block before it reads the rows of the next one. During all of its blocks, earlier calls
    have finished their rows of the iteration, and later calls have not begun theirs.
    """
    rows = rings.get(segment.network.calls[writer].blocks_in, 0)
    own = done[writer]
    if not rows or segment.network.backwards or max(map(sub, own, (0, *own))) <= rows:
        return done
    made: dict[int, list[int]] = {position: [] for position in done}
    for index, (begin, end) in enumerate(zip((0, *own), own, strict=False)):
        ends = [*range(begin + rows, end, rows), end]
        for position, progress in done.items():
            before = progress[index - 1] if index else 0
            now = progress[index]
            blocks = len(ends) - 1
            made[position] += ends if position == writer else [now if position < writer else before] * blocks + [now]
    return made


def _overlap(
    segment: Segment, made: Piece, dying: Piece, done: Mapping[int, Progress], rings: Mapping[str, int]
) -> int:
    """Return the largest number of bytes from the start of ``dying`` to the start of ``made`` at which no write to
    ``made`` reaches a row of ``dying`` that is still needed."""
    furthest = dying.size
    for writer in _inside(segment, made.writers):
        call = segment.network.calls[writer]
        on_itself = dying.name in call.in_place
        after = _in_blocks(segment, done, writer, rings)
        low = _still_needed(segment, dying, after, writer, on_itself)
        furthest = min(
            furthest,
            *(
                first * dying.row_pitch - (rows + call.offset) * made.row_pitch
                for first, rows in zip(low, after[writer], strict=True)
            ),
        )
        if on_itself:
            furthest = min(furthest, 0)
    return furthest // ALIGNMENT * ALIGNMENT


def evaluate(segment: Segment, pace: int, height: int, even: bool = False) -> Stripes:
    """Return the evaluated candidate of a segment with this pacing (see ``rounds``). If the height is the number of
    rows of the pacing call, there is a single iteration, and each call runs once, on all of its rows but unread ones."""
    done = rounds(segment, pace, height, even)
    return evaluated(segment, Pacing(pace, height, even), done, cycles_of(segment, done))


def evaluated(segment: Segment, pacing: Pacing, done: Mapping[int, Progress], cycles: int) -> Stripes:
    """Return the evaluated candidate of a segment, given the progress ``done`` and the cycles of its calls."""
    calls = segment.network.calls
    is_one = segment.end - segment.first == 1 and pacing.height < calls[pacing.pace].rows
    constants = calls[pacing.pace].constants_bytes if is_one else segment.constants_bytes
    ends = sum(p.size for p in segment.dying) + sum(p.size for p in segment.made)
    between = _between_patches_bytes(segment, done)
    rings = _rings(segment, done)
    overlaps, saved = _overlaps(segment, done, rings)
    memory = constants + segment.through_bytes + ends + between - saved
    for piece in segment.inner:
        memory += _held_bytes(piece, rings)
    return Stripes(segment, *pacing, rings, overlaps, between, memory, constants, cycles)


def _held_bytes(piece: Piece, rings: Mapping[str, int]) -> int:
    return aligned(rings[piece.name] * piece.row_pitch) if piece.name in rings else piece.size


def one_after_the_other(part: Stripes, done: Mapping[int, Progress]) -> Stripes:
    """Return a candidate with its memory reduced to that of calls that run one after the other. This needs a
    candidate with a single iteration that skips unread rows, and a memory that is then smaller. Return other
    candidates unchanged.

    ``done`` is the progress of its calls. In a single iteration, the tensors of the cascade need not all be live at
    the same time. Without unread rows, such a cascade has no use.
    """
    segment, calls = part.segment, part.segment.network.calls
    if len(done[part.pace]) > 1 or all(calls[position].rows == rows for position, (rows,) in done.items()):
        return part
    live = (each for each in segment.network.pieces.values() if each.first < segment.end and each.last >= segment.first)
    items = [Item(each.name, _held_bytes(each, part.rings), each.first, each.last) for each in live]
    patched = [position for position in segment.positions if calls[position].patch is not None]
    items += [Item(part.between, part.between_bytes, patched[0], patched[-1])] if patched else []
    return replace(part, peak_bytes=min(part.peak_bytes, part.constants_bytes + live_bound(items, part.overlaps)))


def _rings(segment: Segment, done: Mapping[int, Progress]) -> dict[str, int]:
    rings = {}
    for piece in segment.inner:
        if piece.can_roll:
            rows = _ring(segment, piece, done)
            if rows < piece.rows:
                rings[piece.name] = rows
    return rings


def _overlaps(
    segment: Segment, done: Mapping[int, Progress], rings: Mapping[str, int]
) -> tuple[dict[tuple[str, str], int], int]:
    """Return ``Stripes.overlaps``, and the bytes that the overlaps save.

    Each piece saves memory in one pair only, the one that saves most.
    """
    overlaps, gains = {}, []
    for made in segment.made:
        for dying in segment.dying:
            furthest = _overlap_of(segment, made, dying, done, rings) if made.size and dying.size else None
            if furthest is None:
                continue
            gain = made.size + dying.size - max(dying.size + max(0, -furthest), made.size)
            if gain > 0:
                overlaps[made.name, dying.name] = furthest
                gains.append((gain, made.name, dying.name))
    paired: set[str] = set()
    saved = 0
    for gain, one, other in sorted(gains, key=lambda g: (-g[0], g[1], g[2])):
        if one not in paired and other not in paired:
            paired |= {one, other}
            saved += gain
    return overlaps, saved


def _overlap_of(
    segment: Segment, made: Piece, dying: Piece, done: Mapping[int, Progress], rings: Mapping[str, int]
) -> int | None:
    """Return the result of ``_overlap``; None if the two pieces must not overlap."""
    calls = segment.network.calls
    if made.row_pitch and dying.row_pitch and all(calls[w].in_rows for w in _inside(segment, made.writers)):
        return _overlap(segment, made, dying, done, rings)
    if segment.end - segment.first == 1 and dying.name in calls[segment.first].in_place:
        return 0
    return None


def _between_patches_bytes(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Return the bytes of the buffer for the tensors between the calls of chains that are divided into pieces
    (``Patch``).

    The chains run one after the other, so they share one buffer, as large as the largest need. It is 0 without such
    chains.
    """
    patches = ((segment.network.calls[position].patch, done[position]) for position in segment.positions)
    held = ((patch, held_rows(patch.needs, progress)) for patch, progress in patches if patch is not None)
    return max((offsets(rows, patch.row_bytes)[-1] for patch, rows in held), default=0)


def turned(part: Stripes, mirror: Network) -> Stripes | None:
    """Return the same cascade in the other direction, from the last rows to the first. Return None for a whole call, or
    if the cycles would differ.

    The pieces that it defines are then placed above the pieces that it reads for the last time, instead of below them.
    ``mirror`` is the mirrored network.
    """
    found = None if part.is_whole else segment(mirror, part.segment.first, part.segment.end)
    if found is None:
        return None
    made = evaluate(found, part.pace, part.height, part.even)
    if made.cycles != part.cycles:
        return None
    held = {piece.name: piece.rows * piece.row_pitch for piece in (*found.made, *found.dying)}
    overlaps = {
        (dying, one): (furthest + held[one] - held[dying]) // ALIGNMENT * ALIGNMENT
        for (one, dying), furthest in made.overlaps.items()
    }
    return replace(made, overlaps=overlaps)
