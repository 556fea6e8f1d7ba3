# SPDX-License-Identifier: BSD-3-Clause
"""Evaluate segments in tiles once, for all segments of the same structure.

A graph is searched in several orders of its calls and in several divisions. Most segments have the same calls in each of them. And the
layers of an encoder, or the blocks of a residual network, have segments that differ in names and in the values of their constants alone.
The memory and the cycles of a segment depend on the kernels, parameters and views of its calls, on the tensors that are external, and on
the other users of its tensors. Segments that agree in these have the same ``Structure``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from openneutron.compiler.search.tiles.streams import Streamed, Streams, Tiled, tiled
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import Maps


@dataclass(slots=True, eq=False)
class Forms:
    """The forms of calls [first, end) whose external storages are known, which are made when they are asked for."""

    streams: Streams
    first: int
    end: int
    external: frozenset[str]
    _made: tuple[Streamed, ...] | None = None

    @property
    def made(self) -> tuple[Streamed, ...]:
        """Return the forms."""
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
    """The form ``number`` of a segment in stripes of ``height`` rows: the cycles of ``Tiled.cycles``, and the memory."""

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
    """The forms of a segment that stands for all of its structure; by form and height the memory of stripes, and the evaluated stripes."""

    forms: Forms
    _peaks: dict[tuple[int, int], int] = field(default_factory=dict)
    _evaluated: dict[tuple[int, int], Evaluated] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of forms."""
        return len(self.forms.made)

    def fastest_of(self, number: int, budget: int, most: int) -> Evaluated | None:
        """Return the fastest of at most ``most`` stripes of a form that take at most ``budget`` bytes."""
        form = self.forms.made[number]
        found = form.segment
        least = found.fixed_bytes + sum(min(pitch, size) for _, pitch, size in found.rolling)
        if least > budget:
            return None
        rows = form.calls[form.pace].rows
        numbers = (1,) if len(form.calls) == 1 else (*TUNING.stripes, min(rows, TUNING.most_stripes))
        heights = [*dict.fromkeys(-(-rows // n) for n in numbers if n <= min(rows, most))]
        # Few stripes are evaluated quickly, so that the search for the smallest number that fits begins with them.
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
        """Return the stripes of a form, or None where they take more than ``budget`` bytes. The cycles of these are not computed."""
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
    """The stripes that were found for a segment: by budget, the limit of the search for them and its result."""

    structure: Structure
    found: dict[int, tuple[int, Evaluated | None]] = field(default_factory=dict)


OF_VALUES = ("zero_point", "multiplier", "shift", "clamp_min", "clamp_max", "epsilon_high", "epsilon_low")
"""Parameters with these ends decide about values, and not about cycles, rows or memory."""

Key = tuple[object, ...]

Names = tuple[str, ...]
"""The storages of a call's operands, in the order of its views."""


@dataclass(slots=True)
class Segments:
    """The choices of segments by their calls, and the structures that they share."""

    _known: dict[Key, Choices] = field(default_factory=dict)
    _structures: dict[Key, Structure] = field(default_factory=dict)
    _numbers: dict[Key, int] = field(default_factory=dict)
    _lists: dict[int, tuple[Streams, list[tuple[int, Names]], dict[str, int]]] = field(default_factory=dict)
    """By the identity of a list of calls: the list, the number and the storages of each call, and the number of each storage."""

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._known)

    def choices(self, forms: Forms) -> Choices:
        """Return the choices of a segment. Those of its structure, of a search with any limit, would depend on the order of the searches."""
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
        """Return the structure: the calls by number, and the storages in the order in which the calls name them."""
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
        """Number the calls and storages of a list: equal numbers are equal in all that a segment depends on."""
        calls = []
        for call, rows in zip(streams.calls, streams.base.calls, strict=True):
            views = tuple((name, view.place) for name, view in call.views.items())
            # Only the values of maps decide which rows a call reads.
            maps = tuple(id(each) for each in call.constants.values() if isinstance(each, Maps))
            stored = tuple(sorted(call.packed_bytes().items())), rows.constants_bytes, rows.piece_bytes
            params = tuple(item for item in sorted(call.params.items()) if not item[0].endswith(OF_VALUES))
            key = call.kernel, params, views, stored, maps
            names = tuple(streams.storages.of[view.tensor] for view in call.views.values())
            calls.append((self._number(key), names))
        storages = {}
        for name, storage in streams.storages.storages.items():
            piece = streams.base.pieces.get(name)
            # The name and the positions of the users are those of one segment.
            known = piece and replace(piece, name="", first=0, last=0, writers=(), readers=())
            role = storage.constant is None, storage.is_scratch, storage.state is None, storage.external
            used = (len(piece.writers), bool(piece.readers)) if piece else ()
            storages[name] = self._number((storage.size_bytes, storage.is_border, role, known, used))
        self._lists[id(streams)] = streams, calls, storages
        return self._lists[id(streams)]

    def _number(self, key: Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
