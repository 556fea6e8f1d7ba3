# SPDX-License-Identifier: BSD-3-Clause
"""Whether calls in parts may take fewer cycles than whole: then cascades are searched even where whole tensors fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from openneutron.compiler.schedule.cut import CONVOLUTIONS, POOLS
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.storage import Storages
from openneutron.isa.rows import LANES

_WINDOWS = frozenset((*CONVOLUTIONS, *POOLS, "depthwise_conv_2d_s8"))
_SOME = frozenset(("gather_s8", "resize_nearest_neighbor_s8", "resize_bilinear_s8"))
"""Kernels that may leave out rows or columns of what they read."""

_AXES = ((1, "h", "pad_top"), (2, "w", "pad_left"))


def may_leave_out(calls: Sequence[KernelCall], storages: Storages) -> bool:
    """Whether some call in parts might take fewer cycles than whole; never false where one does.

    A cascade leaves out what nobody reads of a tensor. And of a convolution whose channels are no multiple of 8, parts may each
    suit the pipelines better than the whole.
    """
    written = {storages.of[call.views["output"].tensor] for call in calls}
    return any(
        _is_uneven(call) or any(_leaves_out(call, view, storages) for view in _read(call, storages, written))
        for call in calls
    )


def _read(call: KernelCall, storages: Storages, written: set[str]) -> list[View]:
    return [view for name, view in call.views.items() if name != "output" and storages.of[view.tensor] in written]


def _is_uneven(call: KernelCall) -> bool:
    _, rows, cols, _ = call.views["output"].extents
    return call.kernel in CONVOLUTIONS and call.params["group_outputs"] % LANES != 0 and rows * cols > 1


def _leaves_out(call: KernelCall, view: View, storages: Storages) -> bool:
    if math.prod(view.extents) < storages[view.tensor].size_bytes or call.kernel in _SOME:
        return True
    return call.kernel in _WINDOWS and any(_strides_over(call, view, axis, side, pad) for axis, side, pad in _AXES)


def _strides_over(call: KernelCall, view: View, axis: int, side: str, pad: str) -> bool:
    """Whether the windows leave out something between them, in front of the first one or behind the last one."""
    params = call.params
    window = (params[f"kernel_{side}"] - 1) * params.get(f"dilation_{side}", 1) + 1
    stride, steps = params[f"stride_{side}"], call.views["output"].extents[axis] - 1
    return (
        (stride > window and steps > 0) or params[pad] < 0 or steps * stride - params[pad] + window < view.extents[axis]
    )
