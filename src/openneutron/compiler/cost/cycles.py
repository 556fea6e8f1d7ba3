# SPDX-License-Identifier: BSD-3-Clause
"""Model the cycles of kernel calls and copies.

Compute cycles are derived from the shapes and from the numbers of pipelines and multipliers. The cycles of a dispatch, of the fill of
the pipelines and of an exponential, and the rates of memories, are constants of the target. docs/targets.md states how well the
model fits published latencies.

A CPU without an NPU executes instructions. ``instructions.json`` is made by ``python -m bench fit_cpu``, which counts those of many
calls in QEMU and fits five constants for each kernel. A kernel of which no call was counted has the constants of its cost class, or
else those of all calls.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

from openneutron import targets
from openneutron.compiler.cost.language import LanguageCall
from openneutron.compiler.select.calls import KernelCall
from openneutron.isa.kernels.row import Audited, CostClass, Everything, Mapped, Row, Window, Work
from openneutron.isa.rows import LANES
from openneutron.targets import Target
from openneutron.targets.target import INT16

FILE = Path(__file__).parent / "instructions.json"


class Instructions(NamedTuple):
    """The instructions that a kernel executes for each unit of its work, in thousandths. The instructions of the
    kernel call itself are not included.

    The fields are the units. ``line``: an output row of one batch. ``pixel``: an output pixel with all its channels.
    ``output``: an element of the output. ``step``: a step of the kernel's inner loop, such as a multiplication.
    ``gathered``: an input value of an output pixel, which all channels of the pixel share.

    A kernel with jobs leaves products to the NPU's driver (a job is such a product). A recurrent kernel with jobs has
    the constants of the kernel without jobs, except ``gathered``. There it counts the input products that jobs
    compute, and its constant is negative, because the CPU saves them. In other kernels with jobs, ``step`` and
    ``gathered`` count other things (``work_on_cpu``).
    """

    line: int
    pixel: int
    output: int
    step: int
    gathered: int


@cache
def table(instruction_set: str) -> Mapping[str, Instructions]:
    """Return the instructions for each unit of work on cores with an instruction set, by the name of a kernel or of a
    cost class."""
    return {
        name: Instructions(*(round(1000 * value) for value in each))
        for name, each in json.loads(FILE.read_text())[instruction_set].items()
    }


def name_of(call: KernelCall) -> str:
    """Return the key of a call in ``table``: the name of its kernel, followed by ``:1`` if the call has one output
    pixel, such as a fully connected layer. Kernels have other inner loops for one pixel."""
    batches, rows, cols, _ = call.views["output"].extents
    return f"{call.kernel}:1" if batches * rows * cols == 1 else call.kernel


def instructions_of(call: KernelCall, instruction_set: str) -> Instructions:
    """Return the instructions for each unit of a call's work: those of its kernel, or else of its cost class, or else
    of all calls."""
    known = table(instruction_set)
    return (
        known.get(name_of(call))
        or known.get(call.kernel)
        or known.get(call.traits.cost.kind.name)
        or known[CostClass.UNKNOWN.name]
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """The modelled cost of a kernel call.

    ``issue_cycles`` are the cycles of the dispatch, and ``compute_cycles`` those after it. ``stall_cycles`` is the
    part of ``compute_cycles`` in which the multipliers wait for operands. ``macs`` are the multiply-accumulates.
    ``parallel`` names the values that the pipelines compute in parallel, such as "output channels". It is "bytes" for
    a call that only moves bytes.

    The last two fields are for a call that multiplies. ``outputs`` is the number of values that are divided among the
    pipelines. ``inputs`` is the number of products that are divided among the multipliers of one pipeline; it is 0
    for a depthwise convolution.
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
        """Return the cycles of the dispatch and of the computation together."""
        return self.compute_cycles + self.issue_cycles


CostRule = Callable[[KernelCall, Work, Target, int], Cost]
"""A function of a cost class. It returns the cost without the dispatch, given the call, its work, the target, and the
number of output rows."""

CHANNELS, COLUMNS, VALUES = "output channels", "output columns", "values"


def groups_of(count: int, lanes: int) -> int:
    return -(-count // lanes)


def _groups_of_columns(rows: int, cols: int, target: Target) -> int:
    """Return the number of steps in which the pipelines compute ``rows`` rows of ``cols`` columns, if each pipeline
    computes one column at a time.

    If there is only one column, the pipelines share the rows instead.
    """
    return groups_of(rows, target.all_pipelines) if cols == 1 else rows * groups_of(cols, target.all_pipelines)


def product_of(call: KernelCall, names: Sequence[str]) -> int:
    return math.prod(call.params[name] for name in names)


def passes(call: KernelCall, target: Target) -> int:
    """Return the cycles of one product: 1, multiplied by the target's ``int16_passes`` once for each operand of 16
    bits."""
    wide = sum(call.views[operand.name].element_bytes > 1 for operand in call.traits.operands)
    return int(math.ceil(target.npu.int16_passes.value) ** wide)


def _dot_cycles(call: KernelCall, target: Target, taps: int, inputs: int) -> tuple[int, int]:
    """Return the cycles of one dot product over ``taps`` positions of ``inputs`` values each, and the part of these
    cycles in which the multipliers wait.

    At each tap the pipeline starts at another address and must fill. A step takes ``Target.step_cycles``, more than one
    where the memory port can't deliver the operands faster. Both results are rounded for each dot product, so that the
    cycles of the rows add up to the cycles of the whole output.
    """
    steps = taps * groups_of(inputs, target.macs) * passes(call, target)
    waiting = int(taps * target.costs.fill_cycles.value + 0.5) + int(steps * (target.step_cycles - 1) + 0.5)
    return steps + waiting, waiting


def _products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, every_row, cols, channels = call.views["output"].extents
    inputs, outputs = call.params[work.inputs], call.params[work.outputs]
    one_dot, fill = _dot_cycles(call, target, product_of(call, work.taps), inputs)
    dots = batches * one_dot
    by_channels = cols * (channels // outputs) * groups_of(outputs, target.all_pipelines)

    def on_pipelines(rows: int) -> tuple[int, bool]:
        """Return the cycles of ``rows`` rows, and whether the pipelines compute output channels in parallel (otherwise
        columns). The assignment with fewer cycles is taken."""
        by_columns = channels * _groups_of_columns(rows, cols, target)
        return dots * min(rows * by_channels, by_columns), rows * by_channels <= by_columns

    cycles, is_by_channels = on_pipelines(rows)
    if cols == 1:
        # Pipelines share rows here. A stripe costs at least its share of the whole output, even if its rows fill the pipelines better.
        cycles = max(cycles, -(-on_pipelines(every_row)[0] * rows // every_row))
    macs = batches * rows * cols * channels * product_of(call, work.taps) * inputs
    stall = cycles * fill // one_dot
    if is_by_channels:
        return Cost(cycles, macs, CHANNELS, inputs, outputs, stall_cycles=stall)
    # In an output of one column, the pipelines share the rows instead of columns.
    return Cost(cycles, macs, COLUMNS, inputs, every_row if cols == 1 else cols, stall_cycles=stall)


def _channel_products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # All pipelines share one operand vector, so a depthwise convolution can use only few multipliers of a pipeline.
    batches, _, cols, channels = call.views["output"].extents
    points, taps = batches * rows * cols, product_of(call, work.taps)
    steps = groups_of(taps, depthwise_macs(target))
    # Each pipeline reads a byte of its own for each tap.
    reading = int(taps * target.all_pipelines / target.arena_memory.bandwidth.value + 0.5)
    dots = points * groups_of(channels, target.all_pipelines) * passes(call, target)
    stall = dots * max(0, reading - steps)
    return Cost(dots * steps + stall, points * taps * channels, CHANNELS, outputs=channels, stall_cycles=stall)


def depthwise_macs(target: Target) -> int:
    """Return the number of multipliers of one pipeline that work in a depthwise convolution."""
    return min(int(target.costs.depthwise_macs.value), target.macs)


def _matrix_products(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, _, channels = call.views["output"].extents
    depth = call.params[work.inputs]
    one_dot, fill = _dot_cycles(call, target, 1, depth)
    dots = batches * rows * groups_of(channels, target.all_pipelines)
    macs = batches * rows * depth * channels
    return Cost(dots * one_dot, macs, CHANNELS, depth, channels, stall_cycles=dots * fill)


def _per_output(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, cols, channels = call.views["output"].extents
    steps = work.steps * product_of(call, work.taps)
    return Cost(steps * batches * rows * cols * groups_of(channels, target.all_pipelines), parallel=CHANNELS)


def _per_input(call: KernelCall, _work: Work, target: Target, _rows: int) -> Cost:
    batches, rows, cols, channels = call.views[call.traits.operands[0].name].extents
    return Cost(batches * rows * cols * groups_of(channels, target.all_pipelines), parallel=CHANNELS)


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


def _copied(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    # A copy engine that works in the background reads all copies from a list, as it does for the lines of a transfer (assumed). Other
    # engines add the latency to each copy.
    batches, _, cols, channels = call.views["output"].extents
    memory, size = target.constants_home, channels * call.views["output"].element_bytes
    count, latency = batches * rows * cols, memory.latency.value
    if target.reads_constants_in_place:
        return Cost(count * math.ceil(latency + size / memory.bandwidth.value))
    one = size / target.copy_engine.rate.value
    if target.copies_in_background:
        return Cost(math.ceil(latency + count * one))
    return Cost(count * math.ceil(latency + one))


def _transferred(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    return Cost(int(target.external_memory.latency.value) + fetch_cycles(_output_bytes(call, rows), target))


def _exponentials(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    # Values depend on each other only in the sum of a line. So the pipelines compute different values in parallel (assumed).
    values = groups_of(_output_elements(call, rows), target.all_pipelines)
    return Cost(int(values * target.costs.softmax_cycles.value), parallel=VALUES)


def _summed(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    batches, _, cols, channels = call.views[call.traits.operands[0].name].extents
    lines = batches * rows * cols * product_of(call, work.taps)
    return Cost(work.steps * lines * groups_of(channels, target.all_pipelines), parallel=CHANNELS)


def _normalized(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # The first pass multiplies once for each square, the second pass twice for each result (assumed: each pipeline computes one
    # multiplication a cycle, as in _per_output). The root of a line is Newton's iteration on 32 bits (assumed: it takes as long as an
    # exponential, and each pipeline computes another line).
    batches, _, cols, channels = call.views["output"].extents
    lines = batches * rows * cols
    roots = groups_of(lines, target.all_pipelines) * int(target.costs.softmax_cycles.value)
    return Cost(work.steps * lines * groups_of(channels, target.all_pipelines) + roots, parallel=CHANNELS)


def _attention(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # The cost is the sum of the calls that attention replaces, without their dispatches: products, and a softmax or its parts. The
    # pipelines share the scores of a row for its exponentials, its largest value and its sum (assumed).
    batches, _, heads, channels = call.views["output"].extents
    keys, depth, p = call.views["key"].extents[1], call.params[work.inputs], call.params
    scores, fill = _dot_cycles(call, target, 1, depth)
    products, fill_of_products = _dot_cycles(call, target, 1, keys)
    groups, groups_of_products = groups_of(keys, target.all_pipelines), groups_of(channels, target.all_pipelines)
    dots = heads * (groups * scores + groups_of_products * products)
    moved = heads * (p["tabled"] * depth + p["masked"] * keys + p["divides"] * (2 * keys + channels))
    steps = (
        heads * groups * 2
        if p["divides"]
        else int(groups_of(heads * keys, target.all_pipelines) * target.costs.softmax_cycles.value)
    )
    stall = heads * (groups * fill + groups_of_products * fill_of_products)
    cycles = dots + steps + -(-moved // int(target.costs.elementwise_bytes.value))
    macs = heads * keys * (depth + channels)
    count = batches * rows
    return Cost(count * cycles, count * macs, CHANNELS, depth, keys, stall_cycles=count * stall)


def _recurrent(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # A step waits for the previous step, so the pipelines can share only the units of one step. The functions of a gate are polynomials
    # and Newton steps of 16 bits, which all pipelines compute (assumed: each takes as long as an exponential).
    batches, _, steps, outputs = call.views["output"].extents
    inputs, units = call.params[work.inputs], call.params[work.outputs]
    gates = 1 if call.params.get("kind") else work.steps - call.params.get("cifg", 0)
    wide = math.ceil(target.npu.int16_passes.value) if call.views["input"].element_bytes > 1 else 1
    dots = gates * wide * (groups_of(inputs, target.macs) + groups_of(outputs, target.macs))
    functions = (gates + 1) * target.costs.softmax_cycles.value
    cycles = dots * groups_of(units, target.all_pipelines) + int(functions) * groups_of(units, target.all_pipelines)
    macs = gates * units * (inputs + outputs)
    if call.params.get("projected"):
        cycles += groups_of(units, target.macs) * groups_of(outputs, target.all_pipelines)
        macs += units * outputs
    sequences = batches * rows
    return _each_weight_once(
        Cost(sequences * cycles, sequences * macs, CHANNELS, inputs + outputs, units), macs, steps, target
    )


def _filtered(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # Each filter has a memory of its own, so pipelines can't share it as an operand vector. One multiplier of a pipeline uses it (assumed).
    inputs, filters, kept = call.params[work.inputs], call.params[work.outputs], product_of(call, work.taps)
    cycles = (groups_of(inputs, target.macs) + kept) * groups_of(filters, target.all_pipelines)
    macs = filters * (inputs + kept)
    return _each_weight_once(Cost(cycles, macs, CHANNELS, inputs + kept, filters), macs, rows, target)


def _each_weight_once(step: Cost, weights: int, steps: int, target: Target) -> Cost:
    """Return the cost of ``steps`` equal steps. One step computes for the cost ``step``, and reads all ``weights``
    bytes of weights from memory once.

    A step takes at least as long as this reading. If the reading takes longer than ``step.compute_cycles``, the
    difference is added as stall cycles.
    """
    waiting = max(0, math.ceil(weights / target.constants_memory.bandwidth.value) - step.compute_cycles)
    compute = step.compute_cycles + waiting
    return replace(step, compute_cycles=steps * compute, macs=steps * step.macs, stall_cycles=steps * waiting)


def _job(call: KernelCall, work: Work, target: Target, rows: int) -> Cost:
    # The driver returns when a job is done, so that the CPU waits for it. Weights come from external memory for each job.
    assert target.jobs is not None, "only a target with jobs has the pass that makes such calls"
    p, (batches, _, cols, channels) = call.params, call.views["output"].extents
    pixels, inputs = batches * rows * cols, product_of(call, (*work.taps, work.inputs))
    group, outputs = p.get("job_group", -1), p["job_channels"]
    padded = groups_of(inputs, max(group, 16)) * max(group, 16)
    # Each batch of a product of two activations has weights of its own, and each sequence has jobs of its own.
    steps = _recurrent(call, work, target, rows).macs if "cells" in p else 0
    apart = 1 if work.taps else batches * (rows if steps else 1)
    count, parts = apart * groups_of(pixels // apart, p["job_rows"]), groups_of(padded, p["job_inputs"])
    # A group of int4 weights has a decode scale of 2 bytes and a decode bias.
    weights = padded if group < 0 else padded // 2 + 3 * padded // group
    stored = (weights + parts * 4 + 4) * outputs
    moved = count * stored + pixels * (padded + p.get("job_result_bytes", 4) * parts * outputs)
    products = pixels * padded * outputs
    jobs = target.jobs
    nanoseconds = count * parts * jobs.overhead.value * 1000 + max(
        moved / jobs.bandwidth.value, products / jobs.macs.value
    )
    cycles = math.ceil(nanoseconds * target.clock.value / 1000)
    return Cost(cycles, steps or pixels * inputs * channels, CHANNELS, inputs, channels)


def _parts(call: KernelCall, _work: Work, target: Target, rows: int) -> Cost:
    # Parts have no dispatch of their own. The multipliers are idle in the parts that do not multiply.
    # If a part's output has as many rows as the call's output, the part computes ``rows`` rows too; otherwise all of its rows.
    every_row = call.views["output"].extents[1]
    costs = [
        _without_issue(part, target, rows if part.views["output"].extents[1] == every_row else None)
        for part in call.parts
    ]
    largest = max(costs, key=lambda cost: cost.macs)
    stall = sum(cost.stall_cycles if cost.macs else cost.compute_cycles for cost in costs)
    cycles, macs = sum(cost.compute_cycles for cost in costs), sum(cost.macs for cost in costs)
    return replace(largest, compute_cycles=cycles, macs=macs, stall_cycles=stall)


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
    CostClass.COPIED: _copied,
    CostClass.TRANSFERRED: _transferred,
    CostClass.EXPONENTIALS: _exponentials,
    CostClass.ATTENTION: _attention,
    CostClass.SUMMED: _summed,
    CostClass.NORMALIZED: _normalized,
    CostClass.RECURRENT: _recurrent,
    CostClass.PARTS: _parts,
    CostClass.JOB: _job,
    CostClass.FILTERED: _filtered,
}
"""One rule for each cost class."""


def port_cycles(call: KernelCall, target: Target, rows: int) -> int:
    """Return the cycles that the memory ports need to move every byte that ``rows`` output rows read or write, once.

    This is a lower bound of the compute cycles. ``rows`` rows are charged their share of the bytes of the whole call: operands, output
    and constants. Constants have a port of their own if the NPU reads them in place.
    """
    every_row, stored = call.views["output"].extents[1], sum(call.packed_bytes().values())
    moved = sum(view.distinct_bytes * _read_share(call, name) for name, view in call.views.items())
    memory = target.arena_memory.bandwidth.value
    if target.reads_constants_in_place:
        cycles = max(moved / memory, stored / target.constants_memory.bandwidth.value)
    else:
        cycles = (moved + stored) / memory
    return math.ceil(cycles * rows / every_row)


def _read_share(call: KernelCall, name: str) -> float:
    """Return a lower bound of the share, from 0 to 1, of a buffer's bytes that the call reads or writes."""
    if name == "output":
        return 1.0
    if call.is_scratch(name) or name in call.traits.copied_by_kernel:
        return 0.0
    match call.traits.access(name):
        case Everything():
            # Kernels that move bytes may read only parts of an operand, such as the rows of a table that indices select.
            return 0.0 if call.traits.cost.kind is CostClass.MOVED else 1.0
        case Window(kernel, stride):
            strides = zip(kernel, stride, strict=True)
            return math.prod(min(1.0, call.params[taps] / call.params[step]) for taps, step in strides)
        case Mapped():
            return 0.0
    return 1.0


def call_cost(call: KernelCall, target: Target, rows: int | None = None) -> Cost:
    """Return the cost of a kernel call that computes ``rows`` rows of its output (all of them by default)."""
    of, found = call.memo.get((call_cost, rows), (None, None))
    if of is not target:
        # The controller writes the copy engine's list of transfers while kernels run, so a transfer has no dispatch (assumed).
        issue = 0 if call.is_transfer else issue_cycles(call.row, target)
        host = host_of(call.row, target)
        cost = _without_issue(call, target, rows) if host is None else _of_host(call, target, host, rows)
        if target.thread_count > 1:
            cost = _on_threads(call, cost, target, rows)
        found = replace(cost, issue_cycles=issue)
        call.memo[call_cost, rows] = target, found
    assert isinstance(found, Cost)
    return found


LEAST_SHARED_WORK = 65536
"""The driver's NEUTRON_LEAST_SHARED_WORK: a call is divided among threads only if its reads of input elements are at
least this many. An element that several output elements read counts for each of them."""


def _on_threads(call: KernelCall, cost: Cost, target: Target, rows: int | None) -> Cost:
    """Return the cost of a call on a target with several threads. ``cost`` is that on one thread.

    If threads share the call, its cost is the start of the threads, the largest share of one thread, and the wait for
    the last one. A call stays on one thread if its work is less than ``LEAST_SHARED_WORK``, or if no axis can be
    divided. All threads share the memory. A stripe takes at least its part of the cycles of all rows, so that stripes
    are together no faster than a whole call. The model ignores that the driver may refuse to divide a call whose
    output is written over an operand.
    """
    every_row = call.views["output"].extents[1]
    rows = every_row if rows is None else rows
    share, units = _largest_share(call, target, rows)
    if units > share and _shared_work(call, rows) >= LEAST_SHARED_WORK:
        assert target.threads is not None, "only a target with threads has several"
        start = math.ceil(target.threads.start.value * target.clock.value)
        cycles = max(-(-cost.compute_cycles * share // units) + start, port_cycles(call, target, rows))
        cost = replace(cost, compute_cycles=cycles, stall_cycles=min(cost.stall_cycles, cycles))
    if rows < every_row:
        whole = call_cost(call, target).compute_cycles
        cost = replace(cost, compute_cycles=max(cost.compute_cycles, -(-whole * rows // every_row)))
    return cost


def _largest_share(call: KernelCall, target: Target, rows: int) -> tuple[int, int]:
    """Return the largest number of units of the output that one thread computes, and the number of all units.

    A unit is a row, a column, a batch or a block of channels, whichever axis divides most evenly, as in the driver
    (runtime/driver/parts.c). Both numbers are 1 for a call that is not divided.
    """
    batches, _, cols, channels = call.views["output"].extents
    block = math.lcm(LANES, call.params["group_channels"] if call.row.audited is Audited.GROUPS else 1)
    counts = {"batches": batches, "rows": rows, "cols": cols, "channels": groups_of(channels, block)}
    shares = [(groups_of(counts[axis], target.thread_count), counts[axis]) for axis in call.row.shared_axes if rows]
    return min(shares, key=lambda share: Fraction(*share), default=(1, 1))


def _shared_work(call: KernelCall, rows: int) -> int:
    """Return the number of reads of input elements for ``rows`` output rows, as the driver counts them. An element that
    several output elements read counts for each of them."""
    taps = math.prod(call.params[name] for name in call.row.taps if name != "input")
    if "input" in call.row.taps:
        taps *= math.prod(call.views["input"].extents[1:3])
    return taps * _output_elements(call, rows)


def host_of(row: Row, target: Target) -> Target | None:
    """Return the host core as a target if it makes the calls of this kernel in place of the NPU; None if the NPU makes
    them.

    The host core makes calls with int16 activations where the NPU computes only on int8.
    """
    return targets.host_beside(target) if row.is_wide and INT16 not in target.npu.data_types.value else None


def cpu_rows(target: Target | None) -> Callable[[Row], bool]:
    """Return a predicate for kernels: whether the host core of ``target`` makes their calls in place of the NPU.
    Without a target (None) it is always False."""
    return lambda row: target is not None and host_of(row, target) is not None


def issue_cycles(row: Row, target: Target) -> int:
    """Return the cycles before a call of the kernel begins to compute: those of its dispatch to the NPU, or, on the
    host core, of the driver's own instructions."""
    host = host_of(row, target)
    if host is None:
        return int(target.costs.issue_cycles.value)
    return _in_cycles_of(target, host, int(host.costs.issue_cycles.value))


def _in_cycles_of(target: Target, host: Target, cycles: int) -> int:
    return math.ceil(cycles * target.clock.value / host.clock.value)


def _of_host(call: KernelCall, target: Target, host: Target, rows: int | None) -> Cost:
    """Return the cost of a call that the host core makes, in cycles of the NPU's clock, without the driver's
    instructions before the call."""
    cost = _without_issue(call, host, rows)
    cycles, stall = (_in_cycles_of(target, host, each) for each in (cost.compute_cycles, cost.stall_cycles))
    return replace(cost, compute_cycles=cycles, stall_cycles=stall)


def _without_issue(call: KernelCall, target: Target, rows: int | None = None) -> Cost:
    """Return the cost of a call without its dispatch."""
    work, rows = call.traits.cost, call.views["output"].extents[1] if rows is None else rows
    cost = RULES[work.kind](call, work, target, rows)
    if target.cpu is not None and work.kind is not CostClass.PARTS:
        on_cpu = _on_cpu(call, cost, target, rows)
        more = cost.compute_cycles if work.kind is CostClass.JOB else 0
        cost = replace(on_cpu, compute_cycles=on_cpu.compute_cycles + more, stall_cycles=more)
    if not call.is_transfer:
        more = max(0, port_cycles(call, target, rows) - cost.compute_cycles)
        cost = replace(cost, compute_cycles=cost.compute_cycles + more, stall_cycles=cost.stall_cycles + more)
    if call.row_wait_cycles:
        waits = call.row_wait_cycles * rows
        cost = replace(cost, compute_cycles=cost.compute_cycles + waits, stall_cycles=cost.stall_cycles + waits)
    if work.moved and target.cpu is None:
        # The multipliers are idle during the second pass over the output.
        moved = work.moved * _moved(call, work, target, rows).compute_cycles
        cost = replace(cost, compute_cycles=cost.compute_cycles + moved, stall_cycles=cost.stall_cycles + moved)
    return cost


def work_on_cpu(call: KernelCall, target: Target, rows: int) -> Instructions:
    """Return how many units of work ``rows`` output rows are on a CPU. The units are those of ``Instructions``: rows,
    pixels, elements, steps and gathered inputs.

    The steps are the cycles that an NPU of one multiplier would take (``Cpu.as_npu``). For a call with jobs, steps
    and inputs count other work of the kernel, such as results that are added and words that are copied.
    """
    cost = RULES[call.traits.cost.kind](call, call.traits.cost, target, rows)
    batches, _, cols, channels = call.views["output"].extents
    pixels = batches * rows * cols
    if call.traits.cost.kind is CostClass.JOB:
        # The steps are the results that are added. The inputs are the words of 16 bytes that are copied; a row of the kernel takes as
        # long as some more of them, and lines matter where pixels are copied.
        p = call.params
        more = groups_of(cost.inputs, p["job_inputs"]) - 1
        if "cells" in p:
            # A recurrent layer. The steps are those of the kernel without jobs, the inputs the products that jobs take over: each takes
            # fewer instructions than a step, which has a share of a gate's functions.
            work = call.traits.cost
            gates = 1 if p.get("kind") else work.steps - p.get("cifg", 0)
            own = _recurrent(call, work, target, rows).compute_cycles
            return Instructions(
                batches * rows, pixels, pixels * channels, own, pixels * gates * p["inputs"] * p["cells"]
            )
        if not call.traits.cost.taps:
            # A product of two activations. The inputs are what is put together or summed.
            touched = batches * (rows * (p["a_copied"] + (p["b_zero_point"] != 0)) + channels * (1 + p["b_copied"]))
            return Instructions(
                batches * rows, pixels, pixels * channels, pixels * channels * more, touched * p["depth"]
            )
        words = p["kernel_h"] * (groups_of(p["kernel_w"] * p["group_inputs"], 16) + 4)
        lines, copied = batches * rows * p["copied"], pixels * words * p["copied"]
        # Results of 1 byte are copied.
        stored = pixels * channels if p["job_result_bytes"] > 1 else pixels * groups_of(channels, 16)
        return Instructions(lines, pixels, stored, pixels * channels * more, copied)
    gathered = pixels * product_of(call, call.traits.cost.taps) * cost.inputs if cost.macs else 0
    return Instructions(batches * rows, pixels, pixels * channels, cost.compute_cycles, gathered)


def _on_cpu(call: KernelCall, cost: Cost, target: Target, rows: int) -> Cost:
    """Return the cost of ``rows`` output rows on a CPU: ``cost`` with its compute cycles replaced by those of the
    estimated CPU instructions, and without stall cycles. ``cost`` is the cost on an NPU of one multiplier
    (``Cpu.as_npu``)."""
    assert target.cpu is not None
    instruction_set = target.cpu.instruction_set.value[0]
    language = LanguageCall(call.kernel, call.params, call.views["output"].extents[3])
    counted = language.instructions(rows, 0, instruction_set)
    if counted is None:
        thousandths = sum(map(operator.mul, instructions_of(call, instruction_set), work_on_cpu(call, target, rows)))
    else:  # a run of a language model with as many tokens as it has rows, at the beginning of a text
        thousandths = math.ceil(1000 * counted)
    # Whole numbers, rounded up: stripes together never take fewer cycles than the whole.
    cycles = -(-thousandths * round(1000 * target.cpu.instruction_cycles.value) // 10**6)
    return replace(cost, compute_cycles=cycles, stall_cycles=0)


def least_compute_cycles(call: KernelCall, target: Target, rows: int) -> int:
    """Return a lower bound of the compute cycles of ``rows`` output rows over all divisions into stripes.

    The bound is the lowest of three: stripes of one row, stripes with a row for each pipeline, and one stripe. Short
    and long stripes may use the pipelines in different ways, so either may be cheaper. On a target with several
    threads, the bound is the lower of two: one stripe, and the rows' share of the whole call.
    """
    if target.thread_count > 1:
        every_row = call.views["output"].extents[1]
        return min(
            call_cost(call, target).compute_cycles * rows // every_row, call_cost(call, target, rows).compute_cycles
        )
    lanes = target.all_pipelines
    one, several, whole = (call_cost(call, target, count).compute_cycles for count in (1, lanes, rows))
    return min(rows * one, rows * several // lanes, whole)


def fetch_cycles(size_bytes: int, target: Target) -> int:
    """Return the cycles of a copy of ``size_bytes`` from flash to SRAM, or between external memory and the memory of the NPU."""
    return int(size_bytes / target.copy_engine.rate.value)
