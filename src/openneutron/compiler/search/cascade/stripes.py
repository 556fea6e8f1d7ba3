# SPDX-License-Identifier: BSD-3-Clause
"""A segment in stripes: how far each call is after each round, and the memory and cycles that takes, exactly.

In a round every call of the segment runs at most once, in order, on the rows between where the round before left it and
where this one takes it. One call sets the pace: so many of its rows a round. Calls before it compute what they are asked
for, calls behind it whatever can be computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import sub

from openneutron.compiler.schedule.needs import NEVER
from openneutron.compiler.search.cascade.network import Network, Piece
from openneutron.compiler.search.cascade.segment import Segment, segment
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT

Progress = Sequence[int]
"""Output rows done after each round."""


@dataclass(frozen=True, slots=True)
class Stripes:
    """A segment's way to run: the call that sets the pace, its rows a round, see ``rounds``, and what follows from it.

    ``rings`` are rows held of inner pieces that roll. ``overlaps`` says for a piece that is made here and one that dies
    here how many bytes behind the latter's start the former may start at most (below 0: before it); backwards it is the one
    that dies which may start so far behind the other. ``room_bytes``: what its chains in patches have between their calls.
    ``peak_bytes`` includes ``constants_bytes``, of constants that are fetched.
    """

    segment: Segment = field(repr=False)
    pace: int
    height: int
    even: bool
    rings: Mapping[str, int]
    overlaps: Mapping[tuple[str, str], int]
    room_bytes: int
    peak_bytes: int
    constants_bytes: int
    cycles: int

    @property
    def is_whole(self) -> bool:
        """One call that computes all its rows at once."""
        call = self.segment.network.calls[self.pace]
        return self.segment.end - self.segment.first == 1 and call.patch is None and self.height >= call.rows

    @property
    def room(self) -> str:
        """The name of what all its chains in patches have between their calls."""
        patches = (self.segment.network.calls[position].patch for position in self.segment.positions)
        return next((f"{patch.name} in patches" for patch in patches if patch is not None), "")


def rounds(segment: Segment, pace: int, height: int, even: bool = False) -> dict[int, Progress]:
    """The progress of every call of the segment when call ``pace`` computes ``height`` rows a round.

    With ``even`` no call computes more rows in a round than its share, neither at the start, where borders are asked for
    too, nor at the end, where the padding takes their place: there are rounds before and behind for that.
    """
    calls = segment.network.calls
    total = calls[pace].rows
    count = -(-total // height)
    done: dict[int, list[int]] = {pace: [min(total, (i + 1) * height) for i in range(count)]}

    def share(position: int) -> int:
        return -(-calls[position].rows * height // total)

    for position in range(pace + 1, segment.end):
        rows, paced = calls[position].rows, None
        for feed in segment.feeds[position]:
            if feed.writer in done:
                there = _possible(done[feed.writer], calls[feed.writer].rows, feed.needs.high, rows)
                paced = there if paced is None else _merged(min, paced, there)
        if paced is not None:
            done[position] = _held_back(paced, share(position)) if even else paced
    count = max(map(len, done.values()))
    for position, progress in done.items():
        done[position] = progress + progress[-1:] * (count - len(progress))
    asked: dict[int, list[list[int]]] = {}
    for position in reversed(segment.positions):
        if position not in done:
            demands = asked.get(position, [])
            if not demands or segment.network.pieces[calls[position].output].last >= segment.end:
                demands.append([-(-calls[position].rows * (i + 1) // count) for i in range(count)])
            most = demands[0]
            for other in demands[1:]:
                most = _merged(max, most[::-1], other[::-1])[::-1]
            done[position] = _begun_early(most, share(position)) if even else most
        for feed in segment.feeds[position]:
            if feed.writer not in done:
                rows, high = calls[feed.writer].rows, feed.needs.high
                asked.setdefault(feed.writer, []).append([min(rows, max(0, high[x])) for x in done[position]])
    count = max(map(len, done.values()))
    return {position: [0] * (count - len(progress)) + progress for position, progress in done.items()}


def _merged(choose: Callable[[int, int], int], one: list[int], other: list[int]) -> list[int]:
    """The two step by step; the shorter one goes on as it ends."""
    length = max(len(one), len(other))
    one, other = (each + each[-1:] * (length - len(each)) for each in (one, other))
    return [*map(choose, one, other)]


def _held_back(progress: list[int], share: int) -> list[int]:
    """At most ``share`` rows a round, with more rounds at the end."""
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
    """At most ``share`` rows a round, with more rounds at the start."""
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
    """How far a reader can go once its writer is as far as that."""
    found = {x: rows if x == written_rows else bisect_right(high, x) - 1 for x in set(written)}
    return [found[x] for x in written]


def _inside(segment: Segment, positions: Sequence[int]) -> list[int]:
    return [position for position in positions if segment.first <= position < segment.end]


def _still_needed(
    segment: Segment, piece: Piece, done: Mapping[int, Progress], writer: int, in_place: bool
) -> list[int]:
    """For each round, the first row of a piece that is needed while call ``writer`` runs, or later.

    With ``in_place`` the rows that the writer itself reads in that round do not count.
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
    """Rows of an inner piece that must be held at once."""
    held = 1
    for writer in piece.writers:
        held = max(held, *map(sub, done[writer], _still_needed(segment, piece, done, writer, False)))
        if segment.network.backwards:
            # The kernel writes a stripe's last rows first, as they are counted here: none may lie on another.
            held = max(held, *map(sub, done[writer], (0, *done[writer])))
    return min(held, piece.rows)


def _overlap(segment: Segment, made: Piece, dying: Piece, done: Mapping[int, Progress]) -> int:
    """How far behind the start of ``dying`` ``made`` may start, so that no row is written over one that is still needed."""
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


def union_bytes(made: Piece, dying: Piece, furthest: int) -> int:
    """The least bytes the two take where they may overlap so."""
    return min(max(dying.size + max(0, -furthest), made.size), dying.size + made.size)


def evaluate(segment: Segment, pace: int, height: int, even: bool = False) -> Stripes:
    """What it takes to run the segment so, see ``rounds``. A height of all rows is each call once, whole."""
    done = rounds(segment, pace, height, even)
    return evaluated(segment, (pace, height, even), done, cycles_of(segment, done))


def evaluated(segment: Segment, way: tuple[int, int, bool], done: Mapping[int, Progress], cycles: int) -> Stripes:
    """``evaluate`` where the progress of the calls and their cycles are known."""
    network = segment.network
    calls = network.calls
    rings: dict[str, int] = {}
    pace, height, _ = way
    is_one = segment.end - segment.first == 1 and height < calls[pace].rows
    constants = calls[pace].constants_bytes if is_one else segment.constants_bytes
    memory = constants + segment.through_bytes + sum(p.size for p in segment.dying) + sum(p.size for p in segment.made)
    room_bytes = _room_bytes(segment, done)
    memory += room_bytes
    for piece in segment.inner:
        size = piece.size
        if piece.can_roll:
            ring = _ring(segment, piece, done)
            if ring < piece.rows:
                rings[piece.name] = ring
                size = aligned(ring * piece.row_pitch)
        memory += size
    overlaps, gains = {}, []
    for made in segment.made:
        for dying in segment.dying:
            if not (made.size and dying.size):
                continue
            if made.row_pitch and dying.row_pitch and all(calls[w].in_rows for w in _inside(segment, made.writers)):
                furthest = _overlap(segment, made, dying, done)
            elif segment.end - segment.first == 1 and dying.name in calls[segment.first].in_place:
                furthest = 0
            else:
                continue
            gain = made.size + dying.size - union_bytes(made, dying, furthest)
            if gain > 0:
                overlaps[made.name, dying.name] = furthest
                gains.append((gain, made.name, dying.name))
    taken: set[str] = set()
    for gain, one, other in sorted(gains, key=lambda g: (-g[0], g[1], g[2])):
        if one not in taken and other not in taken:
            taken |= {one, other}
            memory -= gain
    return Stripes(segment, *way, rings, overlaps, room_bytes, memory, constants, cycles)


def _room_bytes(segment: Segment, done: Mapping[int, Progress]) -> int:
    """What lies between the calls of chains in patches: they run one after the other, and share it."""
    patches = ((segment.network.calls[position].patch, done[position]) for position in segment.positions)
    return max((patch.offsets(patch.held(progress))[-1] for patch, progress in patches if patch is not None), default=0)


def cycles_of(segment: Segment, done: Mapping[int, Progress]) -> int:
    """Modelled cycles of all calls of the segment."""
    return sum(_cycles(segment, position, done[position]) for position in segment.positions)


def _cycles(segment: Segment, position: int, progress: Progress) -> int:
    """Modelled cycles of a call in all its stripes."""
    call, network = segment.network.calls[position], segment.network
    steps = sorted({*progress} - {0})
    if call.row_cycles is not None:
        return call.row_cycles * progress[-1] + network.issue_cycles * len(steps)
    return sum(call.cycles(begin, end, network.target) for begin, end in zip((0, *steps), steps, strict=False))


def turned(part: Stripes, mirror: Network) -> Stripes | None:
    """The same cascade from the last rows to the first, or None where it is none or would take other cycles.

    What is made then lies above what dies instead of below it. ``mirror`` is the mirrored network.
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
