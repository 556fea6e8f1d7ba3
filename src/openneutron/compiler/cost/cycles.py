# SPDX-License-Identifier: BSD-3-Clause
"""Modelled cycles of kernel calls and copies, the bottleneck of a call, and the reasons why multipliers idle in it.

Compute cycles follow from the shapes, the pipelines and the multipliers; the dispatch, the fill of the pipelines, memory rates and the
softmax are the target's constants. docs/targets.md states how well the model fits published latencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.select.calls import KernelCall
from openneutron.isa.kernels.row import CostClass, Work
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Cost:
    """A call's cycles, multiply-accumulates, and the object of the pipelines' work.

    Of a call that multiplies, ``inputs`` are the products that the multipliers of a pipeline share out, 0 where one of them works
    alone, and ``outputs`` the objects that the pipelines share out. In ``stall_cycles`` of the ``compute_cycles`` its multipliers wait
    for operands.
    """

    compute_cycles: int
    macs: int = 0
    parallel: str = "bytes"
    inputs: int = 0
    outputs: int = 0
    issue_cycles: int = 0
    stall_cycles: int = 0

    @property
    def cycles(self) -> int:
        """Return all cycles of the call: of its dispatch and of its computation."""
        return self.compute_cycles + self.issue_cycles


CostRule = Callable[[KernelCall, Work, Target, int], Cost]
"""(call, its cost class, target, output rows computed) to its cost without the dispatch."""

CHANNELS, COLUMNS, VALUES = "output channels", "output columns", "values"


def _groups_of(count: int, lanes: int) -> int:
    return -(-count // lanes)


def _groups_of_columns(rows: int, cols: int, target: Target) -> int:
    """Return the cycles of columns on the pipelines, row by row. Rows of one column have the layout of the columns of one row."""
    return _groups_of(rows, target.pipelines) if cols == 1 else rows * _groups_of(cols, target.pipelines)


def _product_of(call: KernelCall, names: Sequence[str]) -> int:
    return math.prod(call.params[name] for name in names)


def _passes(call: KernelCall, target: Target) -> int:
    """Return the cycles of a product: the target's passes for each operand of 16 bits."""
    wide = sum(call.views[operand.name].element_bytes > 1 for operand in call.traits.operands)
    return int(math.ceil(target.npu.int16_passes.value) ** wide)


def _dot_cycles(call: KernelCall, target: Target, taps: int, inputs: int) -> tuple[int, int]:
    """Return the cycles of one dot product of so many taps and inputs, and those of them in which the pipeline fills.

    At each tap the pipeline begins at another address. The fill is a whole number for each dot product, so that the cycles of rows add
    up to those of the whole.
    """
    fill = int(taps * target.costs.fill_cycles.value + 0.5)
    return taps * _groups_of(inputs, target.macs) * _passes(call, target) + fill, fill


def _with_constants(call: KernelCall, target: Target, cost: Cost) -> Cost:
    """Return the cost of a call with a single position of output: it takes at least the time of reading its constants once.

    With several positions the accumulators reuse what was read.
    """
    if math.prod(call.views["output"].extents[1:3]) > 1:
        return cost
    reading = math.ceil(sum(call.packed_bytes().values()) / target.constants_memory.bandwidth.value)
    more = max(0, reading - cost.compute_cycles)
    return replace(cost, compute_cycles=cost.compute_cycles + more, stall_cycles=cost.stall_cycles + more)


def _products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, every_row, cols, channels = call.views["output"].extents
    inputs, outputs = call.params[work.inputs], call.params[work.outputs]
    one_dot, fill = _dot_cycles(call, target, _product_of(call, work.taps), inputs)
    dots = batches * one_dot
    by_channels = cols * (channels // outputs) * _groups_of(outputs, target.pipelines)

    def on_pipelines(rows: int) -> tuple[int, bool]:
        """Return the cycles with output channels or columns on the pipelines, whichever takes fewer, and whether it is channels."""
        by_columns = channels * _groups_of_columns(rows, cols, target)
        return dots * min(rows * by_channels, by_columns), rows * by_channels <= by_columns

    cycles, is_by_channels = on_pipelines(rows)
    if cols == 1:
        # A stripe of few rows takes at least its share of the whole, where they fill the pipelines.
        cycles = max(cycles, -(-on_pipelines(every_row)[0] * rows // every_row))
    macs = batches * rows * cols * channels * _product_of(call, work.taps) * inputs
    stall = cycles * fill // one_dot
    if is_by_channels:
        cost = Cost(cycles, macs, CHANNELS, inputs, outputs, stall_cycles=stall)
    else:
        # Rows of one column take the place of columns.
        cost = Cost(cycles, macs, COLUMNS, inputs, every_row if cols == 1 else cols, stall_cycles=stall)
    return _with_constants(call, target, cost)


def _channel_products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # All pipelines share one operand vector, so few of a pipeline's multipliers are of use here.
    batches, _, cols, channels = call.views["output"].extents
    points, taps = batches * rows * cols, _product_of(call, work.taps)
    steps = _groups_of(taps, _depthwise_macs(target)) * _passes(call, target)
    cycles = points * steps * _groups_of(channels, target.pipelines)
    return Cost(cycles, points * taps * channels, CHANNELS, outputs=channels)


def _depthwise_macs(target: Target) -> int:
    return min(int(target.costs.depthwise_macs.value), target.macs)


def _matrix_products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, _, channels = call.views["output"].extents
    depth = call.params[work.inputs]
    one_dot, fill = _dot_cycles(call, target, 1, depth)
    dots = batches * rows * _groups_of(channels, target.pipelines)
    macs = batches * rows * depth * channels
    return Cost(dots * one_dot, macs, CHANNELS, depth, channels, stall_cycles=dots * fill)


def _per_output(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, cols, channels = call.views["output"].extents
    steps = work.steps * _product_of(call, work.taps)
    return Cost(steps * batches * rows * cols * _groups_of(channels, target.pipelines), parallel=CHANNELS)


def _per_input(call: KernelCall, _work: Work, target: Target, _rows: int) -> Cost:
    batches, rows, cols, channels = call.views[call.traits.operands[0].name].extents
    return Cost(batches * rows * cols * _groups_of(channels, target.pipelines), parallel=CHANNELS)


def _per_column(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, cols, _ = call.views["output"].extents
    return Cost(batches * call.params[work.inputs] * _groups_of_columns(rows, cols, target), parallel=COLUMNS)


def _output_elements(call: KernelCall, rows: int) -> int:
    batches, _, cols, channels = call.views["output"].extents
    return batches * rows * cols * channels


def _output_bytes(call: KernelCall, rows: int) -> int:
    return _output_elements(call, rows) * call.views["output"].element_bytes


def _moved(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    return Cost(-(-_output_bytes(call, rows) // int(target.costs.elementwise_bytes.value)))


def _transferred(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    return Cost(int(target.external_memory.latency.value) + fetch_cycles(_output_bytes(call, rows), target))


def _exponentials(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    # Values depend on each other only in the sum of a line: all pipelines compute, each of them other values (assumed).
    values = _groups_of(_output_elements(call, rows), target.pipelines)
    return Cost(int(values * target.costs.softmax_cycles.value), parallel=VALUES)


def _summed(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, cols, channels = call.views[call.traits.operands[0].name].extents
    lines = batches * rows * cols * _product_of(call, work.taps)
    return Cost(work.steps * lines * _groups_of(channels, target.pipelines), parallel=CHANNELS)


def _normalized(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # Two passes: a multiplication for the squares, then two for the result (assumed: as in _per_output one a cycle on each pipeline).
    # The root of each line is Newton's iteration on 32 bits (assumed: as long as an exponential, each pipeline another line).
    batches, _, cols, channels = call.views["output"].extents
    lines = batches * rows * cols
    roots = _groups_of(lines, target.pipelines) * int(target.costs.softmax_cycles.value)
    return Cost(work.steps * lines * _groups_of(channels, target.pipelines) + roots, parallel=CHANNELS)


def _attention(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # The sum of the calls that attention replaces, without their dispatches: products, a softmax, or its parts. All pipelines share the
    # scores of a row, in its exponentials as in its largest value and its sum (assumed).
    batches, _, heads, channels = call.views["output"].extents
    keys, depth, p = call.views["key"].extents[1], call.params[work.inputs], call.params
    scores, fill = _dot_cycles(call, target, 1, depth)
    products, fill_of_products = _dot_cycles(call, target, 1, keys)
    groups, groups_of_products = _groups_of(keys, target.pipelines), _groups_of(channels, target.pipelines)
    dots = heads * (groups * scores + groups_of_products * products)
    moved = heads * (p["tabled"] * depth + p["masked"] * keys + p["divides"] * (2 * keys + channels))
    steps = (
        heads * groups * 2
        if p["divides"]
        else int(_groups_of(heads * keys, target.pipelines) * target.costs.softmax_cycles.value)
    )
    stall = heads * (groups * fill + groups_of_products * fill_of_products)
    cycles = dots + steps + -(-moved // int(target.costs.elementwise_bytes.value))
    macs = heads * keys * (depth + channels)
    count = batches * rows
    return Cost(count * cycles, count * macs, CHANNELS, depth, keys, stall_cycles=count * stall)


def _recurrent(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # A step waits for the one before it, so that its units are all that the pipelines share out. The functions of a gate are
    # polynomials and Newton steps of 16 bits, which all pipelines compute (assumed: as long as an exponential each).
    batches, _, steps, outputs = call.views["output"].extents
    inputs, units = call.params[work.inputs], call.params[work.outputs]
    gates = 1 if call.params.get("kind") else work.steps - call.params.get("cifg", 0)
    passes = math.ceil(target.npu.int16_passes.value) if call.views["input"].element_bytes > 1 else 1
    dots = gates * passes * (_groups_of(inputs, target.macs) + _groups_of(outputs, target.macs))
    functions = (gates + 1) * target.costs.softmax_cycles.value
    cycles = dots * _groups_of(units, target.pipelines) + int(functions) * _groups_of(units, target.pipelines)
    macs = gates * units * (inputs + outputs)
    if call.params.get("projected"):
        cycles += _groups_of(units, target.macs) * _groups_of(outputs, target.pipelines)
        macs += units * outputs
    return Cost(batches * rows * steps * cycles, batches * rows * steps * macs, CHANNELS, inputs + outputs, units)


def _filtered(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # A filter's own memory is no operand vector that pipelines share: one multiplier of each works on it (assumed).
    inputs, filters, kept = call.params[work.inputs], call.params[work.outputs], _product_of(call, work.taps)
    cycles = (_groups_of(inputs, target.macs) + kept) * _groups_of(filters, target.pipelines)
    return Cost(rows * cycles, rows * filters * (inputs + kept), CHANNELS, inputs + kept, filters)


def _unknown(call: KernelCall, _work: Work, target: Target, _rows: int) -> Cost:
    elements = sum(math.prod(view.extents) for view in call.views.values())
    return Cost(int(elements * target.costs.softmax_cycles.value), parallel="nothing")


RULES: Mapping[CostClass, CostRule] = {
    CostClass.UNKNOWN: _unknown,
    CostClass.PRODUCTS: _products,
    CostClass.CHANNEL_PRODUCTS: _channel_products,
    CostClass.MATRIX_PRODUCTS: _matrix_products,
    CostClass.PER_OUTPUT: _per_output,
    CostClass.PER_INPUT: _per_input,
    CostClass.PER_COLUMN: _per_column,
    CostClass.MOVED: _moved,
    CostClass.TRANSFERRED: _transferred,
    CostClass.EXPONENTIALS: _exponentials,
    CostClass.ATTENTION: _attention,
    CostClass.SUMMED: _summed,
    CostClass.NORMALIZED: _normalized,
    CostClass.RECURRENT: _recurrent,
    CostClass.FILTERED: _filtered,
}
"""One rule for each cost class."""


def call_cost(call: KernelCall, target: Target, rows: int | None = None) -> Cost:
    """Return the cost of one kernel call that computes ``rows`` of its output's rows (all of them by default)."""
    work, rows = call.traits.cost, call.views["output"].extents[1] if rows is None else rows
    cost = _on_units(call, work, target, rows)
    if work.moved:
        # The multipliers are idle during the second pass over the output.
        moved = work.moved * _moved(call, work, target, rows).compute_cycles
        cost = replace(cost, compute_cycles=cost.compute_cycles + moved, stall_cycles=cost.stall_cycles + moved)
    # The copy engine takes its work from a list, which the controller writes while kernels run (assumed).
    return replace(cost, issue_cycles=0 if call.is_transfer else int(target.costs.issue_cycles.value))


_SHARED_OUT = {CostClass.PRODUCTS, CostClass.CHANNEL_PRODUCTS, CostClass.MATRIX_PRODUCTS, CostClass.PER_OUTPUT}


def _on_units(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    """Return the cost with the work shared out among the NPU's units: each has some output channels, or some output rows.

    arXiv 2509.14388 has both; the faster one counts. The units of the other cost classes are in their bytes per cycle.
    """
    rule = RULES[work.kind]
    if target.units == 1 or work.kind not in _SHARED_OUT:
        return rule(call, work, target, rows)
    by_channels = rule(call, work, target.joined, rows)
    by_rows = rule(call, work, target, _groups_of(rows, target.units))
    if by_rows.compute_cycles < by_channels.compute_cycles:
        return replace(by_rows, macs=by_channels.macs)
    return by_channels


def least_compute_cycles(call: KernelCall, target: Target, rows: int) -> int:
    """Return the compute cycles that ``rows`` rows take at least, in however many stripes.

    Where a stripe's rows are shared out among the pipelines, a short one may be cheaper the other way round.
    """
    several = target.pipelines * target.units
    one, lanes, whole = (call_cost(call, target, count).compute_cycles for count in (1, several, rows))
    return min(rows * one, rows * lanes // several, whole)


def fetch_cycles(size_bytes: int, target: Target) -> int:
    """Return the cycles of a copy from flash to SRAM, or between external memory and the memory of the NPU."""
    return int(size_bytes / target.copy_engine.rate.value)


ISSUE, MEMORY, COMPUTE = "issue", "memory", "compute"

LITTLE = 0.5
"""The share of the multipliers at work below which a report names the reasons."""

WORTH_SAYING = 0.8
"""The share above which what is left after a loss keeps the loss out of the report."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of the multipliers that is left after a cause of idling, and the cause in words."""

    share: float
    cause: str


def bottleneck(cost: Cost) -> str:
    """Return the largest part of the call's modelled cycles: the host that issues it, moving bytes, or computing."""
    if cost.issue_cycles > cost.compute_cycles:
        return ISSUE
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def idle_reason(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> str:
    """Return the reasons why less than half of the multipliers work while the call runs, the largest loss first; empty where more do."""
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ""
    found = sorted(losses(call, cost, target, stripes), key=lambda loss: (loss.share, loss.cause))
    return "; ".join(loss.cause for loss in found if loss.share <= WORTH_SAYING)


def losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> list[Loss]:
    """Return everything that keeps multipliers idle in a call that multiplies; the product of the shares is its utilisation.

    ``cost`` is that of all its ``stripes``. Causes are what the host takes to issue it, rows that are computed twice,
    multipliers that wait, activations of 16 bits, channels that do not fill a pipeline's multipliers, outputs that do not fill the pipelines, and the few multipliers
    that a depthwise convolution uses.
    """
    alone, passes = call_cost(call, target), _passes(call, target)
    subject = "issuing it" if stripes == 1 else "issuing its stripes"
    longer = "longer than computing" if bottleneck(cost) == ISSUE else "a good part of its time"
    # Rows of one column are what the pipelines share out.
    one_column = call.views["output"].extents[2] == 1
    again = "its stripes leave pipelines without rows" if one_column else "some of it is computed more than once"
    found = [
        Loss(cost.compute_cycles / cost.cycles, f"{subject} takes {longer}"),
        Loss(alone.compute_cycles / cost.compute_cycles, again),
        Loss(1 - alone.stall_cycles / alone.compute_cycles, "multipliers wait for their operands"),
        Loss(1 / passes, f"activations of 16 bits take {passes} cycles"),
    ]
    if not cost.inputs:
        used = _depthwise_macs(target)
        few = f"a depthwise convolution uses {used} multiplier{'s' * (used > 1)} of {target.macs} in each pipeline"
        taps = _product_of(call, call.traits.cost.taps)
        share = taps / (_groups_of(taps, used) * target.macs)
        return [*found, Loss(share, few), _unfilled(cost.outputs, target.pipelines, "channels", "pipelines")]
    return [
        *found,
        _unfilled(cost.inputs, target.macs, _inputs(call), "multipliers"),
        _unfilled(cost.outputs, target.pipelines, cost.parallel, "pipelines"),
    ]


def _inputs(call: KernelCall) -> str:
    """Return the object that a pipeline's multipliers share out: channels, or those of several columns (merge_columns)."""
    view = call.views[call.traits.operands[0].name]
    channels = view.pitches[2] // view.element_bytes
    if not 0 < channels < view.extents[3]:
        return "input channels"
    return f"inputs ({view.extents[3] // channels} columns of {channels} channels)"


def _unfilled(count: int, lanes: int, what: str, of: str) -> Loss:
    share = count / (-(-count // lanes) * lanes)
    name = what if count != 1 else what.removesuffix("s")
    return Loss(share, f"{count} {name} fill{'s' if count == 1 else ''} {share:.0%} of the {of}")
