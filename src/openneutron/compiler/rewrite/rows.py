# SPDX-License-Identifier: BSD-3-Clause
"""Restate calls with other rows: sequences by rows, and pointwise calls with the rows of their neighbours. No byte changes.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has a single row: [1, 1, width,
channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated with rows
for columns; its result and its cost stay the same.

A linear layer reads all tokens of a tensor as columns of one row, [1, 1, tokens, channels]. The attention after it has
batches and rows, [windows, tokens of a window, heads, channels]. In memory both are the same bytes. If the layer is
stated with the batches and rows of its neighbours, cascades can include both, and batches can be computed one after the
other.
"""

from __future__ import annotations

import math
from dataclasses import replace

from openneutron.compiler.rewrite.call_list import CallList, Edit
from openneutron.compiler.select.calls import KernelCall, Storages, View, exchanged
from openneutron.compiler.select.needs import reshaped, view_of
from openneutron.isa.kernels.row import SameElement, SameRow, Window


def by_rows(edit: Edit) -> None:
    """Restate every sequence by rows."""
    edit.restate([turned(call) if is_sequence(call) else call for call in edit.given.calls])


def is_sequence(call: KernelCall) -> bool:
    """Return whether the call has one row of several columns, in all of its tensors."""
    views = call.views.values()
    long = any(view.extents[2] > 1 for view in views)
    return long and call.traits.exchanged is not None and all(view.extents[1] == 1 for view in views)


def apart(given: CallList) -> bool:
    """Return whether each tensor is a sequence to all calls that access it, or to none of them. If so, restating
    every sequence by rows takes no call out of a cascade."""
    seen: dict[str, bool] = {}
    for call in given.calls:
        sequence = is_sequence(call)
        for view in call.views.values():
            storage = given.storages[view.tensor]
            if storage.constant is None and seen.setdefault(storage.name, sequence) != sequence:
                return False
    return True


def turned(call: KernelCall) -> KernelCall:
    """Return the call with its rows and columns exchanged."""
    params = dict(call.params)
    for one, other in call.traits.exchanged or ():
        params[one], params[other] = params[other], params[one]
    constants = {key: exchanged(call.packing(key), constant) for key, constant in call.constants.items()}
    views = {}
    for name, view in call.views.items():
        (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
        views[name] = replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))
    return replace(call, views=views, params=params, constants=constants)


Rows = tuple[int, int]
"""The number of batches of a tensor, and the number of rows of a batch."""


def with_rows_of_neighbours(edit: Edit) -> None:
    """Restate each pointwise call with the batches and rows in which another call accesses its output or an
    input."""
    calls, storages = edit.given.calls, edit.storages
    made = list(calls)
    known: dict[str, Rows] = {}
    free = [place for place, call in enumerate(calls) if _by_position(call)]
    for place in sorted(set(range(len(calls))) - set(free)):
        _note(known, calls[place], storages)
    while True:
        left = []
        for place in free:
            stated = _stated(made[place], storages, known)
            if stated is None:
                left.append(place)
            else:
                made[place] = stated
                _note(known, stated, storages)
        if len(left) == len(free):
            break
        free = left
    edit.restate(made)


def goes_by_position(call: KernelCall) -> bool:
    """Return whether each position of the output depends only on the same position of each input, and the call
    has no scratch."""
    return _by_position(call) and not any(map(call.is_scratch, call.views))


def _by_position(call: KernelCall) -> bool:
    """Return whether each position of the output depends only on the same position of each input and of scratch.

    If a kernel's rows and columns may be exchanged, an operand of which it needs the same row is needed only in the same column too.
    """
    positions = {math.prod(view.extents[:3]) for view in call.views.values()}
    return (
        call.traits.exchanged is not None
        and len(positions) == 1
        and all(
            isinstance(operand.access, SameElement | SameRow)
            or (isinstance(operand.access, Window) and _sees_one_position(call, operand.access))
            for operand in call.traits.operands
        )
    )


def _sees_one_position(call: KernelCall, window: Window) -> bool:
    ones = {call.params[name] for name in (*window.kernel, *window.stride)}
    return ones == {1} and not any(call.params[name] for name in window.pad)


def _note(known: dict[str, Rows], call: KernelCall, storages: Storages) -> None:
    """Record the batches and rows of each storage that the call accesses row by row, unless another call's are
    recorded."""
    for name, view in call.views.items():
        storage = storages[view.tensor]
        rows = _rows_of(view, storage.size_bytes)
        if (
            rows is not None
            and storage.constant is None
            and name in ("output", *(each.name for each in call.traits.operands))
        ):
            known.setdefault(storage.name, rows)


def _rows_of(view: View, size_bytes: int) -> Rows | None:
    """Return the batches and rows of a tensor that a view accesses row by row; None if the view has one row, or
    skips rows."""
    batches, rows = view.extents[:2]
    part = size_bytes // batches
    fits = batches == 1 or view.pitches[0] == part
    whole = (
        size_bytes % batches == 0 and view.pitches[1] * rows == part and view.offset + view.reach(2) <= view.pitches[1]
    )
    return (batches, rows) if rows > 1 and fits and whole else None


def _stated(call: KernelCall, storages: Storages, known: dict[str, Rows]) -> KernelCall | None:
    """Return the call with the batches and rows of its largest tensor whose rows are known and fit the call; None if
    there is no such tensor. Of equally large tensors, the output comes first.

    A cascade gains most by the rows of the largest tensor, such as the one between the layers of a feed-forward block.
    """
    count = math.prod(call.views["output"].extents[:3])
    names = ["output", *(operand.name for operand in call.traits.operands)]
    names.sort(key=lambda name: -storages[call.views[name].tensor].size_bytes)
    for name in names:
        batches, rows = known.get(storages.of[call.views[name].tensor], (1, 1))
        if rows == 1 or count % (batches * rows):
            continue
        stated = _at_places(call, (batches, rows, count // (batches * rows)))
        if stated is not None:
            return stated
    return None


def _at_places(call: KernelCall, places: tuple[int, int, int]) -> KernelCall | None:
    """Return the call with these batches, rows and columns; None if a view can't be stated with them."""
    views: dict[str, View] = {}
    for field, view in call.views.items():
        pitches = reshaped(tuple(zip(view.extents[:3], view.pitches[:3], strict=True)), places)
        if pitches is None:
            return None
        batch, row, col = pitches
        extents = (*places, view.extents[3])
        views[field] = view_of(
            view.tensor, extents, (batch, row, col, view.pitches[3]), view.offset, view.element_bytes
        )
    return replace(call, views=views)


def in_one_batch(edit: Edit) -> None:
    """Restate each pointwise call of several batches as one batch with the rows of all of them, so that cascades
    can include it."""
    made: list[KernelCall] = []
    for call in edit.given.calls:
        batches, rows, cols, _ = call.views["output"].extents
        stated = _at_places(call, (1, batches * rows, cols)) if batches > 1 and _by_position(call) else None
        made.append(stated or call)
    edit.restate(made)
