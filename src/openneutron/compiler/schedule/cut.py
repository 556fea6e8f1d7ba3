# SPDX-License-Identifier: BSD-3-Clause
"""Calls that compute some columns or some channels of another call's output: ordinary calls on narrower views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, View
from openneutron.isa.rows import LANES

Span = tuple[int, int]
"""First and end."""

CONVOLUTIONS = frozenset(("conv_2d_s8", "conv_2d_1x1_s8"))
POOLS = frozenset(("average_pool_2d_s8", "max_pool_2d_s8"))
SAME_PLACE = frozenset(("lookup_s8", "copy_s8"))
"""Kernels of one input that take from it the element at the place of the output's."""


def columns_of(view: View, span: Span) -> View:
    """Some columns of a view."""
    batches, rows, _, channels = view.extents
    extents = (batches, rows, span[1] - span[0], channels)
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[2])


def channels_of(view: View, span: Span) -> View:
    """Some channels of a view."""
    extents = (*view.extents[:3], span[1] - span[0])
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[3])


def takes_columns(call: KernelCall) -> bool:
    """Whether ``some_columns`` is for this call."""
    return call.kernel in _COLUMNS


def columns_needed(call: KernelCall, span: Span) -> Span:
    """The columns of its input that these columns of a call's output take; empty where padding is all they see."""
    return _COLUMNS[call.kernel](call, span)


def some_columns(call: KernelCall, span: Span) -> KernelCall:
    """The call that computes these columns alone, from no more columns of its input than it needs.

    Its padding on the left is what of the window lies before them; on the right it follows from the extents.
    """
    needed = columns_needed(call, span)
    views = {"input": columns_of(call.views["input"], needed), "output": columns_of(call.views["output"], span)}
    params = dict(call.params)
    if "pad_left" in params:
        params["pad_left"] = needed[0] - (span[0] * params["stride_w"] - params["pad_left"])
    return replace(call, views=views, params=params)


def _window_columns(call: KernelCall, span: Span) -> Span:
    p, held = call.params, call.views["input"].extents[2]
    first = span[0] * p["stride_w"] - p["pad_left"]
    end = (span[1] - 1) * p["stride_w"] - p["pad_left"] + (p["kernel_w"] - 1) * p.get("dilation_w", 1) + 1
    return min(max(first, 0), held), min(max(end, 0), held)


def _same_columns(_call: KernelCall, span: Span) -> Span:
    return span


_COLUMNS: Mapping[str, Callable[[KernelCall, Span], Span]] = {
    **dict.fromkeys((*CONVOLUTIONS, *POOLS, "depthwise_conv_2d_s8"), _window_columns),
    **dict.fromkeys(SAME_PLACE, _same_columns),
}


def channel_by_channel(call: KernelCall) -> bool:
    """Whether each channel of the call's output comes from the same channel of its input alone."""
    if call.kernel == "depthwise_conv_2d_s8":
        return call.params["group_outputs"] == 1
    return call.kernel in POOLS or call.kernel in SAME_PLACE


def takes_channels(call: KernelCall) -> bool:
    """Whether ``some_channels`` is for this call: from all channels of its input, or from the same ones."""
    return channel_by_channel(call) or (call.kernel in CONVOLUTIONS and _is_one_group(call))


def _is_one_group(call: KernelCall) -> bool:
    return call.params["group_outputs"] == call.views["output"].extents[3]


def some_channels(call: KernelCall, span: Span) -> KernelCall:
    """The call that computes these channels alone; the first is a multiple of 8, as the packed constants are blocks of 8."""
    first, end = span
    assert first % LANES == 0, f"{call.name}: channels from {first} on"
    output = call.views["output"]
    views = {"input": call.views["input"], "output": channels_of(output, span)}
    if channel_by_channel(call):
        views["input"] = channels_of(views["input"], span)
    if call.kernel not in CONVOLUTIONS and call.kernel != "depthwise_conv_2d_s8":
        return replace(call, views=views)
    blocks = -(-output.extents[3] // LANES)
    size = {key: len(blob) // blocks for key, blob in call.constants.items()}
    assert all(size[key] * blocks == len(blob) for key, blob in call.constants.items()), "constants are whole blocks"
    constants = {
        key: blob[size[key] * (first // LANES) : size[key] * -(-end // LANES)] for key, blob in call.constants.items()
    }
    params = {**call.params, "constant_channels": end - first}
    if call.kernel in CONVOLUTIONS:
        params["group_outputs"] = end - first
    return replace(call, views=views, params=params, constants=constants)
