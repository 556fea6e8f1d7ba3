# SPDX-License-Identifier: BSD-3-Clause
"""Prove a lower bound of the bytes that any schedule copies which computes each element once, in any tiling and any order.

Every schedule copies the accessed part of each input, each output and each constant at least once. This bound adds copies of elements that the
memory of the NPU can't hold until their last use, which follow from the dependence between elements alone.

Take any element e that the outputs depend on, and the moment at which a schedule computes e. An element x that e depends on is then computed,
as e can't be computed before, or it is an element of an input, which was loaded. Let y be an element that is computed from x directly, that depends on e,
and that the outputs depend on. Then y is computed after this moment and reads x. As nothing is computed twice, x is at this moment
in the memory of the NPU, of M bytes, or in external memory alone. Let L(e) be the bytes of all such x. At least L(e) - M of them are in
external memory alone, and are loaded after this moment: an element of an input for the second time, any other one after it was
stored, for which an output's element counts no second store. The cheapest choice of so many bytes is a lower bound.

The bounds of several elements e add up where no byte is counted twice: of each further e only the bytes count that were in no earlier
L(e). Every L(e) is a subset of the live bytes, because ``Dependence`` marks only what is certainly read. So the sum is a lower bound whichever
e are taken: here the middle element of each output of products, in descending order of L(e).

Example: a U-Net of one level, whose middle layer has one pixel. The middle pixel depends on all of the input, and every pixel of the output on
the middle one. The skipped tensor is live at this moment: in half of its bytes of memory, the other half is stored and loaded again.

A schedule that computes an element again from elements that are still at hand may copy less, so that the bound does not hold for
overlapping tiles that recompute their halos. The schedules of ``search`` compute each element once: their stripes keep rows in rolling buffers.

``Dependence`` follows the elements that kernels certainly read, forwards and backwards through calls, with one boolean for each byte of each
storage. ``select/needs.py`` has what a call may read, which is an upper bound. The rules here are a lower bound, which the proof needs: a byte
is marked only where the element is read, whatever the values are. No mark passes a kernel whose access pattern leaves open what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, Maps, Storages, View
from openneutron.isa.kernels.row import CostClass, Everything, Mapped, Padded, SameElement, SameRow, Window

Bools = npt.NDArray[np.bool_]
Marks = dict[str, Bools]
"""The marked bytes of each storage."""

Along = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
"""For each tap: places of the output along one axis, and the place of the input that each of them reads. A tap has each place once."""

WHOLE_ROWS = frozenset((CostClass.EXPONENTIALS, CostClass.NORMALIZED))
"""Kernels of ``SameRow`` that read every element of the row; a GATHER reads some of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The elements of one operand that a call certainly reads for each element of its output.

    ``along``: by axis (rows, columns) the places; ``over``: the axes on which every output element reads every element, or, where ``all_of``, reads at
    least one of them, so that marks pass only where the whole of these axes is marked.
    """

    operand: str
    along: Mapping[int, Along]
    over: tuple[int, ...]
    all_of: bool

    def forwards(self, marks: Bools, extents: Sequence[int]) -> Bools:
        """Return the marks of the output, of these extents, whose elements read a marked element."""
        return np.broadcast_to(self._along(marks, extents, 1), tuple(extents))

    def backwards(self, marks: Bools, extents: Sequence[int]) -> Bools:
        """Return the marks of the operand, of these extents, whose elements a marked element of the output reads."""
        marks = self._along(marks, extents, -1)
        shrunk = tuple(axis for axis in range(4) if extents[axis] == 1 < marks.shape[axis])
        return np.broadcast_to(marks.any(axis=shrunk, keepdims=True) if shrunk else marks, tuple(extents))

    def _along(self, marks: Bools, extents: Sequence[int], step: int) -> Bools:
        """Return the marks along each axis: from what is read to the output with a ``step`` of 1, and back with -1."""
        marks = self._collapsed(marks)
        for axis, taps in self.along.items():
            shape = [*marks.shape]
            shape[axis] = extents[axis]
            made = np.zeros(shape, np.bool_)
            for tap in taps:
                to, origin = tap[::step]
                made[_at(axis, to)] |= marks[_at(axis, origin)]
            marks = made
        return marks

    def _collapsed(self, marks: Bools) -> Bools:
        if not self.over:
            return marks
        collapsed: np.ufunc = np.logical_and if self.all_of else np.logical_or
        return np.asarray(collapsed.reduce(marks, axis=self.over, keepdims=True), np.bool_)


def _at(axis: int, places: npt.NDArray[np.int64]) -> tuple[slice | npt.NDArray[np.int64], ...]:
    return (*([slice(None)] * axis), places)


def readings(call: KernelCall) -> list[Reading]:
    """Return the certain readings of a call; none for an operand whose access pattern has no rule."""
    found = []
    for name, view in call.views.items():
        if call.reads(name) and name not in call.results:
            made = _reading(call, name, view.extents, call.views["output"].extents)
            found += [made] if made is not None else []
    return found


def _reading(call: KernelCall, name: str, read: Sequence[int], written: Sequence[int]) -> Reading | None:
    access, kind = call.traits.access(name), call.traits.cost.kind
    if isinstance(access, Everything):
        return Reading(name, {}, (1, 2, 3), True) if kind is CostClass.PER_INPUT and read[0] == written[0] else None
    if isinstance(access, SameElement):
        fits = all(one in (1, other) for one, other in zip(read, written, strict=True))
        return Reading(name, {}, (), False) if fits else None
    if read[0] != written[0]:
        return None
    if isinstance(access, SameRow):
        same = kind in WHOLE_ROWS and read[1] == written[1]
        return Reading(name, {}, (2, 3), True) if same else None
    if isinstance(access, Window):
        dense = kind is CostClass.PRODUCTS and call.params[call.traits.cost.inputs] == read[3]
        along = {axis: _taps(call, access, axis, read[axis], written[axis]) for axis in (1, 2)}
        return Reading(name, along, (3,), not dense)
    if read[3] != written[3]:
        return None
    if isinstance(access, Padded):
        pads = {axis: call.params[access.pad[axis - 1]] for axis in (1, 2)}
        return Reading(name, {axis: [_kept(-pads[axis], read[axis], written[axis])] for axis in (1, 2)}, (), False)
    return _by_maps(call, name, access, read) if isinstance(access, Mapped) else None


def _by_maps(call: KernelCall, name: str, access: Mapped, read: Sequence[int]) -> Reading:
    maps = call.constants[access.constant]
    assert isinstance(maps, Maps)
    along = {}
    for axis, tables in ((1, maps.rows), (2, maps.cols)):
        named = np.clip(tables[: access.maps], 0, read[axis] - 1).astype(np.int64)
        along[axis] = [tap for table in named for tap in _apart(table)]
    return Reading(name, along, (), False)


def _apart(table: npt.NDArray[np.int64]) -> Along:
    """Return the places that a table names, as taps that name no place twice."""
    earlier: dict[int, int] = {}
    taps: dict[int, list[tuple[int, int]]] = {}
    for place, read in enumerate(table.tolist()):
        taps.setdefault(earlier.setdefault(read, 0), []).append((place, read))
        earlier[read] += 1
    return [(pairs[:, 0], pairs[:, 1]) for pairs in map(np.array, taps.values())]


def _taps(call: KernelCall, window: Window, axis: int, read: int, written: int) -> Along:
    side, params = axis - 1, call.params
    dilation = params[window.dilation[side]] if window.dilation else 1
    stride, pad = params[window.stride[side]], params[window.pad[side]]
    return [_kept(tap * dilation - pad, read, written, stride) for tap in range(params[window.kernel[side]])]


def _kept(first: int, read: int, written: int, stride: int = 1) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places whose tap is inside the input, and what they read."""
    places = np.arange(written)
    named = places * stride + first
    inside = (named >= 0) & (named < read)
    return places[inside], named[inside]


@dataclass(frozen=True, slots=True)
class Dependence:
    """The certain dependence between the bytes of all storages without constants."""

    calls: Sequence[KernelCall]
    storages: Storages
    readings: Sequence[Sequence[Reading]]

    def none(self) -> Marks:
        """Return no mark."""
        named = {self.storages.of[view.tensor] for call in self.calls for view in call.views.values()}
        pieces = (self.storages.storages[name] for name in sorted(named))
        return {piece.name: np.zeros(piece.size_bytes, np.bool_) for piece in pieces if piece.constant is None}

    def behind(self, marks: Marks, first: int) -> Marks:
        """Add to the marks every element that depends on a marked one through the calls from ``first`` on; return the marks."""
        for call, reads in zip(self.calls[first:], self.readings[first:], strict=True):
            output = call.views["output"]
            for each, view in self._operands(call, reads):
                self.mark(marks, output, each.forwards(self.seen(marks, view), output.extents))
        return marks

    def ahead(self, marks: Marks, end: int) -> Marks:
        """Add to the marks every element that a marked one depends on through the calls before ``end``; return the marks."""
        for call, reads in reversed([*zip(self.calls[:end], self.readings[:end], strict=True)]):
            wanted = self.seen(marks, call.views["output"])
            for each, view in self._operands(call, reads) if wanted.any() else ():
                self.mark(marks, view, each.backwards(wanted, view.extents))
        return marks

    def read_by(self, marks: Marks) -> Marks:
        """Return the elements that a call reads for a marked element of its own output."""
        found = self.none()
        for call, reads in zip(self.calls, self.readings, strict=True):
            wanted = self.seen(marks, call.views["output"])
            for each, view in self._operands(call, reads) if wanted.any() else ():
                self.mark(found, view, each.backwards(wanted, view.extents))
        return found

    def _operands(self, call: KernelCall, reads: Iterable[Reading]) -> list[tuple[Reading, View]]:
        views = ((each, call.views[each.operand]) for each in reads)
        return [(each, view) for each, view in views if self.storages[view.tensor].constant is None]

    def seen(self, marks: Marks, view: View) -> Bools:
        """Return the marks of the elements of a view."""
        return _elements(marks[self.storages.of[view.tensor]], view)[..., 0]

    def mark(self, marks: Marks, view: View, added: Bools, value: bool = True) -> None:
        """Set the marks of elements of a view."""
        _elements(marks[self.storages.of[view.tensor]], view)[added] = value


def _elements(marks: Bools, view: View) -> Bools:
    shape = (*view.extents, view.element_bytes)
    return np.lib.stride_tricks.as_strided(marks[view.offset :], shape, (*view.pitches, 1))


def dependence(calls: Sequence[KernelCall], storages: Storages) -> Dependence:
    """Return the dependence between the storages of these calls."""
    return Dependence(calls, storages, [readings(call) for call in calls])


def least_reloaded_bytes(calls: Sequence[KernelCall], storages: Storages, budgets: Sequence[int]) -> list[int]:
    """Return, for each memory of the NPU in bytes, a lower bound of the bytes copied beside inputs, outputs and constants once.

    The bound is one over all schedules of the calls that compute each element once. It is 0 where a storage is written twice, or has a
    value between runs.
    """
    found = dependence(calls, storages)
    if not _is_written_once(found):
        return [0] * len(budgets)
    needed = found.none()
    for name, storage in storages.storages.items():
        if storage.output is not None and name in needed:
            needed[name][:] = True
    found.ahead(needed, len(calls))
    live = [*_live(found, needed, min(budgets, default=0))]
    live.sort(key=_size, reverse=True)
    return [_sum_of(live, storages, budget) for budget in budgets]


def _is_written_once(found: Dependence) -> bool:
    states = (each.state for each in found.storages.storages.values())
    if any(call.has_states for call in found.calls) or any(state is not None for state in states):
        return False
    written = found.none()
    for call in found.calls:
        output = call.views["output"]
        if found.seen(written, output).any():
            return False
        found.mark(written, output, np.ones(output.extents, np.bool_))
    return True


def _live(found: Dependence, needed: Marks, least: int) -> Iterator[Marks]:
    """Yield the elements that are live while the middle element of an output of products is computed, where they exceed ``least`` bytes."""
    most = _most_live(found)
    for position, call in enumerate(found.calls):
        if most[position] <= least:
            continue
        output = call.views["output"]
        middle = np.zeros(output.extents, np.bool_)
        middle[tuple(extent // 2 for extent in output.extents)] = True
        if call.traits.cost.kind is not CostClass.PRODUCTS or not (found.seen(needed, output) & middle).any():
            continue
        before, after = found.none(), found.none()
        found.mark(before, output, middle)
        found.mark(after, output, middle)
        found.ahead(before, position + 1)
        found.behind(after, position + 1)
        found.mark(after, output, middle, False)
        later = found.read_by({name: marks & needed[name] for name, marks in after.items()})
        made = {name: marks & later[name] for name, marks in before.items()}
        if _size(made) > least:
            yield made


def _most_live(found: Dependence) -> list[int]:
    """Return for each call an upper bound of the elements yielded for it: the tensors touched up to this call and behind it, in bytes."""
    touched: dict[str, list[int]] = {}
    for position, call in enumerate(found.calls):
        for view in call.views.values():
            touched.setdefault(found.storages.of[view.tensor], []).append(position)
    sizes = {name: marks.size for name, marks in found.none().items()}
    first = {name: -1 if found.storages.storages[name].input is not None else touched[name][0] for name in sizes}
    return [
        sum(size for name, size in sizes.items() if first[name] <= position < touched[name][-1])
        for position in range(len(found.calls))
    ]


def _size(marks: Marks) -> int:
    return sum(int(each.sum()) for each in marks.values())


def _sum_of(live: Sequence[Marks], storages: Storages, budget: int) -> int:
    """Return the sum over the moments; bytes of an earlier moment do not count again."""
    total = 0
    counted: Marks = {}
    for marks in live:
        own = {name: each & ~counted[name] if name in counted else each for name, each in marks.items()}
        over = _size(own) - budget
        if over <= 0:
            continue
        at_border = sum(int(each.sum()) for name, each in own.items() if storages.storages[name].is_border)
        total += over + max(0, over - at_border)
        counted = {name: each | counted[name] if name in counted else each for name, each in own.items()}
    return total
