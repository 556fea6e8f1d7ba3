# SPDX-License-Identifier: BSD-3-Clause
"""What limits a kernel call, and why multipliers idle in it."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.compiler.cost.cycles import Cost, call_cost
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

ISSUE, MEMORY, COMPUTE = "issue", "memory", "compute"

LITTLE = 0.5
"""The share of the multipliers at work below which a call says why."""

WORTH_SAYING = 0.8
"""Losses that leave more than this are not spoken of."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of the multipliers that is left after a cause of idling, and the cause in words."""

    share: float
    cause: str


def bottleneck(cost: Cost) -> str:
    """What most of the call's modelled cycles go to: the host that issues it, moving bytes, or computing."""
    if cost.issue_cycles > cost.compute_cycles:
        return ISSUE
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def idle_reason(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> str:
    """Why less than half of the multipliers work while the call runs, the largest loss first; empty where more do."""
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ""
    found = sorted(losses(call, cost, target, stripes), key=lambda loss: (loss.share, loss.cause))
    return "; ".join(loss.cause for loss in found if loss.share <= WORTH_SAYING)


def losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> list[Loss]:
    """Everything that keeps multipliers idle in a call that multiplies; the product of the shares is its utilisation.

    ``cost`` is that of all its ``stripes``. Causes are what the host takes to issue it, rows that are computed twice,
    channels that do not fill a pipeline's multipliers, outputs that do not fill the pipelines, and the single multiplier
    that a depthwise convolution uses.
    """
    alone = call_cost(call, target)
    found = [
        Loss(cost.compute_cycles / cost.cycles, _issue(bottleneck(cost) == ISSUE, stripes)),
        Loss(alone.compute_cycles / cost.compute_cycles, _again(call.views["output"].extents[2])),
    ]
    if not cost.inputs:
        one = f"a depthwise convolution uses 1 multiplier of {target.macs} in each pipeline"
        return [*found, Loss(1 / target.macs, one), _unfilled(cost.outputs, target.pipelines, "channels", "pipelines")]
    return [
        *found,
        _unfilled(cost.inputs, target.macs, _inputs(call), "multipliers"),
        _unfilled(cost.outputs, target.pipelines, cost.parallel, "pipelines"),
    ]


def _issue(most: bool, stripes: int) -> str:
    what = "issuing it" if stripes == 1 else "issuing its stripes"
    return f"{what} takes longer than computing" if most else f"{what} takes a good part of its time"


def _again(cols: int) -> str:
    """Why stripes take longer than the whole; rows of one column are what the pipelines share out."""
    return "its stripes leave pipelines without rows" if cols == 1 else "some of it is computed more than once"


def _inputs(call: KernelCall) -> str:
    """What a pipeline's multipliers share out: channels, or those of several columns (merge_columns)."""
    view = call.views[call.traits.operands[0].name]
    channels = view.pitches[2]
    if not 0 < channels < view.extents[3]:
        return "input channels"
    return f"inputs ({view.extents[3] // channels} columns of {channels} channels)"


def _unfilled(count: int, lanes: int, what: str, of: str) -> Loss:
    share = count / (-(-count // lanes) * lanes)
    name = what if count != 1 else what.removesuffix("s")
    return Loss(share, f"{count} {name} fill{'s' if count == 1 else ''} {share:.0%} of the {of}")
