# SPDX-License-Identifier: BSD-3-Clause
"""Join attention of several batches to the layers of its queries, keys and values, with memory for the layers' result of one batch.

The result of these layers is three times as large as their input. A kernel that runs layers and attention batch by batch needs it for one
batch at a time, and takes one dispatch for all batches. Example: 4 series of 6 tokens with 32 channels have a result of 2,304 bytes,
and scratch of 576.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from openneutron.compiler.schedule.batches import CallList, has_batches_apart
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.chaining import macs_of_channel
from openneutron.compiler.select.uses import Uses
from openneutron.isa import rows
from openneutron.isa.kernels.row import Row

JOINED: Mapping[tuple[str, str], Row] = {
    (row.traits.parts[0].kernel, row.traits.parts[1].kernel): row for row in rows.KERNELS if row.traits.of_batch
}
"""Kernels that run two others batch by batch, by the pair of kernels."""


def attention_of_layers(given: CallList) -> CallList:
    """Return the calls with each attention of several batches joined to the layers directly in front of it, where a kernel runs both."""
    assert not given.cuts, "the places of cuts would change"
    calls: list[KernelCall] = []
    pieces = dict(given.storages.storages)
    uses = Uses.of(given.storages, given.calls)
    for place, call in enumerate(given.calls):
        joined = _joined(uses, place) if place else None
        if joined is None:
            calls.append(call)
            continue
        calls[-1] = joined
        storage = uses.storages[uses[place - 1].views["output"].tensor]
        pieces[storage.name] = replace(storage, size_bytes=storage.size_bytes // call.views["output"].extents[0])
    if len(calls) == len(given.calls):
        return given
    return CallList(tuple(calls), Storages(pieces, given.storages.of))


def _joined(uses: Uses, place: int) -> KernelCall | None:
    """Return the one call of the layers and of the attention behind them, or None."""
    layers, call = uses[place - 1], uses[place]
    row = JOINED.get((layers.kernel, call.kernel))
    batches = call.views["output"].extents[0]
    if row is None or batches == 1 or not _goes_by_batch(uses, layers, batches):
        return None
    storage = uses.storages[layers.views["output"].tensor]
    readers = uses.readers_of_result(place - 1)
    named = {name for name in row.scratch if name in call.views and call.reads(name)}
    unread = {"mask"} if not call.params["masked"] else set()
    if {at for at, _ in readers} != {place} or {name for _, name in readers} - unread != named:
        return None
    if not all(has_batches_apart(call.views[name], storage.size_bytes, batches) for name in named):
        return None
    first, _ = row.traits.parts
    result = layers.views["output"]
    views = {
        **{
            name: replace(view, pitches=(0, *view.pitches[1:])) if name in named else view
            for name, view in call.views.items()
        },
        "input": layers.views["input"],
        row.traits.of_batch: replace(result, pitches=(0, *result.pitches[1:])),
    }
    views |= dict.fromkeys(unread, layers.views["input"])
    lines, results = result.extents[1:], call.views["output"].extents[1:]
    more = macs_of_channel(layers) * lines[0] * lines[1] * lines[2]
    params = {f"{first.prefix}{name}": value for name, value in layers.params.items()} | dict(call.params)
    params["work"] += -(-more // (results[0] * results[1] * results[2]))
    constants = {f"{first.prefix}{key}": constant for key, constant in layers.constants.items()} | dict(call.constants)
    return KernelCall(row.name, layers.name, views, params, constants)


def _goes_by_batch(uses: Uses, layers: KernelCall, batches: int) -> bool:
    """Return whether the layers compute each batch of their whole result from the same batch of their input."""
    same = all(view.extents[0] == batches for view in layers.views.values())
    return same and layers.traits.batches_apart and uses.is_flat(layers.views["output"])
