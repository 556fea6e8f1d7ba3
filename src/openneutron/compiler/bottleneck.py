# SPDX-License-Identifier: BSD-3-Clause
"""What limits a kernel call, and why multipliers idle in it."""

from __future__ import annotations

from openneutron.compiler.calls import KernelCall
from openneutron.compiler.cost import Cost
from openneutron.targets import Target

ISSUE, MEMORY, COMPUTE = "issue", "memory", "compute"

LITTLE = 0.5
"""The share of the multipliers at work below which a call says why."""


def bottleneck(cost: Cost) -> str:
    """What most of the call's modelled cycles go to: the host that issues it, moving bytes, or computing."""
    if cost.issue_cycles > cost.compute_cycles:
        return ISSUE
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def idle_reason(call: KernelCall, cost: Cost, target: Target) -> str:
    """Why less than half of the multipliers work while the call runs, the largest loss first; empty where more do.

    Each loss is the factor it takes: issue cost (compute over all cycles), channels that do not fill a pipeline's
    multipliers, outputs that do not fill the pipelines, and the depthwise convolution's single multiplier.
    """
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ""
    issue = (
        "issuing it takes longer than computing"
        if bottleneck(cost) == ISSUE
        else "issuing it takes a good part of its time"
    )
    losses = [(cost.compute_cycles / cost.cycles, issue)]
    _, _, cols, channels = call.views["output"].extents
    if call.kernel == "depthwise_conv_2d_s8":
        losses.append((1 / target.macs, f"a depthwise convolution uses 1 multiplier of {target.macs} in each pipeline"))
        losses.append(_unfilled(channels, target.pipelines, "channels", "pipelines"))
    else:
        inputs = call.params.get("group_inputs", call.params.get("depth", target.macs))
        losses.append(_unfilled(inputs, target.macs, "input channels", "multipliers"))
        outputs = cols if cost.parallel == "output columns" else call.params.get("group_outputs", channels)
        losses.append(_unfilled(outputs, target.pipelines, cost.parallel, "pipelines"))
    return "; ".join(text for share, text in sorted(losses) if share <= 0.8)


def _unfilled(count: int, lanes: int, what: str, of: str) -> tuple[float, str]:
    rounds = -(-count // lanes)
    share = count / (rounds * lanes)
    name = what if count != 1 else what.removesuffix("s")
    return share, f"{count} {name} fill{'s' if count == 1 else ''} {share:.0%} of the {of}"
