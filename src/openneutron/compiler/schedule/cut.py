# SPDX-License-Identifier: BSD-3-Clause
"""Calls that compute some columns or some channels of another call's output: ordinary calls on narrower views."""

from __future__ import annotations

from dataclasses import replace

from openneutron.compiler.schedule.needs import Span, reads_along
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.constants import of_channels
from openneutron.isa.kernels.traits import SameElement, Window
from openneutron.isa.rows import LANES


def columns_of(view: View, span: Span) -> View:
    """Some columns of a view."""
    batches, rows, _, channels = view.extents
    extents = (batches, rows, span[1] - span[0], channels)
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[2])


def channels_of(view: View, span: Span) -> View:
    """Some channels of a view."""
    extents = (*view.extents[:3], span[1] - span[0])
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[3])


def only_input(call: KernelCall) -> str:
    """The name of the only input; empty where there are several, or the kernel declares none."""
    operands = call.traits.operands
    return operands[0].name if len(operands) == 1 else ""


def takes_columns(call: KernelCall) -> bool:
    """Whether ``some_columns`` is for this call."""
    return isinstance(call.traits.access(only_input(call)), Window | SameElement)


def columns_needed(call: KernelCall, span: Span) -> Span:
    """The columns of its input that these columns of a call's output take; empty where padding is all they see."""
    reads = reads_along(call, only_input(call), 2)
    assert reads is not None, f"{call.name} does not take columns"
    return reads(span[0])[0], reads(span[1] - 1)[1]


def some_columns(call: KernelCall, span: Span) -> KernelCall:
    """The call that computes these columns alone, from no more columns of its input than it needs.

    Its padding on the left is what of the window lies before them; on the right it follows from the extents.
    """
    name, needed = only_input(call), columns_needed(call, span)
    views = {name: columns_of(call.views[name], needed), "output": columns_of(call.views["output"], span)}
    window, params = call.traits.access(name), dict(call.params)
    if isinstance(window, Window):
        before = params[window.pad[1]]
        params[window.pad[1]] = needed[0] - (span[0] * params[window.stride[1]] - before)
    return replace(call, views=views, params=params)


def takes_channels(call: KernelCall) -> bool:
    """Whether ``some_channels`` is for this call: from all channels of its input, or from the same ones."""
    channels, count = call.traits.channels, call.views["output"].extents[3]
    return (
        channels is not None
        and all(call.params[name] == count for name in channels.counts)
        and all(call.params[name] == 1 for name in channels.single)
    )


def channel_by_channel(call: KernelCall) -> bool:
    """Whether each channel of the call's output comes from the same channel of its input alone."""
    channels = call.traits.channels
    return channels is not None and channels.same and takes_channels(call)


def some_channels(call: KernelCall, span: Span) -> KernelCall:
    """The call that computes these channels alone; the first is a multiple of 8, as the packed constants are blocks of 8."""
    first, end = span
    channels, name, output = call.traits.channels, only_input(call), call.views["output"]
    assert channels is not None and first % LANES == 0, f"{call.name}: channels from {first} on"
    views = {**call.views, "output": channels_of(output, span)}
    if channels.same:
        views[name] = channels_of(views[name], span)
    constants = {key: of_channels(call.packing(key), constant, *span) for key, constant in call.constants.items()}
    params = {**call.params, **dict.fromkeys(channels.counts, end - first)}
    return replace(call, views=views, params=params, constants=constants)
