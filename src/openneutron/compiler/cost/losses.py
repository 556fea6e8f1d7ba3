# SPDX-License-Identifier: BSD-3-Clause
"""The bottleneck of a kernel call, and the reasons why multipliers idle in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openneutron.compiler.cost.cycles import Cost, call_cost, depthwise_macs, groups_of, passes, product_of
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

DISPATCH, MEMORY, COMPUTE = "dispatch", "memory", "compute"

LITTLE = 0.5
"""The share of the multipliers at work below which a report names the reasons."""

WORTH_SAYING = 0.8
"""The share above which what is left after a loss keeps the loss out of the report."""


class Cause(StrEnum):
    """A cause of idle multipliers."""

    DISPATCH = "dispatch"
    REPETITION = "repetition"
    STALLS = "stalls"
    WIDE_ACTIVATIONS = "wide activations"
    DEPTHWISE = "depthwise"
    FEW_INPUTS = "few inputs"
    FEW_OUTPUTS = "few outputs"


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of the multipliers that is left after a cause of idling, and the cause in words with its numbers."""

    cause: Cause
    share: float
    text: str


def bottleneck(cost: Cost) -> str:
    """Return the largest part of the call's modelled cycles: its dispatch by the host, moving bytes, or computing."""
    if cost.issue_cycles > cost.compute_cycles:
        return DISPATCH
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def notable_losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> tuple[Loss, ...]:
    """Return the reasons why less than half of the multipliers work while the call runs, the largest loss first; empty where more do."""
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ()
    found = sorted(losses(call, cost, target, stripes), key=lambda loss: (loss.share, loss.text))
    return tuple(loss for loss in found if loss.share <= WORTH_SAYING)


def losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> list[Loss]:
    """Return everything that keeps multipliers idle in a call that multiplies; the product of the shares is its utilisation.

    ``cost`` is that of all its ``stripes``. Causes are its dispatch by the host, rows that are computed twice,
    multipliers that wait, activations of 16 bits, channels that do not fill a pipeline's multipliers, outputs that do not fill the pipelines, and the few multipliers
    that a depthwise convolution uses.
    """
    alone, count = call_cost(call, target), passes(call, target)
    subject = "its dispatch" if stripes == 1 else "the dispatch of its stripes"
    longer = "longer than computing" if bottleneck(cost) == DISPATCH else "a good part of its time"
    # Rows of one column are what the pipelines share out.
    one_column = call.views["output"].extents[2] == 1
    again = "its stripes leave pipelines without rows" if one_column else "some of it is computed more than once"
    found = [
        Loss(Cause.DISPATCH, cost.compute_cycles / cost.cycles, f"{subject} takes {longer}"),
        Loss(Cause.REPETITION, alone.compute_cycles / cost.compute_cycles, again),
        Loss(Cause.STALLS, 1 - alone.stall_cycles / alone.compute_cycles, "multipliers wait for their operands"),
        Loss(Cause.WIDE_ACTIVATIONS, 1 / count, f"activations of 16 bits take {count} cycles"),
    ]
    if not cost.inputs:
        used = depthwise_macs(target)
        few = f"a depthwise convolution uses {used} multiplier{'s' * (used > 1)} of {target.macs} in each pipeline"
        taps = product_of(call, call.traits.cost.taps)
        share = taps / (groups_of(taps, used) * target.macs)
        return [*found, Loss(Cause.DEPTHWISE, share, few), _few_outputs(cost, target, "channels")]
    return [
        *found,
        _unfilled(Cause.FEW_INPUTS, cost.inputs, target.macs, _inputs(call), "multipliers"),
        _few_outputs(cost, target, cost.parallel),
    ]


def _inputs(call: KernelCall) -> str:
    """Return the object that a pipeline's multipliers share out: channels, or those of several columns (merge_columns)."""
    view = call.views[call.traits.operands[0].name]
    channels = view.pitches[2] // view.element_bytes
    if not 0 < channels < view.extents[3]:
        return "input channels"
    return f"inputs ({view.extents[3] // channels} columns of {channels} channels)"


def _few_outputs(cost: Cost, target: Target, what: str) -> Loss:
    return _unfilled(Cause.FEW_OUTPUTS, cost.outputs, target.all_pipelines, what, "pipelines")


def _unfilled(cause: Cause, count: int, lanes: int, what: str, of: str) -> Loss:
    share = count / (-(-count // lanes) * lanes)
    name = what if count != 1 else what.removesuffix("s")
    return Loss(cause, share, f"{count} {name} fill{'s' if count == 1 else ''} {share:.0%} of the {of}")
