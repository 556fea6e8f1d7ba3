# SPDX-License-Identifier: BSD-3-Clause
"""Modelled cycles of kernel calls and copies.

Compute cycles follow from the shapes and the pipelines (facts: 8 pipelines of 8 multiply-accumulates share one operand
vector); what the host spends on each call, memory rates and the softmax come from the target's constants. docs/targets.md
states how well this fits what is published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of a call beside its multiply-accumulates; ``parallel`` names what the pipelines work on."""

    compute_cycles: int
    issue_cycles: int
    macs: int = 0
    parallel: str = "bytes"

    @property
    def cycles(self) -> int:
        """What it takes in all: issuing it, then computing."""
        return self.compute_cycles + self.issue_cycles


CostRule = Callable[[KernelCall, Target, int], tuple[int, int, str]]
"""(call, target, output rows computed) to compute cycles, multiply-accumulates and what runs in parallel."""


def _groups_of(count: int, lanes: int) -> int:
    return -(-count // lanes)


def _groups_of_columns(rows: int, cols: int, target: Target) -> int:
    """Columns on the pipelines, row by row. Rows of one column lie in memory as the columns of one row do."""
    return _groups_of(rows, target.pipelines) if cols == 1 else rows * _groups_of(cols, target.pipelines)


def _convolution(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, every_row, cols, channels = call.views["output"].extents
    p = call.params
    taps, inputs = p["kernel_h"] * p["kernel_w"], p["group_inputs"]
    macs = batches * rows * cols * channels * taps * inputs
    cycles, parallel = _on_pipelines(call, target, rows)
    if cols == 1:
        # A stripe of few rows takes at least its share of the whole, where they fill the pipelines.
        cycles = max(cycles, -(-_on_pipelines(call, target, every_row)[0] * rows // every_row))
    return cycles, macs, parallel


def _on_pipelines(call: KernelCall, target: Target, rows: int) -> tuple[int, str]:
    """Cycles of so many rows with output channels or columns on the pipelines, whichever takes fewer."""
    batches, _, cols, channels = call.views["output"].extents
    p = call.params
    dots = batches * p["kernel_h"] * p["kernel_w"] * _groups_of(p["group_inputs"], target.macs)
    groups = channels // p["group_outputs"]
    by_channels = dots * rows * cols * groups * _groups_of(p["group_outputs"], target.pipelines)
    by_columns = dots * channels * _groups_of_columns(rows, cols, target)
    return (by_channels, "output channels") if by_channels <= by_columns else (by_columns, "output columns")


def _depthwise(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    # All pipelines share one operand vector, so of a pipeline's 8 multipliers one is of use here (assumed).
    batches, _, cols, channels = call.views["output"].extents
    taps = call.params["kernel_h"] * call.params["kernel_w"]
    points = batches * rows * cols * taps
    return points * _groups_of(channels, target.pipelines), points * channels, "output channels"


def _matmul(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, _, _, channels = call.views["output"].extents
    depth = call.params["depth"]
    dots = batches * rows * _groups_of(depth, target.macs)
    return dots * _groups_of(channels, target.pipelines), batches * rows * depth * channels, "output channels"


def _pool(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, _, cols, channels = call.views["output"].extents
    taps = call.params["kernel_h"] * call.params["kernel_w"]
    return batches * rows * cols * taps * _groups_of(channels, target.pipelines), 0, "output channels"


def _bilinear(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, _, cols, channels = call.views["output"].extents
    return 4 * batches * rows * cols * _groups_of(channels, target.pipelines), 0, "output channels"


def _reduction(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, in_rows, cols, channels = call.views["input"].extents
    return batches * in_rows * cols * _groups_of(channels, target.pipelines), 0, "output channels"


def _arg_max(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    batches, _, cols, _ = call.views["output"].extents
    return batches * call.params["depth"] * _groups_of_columns(rows, cols, target), 0, "output columns"


def _output_elements(call: KernelCall, rows: int) -> int:
    batches, _, cols, channels = call.views["output"].extents
    return batches * rows * cols * channels


def _elementwise(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    assert target.costs is not None
    return -(-_output_elements(call, rows) // int(target.costs.elementwise_bytes.value)), 0, "bytes"


def _softmax(call: KernelCall, target: Target, rows: int) -> tuple[int, int, str]:
    assert target.costs is not None
    return int(_output_elements(call, rows) * target.costs.softmax_cycles.value), 0, "nothing"


COST_RULES: dict[str, CostRule] = {
    "conv_2d_s8": _convolution,
    "conv_2d_1x1_s8": _convolution,
    "depthwise_conv_2d_s8": _depthwise,
    "batch_matmul_s8": _matmul,
    "average_pool_2d_s8": _pool,
    "max_pool_2d_s8": _pool,
    "mean_s8": _reduction,
    "reduce_max_s8": _reduction,
    "softmax_s8": _softmax,
    "log_softmax_s8": _softmax,
    "l2_normalization_s8": _softmax,
    "add_s8": _elementwise,
    "mul_s8": _elementwise,
    "maximum_s8": _elementwise,
    "prelu_s8": _elementwise,
    "squared_difference_s8": _elementwise,
    "pad_s8": _elementwise,
    "copy_s8": _elementwise,
    "lookup_s8": _elementwise,
    "resize_nearest_neighbor_s8": _elementwise,
    "resize_bilinear_s8": _bilinear,
    "arg_max_s8": _arg_max,
    "compare_s8": _elementwise,
    "select_s8": _elementwise,
    "gather_s8": _elementwise,
}
"""One rule for each kernel of the microcode."""


def call_cost(call: KernelCall, target: Target, rows: int | None = None) -> Cost:
    """The cost of one kernel call that computes ``rows`` of its output's rows (all of them by default)."""
    assert target.costs is not None, f"{target.name} has no cost constants"
    cycles, macs, parallel = COST_RULES[call.kernel](
        call, target, call.views["output"].extents[1] if rows is None else rows
    )
    return Cost(cycles, int(target.costs.issue_cycles.value), macs, parallel)


def least_compute_cycles(call: KernelCall, target: Target, rows: int) -> int:
    """Compute cycles that ``rows`` rows take at least, in however many stripes.

    Where a stripe's rows are shared out among the pipelines, a short one may be cheaper the other way round.
    """
    several = target.pipelines
    one, lanes, whole = (call_cost(call, target, count).compute_cycles for count in (1, several, rows))
    return min(rows * one, rows * lanes // several, whole)


def fetch_cycles(size_bytes: int, target: Target) -> int:
    """Cycles of a copy from flash to SRAM."""
    assert target.costs is not None
    return int(size_bytes / target.costs.flash_bytes.value)
