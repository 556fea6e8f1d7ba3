# SPDX-License-Identifier: BSD-3-Clause
"""Modelled costs of kernel calls: no less than arithmetic and bytes take, and no less for a larger layer; the parts of an estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron import targets
from openneutron.compiler import Report, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.cost.estimate import TERMS, Term, calibration
from openneutron.compiler.driver import prepared
from openneutron.compiler.select.calls import KernelCall
from openneutron.errors import InvalidModelError
from openneutron.ir import Graph
from openneutron.isa.kernels.row import CostClass, SameElement, SameRow
from openneutron.isa.rows import KERNELS
from openneutron.options import CompileOptions
from openneutron.targets import Target
from scripts.published_networks import Chain
from tests.support import attention_graphs, excitation_graphs, joined_graphs, random_graphs, random_wide, token_blocks

CHIPS = targets.names()
IN_PLACE = [name for name in CHIPS if not targets.get(name).moves_tiles]
EVERY_CHIP = pytest.mark.parametrize("name", CHIPS)


def _graphs() -> Iterator[Graph]:
    for op in random_graphs.SAMPLERS:
        for seed in range(3):
            yield random_graphs.single(op, seed)
    for seed in range(12):
        yield attention_graphs.attention(seed)
        yield random_wide.several(seed)
    yield from token_blocks.chained().values()
    for op in ("gelu", "add", "mul"):
        yield joined_graphs.graph_of(op)
    for seed in range(4):
        yield excitation_graphs.squeeze_excite(seed)


@cache
def _calls() -> tuple[KernelCall, ...]:
    """Return the calls of random graphs, joined with others or not."""
    found = []
    for graph in _graphs():
        for _, calls in prepared(graph).tasks.selected:
            found += calls
    return tuple(found)


def _exponentials(call: KernelCall) -> int:
    """Return the functions of 32 bits that a call computes: of each value of a softmax, and of each probability of attention."""
    batches, rows, cols, channels = call.views["output"].extents
    if call.traits.cost.kind is CostClass.EXPONENTIALS:
        return batches * rows * cols * channels
    if call.traits.cost.kind is CostClass.ATTENTION and not call.params["divides"]:
        return batches * rows * cols * call.views["key"].extents[1]
    return 0


def _moved_bytes(call: KernelCall) -> int:
    """Return the bytes of the output, and of operands of which each element is read."""
    read = [
        call.views[operand.name].distinct_bytes
        for operand in call.traits.operands
        if isinstance(operand.access, SameElement | SameRow)
    ]
    return call.views["output"].size_bytes + sum(read)


def test_the_calls_are_of_most_kernels() -> None:
    """The graphs have no recurrent layers of PyTorch and no copies between memories, and they are no language models."""
    seen, known = {call.kernel for call in _calls()}, {row.name for row in KERNELS if not row.name.endswith("_f32")}
    assert len(seen) > 0.75 * len(known), sorted(known - seen)


@EVERY_CHIP
def test_no_call_costs_less_than_its_arithmetic_and_its_bytes(name: str) -> None:
    target = targets.get(name)
    for call in _calls():
        cycles = call_cost(call, target).compute_cycles
        constants = sum(call.packed_bytes().values()) / target.constants_memory.bandwidth.value
        assert cycles >= call_cost(call, target).macs / target.macs_per_cycle, call
        assert cycles >= _moved_bytes(call) / target.arena_memory.bandwidth.value, call
        assert cycles >= constants, call
        spent = _exponentials(call) // target.all_pipelines * target.costs.softmax_cycles.value
        assert cycles >= spent, call


@EVERY_CHIP
def test_parts_cost_no_less_than_the_whole(name: str) -> None:
    """Rows in two parts: what searches save by cutting is memory."""
    target = targets.get(name)
    for call in _calls():
        rows = call.views["output"].extents[1]
        if rows < 2 or call.traits.cost.kind is CostClass.UNKNOWN:
            continue
        whole = call_cost(call, target).compute_cycles
        parts = (
            call_cost(call, target, rows // 2).compute_cycles + call_cost(call, target, rows - rows // 2).compute_cycles
        )
        assert parts >= whole, call


KINDS = ("conv", "depthwise", "fully_connected")
LAYERS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from((1, 2, 3, 5)),
    st.integers(1, 12),
    st.sampled_from((1, 2)),
)


def _layer(kind: str, inputs: int, filters: int, kernel: int, extent: int, stride: int) -> Graph:
    if kind == "fully_connected":
        return Chain("layer", (1, inputs)).fully_connected(filters).graph()
    chain = Chain("layer", (1, stride * extent, stride * extent, inputs))
    return (chain.conv(filters, kernel, stride) if kind == "conv" else chain.depthwise(stride)).graph()


def _cycles(target: Target, graph: Graph) -> int:
    """Return the cycles of the first selection: a call for each layer, with whole tensors."""
    (_, calls), *_ = prepared(graph).tasks.selected
    return sum(call_cost(call, target).cycles for call in calls)


@settings(max_examples=60, deadline=None)
@given(LAYERS, st.integers(1, 5), st.sampled_from(CHIPS))
def test_a_layer_with_more_never_costs_less(layer: tuple[str, int, int, int, int, int], more: int, name: str) -> None:
    """More filters, or more rows and columns. More inputs may cost less: a kernel whose columns can be stated as channels has few."""
    kind, inputs, filters, kernel, extent, stride = layer
    target = targets.get(name)
    cost = _cycles(target, _layer(kind, inputs, filters, kernel, extent, stride))
    if kind != "depthwise":
        assert _cycles(target, _layer(kind, inputs, filters + more, kernel, extent, stride)) >= cost
    if kind != "fully_connected":
        assert _cycles(target, _layer(kind, inputs, filters, kernel, extent + more, stride)) >= cost
    if kind != "conv" or inputs > target.macs:
        assert _cycles(target, _layer(kind, inputs + more, filters, kernel, extent, stride)) >= cost


def _check_parts(report: Report, target: Target) -> None:
    """Kernels, and copies that they wait for, are the cycles of a report, and those of its terms. The range is around the estimate."""
    by_name = {row.name: row for row in KERNELS}
    kernels = sum(item.cycles for item in report.operators if not by_name[item.kernel].is_transfer)
    assert kernels + report.copy_cycles == report.cycles
    spent = dict(zip(TERMS, report.work, strict=True))
    assert math.isclose(sum(spent.values()) - spent[Term.DRAIN], report.cycles, abs_tol=1e-6)
    estimate = report.estimate(target)
    low, high = estimate.expected
    assert low < estimate.milliseconds < high
    assert math.isclose(low * high, estimate.milliseconds**2)
    known = calibration(target)
    least = math.exp(2 * known.width * known.scatter)
    assert high / low >= least and (target.name in known.chips or high / low > least)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 400), st.sampled_from(IN_PLACE), st.booleans())
def test_the_parts_of_an_estimate_add_up(seed: int, name: str, prefetch: bool) -> None:
    options = CompileOptions(target=name, prefetch_constants=prefetch)
    try:
        report = compile_graph(random_graphs.several(seed, most=6), targets.get(name), options).report
    except InvalidModelError:
        return
    _check_parts(report, targets.get(name))


@pytest.mark.parametrize("name", sorted(set(CHIPS) - set(IN_PLACE)))
def test_the_parts_of_an_estimate_in_tiles_add_up(name: str) -> None:
    target = targets.get(name).with_sram(128)
    graph = Chain("tiles", (1, 96, 96, 8)).conv(16, 3, 2).depthwise(1).conv(24, 1).mean().graph()
    report = compile_graph(graph, target, CompileOptions(target=name)).report
    assert report.copy_cycles > 0
    _check_parts(report, target)


def test_a_slower_port_never_makes_a_call_cheaper() -> None:
    target = targets.get("imx95")
    arena = target.arena_memory
    slower = replace(
        target,
        memories=tuple(
            replace(memory, bandwidth=replace(memory.bandwidth, value=8)) if memory is arena else memory
            for memory in target.memories
        ),
    )
    assert slower.step_cycles == 16 and target.step_cycles < 2
    for call in _calls():
        assert call_cost(call, slower).compute_cycles >= call_cost(call, target).compute_cycles, call
