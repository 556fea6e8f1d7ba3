# SPDX-License-Identifier: BSD-3-Clause
"""Compute the exact memory and cycles of a segment in stripes. ``progress`` gives the rows of each iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import sub

from openneutron.compiler.place.place import Item, live_bound
from openneutron.compiler.search.cascade.network import Network, Piece, Segment, segment
from openneutron.compiler.search.cascade.patches import held_rows, offsets
from openneutron.compiler.search.cascade.progress import Pacing, Progress, cycles_of, rounds
from openneutron.compiler.select.needs import NEVER
from openneutron.isa import aligned
from openneutron.isa.rows import ALIGNMENT


@dataclass(frozen=True, slots=True)
class Stripes:
    """An evaluated candidate for a segment: the pacing call, its stripe height (see ``rounds``), and the memory and
    cycles.

    ``rings`` has the rows that each rolling inner piece holds. ``overlaps`` has pairs of a piece that is defined here
    (``made``) and a piece that is last used here (``dying``), with the largest number of bytes from the start of
    ``dying`` to the start of ``made``; below 0, ``made`` must begin before ``dying``. In a mirrored network the pair
    is (dying, made). ``between_bytes`` is the size of the allocation that the chains in patches share between their
    calls. ``peak_bytes`` includes the fetched constants, ``constants_bytes``.
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
    """Return for each iteration the first row of a piece that is still needed while call ``writer`` runs, or later.

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
    """Return the progress after each block of rows of call ``writer``, instead of after each iteration. ``rings``: as
    in ``Stripes``.

    The writer has written a block before it reads the rows of the next one. During all its blocks, earlier calls have
    finished their rows of the iteration, and later calls have not begun theirs.
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
    """Return the largest number of bytes from the start of ``dying`` to the start of ``made`` with which no row is
    written over one that is still needed."""
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
    """Return the memory and cycles of a candidate; ``rounds`` explains the arguments. If the height is all rows, each
    call runs once, whole."""
    done = rounds(segment, pace, height, even)
    return evaluated(segment, Pacing(pace, height, even), done, cycles_of(segment, done))


def evaluated(segment: Segment, pacing: Pacing, done: Mapping[int, Progress], cycles: int) -> Stripes:
    """Return the result of ``evaluate``, from the known progress and cycles of the calls."""
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
    """Return the candidate with the memory of calls that run once each, one after the other.

    ``done`` is the progress of its calls. In one iteration, two tensors of the cascade need not be live at the same time. Such a cascade is
    useful if it leaves out an unread region; other candidates are returned as they are.
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
    """Return the bytes of the allocation that all chains in patches share between their calls: they run one after the other."""
    patches = ((segment.network.calls[position].patch, done[position]) for position in segment.positions)
    held = ((patch, held_rows(patch.needs, progress)) for patch, progress in patches if patch is not None)
    return max((offsets(rows, patch.row_bytes)[-1] for patch, rows in held), default=0)


def turned(part: Stripes, mirror: Network) -> Stripes | None:
    """Return the same cascade in the other direction, from the last rows to the first; None for a whole call, and if
    the cycles would differ.

    The pieces that it defines are then placed above the pieces that it uses up, instead of below them. ``mirror`` is
    the mirrored network.
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
