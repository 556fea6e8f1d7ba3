# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls without the copies and tables that the call before or behind them can do along.

A copy behind a call goes away where the call can write to the copy's place (a concatenation's operands), one in front of calls
where these can read from the copy's source (a slice). Two tables in a row are one, and so are a copy and a table, or a table and the
call before it that clamps anyway (fold_clamps). No bit changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View, dense_pitches
from openneutron.compiler.select.fold_clamps import with_table
from openneutron.compiler.select.storage import Storages
from openneutron.isa.kernels.traits import Function

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
        """Finds writers and readers anew."""
        self.writers, self.readers = {}, {}
        for place, call in enumerate(self.calls):
            for name, view in call.views.items() if call else ():
                storage = self.storages.of[view.tensor]
                if name == "output":
                    self.writers.setdefault(storage, []).append(place)
                else:
                    self.readers.setdefault(storage, []).append((place, name))

    def is_scratch(self, storage: str) -> bool:
        """Whether nothing but these calls knows the memory."""
        piece = self.storages.storages[storage]
        return piece.input is None and piece.output is None and piece.constant is None

    def left(self) -> list[KernelCall]:
        """Those that are left, in order."""
        return [call for call in self.calls if call is not None]


def fold_moves(storages: Storages, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """The calls that are left, in order; tensors between calls that became one are not computed any more."""
    work = _Calls(storages, list(calls))
    changed = True
    while changed:
        changed = False
        work.count()
        for storage, writers in work.writers.items():
            if (
                len(writers) == 1
                and work.is_scratch(storage)
                and _fold(work, writers[0], work.readers.get(storage, []))
            ):
                changed = True
                break
    return work.left()


def _fold(work: _Calls, place: int, readers: Sequence[Use]) -> bool:
    """Joins the call at ``place`` with what reads its result; False where it stays."""
    writer = work.calls[place]
    assert writer is not None
    between = writer.views["output"]
    reading = [work.calls[at] for at, _ in readers]
    if len(readers) == 1 and reading[0] is not None and writer.traits.function is None:
        reading = [_seen_as(reading[0], between)]
    if not readers or any(
        call is None or not _same(call.views[name], between) for call, (_, name) in zip(reading, readers, strict=True)
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
    if writer.traits.function is Function.IDENTITY and _can_read(writer.views["input"], reading):
        for at, name in readers:
            call = work.calls[at]
            assert call is not None
            work.calls[at] = replace(call, views={**call.views, name: writer.views["input"]})
        work.calls[place] = None
        return True
    return False


def _joined(writer: KernelCall, reader: KernelCall) -> KernelCall | None:
    """What a call and the copy or table behind it do together."""
    views = {**writer.views, "output": reader.views["output"]}
    moves = writer.traits.function is not None
    if reader.traits.function is Function.IDENTITY:
        # Other kernels write channels that do not lie side by side one by one.
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


def _can_read(view: View, readers: Iterable[KernelCall | None]) -> bool:
    """Whether kernels read there as fast as from a tensor of its own: those that sum channels want them side by side."""
    return view.pitches[3] == 1 or all(call is not None and call.traits.function is not None for call in readers)


def _seen_as(reader: KernelCall, between: View) -> KernelCall:
    """A table whose tensors lie without gaps, in the shape in which what it reads was written."""
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


def _same(one: View, other: View) -> bool:
    return (one.extents, one.pitches, one.offset) == (other.extents, other.pitches, other.offset)
