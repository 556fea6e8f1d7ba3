# SPDX-License-Identifier: BSD-3-Clause
"""Compute linear layers that share an input, such as those of queries, keys and values, in one call with side-by-side results.

Weights and requantization belong to output channels, so that the merged layer has the bytes of the single layers. Where the
results' zero points differ, a kernel with a zero point for each block of channels takes the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, dense_pitches
from openneutron.compiler.select.constants import CHANNEL_AXES, Array
from openneutron.compiler.select.states import in_order
from openneutron.compiler.select.uses import Uses
from openneutron.isa import rows
from openneutron.isa.rows import LANES

_LINEAR, _PARTS = "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8"
_CHANNELS = rows.KERNEL_BY_NAME[_LINEAR].traits.channels
_COUNTS = _CHANNELS.counts if _CHANNELS else ()
_OWN = ("output_zero_point", *_COUNTS)
"""The parameters that may differ among merged layers."""


def merge(storages: Storages, calls: Sequence[KernelCall]) -> tuple[Storages, list[KernelCall]]:
    """Return the calls with one call for all linear layers of a sequence that share an input, and the storages with its results.

    Each merged layer has a multiple of 8 output channels; its result is read as rows, or parts of rows, and is no graph output.
    """
    uses = Uses.of(storages, calls)
    for place, call in enumerate(calls):
        if uses.calls[place] is not call or call.kernel != _LINEAR:
            continue
        group = [at for at in range(place, len(calls)) if _is_beside(uses, at, call)]
        merged = _merged(uses, group) if len(group) > 1 else None
        if merged is not None and in_order(merged.storages, merged.calls):
            uses = merged
    return uses.storages, uses.left


def _is_beside(uses: Uses, at: int, call: KernelCall) -> bool:
    """Return whether the call at an index is a linear layer of the same input as ``call``, and its result can be a part of another."""
    other = uses.calls[at]
    if other is None or other.kernel != _LINEAR or other.views["input"] != call.views["input"]:
        return False
    result = other.views["output"]
    same = all(other.params[name] == value for name, value in call.params.items() if name not in _OWN)
    return (
        same
        and result.extents[:3] == call.views["output"].extents[:3]
        and result.extents[1] == 1
        and result.extents[3] % LANES == 0
        and uses.writer(result.tensor) == at
        and uses.is_flat(result)
    )


def _merged(uses: Uses, group: Sequence[int]) -> Uses | None:
    """Return the uses with one call in place of the group's; None where a reader takes no part of its result."""
    members = [uses[at] for at in group]
    name = uses.unused(f"{members[0].name}/merged")
    own = [call.views["output"].extents[3] for call in members]
    whole = (*members[0].views["output"].extents[:3], sum(own))
    changes: dict[int, KernelCall | None] = {}
    first = 0
    for at, channels in zip(group, own, strict=True):
        for reader, operand in uses.readers_of_result(at):
            call = changes.get(reader) or uses[reader]
            view = _part(call.views[operand], channels, whole[3], first)
            if view is None:
                return None
            changes[reader] = replace(call, views={**call.views, operand: replace(view, tensor=name)})
        changes[at] = None
        first += channels
    output = View(name, whole, dense_pitches(whole))
    changes[group[0]] = side_by_side(members, own, output)
    return uses.replaced(changes, [Storage(name, output.size_bytes)])


def side_by_side(members: Sequence[KernelCall], own: Sequence[int], output: View) -> KernelCall:
    """Return the call of the layers with these numbers of channels."""
    row = rows.KERNEL_BY_NAME[_LINEAR]
    constants: dict[str, Array] = {}
    for key in members[0].constants:
        arrays = [call.constants[key] for call in members]
        constants[key] = np.concatenate(
            [each for each in arrays if isinstance(each, np.ndarray)], CHANNEL_AXES[row.packing(key)]
        )
    zero_points = [call.params["output_zero_point"] for call in members]
    params = {**members[0].params, **dict.fromkeys(_COUNTS, sum(own))}
    views = {**members[0].views, "output": output}
    if len(set(zero_points)) == 1:
        return KernelCall(_LINEAR, members[0].name, views, params, constants)
    blocks = np.repeat(np.array(zero_points, np.int8), [channels // LANES for channels in own])
    constants["zero_points"] = blocks
    return KernelCall(_PARTS, members[0].name, views, {**params, "output_zero_point": 0}, constants)


def _part(view: View, channels: int, of: int, first: int) -> View | None:
    """Return a view of dense rows of so many channels, as a view of channels from ``first`` on in rows of ``of`` channels."""
    if view.element_bytes != 1:
        return None
    row, start = divmod(view.offset, channels)
    pitches = []
    last = start
    for extent, pitch in zip(view.extents, view.pitches, strict=True):
        steps, rest = divmod(pitch, channels)
        if extent > 1 and rest and steps:
            return None
        last += rest * (extent - 1) if not steps else 0
        pitches.append(rest if not steps else steps * of)
    if last >= channels:
        return None
    batch, line, col, channel = pitches
    return replace(view, pitches=(batch, line, col, channel), offset=row * of + first + start)
