# SPDX-License-Identifier: BSD-3-Clause
"""Fold copies and table look-ups into neighbouring calls that can apply them; no bit changes.

A copy after a call is removed if the call can write directly to the copy's destination (an operand of a concatenation).
A copy before calls is removed if they can read directly from the copy's source (a slice). Two successive table look-ups
become one, and so do a copy and a look-up. A look-up is folded into the call before it if that call's clamp can express
the table: each kernel that requantizes ends with clamp(x + zero point, low, high), and a shift by whole steps with
another clamp has the same form. If the scale changes too, LiteRT rounds twice, and the look-up stays.
``copies_as_views`` also removes copies of tensors that other calls read too.

Files state SiLU, Mish and other functions as several operators, such as x times LOGISTIC of x. ``as_tables`` replaces
calls that together compute a function of one stored byte by one look-up: if each operand is the tensor x, a function of
x or a constant of one element, the result is a function of x. The table has the results of the calls for all 256 values
of x. The replaced calls are removed, so no other call may read a result in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import KernelCall, View, four
from openneutron.compiler.select.needs import Walk, merged, view_of
from openneutron.compiler.select.tables import COMBINED, LOOKUP, STORED, Int8s, Ints
from openneutron.isa.kernels.row import Function
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN


def fold(edit: Edit) -> None:
    """Fold copies and tables into the calls before or after them, from the first call to the last.

    A fold may enable another one at an earlier call, which is then tried again.
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
"""The new call at each place that changes; None if the call is removed."""


def _until_no_more(edit: Edit, places: Iterable[int], change: Callable[[Edit, int], Changes | None]) -> None:
    """Apply ``change`` at every place until it finds no more changes that can be made. A place is tried again when a
    call on which its changes may depend has changed. A place whose changes ``Edit.replace`` has refused is tried
    again after any other change."""
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
    """Return ``places``, and the place of each call that is the only writer of a tensor that the calls at ``places``
    access."""
    tensors = {view.tensor for place in places for call in edit.at(place) for view in call.views.values()}
    return {*places, *(place for place in map(edit.writer, tensors) if place is not None)}


def _folded(edit: Edit, place: int) -> Changes | None:
    """Return the changes that join the call at ``place`` with the readers of its result; None if there are none."""
    writer = edit.find(place)
    readers = [] if writer is None else edit.readers_of_result(place)
    if writer is None or not readers:
        return None
    between = writer.views["output"]
    reading = [edit[at] for at, _ in readers]
    if len(readers) == 1:
        reading = [_seen_as(_in_elements(reading[0], between), between)]
    seen = [call.views[name] for call, (_, name) in zip(reading, readers, strict=True)]
    if not all(_is_read_as_written(between, view) for view in seen):
        return None
    if len(readers) == 1:
        joined = _joined(writer, reading[0])
        if joined is not None:
            # At the reader's place, the inputs of both calls are still in memory, and no call reads the result earlier.
            at = readers[0][0]
            return {place: None, at: joined} if writer.traits.function is not None else {place: joined, at: None}
    # Kernels that sum channels read a view as fast as a separate tensor only if the view's channels are adjacent.
    moving = all(call.traits.function is not None for call in reading)
    if writer.traits.function is Function.TABLE:
        return _tables_of_table(edit, place, readers)
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


def _tables_of_table(edit: Edit, place: int, readers: Sequence[tuple[int, str]]) -> Changes | None:
    """Return the changes that remove the look-up at ``place``. Each look-up that reads its result then reads its
    input, with a table that combines both tables. Return None if a call other than a look-up reads the result, or if
    two look-ups can't be joined."""
    writer = edit[place]
    changes: Changes = {place: None}
    for at, _ in readers:
        joined = _joined(writer, edit[at]) if edit[at].traits.function is Function.TABLE else None
        if joined is None:
            return None
        changes[at] = joined
    return changes


def _is_read_as_written(written: View, read: View) -> bool:
    """Return whether a call reads exactly the elements that another one wrote, in the same order. The element
    sizes may differ."""
    seen = written.in_elements(read.element_bytes)
    return seen is not None and seen.place == read.place


def _in_elements(reader: KernelCall, between: View) -> KernelCall:
    """Return a copy of bytes as a copy of elements of the size that was written, if its views allow that. Return
    other calls unchanged."""
    views = {name: view.in_elements(between.element_bytes) for name, view in reader.views.items()}
    if reader.traits.function is not Function.IDENTITY or any(view is None for view in views.values()):
        return reader
    return replace(reader, views={name: view for name, view in views.items() if view is not None})


def _joined(writer: KernelCall, reader: KernelCall) -> KernelCall | None:
    """Return one call that does the work of ``writer`` and of the copy or look-up that reads its result; None if no
    call can."""
    if writer.views["output"].element_bytes != reader.views["output"].element_bytes:
        return None
    views = {**writer.views, "output": reader.views["output"]}
    moves = writer.traits.function is not None
    if reader.traits.function is Function.IDENTITY:
        # Kernels other than copies and tables are slow if the channels that they write are not adjacent.
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
    """Return a look-up or copy with its views restated in the shape of ``between``, the view that the writer of its
    input has. Return the call unchanged if it is another kernel, or if it can't be restated, for example because its
    input has gaps.

    The shapes differ if the writer has other axes than the reader, as a transpose does.
    """
    source, result = reader.views.get("input"), reader.views["output"]
    if reader.traits.function is None or source is None or source.extents == between.extents:
        return reader
    alike = source.is_dense and _has_no_gaps(between) and source.size_bytes == between.size_bytes
    seen = _along(between, source, result) if alike and source.element_bytes == between.element_bytes else None
    if seen is None:
        return reader
    return replace(
        reader, views={"input": replace(between, tensor=source.tensor, offset=source.offset), "output": seen}
    )


def _has_no_gaps(view: View) -> bool:
    """Return whether the bytes of the view are contiguous and each occurs once. The axes may be in any order."""
    axes = sorted((pitch, extent) for pitch, extent in zip(view.pitches, view.extents, strict=True) if extent > 1)
    size = view.element_bytes
    for pitch, extent in axes:
        if pitch != size:
            return False
        size *= extent
    return True


def _along(between: View, source: View, result: View) -> View | None:
    """Return ``result``, the output view of a look-up or copy, restated along the axes of ``between``. ``between`` is
    a view of the same bytes as the call's input view ``source``, but may have other axes.

    Return None if an axis of ``between`` continues beyond an axis of ``source``, since its steps in the output then
    differ.
    """
    walks = {view.tensor: Walk(view.tensor, view.pitches, view.offset, view.element_bytes) for view in (source, result)}
    extents, walked = merged(source.extents, walks)
    steps_in, steps_out = walked[source.tensor].pitches, walked[result.tensor].pitches
    pitches = [0, 0, 0, 0]
    for place, (extent, pitch) in enumerate(zip(between.extents, between.pitches, strict=True)):
        if extent == 1:
            continue
        axis = next(axis for axis, step in enumerate(steps_in) if step <= pitch)
        steps, rest = divmod(pitch, steps_in[axis])
        if rest or steps * extent > extents[axis]:
            return None
        pitches[place] = steps * steps_out[axis]
    return view_of(result.tensor, between.extents, four(pitches), result.offset, result.element_bytes)


def with_table(call: KernelCall, table: npt.NDArray[np.int8]) -> Mapping[str, int] | None:
    """Return the parameters with which a call also applies a 256-entry table to its result. Return None if its output
    zero point and clamp can't express the table."""
    if "clamp_min" not in call.params:
        return None
    low, high = call.params["clamp_min"], call.params["clamp_max"]
    if not INT8_MIN <= low <= high <= INT8_MAX:
        return None
    stored = np.arange(low, high + 1)
    made = table[stored - INT8_MIN].astype(np.int64)
    floor, ceiling = int(made.min()), int(made.max())
    # The first entry above the floor determines the shift; a table of one value needs none.
    above = int(np.argmax(made > floor))
    shift = int(made[above]) - low - above if ceiling > floor else 0
    if not np.array_equal(np.clip(stored + shift, floor, ceiling), made):
        return None
    params = {**call.params, "clamp_min": floor, "clamp_max": ceiling}
    if shift:
        # Pools have no output zero point: they keep the one of their input.
        zero_point = params.get("output_zero_point")
        if zero_point is None or not INT8_MIN <= zero_point + shift <= INT8_MAX:
            return None
        params["output_zero_point"] = zero_point + shift
    return params


def copies_as_views(edit: Edit) -> None:
    """Remove copies whose source can be placed inside their result, even if other calls read the source too (dense
    blocks, skip connections).

    All calls that write or read the source then access a view of the copy's destination. A copy stays if its source
    is no scratch or is copied only in part, if the channels of its result are not adjacent, or if a call updates the
    source or overwrites it after the copy. The destination is then live earlier, so this is an alternative to
    ``fold``: the fastest list that fits is compiled.
    """
    copies = [place for place in range(len(edit)) if edit[place].traits.function is Function.IDENTITY]
    _until_no_more(edit, copies, _without)


def _without(edit: Edit, place: int) -> Changes | None:
    """Return the changes that remove the copy at a place by placing its source inside its result; None if that is not
    possible."""
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
    """Restate a view of a copy's source as a view of the copy's result, with the same elements. The copy reads
    ``bytes_read`` and writes ``bytes_written``. Return None if the axes of ``view`` are not those of the copy."""
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


def as_tables(edit: Edit) -> None:
    """Replace each group of calls that together compute a function of one tensor, element by element, by a look-up.
    The last groups come first.

    A group has at least one kernel of two operands, such as a sum. Groups of look-ups alone are joined by ``fold``.
    """
    for place in reversed(range(len(edit))):
        call = edit.find(place)
        if call is None or not (call.kernel in COMBINED or _is_table_of_combined(edit, call)):
            continue
        group, source, cause = _group(edit, place)
        if source is None:
            edit.skip(cause, call)
            continue
        output = call.views["output"]
        views = {"input": replace(output, tensor=source), "output": output}
        table = _table(edit, sorted(group), source)
        edit.replace({**dict.fromkeys(group), place: KernelCall(LOOKUP, call.name, views, {}, {"table": table})})


def _is_table_of_combined(edit: Edit, call: KernelCall) -> bool:
    """Return whether a call is a look-up of the result of a kernel of two operands, and that kernel's clamp can't
    express the table."""
    writer = edit.writer(call.views["input"].tensor) if call.kernel == LOOKUP else None
    if writer is None or edit[writer].kernel not in COMBINED:
        return False
    table = call.constants["table"]
    assert isinstance(table, np.ndarray)
    return with_table(edit[writer], table) is None


def _group(edit: Edit, last: int) -> tuple[set[int], str | None, Cause]:
    """Return the places of the calls that one table can replace, the tensor that they read, and a cause. ``last`` is
    the place of the last of these calls.

    If there is no such group, the tensor is None and the cause states why.
    """
    of = edit.storages.of
    group: set[int] = set()
    best: tuple[set[int], str | None, Cause] = group, None, Cause.NO_PARTNER
    reached, read = last, {of[edit[last].views["output"].tensor]: ""}
    while True:
        call = edit[reached]
        operands = _operands(edit, call)
        if operands is None:
            return best
        group.add(reached)
        del read[of[call.views["output"].tensor]]
        read |= {of[tensor]: tensor for tensor in operands}
        if len(read) == 1 and len(group) > 1 and any(edit[place].kernel in COMBINED for place in group):
            ((storage, source),) = read.items()
            # All calls must read the same value of a state.
            if not any(min(group) < place < last for place in edit.writers(storage)):
                best = {*group}, source, Cause.UNCHANGED
        # A result can be a function of an earlier one, so that the latest result goes first.
        writers = {place: storage for storage in read for place in edit.writers(storage) if place < last}
        reached = max(writers, default=-1)
        made = edit.find(reached) if writers else None
        if made is None or made.kernel not in (LOOKUP, *COMBINED):
            return best
        between = writers[reached]
        if edit.writer(read[between]) != reached or any(place not in group for place, _ in edit.readers(between)):
            return best if best[1] is not None else (group, None, Cause.READ_BY_OTHERS)


def _operands(edit: Edit, call: KernelCall) -> list[str] | None:
    """Return the tensors that a look-up or a kernel of two operands reads, without constants of one element.

    Return None unless each element of the result depends only on the elements at the same position in the storages of
    these tensors.
    """
    views = [view for name, view in call.views.items() if name != "output"]
    varying = [view for view in views if _value(edit, view) is None]
    flat = all(edit.is_flat(view) for view in (call.views["output"], *varying))
    return [view.tensor for view in varying] if flat else None


def _value(edit: Edit, view: View) -> int | None:
    """Return the stored value of a tensor that is a constant of one element; None for other tensors."""
    content = edit.storages[view.tensor].constant
    return int.from_bytes(content, "little", signed=True) if content and len(content) == 1 else None


def _table(edit: Edit, places: Iterable[int], source: str) -> Int8s:
    """Return the result of the last of these calls for each stored value of ``source``."""
    of = edit.storages.of
    known: dict[str, Ints] = {of[source]: STORED}
    result = STORED
    for place in places:
        call = edit[place]
        values = [
            np.asarray(_value(edit, view) if of[view.tensor] not in known else known[of[view.tensor]], np.int64)
            for name, view in sorted(call.views.items())
            if name != "output"
        ]
        if call.kernel == LOOKUP:
            table = call.constants["table"]
            assert isinstance(table, np.ndarray)
            result = table.astype(np.int64)[values[0] - INT8_MIN]
        else:
            result = COMBINED[call.kernel](values[0], values[1], call.params)
        known[of[call.views["output"].tensor]] = result
    return result.astype(np.int8)
