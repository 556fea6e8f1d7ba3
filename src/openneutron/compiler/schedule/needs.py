# SPDX-License-Identifier: BSD-3-Clause
"""The rows and columns of its inputs that a call reads for those of its output: one rule for each access pattern.

Unread regions, and outputs that take the memory of an input, follow from these rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.constants import Maps
from openneutron.compiler.select.storage import Storages
from openneutron.isa.kernels.traits import Access, CostClass, Everything, Mapped, Padded, SameElement, SameRow, Window
from openneutron.targets import Target

NEVER = 1 << 30
"""The first row that is needed where no row is: beyond the last row of every tensor."""


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """Rows of an input that output rows need.

    ``low[r]`` is the first input row that output row r or a later one needs (``low[rows]`` is ``NEVER``), ``high[q]`` the
    end of those that output rows [0, q) need. Both never fall.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]

    def moved(self, rows: int) -> RowNeeds:
        """Return the same needs, counted from ``rows`` rows earlier."""
        return RowNeeds((*(row + rows for row in self.low[:-1]), NEVER), (0, *(row + rows for row in self.high[1:])))

    def mirrored(self, rows: int) -> RowNeeds:
        """Return the same needs where both the output and the input, of ``rows`` rows, are counted from the last row on."""
        low = (*(rows - end for end in reversed(self.high[1:])), NEVER)
        high = (0, *(rows - first for first in reversed(self.low[:-1])))
        return RowNeeds(low, high)

    def joined(self, other: RowNeeds) -> RowNeeds:
        """Return the needs of both."""
        return RowNeeds(tuple(map(min, self.low, other.low)), tuple(map(max, self.high, other.high)))


Span = tuple[int, int]
"""First and end."""

Reads = Callable[[int], Span]
"""A row (or column) of an output to those of an input that it reads; empty where padding is all it sees."""

Rule = Callable[[KernelCall, str, Any, int], Reads | None]
"""(call, name of one of its inputs, its access pattern, axis: 1 for rows, 2 for columns) to what places along the axis read; None
where each may read every one."""


def _strided(held: int, stride: int, before: int, extent: int) -> Reads:
    def reads(place: int) -> Span:
        first = place * stride - before
        return min(held, max(0, first)), min(held, max(0, first + extent))

    return reads


def _window(call: KernelCall, name: str, window: Window, axis: int) -> Reads:
    params, side = call.params, axis - 1
    dilation = params[window.dilation[side]] if window.dilation else 1
    extent = (params[window.kernel[side]] - 1) * dilation + 1
    return _strided(call.views[name].extents[axis], params[window.stride[side]], params[window.pad[side]], extent)


def _same_row(call: KernelCall, name: str, access: SameRow, axis: int) -> Reads | None:
    return _same_element(call, name, access, axis) if axis == 1 else None


def _same_element(call: KernelCall, name: str, _access: SameElement | SameRow, axis: int) -> Reads | None:
    held = call.views[name].extents[axis]
    return _strided(held, 1, 0, 1) if held == call.views["output"].extents[axis] else None


def _padded(call: KernelCall, name: str, padded: Padded, axis: int) -> Reads:
    return _strided(call.views[name].extents[axis], 1, call.params[padded.pad[axis - 1]], 1)


def _mapped(call: KernelCall, name: str, mapped: Mapped, axis: int) -> Reads:
    held, maps = call.views[name].extents[axis], call.constants[mapped.constant]
    assert isinstance(maps, Maps)
    own = (maps.rows if axis == 1 else maps.cols)[: mapped.maps]
    named = np.clip(own, 0, held - 1)
    first, last = named.min(axis=0).tolist(), named.max(axis=0).tolist()
    return lambda place: (first[place], last[place] + 1)


def _everything(_call: KernelCall, _name: str, _access: Everything, _axis: int) -> None:
    return None


RULES: Mapping[type[Access], Rule] = {
    Everything: _everything,
    SameRow: _same_row,
    SameElement: _same_element,
    Window: _window,
    Padded: _padded,
    Mapped: _mapped,
}
"""One rule for each access pattern."""


def reads_along(call: KernelCall, name: str, axis: int) -> Reads | None:
    """Return the rows (axis 1) or columns (axis 2) that each of the output's reads of an input; None: it may be all of them."""
    access = call.traits.access(name)
    return RULES[type(access)](call, name, access, axis)


def row_needs(call: KernelCall, name: str) -> RowNeeds | None:
    """Return the rows that a call needs of its input ``name``, in rows of that view; None: all, for any of its output."""
    reads, view = reads_along(call, name, 1), call.views[name]
    if reads is None or (view.pitches[1] == 0 and view.extents[1] > 1):
        return None
    spans = [reads(row) for row in range(call.views["output"].extents[1])]
    low = list(accumulate((first for first, _ in reversed(spans)), min))[::-1]
    return RowNeeds((*low, NEVER), (0, *accumulate((end for _, end in spans), max)))


def written_in_place(call: KernelCall, name: str, of: Mapping[str, str]) -> bool:
    """Return whether the call's output may take the memory of its input ``name`` element by element.

    Everything that the call reads of that memory, by whatever tensor's name, then has the output's layout. ``of``: the
    storage of each tensor.
    """
    storage, output = of[call.views[name].tensor], _place(call.views["output"])
    return all(
        _in_place(call.traits.access(field)) and _place(view) == output
        for field, view in call.views.items()
        if field != "output" and of[view.tensor] == storage
    )


def _in_place(access: Access) -> bool:
    return isinstance(access, SameElement) and access.in_place


def _place(view: View) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return view.extents, view.pitches, view.offset


def parts_may_be_faster(calls: Sequence[KernelCall], storages: Storages, target: Target) -> bool:
    """Return whether some call in parts might take fewer cycles than whole; never false where one does.

    A cascade does not compute unread regions. And of a convolution whose channels do not fill the pipelines, parts may each suit
    the pipelines better than the whole.
    """
    written = {storages.of[call.views["output"].tensor] for call in calls}
    return any(_is_uneven(call, target) or _has_unread_region(call, storages, written) for call in calls)


def _is_uneven(call: KernelCall, target: Target) -> bool:
    cost, (_, rows, cols, _) = call.traits.cost, call.views["output"].extents
    return cost.kind is CostClass.PRODUCTS and call.params[cost.outputs] % target.pipelines != 0 and rows * cols > 1


def _has_unread_region(call: KernelCall, storages: Storages, written: set[str]) -> bool:
    """Return whether the call leaves some of a tensor that another call writes unread."""
    for name, view in call.views.items():
        if name == "output" or storages.of[view.tensor] not in written:
            continue
        if math.prod(view.extents) < storages[view.tensor].size_bytes:
            return True
        if any(_skips(call, name, axis) for axis in (1, 2)):
            return True
    return False


def _skips(call: KernelCall, name: str, axis: int) -> bool:
    """Return whether there are rows (or columns) of an input that no row (or column) of the output reads."""
    reads = reads_along(call, name, axis)
    end = 0
    for first, last in sorted(map(reads, range(call.views["output"].extents[axis]))) if reads is not None else ():
        if first > end:
            return True
        end = max(end, last)
    return reads is not None and end < call.views[name].extents[axis]


def in_place(storages: Storages, calls: Sequence[KernelCall]) -> Storages:
    """Return the storages with each such output and its input as one.

    The input is scratch that the call alone reads; the output is written by the call alone and has as many bytes. A graph
    output that is computed so lies where the graph's outputs do, and so does the input then.
    """
    of, pieces = dict(storages.of), dict(storages.storages)
    touched: dict[str, set[int]] = {}
    written: dict[str, set[int]] = {}
    for position, call in enumerate(calls):
        for name, view in call.views.items():
            (written if name == "output" else touched).setdefault(of[view.tensor], set()).add(position)
    for position, call in enumerate(calls):
        result = pieces[of[call.views["output"].tensor]]
        for name, view in call.views.items():
            source = pieces[of[view.tensor]]
            if name == "output" or source.name == result.name or not written_in_place(call, name, of):
                continue
            if source.constant is not None or source.input is not None or source.output is not None:
                continue
            alone = touched[source.name] == {position} and written[result.name] == {position}
            if not alone or source.size_bytes != result.size_bytes:
                continue
            for tensor in [tensor for tensor, storage in of.items() if storage == result.name]:
                of[tensor] = source.name
            pieces[source.name] = replace(source, output=result.output)
            del pieces[result.name]
            written[source.name] = written[source.name] | {position}
            touched[source.name] = touched[source.name] | touched.pop(result.name, set())
            break
    return Storages(pieces, of)
