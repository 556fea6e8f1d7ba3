# SPDX-License-Identifier: BSD-3-Clause
"""Search the segments of a schedule in tiles, and the tensors that stay in the memory of the NPU between segments.

A tensor that is live between two segments is either whole in the memory of the NPU, or in external memory. The segment
that defines an external tensor stores it, and each segment that reads it loads it. As in the search for cascades, the
best plan is a shortest path over cuts of the calls. A state of the path is a cut and the set of tensors that stay in
the memory of the NPU there. Only the best ``kept_states`` states of each cut are kept (beam search), so that the search
is a heuristic. The cycles of a segment are the larger of two sums: those of its iterations, with transfers in parallel
to kernels, and those of all of its copies, including copies of constants.

A graph is searched in several orders and several divisions of its calls, and most segments occur in all of these. Other
segments, such as the layers of an encoder or the blocks of a residual network, differ only in names and in the values
of their constants. The memory and the cycles of a segment depend on the kernels, parameters and views of its calls, on
which tensors are external, and on the other users of its tensors. Segments that agree in all of these have the same
``Structure`` and are evaluated once.

``fastest_plan`` makes schedules with addresses and prefetch from the best plans. Between segments, copies can run in
parallel to kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from openneutron.compiler.cost.cycles import fetch_cycles, least_compute_cycles
from openneutron.compiler.place.place import EXACT_WORK, Item, Layout, lay_out
from openneutron.compiler.place.prefetch import ENDLESS, ConstantUse, PrefetchPlan, PrefetchSearch, fastest_within
from openneutron.compiler.schedule.schedule import Cuttable, Loop, Schedule, Step, Wait, calls_in, fetched_bytes
from openneutron.compiler.search.cascade.network import rows_computed
from openneutron.compiler.search.tiles.streams import LOADS, STORES, Streamed, Streams, Tiled, steps_of, tiled
from openneutron.compiler.search.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall, Maps, Storages, View
from openneutron.compiler.select.needs import row_needs
from openneutron.options import CALLER
from openneutron.targets import Target


@dataclass(slots=True, eq=False)
class Forms:
    """The ways in which a segment can run, called forms. The segment has calls [first, end), and the storages
    ``external`` are in external memory.

    In one form, all transfers are before or after the segment. Only a segment of one call has this form, and it comes
    first. In the other form, there are transfers in each iteration where the calls permit that. A form in which the
    calls can't run is left out.
    """

    streams: Streams
    first: int
    end: int
    external: frozenset[str]
    _made: tuple[Streamed, ...] | None = None

    @property
    def made(self) -> tuple[Streamed, ...]:
        """Return the forms, which the first access computes."""
        if self._made is None:
            self._made = tuple(self._forms())
        return self._made

    def _forms(self) -> Iterator[Streamed]:
        alone = self.end - self.first == 1
        ways = [True] if alone else []
        if self.streams.base.calls[self.first].by_rows and (self.external or not alone):
            ways.append(False)
        for whole in ways:
            form = self.streams.streamed(self.first, self.end, self.external, whole)
            if form is not None:
                yield form


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluated candidate for a segment: the index of its form, and its stripe height in rows.

    ``cycles`` and ``moving_cycles`` are the two results of ``Tiled.cycles``. ``peak_bytes`` is the memory of the NPU
    that the segment takes.
    """

    forms: Forms
    number: int
    height: int
    cycles: int
    moving_cycles: int
    peak_bytes: int

    def tiled(self) -> Tiled:
        """Return the segment with the progress of its calls."""
        return tiled(self.forms.made[self.number], self.height)


@dataclass(slots=True)
class Structure:
    """A cache of the evaluations of all segments with the same structure, which therefore have the same memory and
    cycles. ``forms`` are those of the first of these segments.

    ``_peaks`` has the memory in bytes by form and stripe height, and ``_evaluated`` the candidates whose cycles are
    computed too.
    """

    forms: Forms
    _peaks: dict[tuple[int, int], int] = field(default_factory=dict)
    _evaluated: dict[tuple[int, int], Evaluated] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of forms."""
        return len(self.forms.made)

    def fastest_of(self, number: int, budget: int, most: int) -> Evaluated | None:
        """Return the fastest candidate of a form that is found for ``budget`` bytes and at most ``most`` stripes; None if none fits.

        The smallest number of stripes that fits is tried, and then up to ``finer_stripes`` larger numbers, while the cycles fall.
        """
        form = self.forms.made[number]
        found = form.segment
        least = found.fixed_bytes + sum(min(pitch, size) for _, pitch, size in found.rolling)
        if least > budget:
            return None
        rows = form.calls[form.pace].rows
        numbers = (1,) if len(form.calls) == 1 else (*TUNING.stripes, min(rows, TUNING.most_stripes))
        heights = [*dict.fromkeys(-(-rows // n) for n in numbers if n <= min(rows, most))]
        # A small number of stripes is evaluated quickly, so that the search for the smallest number that fits begins there.
        low, high, step = 0, len(heights), 1
        while low < high:
            middle = min(low + step, high) - 1
            if self._within(number, heights[middle], budget) is not None:
                high, step = middle, (middle - low + 1) // 2
            else:
                low, step = middle + 1, 2 * step if high == len(heights) else (high - middle) // 2
            step = max(1, step)
        best = None
        for index in range(low, min(low + 1 + TUNING.finer_stripes, len(heights))):
            each = self._within(number, heights[index], budget)
            if each is not None and (best is None or each.cycles < best.cycles):
                best = each
            elif best is not None:
                break
        return best

    def _within(self, number: int, height: int, budget: int) -> Evaluated | None:
        """Return the candidate with this form and stripe height; None if it takes more than ``budget`` bytes (its
        cycles are then not computed)."""
        key = number, height
        if self._peaks.get(key, 0) > budget:
            return None
        found = self._evaluated.get(key)
        if found is None:
            made = tiled(self.forms.made[number], height)
            self._peaks[key] = made.peak_bytes
            if made.peak_bytes > budget:
                return None
            found = self._evaluated[key] = Evaluated(self.forms, number, height, *made.cycles(), made.peak_bytes)
        return found


@dataclass(slots=True)
class Choices:
    """A cache of the fastest candidates of a segment. ``found`` has, for each budget, the limit of the search in
    cycles, and its result."""

    structure: Structure
    found: dict[int, tuple[int, Evaluated | None]] = field(default_factory=dict)


OF_VALUES = ("zero_point", "multiplier", "shift", "clamp_min", "clamp_max", "epsilon_high", "epsilon_low")
"""The endings of the names of those parameters that change only values, and no cycles, rows or memory."""

Key = tuple[object, ...]

Names = tuple[str, ...]
"""The storages of a call's operands, in the order of its views."""


@dataclass(slots=True)
class Segments:
    """A cache of the searches of all segments so far, and of the structures that segments share."""

    _known: dict[Key, Choices] = field(default_factory=dict)
    _structures: dict[Key, Structure] = field(default_factory=dict)
    _numbers: dict[Key, int] = field(default_factory=dict)
    _lists: dict[int, tuple[Streams, list[tuple[int, Names]], dict[str, int]]] = field(default_factory=dict)
    """For each ``Streams``, by its identity: the object itself (so that it stays alive), the number and the storages of
    each call, and the number of each storage."""

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._known)

    def choices(self, forms: Forms) -> Choices:
        """Return the cache of the fastest candidates of a segment. Segments share such a cache only if they have the
        same calls.

        Segments with the same structure but other calls are searched with other limits. If they shared it too, a
        result would depend on the order of the searches.
        """
        streams, structure = forms.streams, self._key(forms)
        key = (structure, id(streams.storages), *map(id, streams.calls[forms.first : forms.end]))
        found = self._known.get(key)
        if found is None:
            shared = self._structures.get(structure)
            if shared is None:
                shared = self._structures[structure] = Structure(forms)
            found = self._known[key] = Choices(shared)
        return found

    def _key(self, forms: Forms) -> Key:
        """Return the key of a segment's structure. Segments with equal keys have the same memory and cycles.

        The key has the number of each call, and for each operand the index of its storage in the order of first use. At
        its first use, a storage adds its own number, whether it is external, and whether it has users before and after
        the segment.
        """
        _, calls, storages = self._lists.get(id(forms.streams)) or self._listed(forms.streams)
        pieces, places, key = forms.streams.base.pieces, dict[str, int](), list[object]()
        for number, names in calls[forms.first : forms.end]:
            key.append(number)
            for name in names:
                place = places.get(name)
                if place is None:
                    place = places[name] = len(places)
                    piece = pieces.get(name)
                    ends = piece is not None and (piece.first < forms.first, piece.last >= forms.end)
                    key.append((storages[name], name in forms.external, ends))
                key.append(place)
        return tuple(key)

    def _listed(self, streams: Streams) -> tuple[Streams, list[tuple[int, Names]], dict[str, int]]:
        """Make the entry of ``_lists`` for ``streams``, and return it. Calls or storages with equal numbers have the
        same effect on the memory and the cycles of a segment."""
        calls = []
        for call, rows in zip(streams.calls, streams.base.calls, strict=True):
            views = tuple((name, view.place) for name, view in call.views.items())
            # Maps are the only constants whose values decide which rows a call reads.
            maps = tuple(id(each) for each in call.constants.values() if isinstance(each, Maps))
            stored = tuple(sorted(call.packed_bytes().items())), rows.constants_bytes, rows.piece_bytes
            params = tuple(item for item in sorted(call.params.items()) if not item[0].endswith(OF_VALUES))
            key = call.kernel, params, views, stored, maps
            names = tuple(streams.storages.of[view.tensor] for view in call.views.values())
            calls.append((self._number(key), names))
        storages = {}
        for name, storage in streams.storages.storages.items():
            piece = streams.base.pieces.get(name)
            # The name and the positions of the users differ between segments of one structure.
            known = piece and replace(piece, name="", first=0, last=0, writers=(), readers=())
            role = storage.constant is None, storage.is_scratch, storage.state is None, storage.external
            used = (len(piece.writers), bool(piece.readers)) if piece else ()
            storages[name] = self._number((storage.size_bytes, storage.is_border, role, known, used))
        self._lists[id(streams)] = streams, calls, storages
        return self._lists[id(streams)]

    def _number(self, key: Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


Part = tuple[int, int, frozenset[str], Evaluated]
"""A segment of a plan: calls [first, end), the storages in external memory, and the evaluated stripes."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The segments of a schedule, in order. ``cycles`` are an estimate. ``external`` are the storages that are in
    external memory in any segment."""

    parts: tuple[Part, ...]
    cycles: int
    external: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Path:
    # The best path to a state: its cycles, the tensors that stay, its last segment, and the path to that segment's start.
    cycles: int
    stays: frozenset[str]
    part: Part | None
    earlier: _Path | None


@dataclass(slots=True)
class TileSearch:
    """The search for plans in tiles of one list of calls.

    A call of ``cuts`` can only be the first call of a cascade. ``segments`` caches evaluated segments; several searches
    may share it. No plan takes fewer than ``floor_bytes``.
    """

    streams: Streams
    cuts: frozenset[int] = frozenset()
    segments: Segments = field(default_factory=Segments)
    _choices: dict[tuple[int, int, frozenset[str]], tuple[Choices, Forms]] = field(default_factory=dict)
    _least: list[int] = field(init=False)
    bytes_read: list[dict[str, int]] = field(init=False)
    _constants: list[int] = field(init=False)
    outside: frozenset[str] = field(init=False)
    _touched: list[frozenset[str]] = field(init=False)
    _saving: list[int] = field(init=False)
    floor_bytes: int = field(init=False)
    _in_cascades: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        calls, target, storages = self.streams.calls, self.streams.target, self.streams.storages
        least = (
            least_compute_cycles(call, target, call.views["output"].extents[1]) + self.streams.base.issue_cycles
            for call in calls
        )
        self._least = [0, *accumulate(least)]
        self._constants = [0, *accumulate(fetched_bytes(call, storages) for call in calls)]
        self.outside = frozenset(name for name, each in storages.storages.items() if each.is_border)
        self.bytes_read = [self._bytes_read(call) for call in calls]
        self._touched = [frozenset((row.output, *row.reads)) for row in self.streams.base.calls]
        # A cascade computes only rows that are read. A call of which no row is read must still run, so that it is computed whole.
        computed = rows_computed(self.streams.base)
        self._in_cascades = [row.by_rows and n > 0 for row, n in zip(self.streams.base.calls, computed, strict=True)]
        self._saving = [self._most_saved(cut) for cut in range(len(calls) + 1)]
        self.floor_bytes = max(map(self._least_bytes, range(len(calls))), default=0)

    def _most_saved(self, cut: int) -> int:
        """Return the cycles that the calls after a cut take to load all tensors that are live at the cut, each once
        for every reader. Keeping tensors in the memory of the NPU at the cut can't save more cycles."""
        live = [piece for piece in self.streams.base.pieces.values() if piece.first < cut <= piece.last]
        sizes = [piece.size * sum(reader >= cut for reader in piece.readers) for piece in live]
        return fetch_cycles(sum(sizes), self.streams.target)

    def _least_bytes(self, position: int) -> int:
        """Return a lower bound of the memory, in bytes, of all segments that contain the call at ``position``.

        The bound is the smallest piece of its constants, and the rows of one tensor that one row of its output needs.
        """
        call = self.streams.base.calls[position]
        return call.piece_bytes + max((self.window_bytes(position, name) for name in call.reads), default=0)

    def window_bytes(self, position: int, name: str) -> int:
        """Return a lower bound of the bytes of a tensor that a compact copy of it holds while a call computes one row."""
        streams, most = self.streams, 0
        call, by_rows = streams.calls[position], streams.base.calls[position].by_rows
        for operand, view in call.views.items():
            if streams.storages.of[view.tensor] == name and call.reads(operand):
                needs, size, rows = row_needs(call, operand), view.distinct_bytes, view.extents[1]
                if needs is not None and by_rows:
                    held = max(end - first for first, end in zip(needs.low, needs.high[1:], strict=False))
                    size = min(size, max(0, held) * size // rows)
                most = max(most, size)
        return most

    def _bytes_read(self, call: KernelCall) -> dict[str, int]:
        """Return the bytes that a call reads of each storage: the maximum over the operands in that storage. Constants are left out."""
        read: dict[str, int] = {}
        for operand, view in call.views.items():
            storage = self.streams.storages[view.tensor]
            if storage.constant is None and call.reads(operand):
                read[storage.name] = max(read.get(storage.name, 0), view.distinct_bytes)
        return read

    def plan(self, budget: int) -> TilePlan | None:
        """Return the fastest plan that is found for ``budget`` bytes of NPU memory; None if no plan is found.

        Only the fastest states of each cut between calls are kept. A state is a set of tensors that stay in the
        memory of the NPU, and may leave too little memory for a later call. So if no plan is found, a second search
        also keeps, for each cut, the state with the fewest bytes.
        """
        if self.floor_bytes > budget:
            return None
        path = self._shortest(budget, False) or self._shortest(budget, True)
        return None if path is None else self._made(path)

    def _shortest(self, budget: int, keeps_smallest: bool) -> _Path | None:
        count = len(self.streams.calls)
        best: list[list[_Path]] = [[_Path(0, frozenset(), None, None)], *([] for _ in range(count))]
        for end in range(1, count + 1):
            found: dict[frozenset[str], _Path] = {}
            for first in self.firsts(end, budget):
                for path in best[first]:
                    for stays, part in self._parts(first, end, path, budget, found, keeps_smallest):
                        cycles = path.cycles + self._cycles(first, end, part[3])
                        known = found.get(stays)
                        if known is None or cycles < known.cycles:
                            found[stays] = _Path(cycles, stays, part, path)
            ranked = sorted(found.values(), key=lambda each: (each.cycles, sorted(each.stays)))
            rest = sorted(
                ranked[TUNING.kept_states :] if keeps_smallest else (), key=lambda each: self._staying_bytes(each.stays)
            )
            best[end] = [*ranked[: TUNING.kept_states], *rest[:1]]
        return best[count][0] if best[count] else None

    def _staying_bytes(self, stays: frozenset[str]) -> int:
        return sum(self.streams.base.pieces[name].size for name in stays)

    def _least_cycles(self, first: int, end: int, external: frozenset[str] | set[str]) -> int:
        """Return an estimate of the cycles of a segment with these storages in external memory. Few segments take fewer cycles.

        Kernels wait until the first stripe is loaded, and the last stripe is stored after all kernels. With n stripes, these two transfers
        take t / n cycles, where t are the cycles of all transfers. Each kernel is dispatched n times: with d cycles for a dispatch of all
        kernels, n - 1 further dispatches take d (n - 1). The sum is at least 2 sqrt(t d) - d.
        """
        pieces, moved = self.streams.base.pieces, 0
        for name in external:
            piece = pieces[name]
            if first <= piece.first:
                moved += piece.size if all(position < end for position in piece.writers) else 0
            else:
                moved += max(self.bytes_read[position].get(name, 0) for position in range(first, end))
        target = self.streams.target
        around, dispatch = fetch_cycles(moved, target), (end - first) * self.streams.base.issue_cycles
        if around > dispatch:
            around = 2 * math.isqrt(around * dispatch) - dispatch
        copied = fetch_cycles(moved + self._constants[end] - self._constants[first], target)
        hidden = fetch_cycles(moved, target) // TUNING.hidden_cycles
        return max(self._least[end] - self._least[first] + around, copied) + hidden

    def _made(self, last: _Path) -> TilePlan:
        cycles, parts = last.cycles, []
        external: set[str] = set()
        path: _Path | None = last
        while path is not None and path.part is not None:
            parts.append(path.part)
            external |= path.part[2]
            path = path.earlier
        return TilePlan(tuple(reversed(parts)), cycles, frozenset(external))

    def firsts(self, end: int, budget: int) -> Iterator[int]:
        """Yield the first calls of the segments that may end at ``end``, the shortest segment first."""
        yield end - 1
        for first in range(end - 1, max(-1, end - TUNING.longest_cascade - 1), -1):
            if not self._in_cascades[first] or self._constants[end] - self._constants[first] > budget:
                return
            if first < end - 1:
                yield first
            if first in self.cuts:
                return

    def _cycles(self, first: int, end: int, part: Evaluated) -> int:
        fetched = self._constants[end] - self._constants[first]
        cycles = max(part.cycles, part.moving_cycles + fetch_cycles(fetched, self.streams.target))
        return cycles + part.moving_cycles // TUNING.hidden_cycles

    def _parts(
        self,
        first: int,
        end: int,
        path: _Path,
        budget: int,
        found: Mapping[frozenset[str], _Path],
        keeps_smallest: bool,
    ) -> Iterator[tuple[frozenset[str], Part]]:
        """Yield segments of calls [first, end) that continue ``path``, each with the set of all tensors that stay in
        the memory of the NPU after it.

        Of the tensors that a segment defines for later ones, none stays, the smallest, the two smallest, and so on.
        ``found`` has the best paths to ``end`` so far. A segment that can't improve ``found`` is left out. With
        ``keeps_smallest``, a segment is also tried if fewer bytes stay after it than after each path of ``found``.
        """
        pieces, stays = self.streams.base.pieces, path.stays
        touched: frozenset[str] = frozenset().union(*self._touched[first:end])
        beside = sum(pieces[name].size for name in stays if name not in touched)
        defined, external = self._kinds(touched, first, end, stays)
        left = frozenset(name for name in stays if pieces[name].last >= end)
        known = sorted(each.cycles for each in found.values())
        most = known[TUNING.kept_states - 1] if len(found) >= TUNING.kept_states else ENDLESS
        most = min(most, known[0] + self._saving[end]) if known else most
        fewest = min(map(self._staying_bytes, found), default=ENDLESS) if keeps_smallest else 0
        for count in range(len(defined) + 1):
            beside_and_new = beside + sum(pieces[name].size for name in defined[:count])
            if beside_and_new > budget:
                break
            then, outside = left | frozenset(defined[:count]), external | frozenset(defined[count:])
            limit = ENDLESS if self._staying_bytes(then) < fewest else most
            limit = min(limit, found[then].cycles if then in found else ENDLESS)
            if path.cycles + self._least_cycles(first, end, outside) >= limit:
                continue
            part = self._fastest(first, end, outside, budget - beside, limit - path.cycles)
            if part is not None:
                yield then, (first, end, outside, part)

    def _kinds(
        self, touched: frozenset[str], first: int, end: int, stays: frozenset[str]
    ) -> tuple[list[str], frozenset[str]]:
        """Return the tensors that a segment defines for later segments, smallest first, and the set of the tensors that
        must be external."""
        pieces, defined, external = self.streams.base.pieces, [], []
        for name in touched:
            piece = pieces[name]
            if name in self.outside or (0 <= piece.first < first and name not in stays):
                external.append(name)
            elif piece.first >= first and piece.last >= end:
                defined.append(name)
        defined.sort(key=lambda name: (pieces[name].size, name))
        return defined, frozenset(external)

    def _fastest(self, first: int, end: int, external: frozenset[str], budget: int, limit: int) -> Evaluated | None:
        key = first, end, external
        known = self._choices.get(key)
        if known is None:
            forms = Forms(self.streams, first, end, external)
            known = self._choices[key] = self.segments.choices(forms), forms
        choices, forms = known
        searched, best = choices.found.get(budget, (-1, None))
        if searched < limit:
            # Each iteration dispatches the last kernel. ``_least`` includes one dispatch of each kernel.
            spare = limit - (self._least[end] - self._least[first])
            same, most = choices.structure, max(1, 1 + spare // max(1, self.streams.base.issue_cycles))
            made = [same.fastest_of(number, budget, most) for number in range(len(same))]
            best = min(
                (each for each in made if each is not None),
                key=lambda each: (self._cycles(first, end, each), each.peak_bytes),
                default=None,
            )
            choices.found[budget] = limit, best
        return None if best is None else replace(best, forms=forms)


def overlapped(schedule: Schedule, storages: Storages) -> Schedule:
    """Return the schedule with loads earlier and waits for stores later, across at most ``furthest_steps`` steps.

    A segment ends with stores that no kernel hides, and the next segment begins with loads that its first kernel waits for. The first loads
    of a segment move before the last kernels of the segment before. The wait for the last stores of a segment moves after the first
    kernels of the next one. Example, where k is the last kernel of a segment and l the first kernel of the next segment::

        before   k  store  wait for stores  load  wait for loads  l
        after    load  k  store  wait for loads  l  wait for stores

    A load stays after the wait for the store of its tensor, and after the last wait for loads, which would wait for this load too. Buffers
    are live for longer; the placement computes their live ranges from the new steps.
    """
    steps = [*schedule.steps]
    border = _Border(schedule.calls, storages)
    for index in range(len(steps)):
        if border.is_load(steps[index]):
            place = border.earliest(steps, index)
            steps.insert(place, steps.pop(index))
    for index in range(len(steps) - 1, -1, -1):
        if steps[index] == Wait(STORES):
            place = border.latest(steps, index)
            if place > index:
                steps.insert(place - 1, steps.pop(index))
    return replace(schedule, steps=tuple(steps))


class _Border:
    """The tensors that steps load and store."""

    def __init__(self, calls: Sequence[KernelCall], storages: Storages) -> None:
        self._calls, self._of = calls, storages.of

    def is_load(self, step: Step) -> bool:
        """Return whether a step is a load outside a loop."""
        return not isinstance(step, Loop) and self._moves(step, LOADS)

    def earliest(self, steps: Sequence[Step], index: int) -> int:
        """Return the first index to which the load at ``index`` may move, at most ``furthest_steps`` steps earlier.

        The load must stay after loops, other loads, waits for loads, and steps that write its tensor or wait for a
        store of it.
        """
        (load,) = calls_in(steps[index])
        tensor, place = self._of[self._calls[load].views["input"].tensor], index
        for at in range(index - 1, max(-1, index - 1 - TUNING.furthest_steps), -1):
            step = steps[at]
            if isinstance(step, Loop) or step == Wait(LOADS) or self._writes(step, tensor) or self._moves(step, LOADS):
                break
            if step == Wait(STORES) and self._is_stored(steps, at, tensor):
                break
            place = at
        return place

    def latest(self, steps: Sequence[Step], index: int) -> int:
        """Return the index of the first step that must not precede the wait for stores at ``index``. If none of the
        next ``furthest_steps`` steps is such a step, return the index of the step after them, or the number of steps."""
        stored = self._stored(steps, index)
        for at in range(index + 1, min(len(steps), index + 1 + TUNING.furthest_steps)):
            step = steps[at]
            reads = {
                self._of[self._calls[call].views["input"].tensor]
                for call in calls_in(step)
                if self._calls[call].is_transfer
            }
            if isinstance(step, Loop) or step == Wait(STORES) or self._moves(step, STORES) or reads & stored:
                return at
        return min(len(steps), index + 1 + TUNING.furthest_steps)

    def _moves(self, step: Step, channel: int) -> bool:
        return any(
            self._calls[call].is_transfer and self._calls[call].params["channel"] == channel for call in calls_in(step)
        )

    def _writes(self, step: Step, tensor: str) -> bool:
        return any(self._of[self._calls[call].views["output"].tensor] == tensor for call in calls_in(step))

    def _stored(self, steps: Sequence[Step], wait: int) -> set[str]:
        """Return the tensors that are stored between the last wait for stores before ``wait`` and ``wait``."""
        found: set[str] = set()
        for step in reversed(steps[:wait]):
            if step == Wait(STORES):
                break
            found |= {
                self._of[self._calls[call].views["output"].tensor]
                for call in calls_in(step)
                if self._moves(step, STORES)
            }
        return found

    def _is_stored(self, steps: Sequence[Step], wait: int, tensor: str) -> bool:
        return tensor in self._stored(steps, wait)


@dataclass(frozen=True, slots=True)
class TiledSchedule:
    """A schedule in tiles with addresses.

    ``cycles`` are modelled, with copies in parallel to kernels. ``moved_bytes`` is the sum of the bytes of all tiles that are copied.
    """

    schedule: Schedule
    layout: Layout
    storages: Storages
    cycles: int
    moved_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Unplaced:
    """A schedule without addresses, and its storages."""

    schedule: Schedule
    storages: Storages

    def placed(self, target: Target, budget: int, limit: int, work: float) -> TiledSchedule | None:
        """Return the schedule with addresses and prefetch; None if it exceeds ``budget`` bytes or takes ``limit`` cycles or more."""
        return _with_constants(self.schedule, self.storages, target, budget, limit, work)


def fastest_plan(
    search: TileSearch,
    target: Target,
    budget: int,
    limit: int,
    is_medium: bool,
    is_any: bool = False,
    is_again: bool = False,
) -> tuple[TiledSchedule | None, int]:
    """Return the fastest schedule of one search, and the estimated cycles of its first plan (0 if it has no plan).
    The schedule is None if none fits ``budget`` bytes in fewer than ``limit`` cycles.

    First fit gives each schedule its addresses. The exact search, which takes longer, then places the ``refined``
    fastest schedules again, or all of them if first fit places none and there is no ``limit``. With ``is_medium``,
    all plans are compared. With ``is_any``, the first schedule that is found is returned. ``is_again`` states that
    the calls are divided a second time. The search then ends at a plan whose cycles times ``hidden_constants_ratio``
    are not below the fewest found so far.
    """
    best: TiledSchedule | None = None
    tried: list[tuple[_Unplaced, TiledSchedule | None]] = []
    before = None
    estimate, enough, is_enough = 0, 0.0, False
    for share in TUNING.segment_shares:
        if (is_any and best is not None) or (is_enough and not is_medium):
            break
        plan = search.plan(int(budget * share))
        if plan is None or plan == before:
            continue
        before, estimate = plan, estimate or plan.cycles
        if is_again and plan.cycles * TUNING.hidden_constants_ratio >= (limit if best is None else best.cycles):
            break
        enough = max(enough, plan.cycles * TUNING.enough_ratio) if share == TUNING.segment_shares[0] else enough
        for unplaced in _schedules(plan, search.streams.storages):
            below = min(limit, limit if best is None else best.cycles)
            found = unplaced.placed(target, budget, int(below * TUNING.near_ratio), 0)
            tried.append((unplaced, found))
            is_enough |= found is not None and found.cycles <= enough
            best = found if found is not None and found.cycles < below else best
    if is_any and best is not None:
        return best, estimate
    refined = [unplaced for unplaced, _ in tried] if best is None and limit >= ENDLESS else _refined(tried)
    for unplaced in refined:
        found = unplaced.placed(target, budget, limit if best is None else best.cycles, EXACT_WORK)
        best = found or best
    return best, estimate


def _refined(tried: Sequence[tuple[_Unplaced, TiledSchedule | None]]) -> list[_Unplaced]:
    """Return the ``refined`` fastest of the schedules that first fit gave addresses, as schedules without addresses."""
    found = sorted((one.cycles, number) for number, (_, one) in enumerate(tried) if one is not None)
    return [tried[number][0] for _, number in found[: TUNING.refined]]


def _schedules(plan: TilePlan, storages: Storages) -> list[_Unplaced]:
    """Return the schedules of a plan that are tried: that of ``overlapped``, and that of ``schedule_of`` if it differs."""
    schedule, made = schedule_of(plan, storages)
    steps = dict.fromkeys((overlapped(schedule, made).steps, schedule.steps))
    return [_Unplaced(replace(schedule, steps=each), made) for each in steps]


def _with_constants(
    schedule: Schedule, made: Storages, target: Target, budget: int, limit: int, work: float
) -> TiledSchedule | None:
    search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER, work), made, target)
    if search.smallest().size_bytes > budget:
        # The gaps between the tensors are too small for the constants: the placement reserves space for these.
        reserved = [_least(each, schedule, made) for each in search.uses]
        search = PrefetchSearch(schedule, lay_out(schedule, made, CALLER, work / 8, reserved), made, target)
    if search.arena_bytes > budget:
        return None
    trial = fastest_within(search, budget, limit)
    if trial is None:
        return None
    schedule, layout = PrefetchPlan(search, trial, budget).laid_out(CALLER)
    moved = sum(call.views["output"].distinct_bytes for call in schedule.calls if call.is_transfer)
    return TiledSchedule(schedule, layout, made, trial.cycles, moved)


def _least(use: ConstantUse, schedule: Schedule, made: Storages) -> Item:
    """Return a buffer of the size of a call's constants, or of those of its smallest piece if the call can be divided."""
    size = Cuttable(schedule.calls[use.call], made).piece_bytes(1) if use.blocks > 1 else use.size
    return Item(f"constants of call {use.call}", size, use.first, use.last)


def schedule_of(plan: TilePlan, storages: Storages) -> tuple[Schedule, Storages]:
    """Return the schedule of a plan, without prefetch, and the storages, with a storage for each copy in the memory of the NPU."""
    calls: list[KernelCall] = []
    steps: list[Step] = []
    rings: dict[str, int] = {}
    overlaps: dict[tuple[str, str], int] = {}
    own = {
        name: replace(each, external=True) if name in plan.external and each.is_scratch else each
        for name, each in storages.storages.items()
    }
    of = dict(storages.of)
    for index, (_, _, _, chosen) in enumerate(plan.parts):
        part = chosen.tiled()
        named = {name: f"{name} {index}" for name in part.streamed.copies}
        for name, storage in part.streamed.copies.items():
            own[named[name]] = replace(storage, name=named[name])
            of[named[name]] = named[name]
        steps += _steps(part, named, calls)
        rings |= {named.get(name, name): rows for name, rows in part.stripes.rings.items()}
        overlaps |= {
            (named.get(one, one), named.get(other, other)): by for (one, other), by in part.stripes.overlaps.items()
        }
    schedule = Schedule(tuple(calls), tuple(steps), rings, 0, overlaps, is_tiled=True)
    return schedule, Storages(own, of)


def _steps(part: Tiled, named: dict[str, str], calls: list[KernelCall]) -> list[Step]:
    """Append the calls of a segment to ``calls`` and return its steps."""
    streamed = part.streamed

    def number(call: KernelCall) -> int:
        views = {name: _renamed(view, named) for name, view in call.views.items()}
        calls.append(replace(call, views=views))
        return len(calls) - 1

    before = [number(call) for call in streamed.before]
    # A call may read only padding. Then no row of its tensor is loaded.
    numbers = {position: number(call.call) for position, call in enumerate(streamed.calls) if part.done[position][-1]}
    behind = [number(call) for call in streamed.behind]
    return steps_of(part, numbers, before, behind)


def _renamed(view: View, named: dict[str, str]) -> View:
    return replace(view, tensor=named[view.tensor]) if view.tensor in named else view
