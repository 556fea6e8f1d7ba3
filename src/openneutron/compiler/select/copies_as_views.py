# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls without the copies of tensors that other calls read too: the tensor lies in the copy's place from the start.

So it is with what a concatenation takes and others read as well (dense blocks, skip connections). All that write or read the
tensor do so by a view of the place it is copied to. That place is taken earlier then, which can cost memory: it is one
selection beside that of fold_moves, and what fits and is faster is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches
from openneutron.compiler.select.storage import Storages
from openneutron.isa.kernels.traits import Function


def copies_as_views(storages: Storages, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """The calls that are left, in order; as many where every copy has to stay."""
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
    """The calls without this copy, its source in its result's place; None where that can't be."""
    source, result = copy.views["input"], copy.views["output"]
    name = storages.of[source.tensor]
    piece = storages.storages[name]
    if piece.input is not None or piece.output is not None or piece.constant is not None:
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
        for field, view in call.views.items():
            if storages.of[view.tensor] == name:
                if field == "output" and index > at:
                    return None
                seen = _seen(view, source, result)
                if seen is None:
                    return None
                views[field] = seen
        moved.append(replace(call, views=views))
    return moved


def _seen(view: View, source: View, result: View) -> View | None:
    """A view of a part of ``source``, in ``result``; None where it goes across the source's axes."""
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
