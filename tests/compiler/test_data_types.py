# SPDX-License-Identifier: BSD-3-Clause
"""Operators on types that a chip lacks stay on the CPU, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.legalize.partition import type_reason
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.select.calls import dense_pitches
from openneutron.ir import DType
from openneutron.ops.recurrent import state_operands
from scripts.published_networks import Chain
from tests.support import oracle
from tests.support.recurrent_files import BidirectionalFile, Lstm, random_lstm, random_svdf


def test_int16_is_refused_for_a_chip_with_int8_alone() -> None:
    graph = Chain("net", (1, 8, 8, 8)).conv(8, 3).graph()
    (node,) = graph.nodes
    wide = replace(graph, tensors={**graph.tensors, "input": replace(graph["input"], dtype=DType.INT16)})
    assert type_reason(wide, node, targets.get("mcxn94x"), host_calls=False) == (
        "its activations are int16; mcxn94x computes on int8 activations"
    )
    assert type_reason(wide, node, targets.get("imxrt700"), host_calls=False) is None
    assert type_reason(wide, node, None, host_calls=False) is None
    assert type_reason(graph, node, targets.get("mcxn94x"), host_calls=False) is None


@pytest.mark.parametrize("made", [random_lstm, random_svdf])
def test_a_state_of_int16_is_no_activation(made: Callable[[int], bytes]) -> None:
    """A chip with int8 alone runs LSTMs and SVDFs, whose states are of int16, with LiteRT's bytes."""
    for seed in range(4):
        content = made(seed)
        graph = litert.read(content).graph
        assert DType.INT16 in [graph[name].dtype for name in state_operands(graph.nodes[0])]
        compiled = compile_graph(graph, targets.get("mcxn94x"), CompileOptions(check=True))
        inputs = oracle.random_inputs(graph, seed)
        want = oracle.reference_outputs(content, inputs)
        for one, other in zip(oracle.simulated_outputs(compiled, inputs), want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_states_of_both_directions_are_no_activations() -> None:
    """LiteRT computes the layers of the directions, and not their one operator."""
    form = Lstm(steps=6, cells=9)
    graph = litert.read(BidirectionalFile(form, 1).bytes(as_one=True)).graph
    assert [graph[name].dtype for name in state_operands(graph.nodes[0])] == [DType.INT8, DType.INT16] * 2
    compiled = compile_graph(graph, targets.get("mcxn94x"), CompileOptions(check=True))
    inputs = oracle.random_inputs(graph, 1)
    want = oracle.reference_outputs(BidirectionalFile(form, 1).bytes(), inputs)
    np.testing.assert_array_equal(oracle.simulated_outputs(compiled, inputs)[0], want[0])


def test_an_int16_activation_takes_twice_the_cycles_of_its_products() -> None:
    target = targets.get("imxrt700")
    for chain in (Chain("conv", (1, 8, 8, 8)).conv(8, 3), Chain("depthwise", (1, 8, 8, 8)).depthwise(1)):
        _, (call,) = select_calls(chain.graph())
        view = call.views["input"]
        wide = replace(view, element_bytes=2, pitches=dense_pitches(view.extents, 2))
        one, two = (call_cost(each, target) for each in (call, replace(call, views={**call.views, "input": wide})))
        assert two.compute_cycles - two.stall_cycles == 2 * (one.compute_cycles - one.stall_cycles)
        assert two.macs == one.macs
