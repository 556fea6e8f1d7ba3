# SPDX-License-Identifier: BSD-3-Clause
"""State convolutions with other columns: kernels with merged columns, and patches of planes.

A first layer of 3 channels uses 3 of a pipeline's 8 multipliers. The input columns that one row of its kernel covers are
adjacent in memory, so a view with overlapping columns can state them as channels. At the edges, where a window reaches
beyond the input, separate calls compute the output.

PyTorch's images have a plane for each channel. Networks with attention begin with a convolution whose stride is its
kernel size, so that it reads each element once. A copy before it makes the channels adjacent, and a cascade has to hold
all rows of a patch for this copy. But the elements of a row of a plane are adjacent, too. So for one column of patches,
these elements become the channels of a convolution, and the planes become its columns. Example: an image of 3 planes of
64 x 64 in patches of 16 x 16. Column c of the patches is a convolution of an input of 64 rows, 3 columns (the planes)
and 16 channels (elements 16 c to 16 c + 15 of a row) with a kernel of 16 x 3. The products are the same, and so are the
bytes. A cascade can write the rows of these convolutions over rows of the planes that it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import Constant, KernelCall, View
from openneutron.compiler.select.needs import Span, columns_of, only_input
from openneutron.isa.kernels.row import Function, Packing, Window
from openneutron.targets import Target

MOST_COLUMNS = 16
"""The largest number of columns of patches: each column is one more call for each row of patches."""


def patches_of_planes(edit: Edit) -> None:
    """Compute each convolution in patches that reads a copy of an image from the planes of the image instead."""
    for place, call in enumerate(edit.given.calls):
        reader = edit.only_reader(place) if call.traits.function is Function.IDENTITY else None
        if reader is None or not _is_image(edit, call):
            continue
        at, name = reader
        window = _window(edit[at], name)
        if window is not None and edit[at].views[name].place == call.views["output"].place:
            edit.replace({place: None, at: _columns(edit[at], window, call.views["input"])})
        else:
            edit.skip(Cause.LAYOUT, call, edit[at])


def _is_image(edit: Edit, copy: KernelCall) -> bool:
    """Return whether the call copies a single image of planes to adjacent channels."""
    source, result = copy.views["input"], copy.views["output"]
    planar = source.pitches[2] == source.element_bytes == 1 and source.pitches[3] > source.pitches[1]
    return planar and source.extents[0] == 1 and edit.is_flat(result)


def _window(call: KernelCall, name: str) -> Window | None:
    """Return the window of a convolution that reads each element of its input once, in at most MOST_COLUMNS
    output columns; otherwise None."""
    window, output = call.traits.access(name), call.views["output"]
    if name != only_input(call) or not isinstance(window, Window) or not window.summed:
        return None
    p, (_, rows, cols, channels) = call.params, call.views[name].extents
    dilated = window.dilation is not None and any(p[each] != 1 for each in window.dilation)
    once = all(p[taps] == p[step] for taps, step in zip(window.kernel, window.stride, strict=True))
    whole = (output.extents[1] * p[window.kernel[0]], output.extents[2] * p[window.kernel[1]]) == (rows, cols)
    padded = any(p[each] for each in window.pad)
    fits = once and whole and not padded and not dilated and p[window.summed] == channels
    return window if fits and output.extents[2] <= MOST_COLUMNS else None


def _columns(call: KernelCall, window: Window, image: View) -> list[KernelCall]:
    """Return a call for each column of the output."""
    name, (_, rows, _, planes) = only_input(call), image.extents
    batch, row, col, plane = image.pitches
    width = call.params[window.kernel[1]]
    params = {**call.params, window.kernel[1]: planes, window.stride[1]: planes, window.summed: width}
    constants = {
        key: np.swapaxes(constant, 2, 3)
        if call.packing(key) is Packing.WEIGHT_BLOCKS and isinstance(constant, np.ndarray)
        else constant
        for key, constant in call.constants.items()
    }
    made = []
    for place in range(call.views["output"].extents[2]):
        source = View(image.tensor, (1, rows, planes, width), (batch, row, plane, col), image.offset + place * width)
        views = {name: source, "output": columns_of(call.views["output"], (place, place + 1))}
        made.append(replace(call, name=f"{call.name}/{place}", views=views, params=params, constants=constants))
    return made


def merge_columns(edit: Edit, target: Target) -> None:
    """Split each convolution into pieces with merged columns, if the pieces take fewer cycles.

    This is for first layers. With 3 channels, 3 of a pipeline's 8 multipliers work. But the columns that a row of the
    kernel covers are side by side in memory. So a kernel of 3 columns and 3 channels is also a kernel of 1 column and 9
    channels, on a view whose columns overlap: it takes 2 steps of 8 for each row instead of 3. At the edges, where a
    window reaches beyond the input, a separate call computes the convolution without the change. No bit changes, since
    sums of products have no order.
    """
    for place, call in enumerate(edit.given.calls):
        pieces = _pieces(call) if _is_mergeable(call, target) else []
        if pieces and _is_faster(pieces, call, target):
            edit.replace({place: pieces})
        elif pieces:
            edit.skip(Cause.NOT_FASTER, call)


def merge_without_edges(edit: Edit, target: Target, sequences: bool) -> None:
    """Merge the columns of each convolution that has no edges, if that takes fewer cycles.

    Such a convolution stays one call, so that cascades can include it. ``sequences``: also merge convolutions over a
    single row, for which a cascade then needs the whole input.
    """
    for place, call in enumerate(edit.given.calls):
        suits = _is_mergeable(call, target) and (sequences or call.views[only_input(call)].extents[1] > 1)
        pieces = _pieces(call) if suits else []
        if len(pieces) == 1 and _is_faster(pieces, call, target):
            edit.replace({place: replace(pieces[0], name=call.name)})
        elif pieces:
            edit.skip(Cause.NOT_FASTER if len(pieces) == 1 else Cause.LAYOUT, call)


def _is_faster(pieces: Sequence[KernelCall], call: KernelCall, target: Target) -> bool:
    return sum(call_cost(piece, target).cycles for piece in pieces) < call_cost(call, target).cycles


def has_window(call: KernelCall) -> bool:
    """Return whether the columns of the call's input may be stated as channels."""
    return _summed_window(call) is not None


def _summed_window(call: KernelCall) -> Window | None:
    """Return the window of the call's input if its columns may be stated as channels; otherwise None."""
    window = call.traits.access(only_input(call))
    return window if isinstance(window, Window) and window.summed else None


def _is_mergeable(call: KernelCall, target: Target) -> bool:
    window, p = _summed_window(call), call.params
    if window is None:
        return False
    channels, width, view = p[window.summed], p[window.kernel[1]], call.views[only_input(call)]
    dense = view.extents[3] == channels and view.has_dense_channels and view.pitches[2] == channels * view.element_bytes
    undilated = window.dilation is None or p[window.dilation[1]] == 1
    return dense and undilated and -(-channels * width // target.macs) < width * -(-channels // target.macs)


def _pieces(call: KernelCall) -> list[KernelCall]:
    """Return the calls of the left edge, the middle and the right edge; an edge without columns has no call. The
    list is empty if there is no middle, or if the last window covers only padding."""
    window, p, source = _summed_window(call), call.params, call.views[only_input(call)]
    assert window is not None
    stride, before, width = p[window.stride[1]], p[window.pad[1]], p[window.kernel[1]]
    cols, outputs = source.extents[2], call.views["output"].extents[2]
    # A negative padding crops columns of the input, as in a cropped transposed convolution.
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
    views = {only_input(call): source, "output": columns_of(call.views["output"], span)}
    return replace(call, name=f"{call.name}/{side}", views=views, params={**call.params, **params})


def _merged(packing: Packing, constant: Constant) -> Constant:
    """Return weights [output, height, width, input] as [output, height, 1, width * input]; other constants are
    returned unchanged."""
    if not isinstance(constant, np.ndarray) or packing is not Packing.WEIGHT_BLOCKS:
        return constant
    outputs, height, _, _ = constant.shape
    return constant.reshape(outputs, height, 1, -1)
