# SPDX-License-Identifier: BSD-3-Clause
"""Calls have a bottleneck, and reasons for idle multipliers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.cost.estimate import losses
from openneutron.compiler.schedule.schedule import spent_on_calls
from openneutron.errors import BudgetError
from scripts.published_networks import Chain, cifarnet, mobilenet_v1
from tests.support import random_graphs
from tests.support.oracle import TARGET


def test_every_call_with_few_multipliers_at_work_says_why() -> None:
    for graph in (cifarnet(), mobilenet_v1()):
        for call in compile_graph(graph, TARGET, CompileOptions()).report.operators:
            assert bool(call.idle) == (call.macs > 0 and call.utilisation < 0.5), call


@pytest.mark.imxrt700
def test_reasons_stand_with_the_largest_loss_first() -> None:
    depthwise = next(
        call for call in compile_graph(mobilenet_v1(), TARGET).report.operators if call.kernel == "depthwise_conv_2d_s8"
    )
    (pointwise,) = compile_graph(Chain("pointwise", (1, 128, 128, 3)).conv(16, 1).graph(), TARGET).report.operators
    assert (pointwise.bottleneck, pointwise.idle) == (
        "compute",
        "3 input channels fill 38% of the multipliers; multipliers wait for their operands",
    )
    assert depthwise.bottleneck == "compute"
    assert depthwise.idle == "a depthwise convolution uses 2 multipliers of 8 in each pipeline"
    small = Chain("small", (1, 4, 4, 3)).conv(9, 3)
    (call,) = compile_graph(small.graph(), TARGET).report.operators
    assert call.bottleneck == "dispatch"
    assert call.idle == (
        "its dispatch takes longer than computing; 3 input channels fill 38% of the multipliers; "
        "multipliers wait for their operands; 9 output channels fill 56% of the pipelines"
    )


def _check_losses(compiled: Compiled) -> int:
    """Multiplies what each multiplying call says is left of the multipliers; the number of such calls."""
    spent = spent_on_calls(compiled.schedule, TARGET)
    checked = 0
    for call, (stripes, cycles), said in zip(compiled.schedule.calls, spent, compiled.report.operators, strict=True):
        if said.macs:
            cost = call_cost(call, TARGET)
            issue = stripes * cost.issue_cycles
            cost = replace(cost, issue_cycles=issue, compute_cycles=cycles - issue)
            left = math.prod(loss.share for loss in losses(call, cost, TARGET, stripes))
            assert math.isclose(left, said.utilisation), (said, left)
            assert bool(said.idle) == (said.utilisation < 0.5), said
            checked += 1
    return checked


def test_the_causes_account_for_every_idle_multiplier() -> None:
    """No loss is left out and none is made up: their product is the utilisation, whole and in stripes."""
    checked = 0
    for graph in (cifarnet(), mobilenet_v1(), *map(random_graphs.several, range(60))):
        whole = compile_graph(graph, TARGET)
        checked += _check_losses(whole)
        try:
            checked += _check_losses(
                compile_graph(graph, TARGET, CompileOptions(sram_budget=int(0.8 * whole.report.sram_bytes)))
            )
        except BudgetError:
            continue
    assert checked > 100


@pytest.mark.imxrt700
def test_stripes_and_merged_columns_are_named() -> None:
    graph = Chain("stripes", (1, 96, 96, 3)).conv(8, 3, 2).conv(8, 3).graph()
    middle, right, _ = compile_graph(graph, TARGET).report.operators
    assert middle.idle == (
        "9 inputs (3 columns of 3 channels) fill 56% of the multipliers; multipliers wait for their operands"
    )
    right_causes = "its dispatch takes longer than computing; 3 input channels fill 38% of the multipliers"
    assert right.idle == f"{right_causes}; multipliers wait for their operands"
    first, _ = compile_graph(graph, TARGET, CompileOptions(sram_budget=28 * 1024)).report.operators
    assert first.stripes > 1
    causes = "the dispatch of its stripes takes longer than computing; 3 input channels fill 38% of the multipliers"
    assert first.idle == f"{causes}; multipliers wait for their operands"


@pytest.mark.imxrt700
def test_computing_rows_twice_is_a_cause() -> None:
    (call,) = compile_graph(Chain("one", (1, 32, 32, 8)).conv(8, 3).graph(), TARGET).schedule.calls
    cost = call_cost(call, TARGET)
    twice = losses(call, replace(cost, compute_cycles=2 * cost.compute_cycles), TARGET)
    assert [(round(loss.share, 2), loss.text) for loss in twice if loss.share < 0.7] == [
        (0.5, "some of it is computed more than once"),
        (0.53, "multipliers wait for their operands"),
    ]
