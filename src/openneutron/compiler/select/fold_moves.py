# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls without the copies and tables that other calls can do along; no bit changes.

A copy behind a call goes away where the call can write to the copy's place (a concatenation's operands), one in front of calls
where these can read from the copy's source (a slice). Two tables in a row are one, and so are a copy and a table, or a table and the
call before it that clamps anyway: each kernel that requantizes ends with clamp(x + zero point, low, high), and a shift by whole steps
and another clamp are of the same form. Where the scale changes too, LiteRT rounds twice, and the table stays.

``copies_as_views`` also removes copies of tensors that other calls read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall, Storages, View, dense_pitches
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
            for name, view in call.views.items() if call else ():
                storage = self.storages.of[view.tensor]
                if name == "output":
                    self.writers.setdefault(storage, []).append(place)
                else:
                    self.readers.setdefault(storage, []).append((place, name))

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
            alone = len(writers) == 1 and storages.storages[storage].is_scratch
            if alone and _fold(work, writers[0], work.readers.get(storage, [])):
                changed = True
                break
    return work.left()


def _fold(work: _Calls, place: int, readers: Sequence[Use]) -> bool:
    """Join the call at ``place`` with what reads its result; False where it stays."""
    writer = work.calls[place]
    assert writer is not None
    between = writer.views["output"]
    reading = [work.calls[at] for at, _ in readers]
    if len(readers) == 1 and reading[0] is not None and writer.traits.function is None:
        reading = [_seen_as(reading[0], between)]
    if not readers or any(
        call is None or call.views[name].place != between.place
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
    if writer.traits.function is Function.IDENTITY and (moving or writer.views["input"].pitches[3] == 1):
        for at, name in readers:
            call = work.calls[at]
            assert call is not None
            work.calls[at] = replace(call, views={**call.views, name: writer.views["input"]})
        work.calls[place] = None
        return True
    return False


def _joined(writer: KernelCall, reader: KernelCall) -> KernelCall | None:
    """Return the call that replaces a call and the copy or table behind it."""
    views = {**writer.views, "output": reader.views["output"]}
    moves = writer.traits.function is not None
    if reader.traits.function is Function.IDENTITY:
        # Other kernels write channels that are not side by side one by one.
        return replace(writer, views=views) if moves or views["output"].pitches[3] == 1 else None
    if reader.traits.function is not Function.TABLE:
        return None
    table = reader.constants["table"]
    assert isinstance(table, np.ndarray)
    if not moves:
        params = with_table(writer, table)
        return (
            None if params is None or views["output"].pitches[3] != 1 else replace(writer, views=views, params=params)
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
    if any(view.pitches != dense_pitches(view.extents) for view in (source, result, between)):
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
    whole = math.prod(source.extents) == piece.size_bytes and source.pitches == dense_pitches(source.extents)
    if not whole or source.offset or storages.of[result.tensor] == name or result.pitches[3] != 1:
        return None
    at = next(index for index, call in enumerate(calls) if call is copy)
    moved = []
    for index, call in enumerate(calls):
        if call is copy:
            continue
        views = dict(call.views)
        for operand, view in call.views.items():
            if storages.of[view.tensor] == name:
                if operand == "output" and index > at:
                    return None
                seen = _seen(view, source, result)
                if seen is None:
                    return None
                views[operand] = seen
        moved.append(replace(call, views=views))
    return moved


def _seen(view: View, source: View, result: View) -> View | None:
    """Return a view of a part of ``source``, in ``result``; None where it goes across the source's axes."""
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
    return None if left else View(result.tensor, view.extents, (batch, row, col, channel), start)
