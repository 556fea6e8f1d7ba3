# SPDX-License-Identifier: BSD-3-Clause
"""Sequences by rows: calls over one row have their columns taken for rows.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has only one: [1, 1, width,
channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated
the other way round; what it computes, and what it costs, stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.storage import Storages
from openneutron.isa.rows import LANES


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
    constants = dict(call.constants)
    if "weights" in constants:
        constants["weights"] = _turned_weights(call)
    if "map" in constants:
        constants["map"] = _turned_map(call)
    views = {name: _turned_view(view) for name, view in call.views.items()}
    return replace(call, views=views, params=params, constants=constants)


def _turned_view(view: View) -> View:
    (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
    return replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))


def _turned_weights(call: KernelCall) -> bytes:
    """Packed weights [k/8][height][width][...] as [k/8][width][height][...]."""
    height, width = call.params["kernel_h"], call.params["kernel_w"]
    if 1 in (height, width):
        return call.constants["weights"]
    packed = np.frombuffer(call.constants["weights"], np.int8)
    blocks = packed.reshape(-(-call.params["constant_channels"] // LANES), height, width, -1)
    return blocks.swapaxes(1, 2).tobytes()


def _turned_map(call: KernelCall) -> bytes:
    """The tables of the columns in front of those of the rows, as many of each."""
    _, rows, cols, _ = call.views["output"].extents
    whole = call.constants["map"]
    split = len(whole) * rows // (rows + cols)
    return whole[split:] + whole[:split]
