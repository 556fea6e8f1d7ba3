# SPDX-License-Identifier: BSD-3-Clause
"""Find the rows and columns of its inputs that a call reads for those of its output, and cut calls to some of their columns or channels.

``reads_along`` has a rule for each access pattern. Stripes, rolling buffers, tiles, unread regions, in-place outputs and the audit all
depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from openneutron.compiler.select.calls import KernelCall, Maps, Storages, View, of_channels, written_in_place
from openneutron.isa.kernels.row import (
    Access,
    Block,
    CostClass,
    Everything,
    Mapped,
    Padded,
    SameElement,
    SameRow,
    Window,
)
from openneutron.isa.rows import LANES
from openneutron.targets import Target

NEVER = 1 << 30
"""The value of "the first needed row" if no row is needed. It is larger than the number of rows of any tensor."""


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """The rows of an input that the rows of an output need.

    ``low[r]`` is the first input row that output row r or a later one needs; ``low[rows]`` is ``NEVER``. ``high[q]`` is one more
    than the last input row that output rows [0, q) need. Both sequences never decrease.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]

    def moved(self, rows: int) -> RowNeeds:
        """Return the same needs with ``rows`` added to the number of each input row."""
        if not rows:
            return self
        low, high = [row + rows for row in self.low], [row + rows for row in self.high]
        low[-1], high[0] = NEVER, 0
        return RowNeeds(tuple(low), tuple(high))

    def mirrored(self, rows: int) -> RowNeeds:
        """Return the same needs if rows of the output and of the input, which has ``rows`` rows, are counted from the last row back."""
        low = (*(rows - end for end in reversed(self.high[1:])), NEVER)
        high = (0, *(rows - first for first in reversed(self.low[:-1])))
        return RowNeeds(low, high)

    def joined(self, other: RowNeeds) -> RowNeeds:
        """Return the needs of a reader that needs the rows of both."""
        return RowNeeds(tuple(map(min, self.low, other.low)), tuple(map(max, self.high, other.high)))


Span = tuple[int, int]
"""The first of some rows or columns, and one more than the last."""

Reads = Callable[[int, int], Span]
"""A function from the first and end of some output rows (or columns) to the span of the input that they read.

The span is empty if they read only padding.
"""

Rule = Callable[[KernelCall, str, Any, int], Reads | None]
"""A rule returns the ``Reads`` of a call, given the input's name, its access pattern, and the axis (1: rows, 2: columns).

None means that each output row or column may read all of the input.
"""


@dataclass(frozen=True, slots=True)
class _Strided:
    """The reads of a sliding window: output row (or column) p reads ``extent`` input rows from p * ``stride`` - ``before`` on.

    Only rows inside the ``held`` rows of the input are read.
    """

    held: int
    stride: int
    before: int
    extent: int

    def __call__(self, first: int, end: int) -> Span:
        low, high = first * self.stride - self.before, (end - 1) * self.stride - self.before + self.extent
        return min(self.held, max(0, low)), min(self.held, max(0, high))


def _window(call: KernelCall, name: str, window: Window, axis: int) -> Reads:
    params, side = call.params, axis - 1
    dilation = params[window.dilation[side]] if window.dilation else 1
    extent = (params[window.kernel[side]] - 1) * dilation + 1
    return _Strided(call.views[name].extents[axis], params[window.stride[side]], params[window.pad[side]], extent)


def _same_row(call: KernelCall, name: str, access: SameRow, axis: int) -> Reads | None:
    return _same_element(call, name, access, axis) if axis == 1 else None


def _same_element(call: KernelCall, name: str, _access: SameElement | SameRow, axis: int) -> Reads | None:
    held = call.views[name].extents[axis]
    return _Strided(held, 1, 0, 1) if held == call.views["output"].extents[axis] else None


def _padded(call: KernelCall, name: str, padded: Padded, axis: int) -> Reads:
    return _Strided(call.views[name].extents[axis], 1, call.params[padded.pad[axis - 1]], 1)


def _mapped(call: KernelCall, name: str, mapped: Mapped, axis: int) -> Reads:
    held, maps = call.views[name].extents[axis], call.constants[mapped.constant]
    assert isinstance(maps, Maps)
    own = (maps.rows if axis == 1 else maps.cols)[: mapped.maps]
    named = np.clip(own, 0, held - 1)
    low, high = named.min(axis=0).tolist(), named.max(axis=0).tolist()
    return lambda first, end: (min(low[first:end]), max(high[first:end]) + 1)


def _block(call: KernelCall, name: str, block: Block, axis: int) -> Reads | None:
    rows = call.params[block.rows]
    return _Strided(call.views[name].extents[1], rows, 0, rows) if axis == 1 else None


def _everything(_call: KernelCall, _name: str, _access: Everything, _axis: int) -> None:
    return None


RULES: Mapping[type[Access], Rule] = {
    Everything: _everything,
    Block: _block,
    SameRow: _same_row,
    SameElement: _same_element,
    Window: _window,
    Padded: _padded,
    Mapped: _mapped,
}
"""One rule for each access pattern."""


def reads_along(call: KernelCall, name: str, axis: int) -> Reads | None:
    """Return the function from output rows (``axis`` 1) or columns (2) to those of input ``name`` that they read.

    Return None if any of them may read all of the input.
    """
    access = call.traits.access(name)
    return RULES[type(access)](call, name, access, axis)


def row_needs(call: KernelCall, name: str) -> RowNeeds | None:
    """Return the rows of the input view ``name`` that the output rows of a call need; None if any output row may need all of them."""
    reads, view = reads_along(call, name, 1), call.views[name]
    if reads is None or (view.pitches[1] == 0 and view.extents[1] > 1):
        return None
    made = _shared_needs if isinstance(reads, _Strided) else _needs_of_rows
    return made(reads, call.views["output"].extents[1])


def _needs_of_rows(reads: Reads, rows: int) -> RowNeeds:
    """Return the needs of an output of ``rows`` rows."""
    spans = [reads(row, row + 1) for row in range(rows)]
    low = list(accumulate((first for first, _ in reversed(spans)), min))[::-1]
    return RowNeeds((*low, NEVER), (0, *accumulate((end for _, end in spans), max)))


_shared_needs = lru_cache(maxsize=1024)(_needs_of_rows)
"""``_needs_of_rows`` with a cache, so that layers of the same shape share one object."""


def parts_may_be_faster(calls: Sequence[KernelCall], storages: Storages, target: Target) -> bool:
    """Return whether some call may take fewer cycles in parts than as a whole. False is certain, True is not.

    A cascade does not compute unread regions. A convolution whose channels do not fill the pipelines may use them better in parts. A
    CPU may take fewer instructions for the calls of single images than for those of a batch.
    """
    if target.cpu is not None:
        return True
    written = {storages.of[call.views[name].tensor] for call in calls for name in call.results}
    return any(_is_uneven(call, target) or _has_unread_region(call, storages, written) for call in calls)


def _is_uneven(call: KernelCall, target: Target) -> bool:
    cost, (_, rows, cols, _) = call.traits.cost, call.views["output"].extents
    return cost.kind is CostClass.PRODUCTS and call.params[cost.outputs] % target.all_pipelines != 0 and rows * cols > 1


def _has_unread_region(call: KernelCall, storages: Storages, written: set[str]) -> bool:
    """Return whether the call does not read all of some input that a call writes (``written``: the names of these storages)."""
    for name, view in call.views.items():
        if call.writes(name) or storages.of[view.tensor] not in written:
            continue
        if view.size_bytes < storages[view.tensor].size_bytes:
            return True
        if any(_skips(call, name, axis) for axis in (1, 2)):
            return True
    return False


def _skips(call: KernelCall, name: str, axis: int) -> bool:
    """Return whether some rows (``axis`` 1) or columns (2) of an input are read by no row or column of the output."""
    reads = reads_along(call, name, axis)
    if reads is None:
        return False
    end = 0
    for first, last in sorted(reads(place, place + 1) for place in range(call.views["output"].extents[axis])):
        if first > end:
            return True
        end = max(end, last)
    return end < call.views[name].extents[axis]


def in_place(storages: Storages, calls: Sequence[KernelCall], chained: bool = False) -> Storages:
    """Return the storages in which each call that can compute in place has one storage for its output and an input.

    The input must be scratch that only this call reads. The output must have the same size and be written only by this call. If it is
    a graph output, the shared storage is that graph output. With ``chained``, a call whose input is itself computed in place may
    compute in place too.
    """
    of, pieces = dict(storages.of), dict(storages.storages)
    touched: dict[str, set[int]] = {}
    written: dict[str, set[int]] = {}
    for position, call in enumerate(calls):
        for name, view in call.views.items():
            if call.writes(name):
                written.setdefault(of[view.tensor], set()).add(position)
            if call.reads(name):
                touched.setdefault(of[view.tensor], set()).add(position)
    for position, call in enumerate(calls):
        result = pieces[of[call.views["output"].tensor]]
        for name, view in call.views.items():
            source = pieces[of[view.tensor]]
            if name == "output" or source.name == result.name or not written_in_place(call, name, of):
                continue
            if not source.is_scratch or result.state is not None:
                continue
            alone = touched[source.name] == {position} and written[result.name] == {position}
            if not alone or source.size_bytes != result.size_bytes:
                continue
            for tensor in [tensor for tensor, storage in of.items() if storage == result.name]:
                of[tensor] = source.name
            pieces[source.name] = replace(source, output=result.output)
            del pieces[result.name]
            written[source.name] = written[source.name] | {position}
            others = touched.pop(result.name, set())
            touched[source.name] = others if chained else touched[source.name] | others
            break
    return Storages(pieces, of)


def columns_of(view: View, span: Span) -> View:
    """Return the view of the columns in ``span``."""
    batches, rows, _, channels = view.extents
    extents = (batches, rows, span[1] - span[0], channels)
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[2])


def channels_of(view: View, span: Span) -> View:
    """Return the view of the channels in ``span``."""
    extents = (*view.extents[:3], span[1] - span[0])
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[3])


def only_input(call: KernelCall) -> str:
    """Return the name of a call's only input; empty if its kernel declares several inputs or none."""
    operands = call.traits.operands
    return operands[0].name if len(operands) == 1 else ""


def takes_columns(call: KernelCall) -> bool:
    """Return whether ``some_columns`` can cut this call."""
    return isinstance(call.traits.access(only_input(call)), Window | SameElement)


def columns_needed(call: KernelCall, span: Span) -> Span:
    """Return the input columns that the output columns in ``span`` read; empty if they read only padding."""
    reads = reads_along(call, only_input(call), 2)
    assert reads is not None, f"{call.name} does not take columns"
    return reads(*span)


def some_columns(call: KernelCall, span: Span) -> KernelCall:
    """Return the call that computes only the output columns in ``span``, and whose input view has only the columns that they read.

    The padding on the left is adjusted to this view. The padding on the right follows from the extents.
    """
    name, needed = only_input(call), columns_needed(call, span)
    views = {name: columns_of(call.views[name], needed), "output": columns_of(call.views["output"], span)}
    window, params = call.traits.access(name), dict(call.params)
    if isinstance(window, Window):
        before = params[window.pad[1]]
        params[window.pad[1]] = needed[0] - (span[0] * params[window.stride[1]] - before)
    return replace(call, views=views, params=params)


def takes_channels(call: KernelCall) -> bool:
    """Return whether ``some_channels`` can cut this call: its kernel and the values of its parameters allow it (``Channels``)."""
    channels, count = call.traits.channels, call.views["output"].extents[3]
    return (
        channels is not None
        and all(call.params[name] == count for name in channels.counts)
        and all(call.params[name] == 1 for name in channels.single)
    )


def channel_by_channel(call: KernelCall) -> bool:
    """Return whether each output channel depends only on the same channel of the input, and ``some_channels`` can cut the call."""
    channels = call.traits.channels
    return channels is not None and channels.same and takes_channels(call)


def some_channels(call: KernelCall, span: Span) -> KernelCall:
    """Return the call that computes only the output channels in ``span``.

    The first one must be a multiple of 8, since packed constants are in blocks of 8 channels.
    """
    first, end = span
    channels, name, output = call.traits.channels, only_input(call), call.views["output"]
    assert channels is not None and first % LANES == 0, f"{call.name}: channels from {first} on"
    views = {**call.views, "output": channels_of(output, span)}
    if channels.same:
        views[name] = channels_of(views[name], span)
    constants = {key: of_channels(call.packing(key), constant, *span) for key, constant in call.constants.items()}
    params = {**call.params, **dict.fromkeys(channels.counts, end - first)}
    return replace(call, views=views, params=params, constants=constants)
