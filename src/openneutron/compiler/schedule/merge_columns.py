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

import numpy as np

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.isa.rows import LANES
from openneutron.targets import Target


def merge_columns(calls: Sequence[KernelCall], target: Target) -> list[KernelCall]:
    """The calls with every convolution in pieces that is faster so."""
    result: list[KernelCall] = []
    for call in calls:
        pieces = _pieces(call) if _is_mergeable(call) else []
        cycles = sum(call_cost(piece, target).cycles for piece in pieces)
        result += pieces if pieces and cycles < call_cost(call, target).cycles else [call]
    return result


def _is_mergeable(call: KernelCall) -> bool:
    if call.kernel != "conv_2d_s8":
        return False
    p, view = call.params, call.views["input"]
    channels, width = p["group_inputs"], p["kernel_w"]
    dense = view.extents[3] == channels and view.pitches[2:] == (channels, 1)
    return dense and p["dilation_w"] == 1 and -(-channels * width // LANES) < width * -(-channels // LANES)


def _pieces(call: KernelCall) -> list[KernelCall]:
    """Left edge, middle and right edge; nothing where there is no middle, or an edge sees padding alone."""
    p, source = call.params, call.views["input"]
    stride, before, width = p["stride_w"], p["pad_left"], p["kernel_w"]
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
    span = width * p["group_inputs"]
    view = _columns(source, start, cols - width + 1 - start)
    view = replace(view, extents=(*view.extents[:3], span))
    merged = {"pad_left": 0, "kernel_w": 1, "group_inputs": span}
    middle = _piece(call, "middle", (first, end), view, merged)
    pieces.append(replace(middle, constants={**call.constants, "weights": _merged_weights(call)}))
    if end < outputs:
        start = end * stride - before
        pieces.append(_piece(call, "right", (end, outputs), _columns(source, start, cols - start), {"pad_left": 0}))
    return pieces


def _piece(call: KernelCall, side: str, span: tuple[int, int], source: View, params: dict[str, int]) -> KernelCall:
    """The call for some columns of its output."""
    output = _columns(call.views["output"], span[0], span[1] - span[0])
    views = {**call.views, "input": source, "output": output}
    return replace(call, name=f"{call.name}/{side}", views=views, params={**call.params, **params})


def _columns(view: View, first: int, count: int) -> View:
    batches, rows, _, channels = view.extents
    return replace(view, extents=(batches, rows, count, channels), offset=view.offset + first * view.pitches[2])


def _merged_weights(call: KernelCall) -> bytes:
    """The packed weights [k/8][height][width][inputs/8][8 k][8] as [k/8][height][1][width * inputs / 8][8 k][8]."""
    p = call.params
    channels, width, height = p["group_inputs"], p["kernel_w"], p["kernel_h"]
    packed = np.frombuffer(call.constants["weights"], np.int8)
    blocks = packed.reshape(-1, height, width, -(-channels // LANES), LANES, LANES)
    # [k/8][height][8 k][width][inputs]
    plain = blocks.transpose(0, 1, 4, 2, 3, 5).reshape(blocks.shape[0], height, LANES, width, -1)[..., :channels]
    joined = plain.reshape(*plain.shape[:3], width * channels)
    padded = np.pad(joined, ((0, 0), (0, 0), (0, 0), (0, -joined.shape[3] % LANES)))
    return padded.reshape(*padded.shape[:3], -1, LANES).transpose(0, 1, 3, 2, 4).tobytes()
