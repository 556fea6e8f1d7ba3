# SPDX-License-Identifier: BSD-3-Clause
"""Merge linear layers that share an input, and chain two calls to one call of a kernel that runs both.

Linear layers of one input, such as those of queries, keys and values, become one layer with side-by-side results. Weights and
requantization belong to output channels, so that no bit changes. Where the results' zero points differ, a kernel with a zero point for
each block of channels takes the call.

A normalization or a linear layer and the linear layer behind it are chained. A sequence of some positions is short work for one call,
whose dispatch then takes as long. The result between the two kernels becomes scratch of the call, so that no bit changes. Chained calls
are never divided by channels; other selections have the calls apart. A cascade computes a chained call by rows, with scratch for as many
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import CHANNEL_AXES, Array, KernelCall, View, dense_pitches
from openneutron.isa import rows
from openneutron.isa.kernels.combined import BETWEEN, FIRST, SECOND
from openneutron.isa.kernels.row import SameRow
from openneutron.isa.rows import LANES

_LINEAR, _LINEAR_PARTS = "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8"
_CHANNELS = rows.KERNEL_BY_NAME[_LINEAR].traits.channels
_COUNTS = _CHANNELS.counts if _CHANNELS else ()
_OWN = ("output_zero_point", *_COUNTS)
"""The parameters that may differ among merged layers."""


def merge(edit: Edit) -> None:
    """Compute all linear layers of a sequence that share an input in one call.

    Each merged layer has a multiple of 8 output channels; its result is read as rows, or parts of rows, and is no graph output.
    """
    for place, call in enumerate(edit.given.calls):
        if call.kernel != _LINEAR or edit.find(place) is not call:
            continue
        readers = edit.readers(edit.storages.of[call.views["input"].tensor])
        group = [at for at, _ in readers if at >= place and _is_beside(edit, at, call)]
        changes = _merged(edit, group) if len(group) > 1 else None
        if changes is not None:
            edit.replace(changes)
        else:
            edit.skip(Cause.LAYOUT if len(group) > 1 else Cause.NO_PARTNER, *(edit[at] for at in group))


def _is_beside(edit: Edit, at: int, call: KernelCall) -> bool:
    """Return whether the call at an index is a linear layer of the same input as ``call``, and its result can be a part of another."""
    other = edit.find(at)
    if other is None or other.kernel != _LINEAR or other.views["input"] != call.views["input"]:
        return False
    result = other.views["output"]
    same = all(other.params[name] == value for name, value in call.params.items() if name not in _OWN)
    return (
        same
        and result.extents[:3] == call.views["output"].extents[:3]
        and result.extents[1] == 1
        and result.extents[3] % LANES == 0
        and edit.writer(result.tensor) == at
        and edit.is_flat(result)
    )


def _merged(edit: Edit, group: Sequence[int]) -> dict[int, KernelCall | None] | None:
    """Return the changes that put one call in place of the group's; None where a reader takes no part of its result."""
    members = [edit[at] for at in group]
    name = edit.unused(f"{members[0].name}/merged")
    own = [call.views["output"].extents[3] for call in members]
    whole = (*members[0].views["output"].extents[:3], sum(own))
    changes: dict[int, KernelCall | None] = {}
    first = 0
    for at, channels in zip(group, own, strict=True):
        for reader, operand in edit.readers_of_result(at):
            call = changes.get(reader) or edit[reader]
            view = _part(call.views[operand], channels, whole[3], first)
            if view is None:
                return None
            changes[reader] = replace(call, views={**call.views, operand: replace(view, tensor=name)})
        changes[at] = None
        first += channels
    name = edit.store(name, dense_pitches(whole)[0])
    changes[group[0]] = side_by_side(members, own, View(name, whole, dense_pitches(whole)))
    return changes


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
    return KernelCall(_LINEAR_PARTS, members[0].name, views, {**params, "output_zero_point": 0}, constants)


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


CHAINED: Mapping[tuple[str, str], str] = {
    row.traits.chain: row.name for row in rows.KERNELS if row.traits.chain is not None
}
"""Kernels that run two others through a scratch buffer, by the pair of kernels."""

_PARTS = frozenset(kernel for pair in CHAINED for kernel in pair)
_ENDS = ("input", "output")
_STRIDES = ("stride_h", "stride_w")


def chain(edit: Edit, last_first: bool = True) -> None:
    """Chain each pair of calls of which only the second one reads the result of the first.

    Kernels that are parts of other ones come first, so that these can follow. ``last_first``: of two pairs that share a call, the last one is
    chained. A normalization between two feed-forward blocks is then chained to the block in front of it, whose call has the block's input and
    the residual sum's operand in memory; otherwise it is chained to the block behind it, whose call has one tensor.
    """
    places = range(len(edit))
    for kernels in ({kernel for kernel in CHAINED.values() if kernel in _PARTS}, set(CHAINED.values())):
        for at in reversed(places) if last_first else places:
            second = edit.find(at)
            if second is None or "input" not in second.views:
                continue
            place = edit.writer(second.views["input"].tensor)
            if place is None:
                continue
            first = edit[place]
            if CHAINED.get((first.kernel, second.kernel)) not in kernels:
                edit.skip(Cause.NO_PARTNER, second)
                continue
            if edit.only_reader(place) != (at, "input"):
                edit.skip(Cause.READ_BY_OTHERS, first, second)
                continue
            chained = _chained(edit, first, second)
            if isinstance(chained, Cause):
                edit.skip(chained, first, second)
            else:
                edit.replace({place: None, at: chained})


def _chained(edit: Edit, first: KernelCall, second: KernelCall) -> KernelCall | Cause:
    """Return the one call, or the cause for which there is none: the second call is over an image, or reads other places than are written."""
    kernel = CHAINED[first.kernel, second.kernel]
    source = second.views["input"]
    if source.extents[1] > 1 or any(_strides(second)):
        return Cause.OVER_IMAGE
    first = _seen_as(first, source)
    if first.views["output"].place != source.place or not edit.is_flat(source):
        return Cause.LAYOUT
    parts = ((FIRST, first), (SECOND, second))
    views = {
        f"{prefix}{name}": view for prefix, part in parts for name, view in part.views.items() if name not in _ENDS
    }
    views |= {"input": first.views["input"], BETWEEN: source, "output": second.views["output"]}
    params = {f"{prefix}{name}": value for prefix, part in parts for name, value in part.params.items()}
    constants = {f"{prefix}{name}": value for prefix, part in parts for name, value in part.constants.items()}
    work = macs_of_channel(second) + -(-macs_of_channel(first) * source.extents[3] // views["output"].extents[3])
    return KernelCall(kernel, first.name, views, {**params, "work": work}, constants)


def _strides(call: KernelCall) -> list[bool]:
    return [name.endswith(_STRIDES) and value != 1 for name, value in call.params.items()]


def macs_of_channel(call: KernelCall) -> int:
    """Return the multiply-accumulates of a call for each output channel of a position."""
    taps = rows.KERNEL_BY_NAME[call.kernel].taps
    product = 1
    for name in taps:
        product *= call.params[name]
    return product


def _seen_as(call: KernelCall, source: View) -> KernelCall:
    """Return a call that computes each position from the same position of its only operand, in the shape in which its result is read."""
    views = (call.views["input"], call.views["output"])
    same = all(view.is_dense and view.extents[3] == source.extents[3] for view in views)
    if len(call.views) > len(views) or not same or not isinstance(call.traits.access("input"), SameRow):
        return call
    pitches = dense_pitches(source.extents)
    seen = {name: replace(call.views[name], extents=source.extents, pitches=pitches) for name in ("input", "output")}
    return replace(call, views=seen)
