# SPDX-License-Identifier: BSD-3-Clause
"""State sequences by rows.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has a single row: [1, 1,
width, channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated
with rows for columns; its result and its cost stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.constants import exchanged


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
    views = {}
    for name, view in call.views.items():
        (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
        views[name] = replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))
    return replace(call, views=views, params=params, constants=constants)
