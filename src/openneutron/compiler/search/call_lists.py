# SPDX-License-Identifier: BSD-3-Clause
"""The lists of calls that schedules are made of: the same computation in other orders, or by other rows.

Whole tensors have one list. Cascades are searched in every list, and the fastest is taken; the lists do not depend on the
budget.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has a single row: [1, 1,
width, channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated
with rows for columns; its result and its cost stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.memory.layout import lay_out
from openneutron.compiler.schedule.batches import batch_by_batch
from openneutron.compiler.schedule.order import Flow, flow_of, order_of_least_peak, order_of_least_sum, stays
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.calls import KernelCall, Storages, View, exchanged


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls in their order, and their storages, those of ``in_place``. ``cuts``: no cascade continues from before such a call into
    it."""

    calls: tuple[KernelCall, ...]
    storages: Storages
    cuts: frozenset[int] = frozenset()


def for_whole_tensors(calls: Sequence[KernelCall], storages: Storages, io: str) -> tuple[KernelCall, ...]:
    """Return the calls in the order of the smallest arena; in the given order where no other is known to take less.

    ``storages`` are those of ``in_place``.
    """
    given = tuple(calls)
    flow = flow_of(given, storages, io)
    if stays(flow):
        return given
    ordered = _in_order(given, order_of_least_peak(flow))
    if ordered == given:
        return given
    # Addresses can leave gaps; the given order's arena is no smaller than its peak.
    if lay_out(whole_schedule(ordered), storages, io, 0).scratch_bytes <= flow.peak_bytes(range(len(given))):
        return ordered
    sizes = [lay_out(whole_schedule(each), storages, io).scratch_bytes for each in (given, ordered)]
    return ordered if sizes[1] < sizes[0] else given


def _in_order(calls: Sequence[KernelCall], order: Sequence[int]) -> tuple[KernelCall, ...]:
    return tuple(calls[number] for number in order)


def for_cascades(calls: Sequence[KernelCall], storages: Storages, io: str) -> tuple[CallList, ...]:
    """Return the lists for cascades: each order with every sequence by rows and, where that may lose something, as it is.

    ``storages`` are those of ``in_place``.
    """
    flow = flow_of(calls, storages, io)
    found = [tuple(range(len(calls)))]
    if not stays(flow):
        found += _orders(flow)
    ordered = [_in_order(calls, order) for order in dict.fromkeys(found)]
    return tuple(one for each in ordered for one in of_one_order(each, storages))


def of_one_order(calls: Sequence[KernelCall], storages: Storages) -> tuple[CallList, ...]:
    """Return the lists for cascades that keep the order."""
    given = CallList(tuple(calls), storages)
    found = [given]
    if any(map(is_sequence, calls)):
        turned = CallList(by_rows(calls), storages)
        found = [turned] if apart(calls, storages) else [given, turned]
    cut = batch_by_batch(found[-1].calls, storages)
    return (*found, CallList(cut.calls, cut.storages, cut.starts)) if cut is not None else tuple(found)


def _orders(flow: Flow) -> list[tuple[int, ...]]:
    """Return the order of the smallest peak, and the order that goes through one branch after the other."""
    least = order_of_least_peak(flow)
    closest = order_of_least_sum(flow, flow.peak_bytes(least))
    return [least] if closest is None else [least, closest]


def by_rows(calls: Sequence[KernelCall]) -> tuple[KernelCall, ...]:
    """Return the calls with every sequence by rows; unchanged where they hold no sequence."""
    return tuple(turned(call) if is_sequence(call) else call for call in calls)


def is_sequence(call: KernelCall) -> bool:
    """Return whether the call has one row of several columns, in all of its tensors."""
    views = call.views.values()
    long = any(view.extents[2] > 1 for view in views)
    return long and call.traits.exchanged is not None and all(view.extents[1] == 1 for view in views)


def apart(calls: Sequence[KernelCall], storages: Storages) -> bool:
    """Return whether no tensor between calls is one sequence to some of them and something else to others: then nothing that can be
    computed stripe by stripe is lost with every sequence by rows."""
    seen: dict[str, bool] = {}
    for call in calls:
        sequence = is_sequence(call)
        for view in call.views.values():
            storage = storages[view.tensor]
            if storage.constant is None and seen.setdefault(storage.name, sequence) != sequence:
                return False
    return True


def turned(call: KernelCall) -> KernelCall:
    """Return the call with rows for columns and columns for rows."""
    params = dict(call.params)
    for one, other in call.traits.exchanged or ():
        params[one], params[other] = params[other], params[one]
    constants = {key: exchanged(call.packing(key), constant) for key, constant in call.constants.items()}
    views = {name: _turned_view(view) for name, view in call.views.items()}
    return replace(call, views=views, params=params, constants=constants)


def _turned_view(view: View) -> View:
    (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
    return replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))
