# SPDX-License-Identifier: BSD-3-Clause
"""List calls that are stated in other ways to fit less memory: attention by heads and by windows, norms in two passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.rewrite.batches import batch_by_batch, windows_apart
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.heads import attention_of_layers, head_groups, heads_apart
from openneutron.compiler.rewrite.join import join
from openneutron.compiler.rewrite.recompute import computed_again, in_two_passes, norm_bytes
from openneutron.compiler.rewrite.rows import by_rows, in_one_batch, with_rows_of_neighbours
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.needs import in_place


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
    given = CallList(tuple(calls), separate)
    found += map(_stated, head_groups(given))
    attention = [call.views["output"].extents[0] for call in calls if call.traits.columns_apart]
    if max(attention) > 1:
        for each in map(_stated, head_groups(given, batches=True)):
            found += _of_batches(each, len(attention))
    return found


def _stated(given: CallList) -> CallList:
    """Return the calls with the rows of their neighbours; the storages of ``given`` are those before ``in_place``."""
    storages = in_place(given.storages, given.calls)
    return replace(given, calls=by_rows(with_rows_of_neighbours(given.calls, storages)), storages=storages)


def _of_batches(given: CallList, attention: int) -> list[CallList]:
    """Return the lists with attention of several batches joined to its layers, for groups of heads or for two groups of batches.

    ``attention``: the number of attention calls before they were divided. One joined call for all heads and batches is no candidate, since it
    takes fewer dispatches than the calls without a budget.
    """
    joined = attention_of_layers(given)
    if len(joined.calls) == len(given.calls):
        return []
    made = [batch_by_batch(joined.calls, joined.storages, 2)]
    if sum(call.traits.columns_apart for call in given.calls) >= 2 * attention:
        made.append(joined)
    return [replace(one, calls=in_one_batch(one.calls)) for one in made if one is not None]


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
