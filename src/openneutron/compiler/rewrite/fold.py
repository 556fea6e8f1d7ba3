# SPDX-License-Identifier: BSD-3-Clause
"""Fold copies and table look-ups into neighbouring calls that can apply them; no bit changes.

A copy behind a call goes away where the call can write to the copy's place (a concatenation's operands), one in front of calls where these
can read from the copy's source (a slice). Two tables in a row are one, and so are a copy and a table, or a table and the call before it
that clamps anyway: each kernel that requantizes ends with clamp(x + zero point, low, high), and a shift by whole steps and another clamp
are of the same form. Where the scale changes too, LiteRT rounds twice, and the table stays. ``copies_as_views`` also removes copies of
tensors that other calls read too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.isa.kernels.row import Function
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN


def fold(edit: Edit) -> None:
    """Fold copies and tables into the calls in front of them or behind them, from the first call to the last.

    A fold may make one of an earlier call possible, which is tried again.
    """
    _until_no_more(edit, range(len(edit)), _folded)
    for place in range(len(edit)):
        call = edit.find(place)
        if call is not None and call.traits.function is not None:
            alone = (
                edit.writer(call.views["output"].tensor) == place or edit.writer(call.views["input"].tensor) is not None
            )
            edit.skip(Cause.LAYOUT if alone else Cause.READ_BY_OTHERS, call)


Changes = dict[int, KernelCall | None]
"""The calls at the places that change, None for those that are removed."""


def _until_no_more(edit: Edit, places: Iterable[int], change: Callable[[Edit, int], Changes | None]) -> None:
    """Make the change of the first place that has one, until no place has one. A place is tried again when a call that it may depend on changes."""
    waiting = sorted(places)
    queued = set(waiting)
    refused: set[int] = set()
    while waiting:
        place = heapq.heappop(waiting)
        queued.discard(place)
        changes = change(edit, place)
        if changes is None:
            continue
        near = _near(edit, changes)
        if not edit.replace(changes):
            refused.add(place)
            continue
        for at in (near | _near(edit, changes) | refused) - queued:
            heapq.heappush(waiting, at)
            queued.add(at)
        refused.clear()


def _near(edit: Edit, places: Iterable[int]) -> set[int]:
    """Return the places, and those of the calls that alone write what the calls there access."""
    tensors = {view.tensor for place in places for call in edit.at(place) for view in call.views.values()}
    return {*places, *(place for place in map(edit.writer, tensors) if place is not None)}


def _folded(edit: Edit, place: int) -> Changes | None:
    """Return the changes that join the call at ``place`` with what reads its result; None where there are none."""
    writer = edit.find(place)
    readers = [] if writer is None else edit.readers_of_result(place)
    if writer is None or not readers:
        return None
    between = writer.views["output"]
    reading = [edit[at] for at, _ in readers]
    if len(readers) == 1 and writer.traits.function is None:
        reading = [_seen_as(_in_elements(reading[0], between), between)]
    seen = [call.views[name] for call, (_, name) in zip(reading, readers, strict=True)]
    if not all(_is_read_as_written(between, view) for view in seen):
        return None
    if len(readers) == 1:
        joined = _joined(writer, reading[0])
        if joined is not None:
            # At the reader's place everything that either reads is there still, and nobody reads the result before.
            at = readers[0][0]
            return {place: None, at: joined} if writer.traits.function is not None else {place: joined, at: None}
    # Kernels that sum channels read them as fast as from a tensor of its own only where they are side by side.
    moving = all(call.traits.function is not None for call in reading)
    source = writer.views["input"] if writer.traits.function is Function.IDENTITY else None
    if source is None or not (moving or source.has_dense_channels):
        return None
    changes: Changes = {place: None}
    for (at, name), view in zip(readers, seen, strict=True):
        own = source.in_elements(view.element_bytes)
        if own is None:
            return None
        call = changes.get(at) or edit[at]
        changes[at] = replace(call, views={**call.views, name: own})
    return changes


def _is_read_as_written(written: View, read: View) -> bool:
    """Return whether a call reads the elements that another one wrote, in the same order; bytes may be read as elements."""
    seen = written.in_elements(read.element_bytes)
    return seen is not None and seen.place == read.place


def _in_elements(reader: KernelCall, between: View) -> KernelCall:
    """Return a copy of bytes as a copy of elements like those that were written, where its views allow that."""
    views = {name: view.in_elements(between.element_bytes) for name, view in reader.views.items()}
    if reader.traits.function is not Function.IDENTITY or any(view is None for view in views.values()):
        return reader
    return replace(reader, views={name: view for name, view in views.items() if view is not None})


def _joined(writer: KernelCall, reader: KernelCall) -> KernelCall | None:
    """Return the call that replaces a call and the copy or table behind it."""
    if writer.views["output"].element_bytes != reader.views["output"].element_bytes:
        return None
    views = {**writer.views, "output": reader.views["output"]}
    moves = writer.traits.function is not None
    if reader.traits.function is Function.IDENTITY:
        # Other kernels write channels that are not side by side one by one.
        return replace(writer, views=views) if moves or views["output"].has_dense_channels else None
    if reader.traits.function is not Function.TABLE:
        return None
    table = reader.constants["table"]
    assert isinstance(table, np.ndarray)
    if not moves:
        params = with_table(writer, table)
        return (
            None
            if params is None or not views["output"].has_dense_channels
            else replace(writer, views=views, params=params)
        )
    before = writer.constants["table"] if writer.traits.function is Function.TABLE else None
    if isinstance(before, np.ndarray):
        table = table[before.astype(np.int32) + 128]
    return replace(reader, views=views, constants={"table": table})


def _seen_as(reader: KernelCall, between: View) -> KernelCall:
    """Return a table whose tensors have no gaps, in the shape in which its input was written."""
    source, result = reader.views.get("input"), reader.views["output"]
    if reader.traits.function is not Function.TABLE or source is None or source.extents == between.extents:
        return reader
    if math.prod(source.extents) != math.prod(between.extents):
        return reader
    if not all(view.is_dense for view in (source, result, between)):
        return reader
    seen = {
        name: replace(view, extents=between.extents, pitches=between.pitches)
        for name, view in (("input", source), ("output", result))
    }
    return replace(reader, views=seen)


def with_table(call: KernelCall, table: npt.NDArray[np.int8]) -> Mapping[str, int] | None:
    """Return the call's parameters with the 256-entry table behind it included; None where the call can't include the table."""
    if "clamp_min" not in call.params:
        return None
    low, high = call.params["clamp_min"], call.params["clamp_max"]
    if not INT8_MIN <= low <= high <= INT8_MAX:
        return None
    stored = np.arange(low, high + 1)
    made = table[stored - INT8_MIN].astype(np.int64)
    floor, ceiling = int(made.min()), int(made.max())
    # Above the floor a shift shows; a table of one value has none.
    above = int(np.argmax(made > floor))
    shift = int(made[above]) - low - above if ceiling > floor else 0
    if not np.array_equal(np.clip(stored + shift, floor, ceiling), made):
        return None
    params = {**call.params, "clamp_min": floor, "clamp_max": ceiling}
    if shift:
        # Pools have none: they leave their input's zero point.
        zero_point = params.get("output_zero_point")
        if zero_point is None or not INT8_MIN <= zero_point + shift <= INT8_MAX:
            return None
        params["output_zero_point"] = zero_point + shift
    return params


def copies_as_views(edit: Edit) -> None:
    """Remove the copies of tensors that other calls read too (dense blocks, skip connections).

    All that write or read such a tensor do so by a view of the destination of its copy. The memory of the destination is taken
    earlier then, so this is a choice beside ``fold``; the faster list that fits is compiled.
    """
    copies = [place for place in range(len(edit)) if edit[place].traits.function is Function.IDENTITY]
    _until_no_more(edit, copies, _without)


def _without(edit: Edit, place: int) -> Changes | None:
    """Return the changes that remove the copy at a place, its source in its result's place; None where that can't be."""
    copy = edit.find(place)
    if copy is None or copy.traits.function is not Function.IDENTITY:
        return None
    source, result = copy.views["input"], copy.views["output"]
    piece = edit.storages[source.tensor]
    if not piece.is_scratch:
        return None
    whole = source.size_bytes == piece.size_bytes and source.is_dense
    if not whole or source.offset or edit.storages[result.tensor] == piece or not result.has_dense_channels:
        return None
    changes: Changes = {place: None}
    for at in {*edit.writers(piece.name), *(at for at, _ in edit.readers(piece.name))} - {place}:
        call = edit[at]
        views = dict(call.views)
        for operand, view in call.views.items():
            if edit.storages.of[view.tensor] == piece.name:
                seen = _seen(view, source, result)
                late = call.writes(operand) and (at > place or call.reads(operand))
                if late or seen is None:
                    edit.skip(Cause.READ_BY_OTHERS if late else Cause.LAYOUT, copy)
                    return None
                views[operand] = seen
        changes[at] = replace(call, views=views)
    return changes


def _seen(view: View, bytes_read: View, bytes_written: View) -> View | None:
    """Return a view of a part of a copy's source, in its result; None where it goes across the source's axes."""
    source, result = (each.in_elements(view.element_bytes) for each in (bytes_read, bytes_written))
    if source is None or result is None:
        return None
    left, start = view.offset, result.offset
    pitches = []
    for axis in range(4):
        index, left = divmod(left, source.pitches[axis]) if source.extents[axis] > 1 else (0, left)
        extent = view.extents[axis]
        if index + extent > source.extents[axis]:
            return None
        if extent > 1 and view.pitches[axis] != source.pitches[axis]:
            return None
        start += index * result.pitches[axis]
        pitches.append(result.pitches[axis])
    batch, row, col, channel = pitches
    return None if left else replace(view, tensor=result.tensor, pitches=(batch, row, col, channel), offset=start)
