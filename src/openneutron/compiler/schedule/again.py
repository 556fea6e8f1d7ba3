# SPDX-License-Identifier: BSD-3-Clause
"""Recompute calls for each reader of their result, so that the result is never in memory whole.

A normalization in front of attention is read by the layers of keys, values and queries. Its result is as large as its input, which the
sum behind the attention still needs. Where the normalization is recomputed in the cascade of each layer, only rows of the result are in
memory.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.schedule.needs import row_needs
from openneutron.compiler.schedule.positions import goes_by_position
from openneutron.compiler.select.calls import KernelCall, Storage, Storages
from openneutron.compiler.select.uses import Use, Uses


def computed_again(given: CallList) -> CallList | None:
    """Return the calls with each pointwise call without weights repeated in front of every group of its readers; None where no such call
    has several groups, and an input that is live until the last group."""
    uses = Uses.of(given.storages, given.calls)
    ahead: dict[int, KernelCall] = {}
    renamed: dict[Use, str] = {}
    gone: set[int] = set()
    pieces, of = dict(given.storages.storages), dict(given.storages.of)
    for place in range(len(given.calls)):
        groups = _groups(uses, place)
        if len(groups) < 2 or any(group[0][0] in ahead for group in groups):
            continue
        call = uses[place]
        storage = uses.storages[call.views["output"].tensor]
        for number, group in enumerate(groups):
            name = uses.unused(f"{storage.name}/{number}")
            pieces[name], of[name] = Storage(name, storage.size_bytes), name
            output = replace(call.views["output"], tensor=name)
            ahead[group[0][0]] = replace(call, name=f"{call.name}/{number}", views={**call.views, "output": output})
            renamed |= dict.fromkeys(group, name)
        gone.add(place)
        del pieces[storage.name]
        of = {tensor: root for tensor, root in of.items() if root != storage.name}
    left: list[KernelCall] = []
    cuts: set[int] = set()
    for place, call in enumerate(given.calls):
        cuts |= {len(left)} if place in given.cuts else set()
        if place in gone:
            continue
        left += [ahead[place]] if place in ahead else []
        views = {
            name: replace(view, tensor=renamed[place, name]) if (place, name) in renamed else view
            for name, view in call.views.items()
        }
        left.append(replace(call, views=views))
    return CallList(tuple(left), Storages(pieces, of), frozenset(cuts)) if gone else None


def _groups(uses: Uses, place: int) -> list[list[Use]]:
    """Return the groups of readers of a call's result; the readers of one group end in a result that is needed whole. The list is empty
    where the call can't be recomputed, or nothing is gained."""
    call = uses[place]
    readers = sorted(uses.readers_of_result(place))
    if not readers or call.traits.channels is not None or not goes_by_position(call):
        return []
    last = readers[-1][0]
    for name, view in call.views.items():
        storage = uses.storages[view.tensor]
        if not call.reads(name) or storage.constant is not None:
            continue
        kept = storage.is_kept or max(at for at, _ in uses.readers[storage.name]) > last
        if not kept or any(place < at <= last for at in uses.writers.get(storage.name, ())):
            return []
    groups: list[list[Use]] = []
    for use in readers:
        before = groups[-1][-1][0] if groups else -1
        together = groups and use[0] == before + 1 and _is_needed_whole(uses, use[0]) and _is_needed_whole(uses, before)
        if together or use[0] == before:
            groups[-1].append(use)
        else:
            groups.append([use])
    return groups


def _is_needed_whole(uses: Uses, place: int) -> bool:
    """Return whether each reader of a call's result needs all of its rows."""
    readers = uses.readers_of_result(place)
    return bool(readers) and all(row_needs(uses[at], name) is None for at, name in readers)
