# SPDX-License-Identifier: BSD-3-Clause
"""Calls that compute some columns or some channels of another call's output: ordinary calls on narrower views.

``merge_columns`` is for first layers. With 3 channels, 3 of a pipeline's 8 multipliers work. But the columns that a row of the kernel
covers are side by side in memory, so a kernel of 3 columns and 3 channels is also one of a single column and 9 channels, on a view
whose columns overlap: 2 steps of 8 for each row instead of 3. At the edges, where a window reaches beyond the input, the convolution
stays as it is, in a call of its own. No bit changes, since sums of products have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.schedule.needs import Span, reads_along
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.constants import Constant, Maps, of_channels
from openneutron.isa.kernels.row import Packing
from openneutron.isa.kernels.traits import SameElement, Window
from openneutron.isa.rows import LANES
from openneutron.targets import Target


def columns_of(view: View, span: Span) -> View:
    """Return some columns of a view."""
    batches, rows, _, channels = view.extents
    extents = (batches, rows, span[1] - span[0], channels)
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[2])


def channels_of(view: View, span: Span) -> View:
    """Return some channels of a view."""
    extents = (*view.extents[:3], span[1] - span[0])
    return replace(view, extents=extents, offset=view.offset + span[0] * view.pitches[3])


def only_input(call: KernelCall) -> str:
    """Return the name of the only input; empty where there are several, or the kernel declares none."""
    operands = call.traits.operands
    return operands[0].name if len(operands) == 1 else ""


def takes_columns(call: KernelCall) -> bool:
    """Return whether ``some_columns`` is for this call."""
    return isinstance(call.traits.access(only_input(call)), Window | SameElement)


def columns_needed(call: KernelCall, span: Span) -> Span:
    """Return the columns of its input that these columns of a call's output take; empty where padding is all they see."""
    reads = reads_along(call, only_input(call), 2)
    assert reads is not None, f"{call.name} does not take columns"
    return reads(span[0])[0], reads(span[1] - 1)[1]


def some_columns(call: KernelCall, span: Span) -> KernelCall:
    """Return the call that computes these columns alone, from no more columns of its input than it needs.

    Its padding on the left is the part of the window before these columns; on the right it follows from the extents.
    """
    name, needed = only_input(call), columns_needed(call, span)
    views = {name: columns_of(call.views[name], needed), "output": columns_of(call.views["output"], span)}
    window, params = call.traits.access(name), dict(call.params)
    if isinstance(window, Window):
        before = params[window.pad[1]]
        params[window.pad[1]] = needed[0] - (span[0] * params[window.stride[1]] - before)
    return replace(call, views=views, params=params)


def takes_channels(call: KernelCall) -> bool:
    """Return whether ``some_channels`` is for this call: from all channels of its input, or from the same ones."""
    channels, count = call.traits.channels, call.views["output"].extents[3]
    return (
        channels is not None
        and all(call.params[name] == count for name in channels.counts)
        and all(call.params[name] == 1 for name in channels.single)
    )


def channel_by_channel(call: KernelCall) -> bool:
    """Return whether each channel of the call's output comes from the same channel of its input alone."""
    channels = call.traits.channels
    return channels is not None and channels.same and takes_channels(call)


def some_channels(call: KernelCall, span: Span) -> KernelCall:
    """Return the call that computes these channels alone; the first is a multiple of 8, as the packed constants are blocks of 8."""
    first, end = span
    channels, name, output = call.traits.channels, only_input(call), call.views["output"]
    assert channels is not None and first % LANES == 0, f"{call.name}: channels from {first} on"
    views = {**call.views, "output": channels_of(output, span)}
    if channels.same:
        views[name] = channels_of(views[name], span)
    constants = {key: of_channels(call.packing(key), constant, *span) for key, constant in call.constants.items()}
    params = {**call.params, **dict.fromkeys(channels.counts, end - first)}
    return replace(call, views=views, params=params, constants=constants)


def merge_columns(calls: Sequence[KernelCall], target: Target) -> list[KernelCall]:
    """Return the calls with every convolution in pieces that is faster so."""
    result: list[KernelCall] = []
    for call in calls:
        pieces = _pieces(call) if _is_mergeable(call, target) else []
        cycles = sum(call_cost(piece, target).cycles for piece in pieces)
        result += pieces if pieces and cycles < call_cost(call, target).cycles else [call]
    return result


def _window(call: KernelCall) -> Window | None:
    """Return the window of the call's input where its columns may be stated as channels."""
    window = call.traits.access(only_input(call))
    return window if isinstance(window, Window) and window.summed else None


def _is_mergeable(call: KernelCall, target: Target) -> bool:
    window, p = _window(call), call.params
    if window is None:
        return False
    channels, width, view = p[window.summed], p[window.kernel[1]], call.views[only_input(call)]
    dense = view.extents[3] == channels and view.pitches[2:] == (channels, 1)
    undilated = window.dilation is None or p[window.dilation[1]] == 1
    return dense and undilated and -(-channels * width // target.macs) < width * -(-channels // target.macs)


def _pieces(call: KernelCall) -> list[KernelCall]:
    """Return the left edge, the middle and the right edge; no pieces where there is no middle, or an edge sees padding alone."""
    window, p, source = _window(call), call.params, call.views[only_input(call)]
    assert window is not None
    stride, before, width = p[window.stride[1]], p[window.pad[1]], p[window.kernel[1]]
    cols, outputs = source.extents[2], call.views["output"].extents[2]
    # Below 0, the padding leaves out columns of the input (a cropped transposed convolution).
    first = max(0, -(-before // stride))
    end = min(outputs, (cols - width + before) // stride + 1)
    if first >= end or (end < outputs and (outputs - 1) * stride - before >= cols):
        return []
    pieces = []
    if first > 0:
        pieces.append(_piece(call, "left", (0, first), source, {}))
    start = first * stride - before
    span = width * p[window.summed]
    view = columns_of(source, (start, cols - width + 1))
    view = replace(view, extents=(*view.extents[:3], span))
    merged = {window.pad[1]: 0, window.kernel[1]: 1, window.summed: span}
    middle = _piece(call, "middle", (first, end), view, merged)
    pieces.append(replace(middle, constants={k: _merged(call.packing(k), each) for k, each in call.constants.items()}))
    if end < outputs:
        start = end * stride - before
        pieces.append(_piece(call, "right", (end, outputs), columns_of(source, (start, cols)), {window.pad[1]: 0}))
    return pieces


def _piece(call: KernelCall, side: str, span: Span, source: View, params: dict[str, int]) -> KernelCall:
    """Return the call for some columns of its output."""
    views = {only_input(call): source, "output": columns_of(call.views["output"], span)}
    return replace(call, name=f"{call.name}/{side}", views=views, params={**call.params, **params})


def _merged(packing: Packing, constant: Constant) -> Constant:
    """Return weights [output, height, width, input] with each column's inputs behind those of the one before it."""
    if isinstance(constant, Maps) or packing is not Packing.WEIGHT_BLOCKS:
        return constant
    outputs, height, _, _ = constant.shape
    return constant.reshape(outputs, height, 1, -1)
