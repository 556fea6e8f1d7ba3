# SPDX-License-Identifier: BSD-3-Clause
"""The meaning of every byte of a memory, as numbers: runs of bytes with one meaning, and arrays where the runs are many."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

Meanings = npt.NDArray[np.int32]

Axes = tuple[tuple[int, int], ...]
"""Counts and pitches in bytes, the smallest pitch first."""

FEW_RUNS = 4
"""A shape of at most so many runs is treated run by run; for others, the bytes between its ends become an array."""

UNDEFINED = 0
"""The meaning of bytes that were never written."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The bytes of a window without their address: ``run`` bytes, again at each step along the axes."""

    run: int
    axes: Axes = ()
    reach: int = field(init=False)
    """The bytes from the first one to the end of the last one."""
    runs: int = field(init=False)
    few: tuple[int, ...] = field(init=False)
    """The places of the runs where they are few, else empty."""

    def __post_init__(self) -> None:
        reach, runs = self.run, 1
        for count, pitch in self.axes:
            reach += (count - 1) * pitch
            runs *= count
        object.__setattr__(self, "reach", reach)
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "few", self._starts() if runs <= FEW_RUNS else ())

    @staticmethod
    def of(axes: Iterable[tuple[int, int]], element_bytes: int) -> Shape:
        """Return the shape of the elements along these axes. Elements side by side become runs; overlapping ones count once."""
        run, outer = element_bytes, list[tuple[int, int]]()
        for pitch, count in sorted((pitch, count) for count, pitch in axes if count > 1 and pitch):
            if not outer and pitch <= run:
                run += (count - 1) * pitch
            elif outer and pitch == math.prod(outer[-1]):
                outer[-1] = outer[-1][0] * count, outer[-1][1]
            else:
                outer.append((count, pitch))
        return Shape(run, tuple(outer))

    @property
    def size(self) -> int:
        """Return the number of bytes; those that two runs share count twice."""
        return self.run * self.runs

    def _starts(self) -> tuple[int, ...]:
        return tuple(map(sum, product(*(range(0, count * pitch, pitch) for count, pitch in reversed(self.axes)))))

    def of_array(self, array: Meanings, at: int) -> Meanings:
        """Return the elements of an array that the shape covers from ``at`` on, as a view of the array."""
        outer = self.axes[::-1]
        shape = (*(count for count, _ in outer), self.run)
        item = array.itemsize
        strides = (*(pitch * item for _, pitch in outer), item)
        return np.ndarray(shape, array.dtype, array, at * item, strides)


@dataclass(slots=True)
class Memory:
    """The meanings of a memory's bytes, a number for each; negative while a copy writes them. Runs of bytes with one meaning are one entry
    of ``values``, from ``starts`` on. ``touched``: the end of the bytes that were accessed. ``writes``: the number of writes so far."""

    name: str
    size: int
    touched: int = 0
    writes: int = 0
    starts: list[int] = field(default_factory=lambda: [0])
    values: list[int | Meanings] = field(default_factory=lambda: [UNDEFINED])

    def at(self, address: int) -> int:
        """Return the meaning of a byte."""
        index = bisect_right(self.starts, address) - 1
        value = self.values[index]
        return value if isinstance(value, int) else int(value[address - self.starts[index]])

    def write(self, at: int, shape: Shape, meaning: int) -> None:
        """Give bytes a meaning."""
        self.writes += 1
        for start in shape.few:
            self._put(at + start, at + start + shape.run, meaning)
        if not shape.few:
            shape.of_array(self._one_array(at, at + shape.reach), 0)[...] = meaning

    def holds(self, at: int, shape: Shape, meaning: int) -> bool:
        """Return whether all of these bytes have this meaning."""
        # Where the run that has the first byte goes on to the last one, its meaning is the answer.
        index = bisect_right(self.starts, at) - 1
        value = self.values[index]
        if isinstance(value, int) and (index + 1 == len(self.starts) or self.starts[index + 1] >= at + shape.reach):
            return value == meaning
        if shape.few:
            return all(self._run_holds(at + start, at + start + shape.run, meaning) for start in shape.few)
        return bool((self.meanings(at, shape) == meaning).all())

    def meanings(self, at: int, shape: Shape) -> Meanings:
        """Return the meanings of these bytes."""
        return shape.of_array(self._joined(at, at + shape.reach), 0)

    def _run_holds(self, first: int, end: int, meaning: int) -> bool:
        starts, values = self.starts, self.values
        index = begin = bisect_right(starts, first) - 1
        while index < len(starts) and starts[index] < end:
            value = values[index]
            if isinstance(value, int):
                if value != meaning:
                    return False
            elif not (value[max(first - starts[index], 0) : end - starts[index]] == meaning).all():
                return False
            index += 1
        if index > begin + 1:
            # The next read finds one entry.
            self._put(first, end, meaning)
        return True

    def _put(self, first: int, end: int, meaning: int | Meanings) -> None:
        """Make a range one entry, or a part of those beside it that have the same meaning."""
        if first == end:
            return
        starts, values = self.starts, self.values
        begin, behind = bisect_left(starts, first), bisect_left(starts, end)
        rest: int | Meanings | None = None
        if end != self.size and (behind == len(starts) or starts[behind] != end):
            # The last entry goes on behind the range.
            value = values[behind - 1]
            rest = value if isinstance(value, int) else value[end - starts[behind - 1] :]
            if _are_one(rest, meaning):
                rest = None
        elif behind < len(starts) and _are_one(values[behind], meaning):
            behind += 1
        if begin == len(starts) or starts[begin] != first:
            value = values[begin - 1]
            if not isinstance(value, int):
                values[begin - 1] = value[: first - starts[begin - 1]]
        if begin and _are_one(values[begin - 1], meaning):
            begin -= 1
            first = starts[begin]
        if rest is None:
            starts[begin:behind], values[begin:behind] = [first], [meaning]
        else:
            starts[begin:behind], values[begin:behind] = [first, end], [meaning, rest]

    def _joined(self, first: int, end: int) -> Meanings:
        """Return the meanings of a range as one array, which may be part of the memory or a copy."""
        index = bisect_right(self.starts, first) - 1
        value = self.values[index]
        if not isinstance(value, int) and self.starts[index] + len(value) >= end:
            return value[first - self.starts[index] : end - self.starts[index]]
        joined = np.empty(end - first, np.int32)
        while index < len(self.starts) and self.starts[index] < end:
            value, start = self.values[index], self.starts[index]
            behind = self.starts[index + 1] if index + 1 < len(self.starts) else self.size
            low, high = max(first, start), min(end, behind)
            joined[low - first : high - first] = value if isinstance(value, int) else value[low - start : high - start]
            index += 1
        return joined

    def _one_array(self, first: int, end: int) -> Meanings:
        """Make a range one array of the memory, and return the array."""
        index = bisect_right(self.starts, first) - 1
        value, start = self.values[index], self.starts[index]
        if not isinstance(value, int) and start + len(value) >= end:
            return value[first - start : end - start]
        joined = self._joined(first, end)
        self._put(first, end, joined)
        return joined


def _are_one(one: int | Meanings, other: int | Meanings) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one == other
