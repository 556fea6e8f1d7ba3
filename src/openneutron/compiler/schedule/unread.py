# SPDX-License-Identifier: BSD-3-Clause
"""Whether calls in parts may take fewer cycles than whole: then cascades are searched even where whole tensors fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from openneutron.compiler.schedule.needs import reads_along
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.isa.kernels.traits import CostClass
from openneutron.targets import Target


def may_leave_out(calls: Sequence[KernelCall], storages: Storages, target: Target) -> bool:
    """Whether some call in parts might take fewer cycles than whole; never false where one does.

    A cascade leaves out what nobody reads of a tensor. And of a convolution whose channels do not fill the pipelines, parts may each
    suit the pipelines better than the whole.
    """
    written = {storages.of[call.views["output"].tensor] for call in calls}
    return any(_is_uneven(call, target) or _leaves_out(call, storages, written) for call in calls)


def _is_uneven(call: KernelCall, target: Target) -> bool:
    cost, (_, rows, cols, _) = call.traits.cost, call.views["output"].extents
    return cost.kind is CostClass.PRODUCTS and call.params[cost.outputs] % target.pipelines != 0 and rows * cols > 1


def _leaves_out(call: KernelCall, storages: Storages, written: set[str]) -> bool:
    """Whether the call leaves out some of what another one writes."""
    for name, view in call.views.items():
        if name == "output" or storages.of[view.tensor] not in written:
            continue
        if math.prod(view.extents) < storages[view.tensor].size_bytes:
            return True
        if any(_passes_over(call, name, axis) for axis in (1, 2)):
            return True
    return False


def _passes_over(call: KernelCall, name: str, axis: int) -> bool:
    """Whether there are rows (or columns) of an input that no row (or column) of the output reads."""
    reads = reads_along(call, name, axis)
    end = 0
    for first, last in sorted(map(reads, range(call.views["output"].extents[axis]))) if reads is not None else ():
        if first > end:
            return True
        end = max(end, last)
    return reads is not None and end < call.views[name].extents[axis]
