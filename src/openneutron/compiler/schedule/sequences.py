# SPDX-License-Identifier: BSD-3-Clause
"""Sequences by rows: calls over one row have their columns taken for rows.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has only one: [1, 1, width,
channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated
the other way round; what it computes, and what it costs, stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.constants import exchanged
from openneutron.compiler.select.storage import Storages


def by_rows(calls: Sequence[KernelCall]) -> tuple[KernelCall, ...]:
    """The calls with every sequence by rows; the same calls where there is none."""
    return tuple(turned(call) if is_sequence(call) else call for call in calls)


def is_sequence(call: KernelCall) -> bool:
    """Whether the call has one row of several columns, in all of its tensors."""
    views = call.views.values()
    long = any(view.extents[2] > 1 for view in views)
    return long and call.traits.exchanged is not None and all(view.extents[1] == 1 for view in views)


def apart(calls: Sequence[KernelCall], storages: Storages) -> bool:
    """Whether no tensor between calls is one sequence to some of them and something else to others: then nothing that can be
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
    """The call with rows for columns and columns for rows."""
    params = dict(call.params)
    for one, other in call.traits.exchanged or ():
        params[one], params[other] = params[other], params[one]
    constants = {key: exchanged(call.packing(key), constant) for key, constant in call.constants.items()}
    views = {name: _turned_view(view) for name, view in call.views.items()}
    return replace(call, views=views, params=params, constants=constants)


def _turned_view(view: View) -> View:
    (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
    return replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))
