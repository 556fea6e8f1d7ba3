# SPDX-License-Identifier: BSD-3-Clause
"""A segment in stripes: the progress of each call after each iteration, and the exact memory and cycles that follow.

In an iteration every call of the segment runs at most once, in order, on the rows between its progress before and its progress
after. The pacing call computes a fixed number of rows per iteration, the stripe height. Calls before it compute the rows that
their readers need, calls behind it all rows that they can.

Example: convolutions a, b and c of 3x3 with 8 rows each. Row r of b needs rows r - 1 to r + 1 of a, and so c of b. With c as the
pacing call and a stripe height of 2, the rows done after each iteration are::

    iteration   0  1  2  3
    a           4  6  8  8
    b           3  5  7  8
    c           2  4  6  8

In iteration 1, a computes rows 4 and 5 while b has done 3 rows: row 3 of b needs row 2 of a. Rows 2 to 5 of a are held at once, so
the output of a is a rolling buffer of 4 rows instead of 8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import sub
from typing import NamedTuple

from openneutron.compiler.schedule.needs import NEVER
from openneutron.compiler.search.cascade.network import Network, Piece, Segment, segment
from openneutron.compiler.search.cascade.patches import held_rows, offsets
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT

Progress = Sequence[int]
"""Output rows done after each iteration."""


class Pacing(NamedTuple):
    """A candidate for a segment: the pacing call, its stripe height, and True for even iterations, see ``rounds``."""

    pace: int
    height: int
    even: bool


@dataclass(frozen=True, slots=True)
class Stripes:
    """An evaluated candidate for a segment: the pacing call, its stripe height (see ``rounds``), and the memory and cycles.

    ``rings`` are the rows held of inner pieces that roll. ``overlaps`` gives, for a piece defined here (made) and a piece last used
    here (dying), how many bytes behind the start of ``dying`` the piece ``made`` may start at most (below 0: before it). In a
    mirrored network the pair is (dying, made). ``between_bytes``: the allocation that the chains in patches share between their
    calls. ``peak_bytes`` includes ``constants_bytes``, the constants that are fetched.
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
        """Return True for one call that computes all its rows at once."""
        call = self.segment.network.calls[self.pace]
        return self.segment.end - self.segment.first == 1 and call.patch is None and self.height >= call.rows

    @property
    def between(self) -> str:
        """Return the name of the allocation that all chains in patches share between their calls; empty without chains."""
        patches = (self.segment.network.calls[position].patch for position in self.segment.positions)
        return next((f"{patch.name} in patches" for patch in patches if patch is not None), "")


def rounds(segment: Segment, pace: int, height: int, even: bool = False) -> dict[int, Progress]:
    """Return the progress of every call of the segment when call ``pace`` computes ``height`` rows per iteration.

    With ``even``, no call computes more than its share of rows in an iteration. The share of a call is ``height`` in proportion to
    its rows. Without ``even``, the first iteration computes halos too, and the last one finds padding in their place. Even
    iterations instead begin earlier and end later.
    """
    calls = segment.network.calls
    total = calls[pace].rows

    def share(position: int) -> int | None:
        return -(-calls[position].rows * height // total) if even else None

    done: dict[int, list[int]] = {pace: [min(total, (i + 1) * height) for i in range(-(-total // height))]}
    _go_on_behind(segment, pace, done, share)
    _go_before(segment, done, share)
    count = max(map(len, done.values()))
    return {position: [0] * (count - len(progress)) + progress for position, progress in done.items()}


def _go_on_behind(segment: Segment, pace: int, done: dict[int, list[int]], share: Callable[[int], int | None]) -> None:
    """Add the calls that read the pacing call's output, directly or not: each computes all rows that it can."""
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


def _go_before(segment: Segment, done: dict[int, list[int]], share: Callable[[int], int | None]) -> None:
    """Add all other calls, from the last one to the first: each computes the rows that its readers need in an iteration."""
    calls = segment.network.calls
    count = max(map(len, done.values()))
    needed: dict[int, list[list[int]]] = {}
    for position in reversed(segment.positions):
        if position not in done:
            demands = needed.get(position, [])
            if not demands or segment.network.pieces[calls[position].output].last >= segment.end:
                # Later calls or the graph's output need all rows: they are computed in equal steps.
                demands.append([-(-calls[position].rows * (i + 1) // count) for i in range(count)])
            progress = demands[0]
            for other in demands[1:]:
                progress = _merged(max, progress[::-1], other[::-1])[::-1]
            most = share(position)
            done[position] = progress if most is None else _begun_early(progress, most)
        for feed in segment.feeds[position]:
            if feed.writer not in done:
                rows, high = calls[feed.writer].rows, feed.needs.high
                needed.setdefault(feed.writer, []).append([min(rows, max(0, high[x])) for x in done[position]])


def _merged(choose: Callable[[int, int], int], one: list[int], other: list[int]) -> list[int]:
    """Return the two step by step; the shorter one continues with its last element."""
    length = max(len(one), len(other))
    one, other = (each + each[-1:] * (length - len(each)) for each in (one, other))
    return [*map(choose, one, other)]


def _held_back(progress: list[int], share: int) -> list[int]:
    """Return a progress of at most ``share`` rows per iteration, with more iterations at the end."""
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
    """Return a progress of at most ``share`` rows per iteration, with more iterations at the start."""
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
    """Return the rows that a reader can compute for each progress of its writer."""
    found = {x: rows if x == written_rows else bisect_right(high, x) - 1 for x in set(written)}
    return [found[x] for x in written]


def _inside(segment: Segment, positions: Sequence[int]) -> list[int]:
    return [position for position in positions if segment.first <= position < segment.end]


def _still_needed(
    segment: Segment, piece: Piece, done: Mapping[int, Progress], writer: int, in_place: bool
) -> list[int]:
    """Return for each iteration the first row of a piece that is needed while call ``writer`` runs, or later.

    With ``in_place``, the rows that the writer itself reads in the iteration do not count.
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
    """Return the rows of an inner piece that must be held at once."""
    held = 1
    for writer in piece.writers:
        held = max(held, *map(sub, done[writer], _still_needed(segment, piece, done, writer, False)))
        if segment.network.backwards:
            # The kernel writes a stripe's last rows first, as they are counted here: none may overlap another.
            held = max(held, *map(sub, done[writer], (0, *done[writer])))
    return min(held, piece.rows)


def _overlap(segment: Segment, made: Piece, dying: Piece, done: Mapping[int, Progress]) -> int:
    """Return how far behind the start of ``dying`` ``made`` may start, so that no row is written over one that is still needed."""
    furthest = dying.size
    for writer in _inside(segment, made.writers):
        call = segment.network.calls[writer]
        on_itself = dying.name in call.in_place
        low = _still_needed(segment, dying, done, writer, on_itself)
        furthest = min(
            furthest,
            *(
                first * dying.row_pitch - (rows + call.offset) * made.row_pitch
                for first, rows in zip(low, done[writer], strict=True)
            ),
        )
        if on_itself:
            furthest = min(furthest, 0)
    return furthest // ALIGNMENT * ALIGNMENT


def evaluate(segment: Segment, pace: int, height: int, even: bool = False) -> Stripes:
    """Return the memory and cycles of a candidate, see ``rounds``. With a height of all rows each call runs once, whole."""
    done = rounds(segment, pace, height, even)
    return evaluated(segment, Pacing(pace, height, even), done, cycles_of(segment, done))


def evaluated(segment: Segment, pacing: Pacing, done: Mapping[int, Progress], cycles: int) -> Stripes:
    """Return the result of ``evaluate`` where the progress of the calls and their cycles are known."""
    calls = segment.network.calls
    is_one = segment.end - segment.first == 1 and pacing.height < calls[pacing.pace].rows
    constants = calls[pacing.pace].constants_bytes if is_one else segment.constants_bytes
    ends = sum(p.size for p in segment.dying) + sum(p.size for p in segment.made)
    between = _between_patches_bytes(segment, done)
    rings = _rings(segment, done)
    overlaps, saved = _overlaps(segment, done)
    memory = constants + segment.through_bytes + ends + between - saved
    for piece in segment.inner:
        memory += aligned(rings[piece.name] * piece.row_pitch) if piece.name in rings else piece.size
    return Stripes(segment, *pacing, rings, overlaps, between, memory, constants, cycles)


def _rings(segment: Segment, done: Mapping[int, Progress]) -> dict[str, int]:
    rings = {}
    for piece in segment.inner:
        if piece.can_roll:
            rows = _ring(segment, piece, done)
            if rows < piece.rows:
                rings[piece.name] = rows
    return rings


def _overlaps(segment: Segment, done: Mapping[int, Progress]) -> tuple[dict[tuple[str, str], int], int]:
    """Return how far pieces that are made and that die here may overlap, see ``Stripes``, and the bytes that this saves.

    Each piece saves memory once, in the pair that saves most.
    """
    overlaps, gains = {}, []
    for made in segment.made:
        for dying in segment.dying:
            furthest = _overlap_of(segment, made, dying, done) if made.size and dying.size else None
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


def _overlap_of(segment: Segment, made: Piece, dying: Piece, done: Mapping[int, Progress]) -> int | None:
    """Return how far behind the start of ``dying`` ``made`` may start; None where the two must not overlap."""
    calls = segment.network.calls
    if made.row_pitch and dying.row_pitch and all(calls[w].in_rows for w in _inside(segment, made.writers)):
        return _overlap(segment, made, dying, done)
    if segment.end - segment.first == 1 and dying.name in calls[segment.first].in_place:
        return 0
    return None


def _between_patches_bytes(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Return the bytes of the allocation that all chains in patches share between their calls: they run one after the other."""
    patches = ((segment.network.calls[position].patch, done[position]) for position in segment.positions)
    held = ((patch, held_rows(patch.needs, progress)) for patch, progress in patches if patch is not None)
    return max((offsets(rows, patch.row_bytes)[-1] for patch, rows in held), default=0)


def cycles_of(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Return the modelled cycles of all calls of the segment."""
    return sum(_cycles(segment, position, done[position]) for position in segment.positions)


def _cycles(segment: Segment, position: int, progress: Progress) -> int:
    call, network = segment.network.calls[position], segment.network
    steps = sorted({*progress} - {0})
    if call.row_cycles is not None:
        return call.row_cycles * progress[-1] + network.issue_cycles * len(steps)
    return sum(call.cycles(begin, end, network.target) for begin, end in zip((0, *steps), steps, strict=False))


def turned(part: Stripes, mirror: Network) -> Stripes | None:
    """Return the same cascade from the last rows to the first; None for a whole call, and where the cycles would differ.

    The pieces made are then placed above the dying pieces instead of below them. ``mirror`` is the mirrored network.
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
