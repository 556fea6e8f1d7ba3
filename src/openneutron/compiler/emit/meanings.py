# SPDX-License-Identifier: BSD-3-Clause
"""Store the meaning of every byte of a memory as a number.

The numbers are kept as runs of bytes with one meaning, and as an array where the runs are many. ``audit.py`` defines
the meanings.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

Meanings = npt.NDArray[np.signedinteger]

Axes = tuple[tuple[int, int], ...]
"""The count and the pitch in bytes of each axis. The smallest pitch is first."""

FEW_RUNS = 4
"""The most runs of a shape that are entries of their own. If a shape has more, the range from its first to its last
byte is in the array."""

SOME_RUNS = 64
"""The most runs of a shape that are compared as byte strings in the array. NumPy's overhead for a small array is
larger."""

NUMBER_BYTES = (1, 2, 4)
"""The possible sizes in bytes of a number in the array. The smallest size that holds the largest number is used: most
programs have few meanings."""

PIECE = 4096
"""The number of meanings of the array that are compared at a time. A copy of so few takes no new memory from the
system."""

UNDEFINED = 0
"""The meaning of bytes that were never written."""


class Shape:
    """The bytes of a window, without its address: ``run`` neighbouring bytes, repeated along the axes.

    ``reach`` is the distance from the first byte to the end of the last one. ``places`` has the offset of each run,
    or is empty if the runs are more than ``SOME_RUNS``.
    """

    __slots__ = ("axes", "places", "reach", "run", "runs")

    def __init__(self, run: int, axes: Axes = ()) -> None:
        self.run, self.axes = run, axes
        self.reach, self.runs = run, 1
        self.places: Sequence[int] = (0,)
        if axes:
            for count, pitch in axes:
                self.reach += (count - 1) * pitch
                self.runs *= count
            self.places = _places(axes) if self.runs <= SOME_RUNS else ()

    @staticmethod
    def of(axes: Iterable[tuple[int, int]], element_bytes: int) -> Shape:
        """Return the shape of elements of ``element_bytes`` along these axes. Neighbouring elements become one run,
        and a byte of two elements counts once."""
        run, outer = element_bytes, list[tuple[int, int]]()
        for pitch, count in sorted([(pitch, count) for count, pitch in axes if count > 1 and pitch]):
            if not outer:
                if pitch <= run:
                    run += (count - 1) * pitch
                    continue
            elif pitch == outer[-1][0] * outer[-1][1]:
                outer[-1] = outer[-1][0] * count, outer[-1][1]
                continue
            outer.append((count, pitch))
        return Shape(run, tuple(outer))

    @property
    def size(self) -> int:
        """Return the number of bytes. A byte that two runs share counts twice."""
        return self.run * self.runs

    def of_array(self, array: Meanings, at: int) -> Meanings:
        """Return a view of the array: the elements that the shape covers if it begins at element ``at``."""
        outer = self.axes[::-1]
        shape = (*(count for count, _ in outer), self.run)
        item = array.itemsize
        strides = (*(pitch * item for _, pitch in outer), item)
        return np.ndarray(shape, array.dtype, array, at * item, strides)


def _places(axes: Axes) -> Sequence[int]:
    if not axes:
        return (0,)
    if len(axes) == 1:
        ((count, pitch),) = axes
        return range(0, count * pitch, pitch)
    return tuple(map(sum, product(*(range(0, count * pitch, pitch) for count, pitch in reversed(axes)))))


_NO_MEANINGS: Meanings = np.empty(0, np.int8)


@dataclass(slots=True)
class Memory:
    """The meanings of the bytes of a memory. A meaning is a number, negative while a copy is writing the byte.

    ``starts`` and ``values`` are the runs of bytes with one meaning: where each begins, and its meaning. The value is
    None for a range whose meanings are in ``array``, at index address. ``is_written``: kernels may write the memory.
    ``touched``: the end of the highest byte that was accessed. ``writes``: the number of writes so far. ``largest``:
    the largest number that an element of the array holds.
    """

    name: str
    size: int
    is_written: bool = True
    touched: int = 0
    writes: int = 0
    largest: int = 127
    starts: list[int] = field(default_factory=lambda: [0])
    values: list[int | None] = field(default_factory=lambda: [UNDEFINED])
    array: Meanings = field(default_factory=lambda: _NO_MEANINGS)

    def at(self, address: int) -> int:
        """Return the meaning of the byte at an address."""
        value = self.values[bisect_right(self.starts, address) - 1]
        return int(self.meanings(address, Shape(1))[0]) if value is None else value

    def write(self, at: int, shape: Shape, meaning: int) -> None:
        """Give the bytes of a shape at address ``at`` a meaning."""
        self.writes += 1
        if abs(meaning) > self.largest:
            self._widen(abs(meaning))
        if shape.runs <= FEW_RUNS:
            for start in shape.places:
                self._put(at + start, at + start + shape.run, meaning)
            return
        self.meanings(at, shape)[...] = meaning
        self._put(at, at + shape.reach, None)

    def holds(self, at: int, shape: Shape, meaning: int) -> bool:
        """Return whether all bytes of a shape at address ``at`` have this meaning."""
        # Where the run that has the first byte goes on to the last one, its meaning is the answer.
        index = bisect_right(self.starts, at) - 1
        value = self.values[index]
        if value is not None and (index + 1 == len(self.starts) or self.starts[index + 1] >= at + shape.reach):
            return value == meaning
        if abs(meaning) > self.largest:
            return False
        if shape.runs <= FEW_RUNS:
            return all(self._run_holds(at + start, at + start + shape.run, meaning) for start in shape.places)
        if shape.places:
            self._fill_array(at, at + shape.reach)
            return self._array_holds(meaning, shape.run, [at + start for start in shape.places])
        return bool((self.meanings(at, shape) == meaning).all())

    def meanings(self, at: int, shape: Shape) -> Meanings:
        """Return the meanings of the bytes of a shape, as a view of the array. The view is valid until the next
        write."""
        self._fill_array(at, at + shape.reach)
        return shape.of_array(self.array, at)

    def _widen(self, number: int) -> None:
        """Make the elements of the array large enough for a number."""
        size = next(size for size in NUMBER_BYTES if number < 1 << 8 * size - 1)
        self.array = self.array.astype(f"i{size}")
        self.largest = (1 << 8 * size - 1) - 1

    def _fill_array(self, first: int, end: int) -> None:
        """Copy the meanings of the runs in a range to the array."""
        starts, values = self.starts, self.values
        if not self.array.size:
            # The system gives memory to the pages of an array that are used, not to all.
            self.array = np.empty(self.size, self.array.dtype)
        index = bisect_right(starts, first) - 1
        while index < len(starts) and starts[index] < end:
            value = values[index]
            if value is not None:
                low = max(first, starts[index])
                high = min(end, starts[index + 1]) if index + 1 < len(starts) else end
                self.array[low:high] = value
            index += 1

    def _array_holds(self, meaning: int, run: int, starts: Iterable[int]) -> bool:
        each = self.array.itemsize
        array, numbers = self.array.data.cast("B"), _numbers(meaning, min(run, PIECE), each)
        for start in starts:
            for first in range(start, start + run, PIECE):
                size = min(PIECE, start + run - first) * each
                place = first * each
                if array[place : place + size].tobytes() != numbers[:size]:
                    return False
        return True

    def _run_holds(self, first: int, end: int, meaning: int) -> bool:
        starts, values = self.starts, self.values
        index = begin = bisect_right(starts, first) - 1
        while index < len(starts) and starts[index] < end:
            value = values[index]
            if value is None:
                low = max(first, starts[index])
                high = min(end, starts[index + 1]) if index + 1 < len(starts) else end
                if not self._array_holds(meaning, high - low, (low,)):
                    return False
            elif value != meaning:
                return False
            index += 1
        if index > begin + 1 or values[begin] is None:
            # The next read finds one entry.
            self._put(first, end, meaning)
        return True

    def _put(self, first: int, end: int, meaning: int | None) -> None:
        """Give a range one value. The range becomes an entry, or part of a neighbouring entry with the same value."""
        if first == end:
            return
        starts, values = self.starts, self.values
        begin, behind = bisect_left(starts, first), bisect_left(starts, end)
        new_starts, new_values = [first], [meaning]
        if end != self.size and (behind == len(starts) or starts[behind] != end):
            # The last entry goes on behind the range.
            if values[behind - 1] != meaning:
                new_starts.append(end)
                new_values.append(values[behind - 1])
        elif behind < len(starts) and values[behind] == meaning:
            behind += 1
        if begin and values[begin - 1] == meaning:
            begin -= 1
            new_starts[0] = starts[begin]
        starts[begin:behind], values[begin:behind] = new_starts, new_values


def _numbers(meaning: int, count: int, size: int) -> bytes:
    """Return the bytes of an array of ``count`` equal meanings, each of ``size`` bytes."""
    return meaning.to_bytes(size, sys.byteorder, signed=True) * count
