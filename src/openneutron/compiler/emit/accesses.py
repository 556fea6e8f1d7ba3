# SPDX-License-Identifier: BSD-3-Clause
"""State the windows that each kernel reads and writes to compute a window of its output. These are the rules of the
audit.

``select/needs.py`` gives the rows, and the columns under sliding windows; stripes, rolling buffers and tiles use these
too. All else comes from the rule (``Audited``) that a kernel's row names: the operands that are read at all, batches,
channels, other columns, scratch, and in-place writing. The compiler plans with the traits of calls and never with
these rules, so that the audit finds mistakes in the traits.

``Memory`` stores a number for each byte of a memory, which stands for the meaning of the byte (``audit.py`` defines the meanings). The
numbers are kept as runs of bytes with one meaning, or as an array where there are many runs.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.needs import Reads, Span, reads_along
from openneutron.isa.kernels import KERNELS
from openneutron.isa.kernels.row import Audited

Window = tuple[Span, Span, Span, Span]
"""A range of batches, rows, columns and channels of a view."""

Others = tuple[Span, Span, Span]
"""The ranges of a window without its rows: batches, columns and channels."""

Rule = Callable[[KernelCall, str, Window], Others | None]
"""A function of a call, the name of an input, and a window of the output. It returns the batches, columns and channels
of the input that the kernel reads for the window, or None if the kernel reads nothing of this input."""


def whole_window(call: KernelCall, name: str) -> Window:
    """Return the window that covers a whole view."""
    batches, rows, cols, channels = call.views[name].extents
    return (0, batches), (0, rows), (0, cols), (0, channels)


def _along(call: KernelCall, name: str, axis: int) -> Reads:
    """Return the function from a range of output rows (``axis`` 1) or columns (``axis`` 2) to the range of the input
    that it needs."""
    whole = 0, call.views[name].extents[axis]
    return reads_along(call, name, axis) or (lambda _first, _end: whole)


def _channels(call: KernelCall, name: str) -> Span:
    return 0, call.views[name].extents[3]


def _convolution(call: KernelCall, name: str, window: Window) -> Others:
    inputs, outputs = call.params["group_inputs"], call.params["group_outputs"]
    first, last = window[3][0] // outputs, (window[3][1] - 1) // outputs
    return window[0], _along(call, name, 2)(*window[2]), (first * inputs, (last + 1) * inputs)


def _joined(call: KernelCall, name: str, window: Window) -> Others:
    """Return the ranges that a convolution reads when another operation is joined to it in the same kernel. The
    ranges of ``input`` are those of the convolution. The operand of the joined operation has the ranges of the
    output."""
    return _convolution(call, name, window) if name == "input" else _same(call, name, window)


def _chained(call: KernelCall, name: str, window: Window) -> Others:
    """For the input, return all channels at the window's columns. Other operands have the ranges of the output."""
    return (_lines if name == "input" else _same)(call, name, window)


def _sampled(call: KernelCall, name: str, window: Window) -> Others:
    """Return the channels of the window, and the columns under the sliding window or those that a table of columns
    names."""
    return window[0], _along(call, name, 2)(*window[2]), window[3]


def _same(_call: KernelCall, _name: str, window: Window) -> Others:
    return window[0], window[2], window[3]


def _padded(call: KernelCall, name: str, window: Window) -> Others:
    batches, _, _, channels = call.views[name].extents

    def inside(span: Span, side: str, extent: int) -> Span:
        before = call.params[f"pad_{side}"]
        return max(0, min(span[0] - before, extent)), max(0, min(span[1] - before, extent))

    cols = _along(call, name, 2)(*window[2])
    return inside(window[0], "batch", batches), cols, inside(window[3], "channel", channels)


def _lines(call: KernelCall, name: str, window: Window) -> Others:
    """Return all channels at the window's columns."""
    return window[0], window[2], _channels(call, name)


def _groups(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the groups that contain the window's channels."""
    size = call.params["group_channels"]
    channels = window[3][0] // size * size, -(-window[3][1] // size) * size
    return window[0], (0, call.views[name].extents[2]), channels


def _everything(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns and channels of the window's batches."""
    return window[0], (0, call.views[name].extents[2]), _channels(call, name)


def _by_sums(call: KernelCall, name: str, window: Window) -> Others:
    """For the input, return the ranges of the output. For the sums, return all columns and channels of the window's
    batches."""
    return (_everything if name == "sums" else _same)(call, name, window)


def _reduced(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the window's batches and channels."""
    return window[0], (0, call.views[name].extents[2]), window[3]


def _product(call: KernelCall, name: str, window: Window) -> Others:
    """Return the whole depth for the first operand of a matrix product, and the window's channels over all depth for
    the second."""
    return window[0], (0, 1), (0, call.params["depth"]) if name == "input_a" else window[3]


def _gathered(call: KernelCall, name: str, window: Window) -> Others:
    """For the input from which the kernel gathers, return all columns, at the window's channels. For the indices,
    return the columns of the window."""
    if name == "indices":
        return window[0], window[2], _channels(call, name)
    return window[0], (0, call.views[name].extents[2]), window[3]


def _looked_up(call: KernelCall, name: str, window: Window) -> Others:
    """For the table, return all entries, at the window's channels. For the indices, return the columns of the window."""
    if name == "indices":
        return _lines(call, name, window)
    return (0, 1), (0, call.views[name].extents[2]), window[3]


def _sequence(call: KernelCall, name: str, _window: Window) -> Others | None:
    """Return all steps of an input or of a state.

    Return None for the scratch, and for a state whose first value comes from the parameter ``starts`` instead of
    memory.
    """
    starts = call.params["starts"]
    if name == "gates" or (name != "input" and starts == 1) or (name == "cell" and starts == 2):
        return None
    return (0, 1), (0, call.views[name].extents[2]), _channels(call, name)


def _attended(call: KernelCall, name: str, window: Window) -> Others:
    """Return the ranges that attention reads. Of the queries and of the mask, these are the window's heads.

    Several heads of the queries may share one head of the keys and values. Of keys and values, attention reads the
    heads that belong to the window's heads: the whole depth of the keys, and the output's channels of the values.
    """
    batches, _, heads, channels = window
    depth = (0, call.params["depth"])
    if name == "query" or (name == "mask" and not call.params["masked"]):
        return batches, heads, depth
    if name == "mask":
        return batches, heads, (0, call.views["key"].extents[1])
    group = call.params["group"]
    held = heads[0] // group, (heads[1] - 1) // group + 1
    return batches, held, depth if name == "key" else channels


def _projected(call: KernelCall, name: str, window: Window) -> Others | None:
    """Return the ranges that attention with its own linear layers reads: all of its input for the window's batches,
    and the mask as in attention without layers. Return None for the mask of a call without one."""
    if name == "mask":
        return _attended(call, name, window) if call.params["masked"] else None
    return _everything(call, name, window)


_RULES: dict[Audited, Rule] = {
    Audited.EVERYTHING: _everything,
    Audited.SAME: _same,
    Audited.LINES: _lines,
    Audited.GROUPS: _groups,
    Audited.REDUCED: _reduced,
    Audited.SAMPLED: _sampled,
    Audited.CONVOLUTION: _convolution,
    Audited.JOINED: _joined,
    Audited.CHAINED: _chained,
    Audited.PADDED: _padded,
    Audited.BY_SUMS: _by_sums,
    Audited.PRODUCT: _product,
    Audited.GATHERED: _gathered,
    Audited.LOOKED_UP: _looked_up,
    Audited.ATTENDED: _attended,
    Audited.PROJECTED: _projected,
    Audited.SEQUENCE: _sequence,
}

RULES = {row.name: _RULES[row.audited] for row in KERNELS}
"""The rule of each kernel, by the kernel's name."""

_WHOLE = frozenset(
    ("gates", "scores", "squeezed", "hidden", "gate", "projected", "query", "key", "value", "memory", "cache")
)
"""Scratch, and states, that a call may write anywhere, whichever rows of its output it computes."""


COPIED_BY_KERNEL = {"embedding_lookup_s8": ("input",)}
"""The operands that a kernel copies itself through the port, by the kernel's name. They may be in any memory."""


def is_element_by_element(kernel: str, name: str) -> bool:
    """Return whether a kernel handles the elements in ascending order and reads each element of this input before it
    writes that element."""
    if RULES[kernel] is _by_sums:
        return name != "sums"
    return RULES[kernel] is _same or kernel == "squeeze_excite_s8"


def block_scratch(kernel: str) -> str:
    """Return the name of the scratch buffer whose rows set how many rows the kernel computes as one block. Return an
    empty string for a kernel without blocks."""
    return "between" if RULES[kernel] is _chained else ""


def rows_read(call: KernelCall, name: str) -> Reads:
    """Return the function from rows of a call's output to the rows of its input ``name`` that they need."""
    return _along(call, name, 1)


def read_beside_rows(call: KernelCall, name: str, window: Window) -> Others | None:
    """Return the batches, columns and channels of the input ``name`` that a call reads for a window of its output;
    None if it reads nothing of the input."""
    return RULES[call.kernel](call, name, window)


def read_window(call: KernelCall, name: str, window: Window) -> Window | None:
    """Return the window of the input ``name`` that a call reads for a window of its output; None if it reads nothing
    of the input."""
    others = read_beside_rows(call, name, window)
    return None if others is None else (others[0], rows_read(call, name)(*window[1]), others[1], others[2])


def written_beside_rows(call: KernelCall, name: str, window: Window) -> Others:
    """Return the batches, columns and channels that a call writes of its output, a state or its scratch for a window
    of its output."""
    if name == "output":
        return window[0], window[2], window[3]
    _, _, cols, channels = call.views[name].extents
    if name.endswith("between"):
        return window[0], window[2], (0, channels)
    return (0, 1), (0, cols), (0, channels)


def rows_written(call: KernelCall, name: str) -> Reads:
    """Return the function from rows of a call's output to the rows that the call writes of its result ``name``."""
    whole = 0, call.views[name].extents[1]
    return (lambda _first, _end: whole) if name in _WHOLE else (lambda first, end: (first, end))


Meanings = npt.NDArray[np.signedinteger]

Axes = tuple[tuple[int, int], ...]
"""The number of elements and the pitch in bytes of each axis, from the smallest pitch to the largest."""

FEW_RUNS = 4
"""The largest number of runs of a write that become entries of their own. If a write has more runs, the range from its
first to its last byte is kept in the array."""

SOME_RUNS = 64
"""The largest number of runs that are compared one by one as byte strings. For small arrays, NumPy's overhead would be
larger."""

NUMBER_BYTES = (1, 2, 4)
"""The possible sizes, in bytes, of an element of the array. The smallest size that holds the largest number is used,
since most programs have few meanings."""

PIECE = 4096
"""The number of elements of the array that are compared at a time, so that temporary copies stay small and reuse
memory."""

UNDEFINED = 0
"""The meaning of bytes that were never written."""


class Shape:
    """The bytes of a window relative to its first byte: runs of ``run`` contiguous bytes, repeated along the axes.

    ``reach`` is the distance from the first byte to the end of the last one. ``places`` has the offset of each run; it
    is empty if there are more than ``SOME_RUNS`` runs.
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
        """Return the shape of elements of ``element_bytes`` bytes along ``axes``, pairs of a count and a pitch in
        bytes, in any order.

        Along the axes of the smallest pitches, elements that touch or overlap become one run, so that their common
        bytes count once. Axes of count 1 or pitch 0 are dropped. Runs that overlap along other axes stay separate.
        """
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
    """What each byte of a memory holds, stated by a number: the byte's meaning (``audit.py`` defines the meanings).
    It is negative while a copy is writing the byte.

    ``starts`` and ``values`` are runs of bytes with one meaning: the address at which each begins, and its meaning.
    The value is None for a range whose meanings are in ``array``, which is indexed by address. ``is_written`` states
    whether kernels may write the memory. ``touched`` is the end of the highest byte that was accessed, and ``writes``
    the number of writes so far. ``largest`` is the largest number that an element of the array can hold.
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
        """Set the meaning of all bytes of a shape at address ``at``."""
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
        """Set the value of a range. The range becomes an entry, or part of a neighbouring entry with the same value."""
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
