# SPDX-License-Identifier: BSD-3-Clause
"""Operators on types that a chip lacks stay on the CPU, with the reason."""

from __future__ import annotations

from dataclasses import replace

from openneutron import targets
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.graph.data_types import type_reason
from openneutron.compiler.select.calls import dense_pitches
from openneutron.compiler.select.select import select_calls
from openneutron.ir import DType
from scripts.published_networks import Chain


def test_int16_is_refused_for_a_chip_with_int8_alone() -> None:
    graph = Chain("net", (1, 8, 8, 8)).conv(8, 3).graph()
    (node,) = graph.nodes
    wide = replace(graph, tensors={**graph.tensors, "input": replace(graph["input"], dtype=DType.INT16)})
    assert type_reason(wide, node, targets.get("mcxn94x")) == (
        "its tensor 'input' is int16; mcxn94x computes on int8 activations"
    )
    assert type_reason(wide, node, targets.get("imxrt700")) is None
    assert type_reason(wide, node, None) is None
    assert type_reason(graph, node, targets.get("mcxn94x")) is None


def test_an_int16_activation_takes_twice_the_cycles_of_its_products() -> None:
    target = targets.get("imxrt700")
    for chain in (Chain("conv", (1, 8, 8, 8)).conv(8, 3), Chain("depthwise", (1, 8, 8, 8)).depthwise(1)):
        _, (call,) = select_calls(chain.graph())
        view = call.views["input"]
        wide = replace(view, element_bytes=2, pitches=dense_pitches(view.extents, 2))
        one, two = (call_cost(each, target) for each in (call, replace(call, views={**call.views, "input": wide})))
        assert two.compute_cycles - two.stall_cycles == 2 * (one.compute_cycles - one.stall_cycles)
        assert two.macs == one.macs
