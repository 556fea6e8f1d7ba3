# SPDX-License-Identifier: BSD-3-Clause
"""Find the elements of its inputs that a call reads for given elements of its output.

``reads_along`` gives the rows and columns, with one rule for each access pattern. Stripes, rolling buffers, tiles, unread regions,
in-place outputs and the audit all use these rules.

For operators of any rank, and for tensors that are read through a copy, index maps become views of four axes:

* A ``Walk`` has one pitch for each dimension of an iteration space. ``boxes`` turns walks into views.
* An ``AccessMap`` has a list of axes for each index. ``AccessMap.through`` turns the map to a copied tensor into the map to the tensor on
  the other side of the copy. The copy may exchange, split or join axes, as it does for the heads of attention. For that, an address is
  written as a number with mixed radices, with one digit for each axis of the copy; an axis that steps through several digits is split.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from openneutron.compiler.select.calls import (
    Extents,
    KernelCall,
    Maps,
    Storages,
    View,
    four,
    of_channels,
    shape_in_bytes,
    written_in_place,
)
from openneutron.ir import Tensor
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


@dataclass(frozen=True, slots=True)
class Walk:
    """The addresses at which a loop nest visits the elements of a tensor. The loops are the dimensions of a box (an
    iteration space).

    ``pitches`` has for each loop the bytes from one iteration to the next. The first element is ``offset`` bytes from
    the start of the tensor.
    """

    tensor: str
    pitches: tuple[int, ...]
    offset: int = 0
    element_bytes: int = 1


def row_major(shape: Sequence[int], element_bytes: int = 1) -> tuple[int, ...]:
    """Return the pitches in bytes of a dense tensor whose last dimension is innermost."""
    pitches = [element_bytes]
    for extent in reversed(shape[1:]):
        pitches.append(pitches[-1] * extent)
    return tuple(reversed(pitches))[: len(shape)]


def dense(tensor: Tensor) -> Walk:
    """Return the ``Walk`` (the pitches of a loop nest) that visits each byte of a dense tensor. It has one dimension
    for each dimension of the shape, and one more for the bytes of an element if there are several."""
    return Walk(tensor.name, row_major(shape_in_bytes(tensor)))


def by_elements(tensor: Tensor) -> Walk:
    """Return the walk through a whole dense tensor by elements, with one dimension for each dimension of its shape."""
    size = tensor.dtype.size_bytes
    return Walk(tensor.name, row_major(tensor.shape, size), element_bytes=size)


def boxes(extents: Sequence[int], walks: Mapping[str, Walk]) -> Iterator[dict[str, View]]:
    """Divide a box (the iteration space of a loop nest) of any number of dimensions into boxes of four axes. Yield
    for each of them the views of all tensors, by the keys of ``walks``.

    A box of up to four dimensions gives one set of views. In a larger box, neighbouring dimensions are merged first
    where every tensor allows it (``merged``). If more than four dimensions are left, there is one set for each index
    into the leading dimensions.
    """
    if len(extents) > 4:
        extents, walks = merged(extents, walks)
    leading = max(0, len(extents) - 4)
    inner = tuple(extents[leading:])
    padded = (1,) * (4 - len(inner)) + inner
    for index in itertools.product(*map(range, extents[:leading])):
        views = {}
        for name, walk in walks.items():
            outer, pitches = walk.pitches[:leading], walk.pitches[leading:]
            offset = walk.offset + sum(i * pitch for i, pitch in zip(index, outer, strict=True))
            whole = (pitches[0] if pitches else 1) * (inner[0] if inner else 1)
            full = (whole,) * (4 - len(inner)) + tuple(pitches)
            views[name] = View(walk.tensor, four(padded), four(full), offset, walk.element_bytes)
        yield views


def merged(extents: Sequence[int], walks: Mapping[str, Walk]) -> tuple[tuple[int, ...], Mapping[str, Walk]]:
    """Return an equivalent box (the extents of a loop nest), and its walks, with fewer dimensions. Dimensions of one
    element are dropped, and neighbouring dimensions are merged.

    Two neighbouring dimensions are merged if each tensor steps through both with a single pitch.
    """
    kept: list[int] = []
    pitches: dict[str, list[int]] = {name: [] for name in walks}
    for axis, extent in enumerate(extents):
        if extent == 1:
            continue
        here = {name: walk.pitches[axis] for name, walk in walks.items()}
        if kept and all(pitches[name][-1] == here[name] * extent for name in walks):
            kept[-1] *= extent
            for name in walks:
                pitches[name][-1] = here[name]
        else:
            kept.append(extent)
            for name in walks:
                pitches[name].append(here[name])
    return tuple(kept), {name: replace(walk, pitches=tuple(pitches[name])) for name, walk in walks.items()}


def with_rows(
    extents: Sequence[int], walks: Mapping[str, Walk], side: str, rows: int, pitch: int
) -> tuple[tuple[int, ...], Mapping[str, Walk]] | None:
    """Return the extents and walks of an equivalent box (loop nest) of three dimensions, the first of which steps
    through the rows of the tensor of ``walks[side]``.

    That tensor has ``rows`` rows, ``pitch`` bytes apart. Return None if it has a single row, if no dimension of the
    box steps through all its rows, or if the rest of the box does not have exactly two dimensions.
    """
    for axis, (extent, step) in enumerate(zip(extents, walks[side].pitches, strict=True)):
        if rows == 1 or extent * step != rows * pitch or pitch % step:
            continue
        inside = pitch // step
        kept = [other for other in range(len(extents)) if other != axis]
        if len(kept) + (inside > 1) != 2:
            return None
        within = sorted([*kept, axis]) if inside > 1 else kept
        new = {
            name: replace(walk, pitches=(walk.pitches[axis] * inside, *(walk.pitches[other] for other in within)))
            for name, walk in walks.items()
        }
        return (rows, *(inside if other == axis else extents[other] for other in within)), new
    return None


Axis = tuple[int, int]
"""The extent of an axis, and its pitch in bytes: (extent, pitch)."""

Axes = tuple[Axis, ...]
"""Axes, from the outermost to the innermost."""


@dataclass(frozen=True, slots=True)
class AccessMap:
    """An affine map from the indices of an iteration space to addresses in a tensor.

    The iteration space has one index for each of ``groups``. A group is a list of axes (extent, pitch), outermost
    first. Each index is split into one digit for each axis of its group. The address is ``offset`` plus the sum of
    digit * pitch over all axes of all groups.
    """

    tensor: str
    groups: tuple[Axes, ...]
    offset: int = 0

    def through(self, near: View, far: View) -> AccessMap | None:
        """Return the map to the other tensor of a copy that corresponds to this map: where this map visits an
        element, the result visits the element that is copied to or from it.

        ``near`` is the copy's view of this map's tensor, and ``far`` its view of the other tensor. Return None if no
        axes describe the result, or if ``near`` does not cover its tensor without gaps. Example: if a copy transposes
        [rows, columns], an index that steps through the rows of one tensor steps through the columns of the other.
        """
        digits = sorted(
            (pitch, extent, source)
            for extent, pitch, source in zip(near.extents, near.pitches, far.pitches, strict=True)
            if extent > 1
        )
        if near.offset or [pitch for pitch, _, _ in digits] != _dense([extent for _, extent, _ in digits]):
            return None
        left, offset, reached = self.offset, far.offset, []
        for _, extent, source in digits:
            left, digit = divmod(left, extent)
            offset += digit * source
            reached.append(digit)
        groups = []
        for group in self.groups:
            split: list[Axis] = []
            for axis in group:
                pieces = _through(axis, digits, reached)
                if pieces is None:
                    return None
                split += pieces
            groups.append(tuple(split))
        return None if left else AccessMap(far.tensor, tuple(groups), offset)


def _dense(extents: Sequence[int]) -> list[int]:
    """Return the pitches of contiguous axes of single bytes. Both ``extents`` and the result start with the innermost
    axis."""
    pitches = [1]
    for extent in extents:
        pitches.append(pitches[-1] * extent)
    return pitches[: len(extents)]


def _through(axis: Axis, digits: Sequence[tuple[int, int, int]], reached: list[int]) -> list[Axis] | None:
    """Return the axes, outermost first, that visit in the other tensor of a copy the elements that ``axis`` visits in
    this one. Return None if no axes do.

    An address in this tensor is a number with mixed radices. ``digits`` has for each digit, innermost first, its unit
    in bytes, its extent, and its pitch in the other tensor. ``reached`` has for each digit the largest value that the
    axes so far reach. This function updates it.
    """
    count, pitch = axis
    found: list[Axis] = []
    for place, (unit, extent, source) in enumerate(digits):
        if count == 1 or pitch == 0:
            break
        if pitch % unit or pitch >= unit * extent:
            continue
        step = pitch // unit
        if reached[place] + step * (count - 1) < extent:
            here = count
        elif reached[place] == 0 and extent % step == 0 and count % (extent // step) == 0:
            here = extent // step
        else:
            return None
        reached[place] += step * (here - 1)
        found.insert(0, (here, step * source))
        count, pitch = count // here, unit * extent
    if count > 1 and pitch:
        return None
    return [(count, 0), *found] if count > 1 else found


def split_alike(ways: Mapping[str, Axes]) -> dict[str, Axes] | None:
    """Split the axes of several index maps so that all maps have the same extents, with as few axes as possible.
    Return the new axes of each map.

    All maps have the same number of iterations. Example: axes of extents (6,) and (2, 3) both become axes of extents
    (2, 3). Return None if no common extents exist.
    """
    ends = sorted({end for axes in ways.values() for end in _ends(axes)})
    if any(end % start for start, end in itertools.pairwise(ends)):
        return None
    split = {name: _split(axes, ends) for name, axes in ways.items()}
    count = len(ends)
    for place in reversed(range(1, count)):
        if all(axes[place - 1][1] == axes[place][1] * axes[place][0] for axes in split.values()):
            for axes in split.values():
                axes[place - 1 : place + 1] = [(axes[place - 1][0] * axes[place][0], axes[place][1])]
    return {name: tuple(axes) for name, axes in split.items()}


def reshaped(axes: Axes, extents: Sequence[int]) -> list[int] | None:
    """Return the pitches with which axes of the given ``extents`` visit the same addresses in the same order as
    ``axes``. Return None if no pitches do.

    An axis of extent 1 gets pitch 0.
    """
    (joined,) = (split_alike({"": axes}) or {"": ()}).values()
    steps = list(itertools.accumulate(reversed(extents), operator.mul))
    ends = sorted({step for step in steps if step > 1})
    if not set(_ends(joined)) <= set(ends) or any(end % start for start, end in itertools.pairwise(ends)):
        return None
    pitches = [pitch for _, pitch in _split(joined, ends)]
    return [pitches.pop(0) if extent > 1 else 0 for extent in extents]


def view_of(tensor: str, extents: Extents, pitches: Extents, offset: int, element_bytes: int = 1) -> View:
    """Return a view with these fields, where axes of extent 1 get the pitch of a dense tensor, so that equal views
    compare equal."""
    inner = element_bytes
    found: list[int] = []
    for extent, pitch in zip(reversed(extents), reversed(pitches), strict=True):
        found.insert(0, inner if extent == 1 else pitch)
        inner = max(inner, found[0] * extent)
    batch, row, col, channel = found
    return View(tensor, extents, (batch, row, col, channel), offset, element_bytes)


def _ends(axes: Axes) -> list[int]:
    """Return for each axis with more than one element, innermost first, the product of its extent and the extents of
    all inner axes."""
    ends, total = [], 1
    for extent, _ in reversed(axes):
        total *= extent
        if extent > 1:
            ends.append(total)
    return ends


def _split(axes: Axes, ends: Sequence[int]) -> list[Axis]:
    """Return the axes, outermost first, split so that the products of the extents from the innermost axis outward are
    ``ends``."""
    inner = [axis for axis in reversed(axes) if axis[0] > 1]
    found: list[Axis] = []
    total, place, pitch = 1, 0, 0
    left = 1
    for end in ends:
        if left == 1:
            left, pitch = inner[place]
            place += 1
        here = end // total
        found.insert(0, (here, pitch))
        left, pitch, total = left // here, pitch * here, end
    return found


NEVER = 1 << 30
"""The value of "the first needed row" if no row is needed. It is larger than the number of rows of any tensor."""


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """The rows of an input that the rows of an output need.

    ``low[r]`` is the first input row that output row r or a later one needs. ``high[q]`` is one more than the last
    input row that output rows [0, q) need. After the last output row, ``low`` has one more entry, ``NEVER``. Both
    sequences never decrease.
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
        """Return the same needs with the rows of the output, and the ``rows`` rows of the input, numbered from the last
        row to the first."""
        low = (*(rows - end for end in reversed(self.high[1:])), NEVER)
        high = (0, *(rows - first for first in reversed(self.low[:-1])))
        return RowNeeds(low, high)

    def joined(self, other: RowNeeds) -> RowNeeds:
        """Return the needs of a reader that needs all rows that this object and ``other`` need."""
        return RowNeeds(tuple(map(min, self.low, other.low)), tuple(map(max, self.high, other.high)))


Span = tuple[int, int]
"""The first of some rows or columns, and one more than the last."""

Reads = Callable[[int, int], Span]
"""A function from a range [first, end) of output rows (or columns) to the range of input rows (or columns) that they
read.

The range is empty if the outputs read only padding.
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
    """Return a function from a range of output rows (``axis`` 1) or columns (``axis`` 2) to the range of rows or
    columns of input ``name`` that they read.

    Return None if an output row or column may read all of the input.
    """
    access = call.traits.access(name)
    return RULES[type(access)](call, name, access, axis)


def row_needs(call: KernelCall, name: str) -> RowNeeds | None:
    """Return the rows of the input view ``name`` that the output rows of a call need. Return None if any output row
    may need all of them, or if all rows of the view are the same row (broadcasting)."""
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
    """Return False if it is certain that no call takes fewer cycles in parts than as a whole, otherwise True.

    Parts may be faster for three reasons. A cascade does not compute regions that no call reads. A convolution whose
    channels do not fill the pipelines may use them better in parts. A CPU may take fewer instructions for the calls
    of single images than for those of a batch.
    """
    if target.cpu is not None:
        return True
    written = {storages.of[call.views[name].tensor] for call in calls for name in call.results}
    return any(_is_uneven(call, target) or _has_unread_region(call, storages, written) for call in calls)


def _is_uneven(call: KernelCall, target: Target) -> bool:
    cost, (_, rows, cols, _) = call.traits.cost, call.views["output"].extents
    return cost.kind is CostClass.PRODUCTS and call.params[cost.outputs] % target.all_pipelines != 0 and rows * cols > 1


def _has_unread_region(call: KernelCall, storages: Storages, written: set[str]) -> bool:
    """Return whether the call reads only a part of an input that another call computes. ``written`` has the names of
    the storages that calls write."""
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
    """Return the storages after in-place assignment: where a call can write its output over an input, the output's
    tensors move to the storage of the input.

    The input must be scratch that only this call reads. The output must have the same size, must not be a state, and
    must be written only by this call. If it is a graph output, the shared storage becomes this graph output. With
    ``chained``, a call whose input is itself computed in place may compute in place too.
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
    """Return the part of the view that has only the columns in ``span``. The columns are axis 2 of [batches, rows,
    columns, channels]."""
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
    """Return a call that computes only the output columns in ``span``. Its input view has only the columns that these
    output columns read.

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
