# SPDX-License-Identifier: BSD-3-Clause
"""List the calls around attention in other orders: the layers in front of it head by head, and the calls around it window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.schedule.again import computed_again
from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.heads import heads_apart
from openneutron.compiler.schedule.needs import in_place
from openneutron.compiler.schedule.positions import with_rows_of_neighbours
from openneutron.compiler.schedule.sequences import by_rows
from openneutron.compiler.schedule.windows import windows_apart
from openneutron.compiler.select.calls import KernelCall, Storages


def around_attention(calls: Sequence[KernelCall], storages: Storages, separate: Storages) -> list[CallList]:
    """Return the further lists of calls with attention; none without. ``storages``: those of ``in_place``; ``separate``: those before it."""
    if not any(call.traits.columns_apart for call in calls):
        return []
    found = _by_heads(CallList(tuple(calls), storages))
    windows = windows_apart(calls, separate)
    if windows is not None:
        windows = replace(windows, storages=in_place(windows.storages, windows.calls))
        stated = with_rows_of_neighbours(windows.calls, windows.storages)
        found += [replace(windows, calls=by_rows(stated)), *_by_heads(windows)]
    return found


def _by_heads(given: CallList) -> list[CallList]:
    """Return the lists in which the layers of attention directly precede it, for all heads together and for each head; also with calls
    recomputed for each reader, where there are any."""
    found = []
    stated = replace(given, calls=with_rows_of_neighbours(given.calls, given.storages))
    for all_heads in (False, True):
        cut = heads_apart(stated, all_heads)
        if cut is not None:
            by_heads = replace(cut, calls=by_rows(cut.calls))
            found += [by_heads, computed_again(by_heads)]
    return [each for each in found if each is not None]
