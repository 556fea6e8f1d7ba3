# SPDX-License-Identifier: BSD-3-Clause
"""Fold copies and table look-ups into neighbouring calls that can apply them; no bit changes.

A copy behind a call goes away where the call can write to the copy's place (a concatenation's operands), one in front of calls where these
can read from the copy's source (a slice). Two tables in a row are one, and so are a copy and a table, or a table and the call before it
that clamps anyway: each kernel that requantizes ends with clamp(x + zero point, low, high), and a shift by whole steps and another clamp
are of the same form. Where the scale changes too, LiteRT rounds twice, and the table stays. ``copies_as_views`` also removes copies of
tensors that other calls read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.states import in_order
from openneutron.isa.kernels.row import Function
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN

Use = tuple[int, str]
"""(call, field)."""


@dataclass(slots=True)
class _Calls:
    """The calls that are left, None where one is gone, and who writes and reads each scratch storage."""

    storages: Storages
    calls: list[KernelCall | None]
    writers: dict[str, list[int]] = field(default_factory=dict)
    readers: dict[str, list[Use]] = field(default_factory=dict)

    def count(self) -> None:
        self.writers, self.readers = {}, {}
        for place, call in enumerate(self.calls):
            if call is None:
                continue
            for name, view in call.views.items():
                storage = self.storages.of[view.tensor]
                if call.writes(name):
                    self.writers.setdefault(storage, []).append(place)
                if call.reads(name):
                    self.readers.setdefault(storage, []).append((place, name))

    def is_output(self, place: int, storage: str) -> bool:
        """Return whether the storage is the output of the call at ``place``, and neither a state nor scratch of it."""
        call = self.calls[place]
        assert call is not None
        return self.storages.of[call.views["output"].tensor] == storage

    def left(self) -> list[KernelCall]:
        return [call for call in self.calls if call is not None]


def fold_moves(storages: Storages, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """Return the calls that are left, in order; tensors between calls that became one are not computed any more."""
    work = _Calls(storages, list(calls))
    changed = True
    while changed:
        changed = False
        work.count()
        for storage, writers in work.writers.items():
            alone = len(writers) == 1 and storages.storages[storage].is_scratch and work.is_output(writers[0], storage)
            before = list(work.calls)
            if alone and _fold(work, writers[0], work.readers.get(storage, [])):
                if in_order(work.storages, work.calls):
                    changed = True
                    break
                work.calls[:] = before
    return work.left()


def _fold(work: _Calls, place: int, readers: Sequence[Use]) -> bool:
    """Join the call at ``place`` with what reads its result; False where it stays."""
    writer = work.calls[place]
    assert writer is not None
    between = writer.views["output"]
    reading = [work.calls[at] for at, _ in readers]
    if len(readers) == 1 and reading[0] is not None and writer.traits.function is None:
        reading = [_seen_as(_in_elements(reading[0], between), between)]
    if not readers or any(
        call is None or not _is_read_as_written(between, call.views[name])
        for call, (_, name) in zip(reading, readers, strict=True)
    ):
        return False
    if len(readers) == 1:
        (reader,) = reading
        assert reader is not None
        joined = _joined(writer, reader)
        if joined is not None:
            # At the reader's place everything that either reads is there still, and nobody reads the result before.
            first = writer.traits.function is not None
            work.calls[readers[0][0] if first else place] = joined
            work.calls[place if first else readers[0][0]] = None
            return True
    # Kernels that sum channels read them as fast as from a tensor of its own only where they are side by side.
    moving = all(call is not None and call.traits.function is not None for call in reading)
    source = writer.views["input"] if writer.traits.function is Function.IDENTITY else None
    if source is None or not (moving or source.has_dense_channels):
        return False
    seen = [
        source.in_elements(call.views[name].element_bytes)
        for call, (_, name) in zip(reading, readers, strict=True)
        if call is not None
    ]
    if None in seen:
        return False
    for (at, name), view in zip(readers, seen, strict=True):
        call = work.calls[at]
        assert call is not None and view is not None
        work.calls[at] = replace(call, views={**call.views, name: view})
    work.calls[place] = None
    return True


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


def copies_as_views(storages: Storages, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """Return the calls without the copies of tensors that other calls read too (dense blocks, skip connections).

    All that write or read such a tensor do so by a view of the destination of its copy. The memory of the destination is taken
    earlier then, so this is a selection beside that of ``fold_moves``; the faster one that fits is compiled.
    """
    left = list(calls)
    place = 0
    while place < len(left):
        moved = _without(storages, left, left[place]) if left[place].traits.function is Function.IDENTITY else None
        if moved is None:
            place += 1
        else:
            left, place = moved, 0
    return left


def _without(storages: Storages, calls: Sequence[KernelCall], copy: KernelCall) -> list[KernelCall] | None:
    """Return the calls without this copy, its source in its result's place; None where that can't be."""
    source, result = copy.views["input"], copy.views["output"]
    name = storages.of[source.tensor]
    piece = storages.storages[name]
    if not piece.is_scratch:
        return None
    whole = source.size_bytes == piece.size_bytes and source.is_dense
    if not whole or source.offset or storages.of[result.tensor] == name or not result.has_dense_channels:
        return None
    at = next(index for index, call in enumerate(calls) if call is copy)
    moved = []
    for index, call in enumerate(calls):
        if call is copy:
            continue
        views = dict(call.views)
        for operand, view in call.views.items():
            if storages.of[view.tensor] == name:
                if call.writes(operand) and (index > at or call.reads(operand)):
                    return None
                seen = _seen(view, source, result)
                if seen is None:
                    return None
                views[operand] = seen
        moved.append(replace(call, views=views))
    return moved if in_order(storages, moved) else None


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
