# SPDX-License-Identifier: BSD-3-Clause
"""Merge linear layers that share an input, and chain two calls to one call of a kernel that runs both.

Linear layers that read one input, such as those of queries, keys and values, become one layer with side-by-side
results. Weights and requantization belong to output channels, so that no bit changes. If the results' zero points
differ, the call uses a kernel with a zero point for each block of channels.

A normalization or a linear layer is chained with the linear layer that reads its result. On a sequence of few positions
a call has little work, and its dispatch takes as long as the work. The result between the two kernels becomes scratch of
the chained call, so that no bit changes. Chained calls are never divided by channels; other selections keep the calls
apart. A cascade computes a chained call by rows, with scratch for as many rows.
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

LINEAR, _LINEAR_PARTS = "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8"
_CHANNELS = rows.KERNEL_BY_NAME[LINEAR].traits.channels
_COUNTS = _CHANNELS.counts if _CHANNELS else ()
_OWN = ("output_zero_point", *_COUNTS)
"""The parameters that may differ between merged layers."""


def merge(edit: Edit) -> None:
    """Compute all linear layers that read the same sequence in one call.

    Each merged layer has a multiple of 8 output channels. Its result is read as rows or parts of rows, and is no graph
    output.
    """
    for place, call in enumerate(edit.given.calls):
        if call.kernel != LINEAR or edit.find(place) is not call:
            continue
        readers = edit.readers(edit.storages.of[call.views["input"].tensor])
        group = [at for at, _ in readers if at >= place and _is_beside(edit, at, call)]
        changes = _merged(edit, group) if len(group) > 1 else None
        if changes is not None:
            edit.replace(changes)
        else:
            edit.skip(Cause.LAYOUT if len(group) > 1 else Cause.NO_PARTNER, *(edit[at] for at in group))


def _is_beside(edit: Edit, at: int, call: KernelCall) -> bool:
    """Return whether the call at index ``at`` is a linear layer of the same input as ``call`` whose result can be
    part of a wider result."""
    other = edit.find(at)
    if other is None or other.kernel != LINEAR or other.views["input"] != call.views["input"]:
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
    """Return the changes that replace the calls of a group by one call; None if a reader can't read its operand
    as part of the merged result."""
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
    """Return one call that computes the layers ``members`` side by side into ``output``. ``own`` has the number
    of output channels of each layer."""
    row = rows.KERNEL_BY_NAME[LINEAR]
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
        return KernelCall(LINEAR, members[0].name, views, params, constants)
    blocks = np.repeat(np.array(zero_points, np.int8), [channels // LANES for channels in own])
    constants["zero_points"] = blocks
    return KernelCall(_LINEAR_PARTS, members[0].name, views, {**params, "output_zero_point": 0}, constants)


def _part(view: View, channels: int, of: int, first: int) -> View | None:
    """Return a view of dense rows of ``channels`` channels, moved to rows of ``of`` channels where these channels
    begin at ``first``. Return None if no view describes the same elements there, or if an element has several
    bytes."""
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
"""The kernel that runs two others through a scratch buffer, by the names of the two."""

_PARTS = frozenset(kernel for pair in CHAINED for kernel in pair)
_ENDS = ("input", "output")
_STRIDES = ("stride_h", "stride_w")


def chain(edit: Edit, last_first: bool = True) -> None:
    """Chain each pair of calls where only the second call reads the result of the first.

    Chained kernels that are parts of larger ones are made first, so that the larger ones can follow. ``last_first``: of
    two pairs that share a call, the last pair is chained; otherwise the first pair. A normalization between two
    feed-forward blocks is then chained to the block before it, whose call has the block's input and the residual sum's
    operand in memory. Otherwise it is chained to the block after it, whose call has one tensor.
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
    """Return the chained call, or the cause why the calls stay apart: the second call is over an image, or it reads other
    places than the first one writes."""
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
    """Return the multiply-accumulates of a call for one output channel of one position."""
    product = 1
    for name in call.row.taps:
        product *= call.params[name]
    return product


def _seen_as(call: KernelCall, source: View) -> KernelCall:
    """Return the call in the shape in which its result is read, if it has a single operand and computes each
    position from the same position; otherwise return the call unchanged."""
    views = (call.views["input"], call.views["output"])
    same = all(view.is_dense and view.extents[3] == source.extents[3] for view in views)
    if len(call.views) > len(views) or not same or not isinstance(call.traits.access("input"), SameRow):
        return call
    pitches = dense_pitches(source.extents)
    seen = {name: replace(call.views[name], extents=source.extents, pitches=pitches) for name in ("input", "output")}
    return replace(call, views=seen)
