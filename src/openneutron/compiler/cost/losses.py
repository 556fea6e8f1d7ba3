# SPDX-License-Identifier: BSD-3-Clause
"""Find the bottleneck of a kernel call, and the reasons why multipliers are idle while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openneutron.compiler.cost.cycles import Cost, call_cost, depthwise_macs, groups_of, passes, product_of
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

DISPATCH, MEMORY, COMPUTE = "dispatch", "memory", "compute"

LITTLE = 0.5
"""A report names the reasons if less than this share of the multipliers works."""

WORTH_SAYING = 0.8
"""A report names a loss if it leaves at most this share of the multipliers at work."""


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
    """A cause of idle multipliers. ``share`` is the share of multipliers that it leaves at work; ``text`` states it with numbers."""

    cause: Cause
    share: float
    text: str


def bottleneck(cost: Cost) -> str:
    """Return ``DISPATCH``, ``MEMORY`` or ``COMPUTE``, whichever limits the call.

    The dispatch by the host limits it if that has more cycles than the computation; memory limits calls that move bytes.
    """
    if cost.issue_cycles > cost.compute_cycles:
        return DISPATCH
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def notable_losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> tuple[Loss, ...]:
    """Return the losses of a call in which less than half of the multipliers work, the largest loss first.

    Small losses (``WORTH_SAYING``) are left out. The result is empty for other calls, and for calls that do not multiply.
    """
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ()
    found = sorted(losses(call, cost, target, stripes), key=lambda loss: (loss.share, loss.text))
    return tuple(loss for loss in found if loss.share <= WORTH_SAYING)


def losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> list[Loss]:
    """Return all losses of a call that multiplies. The product of their shares is the utilisation of the multipliers.

    ``cost`` is the sum over all ``stripes`` of the call. The causes are the dispatch by the host, rows that are computed twice,
    multipliers that wait, activations of 16 bits, input channels that do not fill the multipliers of a pipeline, outputs that do not
    fill the pipelines, and the few multipliers that a depthwise convolution uses.
    """
    alone, count = call_cost(call, target), passes(call, target)
    subject = "its dispatch" if stripes == 1 else "the dispatch of its stripes"
    longer = "longer than computing" if bottleneck(cost) == DISPATCH else "a good part of its time"
    # In an output of one column, the pipelines share the rows.
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
    """Return words for the values that the multipliers of a pipeline share: channels, or channels of several columns (merge_columns)."""
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
