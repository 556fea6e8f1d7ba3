# SPDX-License-Identifier: BSD-3-Clause
"""Evaluate segments in tiles once for all segments of the same structure.

A graph is searched in several orders and several divisions of its calls, and most segments occur in all of these. Other segments, such
as the layers of an encoder or the blocks of a residual network, differ only in names and in the values of their constants. The memory and
the cycles of a segment depend on the kernels, parameters and views of its calls, on the tensors that are external, and on the other users
of its tensors. Segments for which all of these are equal have the same ``Structure``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from openneutron.compiler.search.tiles.streams import Streamed, Streams, Tiled, tiled
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import Maps


@dataclass(slots=True, eq=False)
class Forms:
    """The forms of a segment: calls [first, end), with the storages ``external`` in external memory.

    In one form, transfers run in each iteration, where the calls permit that. A segment of one call also has a form whose transfers all
    run before or after the call.
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
    """An evaluated candidate: the form ``number`` of a segment, in stripes of ``height`` rows.

    ``cycles`` and ``moving_cycles`` are the two results of ``Tiled.cycles``. ``peak_bytes`` is the memory of the NPU that the segment
    takes.
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
    """The evaluations that all segments of one structure share. ``forms`` are those of the first of these segments.

    ``_peaks`` has the memory in bytes by form and stripe height. ``_evaluated`` has the candidates whose cycles are computed too.
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
        """Return the candidate of a form and height; None, without a computation of cycles, if it takes more than ``budget`` bytes."""
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
    """The results of the searches for a segment's fastest stripes. ``found`` has for each budget the limit of the search, in cycles, and
    its result."""

    structure: Structure
    found: dict[int, tuple[int, Evaluated | None]] = field(default_factory=dict)


OF_VALUES = ("zero_point", "multiplier", "shift", "clamp_min", "clamp_max", "epsilon_high", "epsilon_low")
"""The ends of the names of parameters that affect only values, and not cycles, rows or memory."""

Key = tuple[object, ...]

Names = tuple[str, ...]
"""The storages of a call's operands, in the order of its views."""


@dataclass(slots=True)
class Segments:
    """The choices of all segments so far, and the structures that segments share."""

    _known: dict[Key, Choices] = field(default_factory=dict)
    _structures: dict[Key, Structure] = field(default_factory=dict)
    _numbers: dict[Key, int] = field(default_factory=dict)
    _lists: dict[int, tuple[Streams, list[tuple[int, Names]], dict[str, int]]] = field(default_factory=dict)
    """For each ``Streams``, by its identity: the ``Streams``, the number and the storages of each call, and the number of each storage."""

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._known)

    def choices(self, forms: Forms) -> Choices:
        """Return the choices of a segment, which it shares with the segments of the same calls only.

        Segments of the same structure are searched with different limits. If they shared choices, a result would depend on the order of
        the searches.
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
        """Return the key of a segment's structure: segments with equal keys have the same memory and cycles.

        The key has the number of each call, and the place of each operand's storage in the order of first use. At its first use, a storage
        adds its own number, whether it is external, and whether it has users before the segment and after it.
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
        """Return ``streams`` with a number for each of its calls and storages, for ``_lists``.

        Calls or storages with equal numbers have the same effect on the memory and the cycles of a segment.
        """
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
