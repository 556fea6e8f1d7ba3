# SPDX-License-Identifier: BSD-3-Clause
"""First layers: convolutions of few channels take the columns under a kernel's row for channels.

With 3 channels, 3 of a pipeline's 8 multipliers work. But the columns that a row of the kernel covers lie side by side in memory, so
a kernel of 3 columns and 3 channels is also one of a single column and 9 channels, on a view whose columns overlap: 2 steps of 8
for each row instead of 3. At the edges, where a window reaches beyond the input, the convolution stays as it is, in a call of its own.
Done where the modelled cycles of all these calls are fewer; no bit changes, since sums of products have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.schedule.cut import columns_of, only_input
from openneutron.compiler.schedule.needs import Span
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.constants import Constant, Maps
from openneutron.isa.kernels.row import Packing
from openneutron.isa.kernels.traits import Window
from openneutron.targets import Target


def merge_columns(calls: Sequence[KernelCall], target: Target) -> list[KernelCall]:
    """The calls with every convolution in pieces that is faster so."""
    result: list[KernelCall] = []
    for call in calls:
        pieces = _pieces(call) if _is_mergeable(call, target) else []
        cycles = sum(call_cost(piece, target).cycles for piece in pieces)
        result += pieces if pieces and cycles < call_cost(call, target).cycles else [call]
    return result


def _window(call: KernelCall) -> Window | None:
    """The window of the call's input where its columns may be stated as channels."""
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
    """Left edge, middle and right edge; nothing where there is no middle, or an edge sees padding alone."""
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
    """The call for some columns of its output."""
    views = {only_input(call): source, "output": columns_of(call.views["output"], span)}
    return replace(call, name=f"{call.name}/{side}", views=views, params={**call.params, **params})


def _merged(packing: Packing, constant: Constant) -> Constant:
    """Weights [output, height, width, input] with each column's inputs behind those of the one before it."""
    if isinstance(constant, Maps) or packing is not Packing.WEIGHT_BLOCKS:
        return constant
    outputs, height, _, _ = constant.shape
    return constant.reshape(outputs, height, 1, -1)
