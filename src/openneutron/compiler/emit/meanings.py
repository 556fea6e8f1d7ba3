# SPDX-License-Identifier: BSD-3-Clause
"""The meaning of every byte of a memory, as numbers: runs of bytes with one meaning, and arrays where the runs are many."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "reach", self.run + sum((count - 1) * pitch for count, pitch in self.axes))
        object.__setattr__(self, "runs", math.prod(count for count, _ in self.axes))

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

    def starts(self, at: int) -> Iterator[int]:
        """Yield the address of each run."""
        for steps in product(*(range(0, count * pitch, pitch) for count, pitch in reversed(self.axes))):
            yield at + sum(steps)

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
    of ``values``, from ``starts`` on. ``touched``: the end of the bytes that were accessed."""

    name: str
    size: int
    touched: int = 0
    starts: list[int] = field(default_factory=lambda: [0])
    values: list[int | Meanings] = field(default_factory=lambda: [UNDEFINED])

    def at(self, address: int) -> int:
        """Return the meaning of a byte."""
        index = bisect_right(self.starts, address) - 1
        value = self.values[index]
        return value if isinstance(value, int) else int(value[address - self.starts[index]])

    def write(self, at: int, shape: Shape, meaning: int) -> None:
        """Give bytes a meaning."""
        if not shape.axes:
            self._fill(at, at + shape.run, meaning)
        elif shape.runs <= FEW_RUNS:
            for start in shape.starts(at):
                self._fill(start, start + shape.run, meaning)
        else:
            shape.of_array(self._one_array(at, at + shape.reach), 0)[...] = meaning

    def holds(self, at: int, shape: Shape, meaning: int) -> bool:
        """Return whether all of these bytes have this meaning."""
        if not shape.axes:
            return self._run_holds(at, at + shape.run, meaning)
        if shape.runs <= FEW_RUNS:
            return all(self._run_holds(start, start + shape.run, meaning) for start in shape.starts(at))
        index = bisect_right(self.starts, at) - 1
        value = self.values[index]
        if isinstance(value, int) and (index + 1 == len(self.starts) or self.starts[index + 1] >= at + shape.reach):
            return value == meaning
        return bool((self.meanings(at, shape) == meaning).all())

    def meanings(self, at: int, shape: Shape) -> Meanings:
        """Return the meanings of these bytes."""
        return shape.of_array(self._joined(at, at + shape.reach), 0)

    def _run_holds(self, first: int, end: int, meaning: int) -> bool:
        starts, values = self.starts, self.values
        index = bisect_right(starts, first) - 1
        while index < len(starts) and starts[index] < end:
            value = values[index]
            if isinstance(value, int):
                if value != meaning:
                    return False
            elif not (value[max(first - starts[index], 0) : end - starts[index]] == meaning).all():
                return False
            index += 1
        return True

    def _boundary(self, at: int) -> int:
        """Return the number of the entry that starts at an address, which is made where there is no such entry."""
        index = bisect_left(self.starts, at)
        if at == self.size or (index < len(self.starts) and self.starts[index] == at):
            return index
        value = self.values[index - 1]
        if isinstance(value, int):
            self.values.insert(index, value)
        else:
            offset = at - self.starts[index - 1]
            self.values[index - 1 : index] = [value[:offset], value[offset:]]
        self.starts.insert(index, at)
        return index

    def _fill(self, first: int, end: int, meaning: int) -> None:
        if first == end:
            return
        begin, behind = self._boundary(first), self._boundary(end)
        if begin and self._is(begin - 1, meaning):
            begin -= 1
            first = self.starts[begin]
        if behind < len(self.starts) and self._is(behind, meaning):
            behind += 1
        self.starts[begin:behind] = [first]
        self.values[begin:behind] = [meaning]

    def _is(self, index: int, meaning: int) -> bool:
        value = self.values[index]
        return isinstance(value, int) and value == meaning

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
        begin, behind = self._boundary(first), self._boundary(end)
        self.starts[begin:behind] = [first]
        self.values[begin:behind] = [joined]
        return joined
