# SPDX-License-Identifier: BSD-3-Clause
"""List calls that are stated in other ways to fit less memory: attention by heads and by windows, norms in two passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.schedule.again import computed_again
from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.head_groups import head_groups
from openneutron.compiler.schedule.heads import heads_apart
from openneutron.compiler.schedule.needs import in_place
from openneutron.compiler.schedule.passes import in_two_passes, norm_bytes
from openneutron.compiler.schedule.positions import with_rows_of_neighbours
from openneutron.compiler.schedule.sequences import by_rows
from openneutron.compiler.schedule.windows import windows_apart
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.joining import join


def is_rewritten(calls: Sequence[KernelCall]) -> bool:
    """Return whether ``rewritten`` may return lists of these calls."""
    return any(call.traits.columns_apart or call.traits.passes is not None for call in calls)


def rewritten(calls: Sequence[KernelCall], storages: Storages, separate: Storages) -> list[CallList]:
    """Return the further lists of calls. ``storages``: those of ``in_place``; ``separate``: those before it."""
    found = []
    if any(call.traits.columns_apart for call in calls):
        found += _by_heads(CallList(tuple(calls), storages))
        found += in_head_groups(calls, separate)
        windows = windows_apart(calls, separate)
        if windows is not None:
            windows = replace(windows, storages=in_place(windows.storages, windows.calls))
            stated = with_rows_of_neighbours(windows.calls, windows.storages)
            found += [replace(windows, calls=by_rows(stated)), *_by_heads(windows)]
    return [*found, *_in_two_passes(calls, separate)]


def in_head_groups(calls: Sequence[KernelCall], separate: Storages) -> list[CallList]:
    """Return the lists with the layers of attention in groups of heads, as chained calls; none where calls are left to be joined, since
    another selection has them joined."""
    found: list[CallList] = []
    if len(join(separate, calls)) < len(calls):
        return found
    for each in head_groups(CallList(tuple(calls), separate)):
        storages = in_place(each.storages, each.calls)
        found.append(replace(each, calls=by_rows(with_rows_of_neighbours(each.calls, storages)), storages=storages))
    return found


def _in_two_passes(calls: Sequence[KernelCall], separate: Storages) -> list[CallList]:
    """Return the lists with norms in two passes: the calls in front of none, the largest, or all of them are computed again."""
    sizes = norm_bytes(by_rows(calls), separate)
    found = []
    for least in dict.fromkeys((max(sizes) + 1, max(sizes) // 2, 0)) if sizes else ():
        made = in_two_passes(CallList(by_rows(calls), separate), least)
        if made is not None:
            made = replace(made, storages=in_place(made.storages, made.calls, chained=True))
            found.append(replace(made, calls=by_rows(with_rows_of_neighbours(made.calls, made.storages))))
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
