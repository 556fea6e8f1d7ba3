# SPDX-License-Identifier: BSD-3-Clause
"""A cascade scheduled by hand: three operators stripe by stripe through rolling buffers give the same bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openneutron.compiler import CompileOptions
from openneutron.compiler.schedule.schedule import Loop, Rows, Whole
from openneutron.device.simulator import Simulator
from openneutron.isa import decode, encode
from tests.support import oracle
from tests.support.hand_made_cascade import compiled_with, three_operators
from tests.support.programs import instruction


def test_a_cascade_through_rolling_buffers_gives_the_same_bytes() -> None:
    graph = three_operators()
    # Row i of b reads rows 2i to 2i+2 of a (SAME on an even height pads below only), so a runs one row ahead.
    steps = (Rows(0, 0, 1), Loop(8, (Rows(0, 1, 3, 2), Rows(1, 0, 1, 1), Rows(2, 0, 1, 1))))
    whole = compiled_with(graph, (Whole(0), Whole(1), Whole(2)), {})
    cascade = compiled_with(graph, steps, {"a": 3, "b": 1})
    for seed in range(3):
        inputs = oracle.random_inputs(graph, seed)
        (want,) = oracle.reference_outputs(graph, inputs)
        np.testing.assert_array_equal(oracle.simulated_outputs(whole, inputs)[0], want)
        np.testing.assert_array_equal(oracle.simulated_outputs(cascade, inputs)[0], want)
    input_and_output = 16 * 16 * 8 + 8 * 8 * 24
    assert cascade.report.arena_bytes == input_and_output + 3 * 16 * 16 + 8 * 16
    assert cascade.report.arena_bytes < whole.report.arena_bytes
    assert len(decode(cascade.program).code) == 6


def test_a_profile_has_an_event_for_each_call_that_runs() -> None:
    """Those of a loop as often as it runs, and no room beyond."""
    graph = three_operators()
    steps = (Rows(0, 0, 1), Loop(8, (Rows(0, 1, 3, 2), Rows(1, 0, 1, 1), Rows(2, 0, 1, 1))))
    rings = {"a": 3, "b": 1}
    (x,) = inputs = oracle.random_inputs(graph, 0)
    compiled = compiled_with(graph, steps, rings, CompileOptions(profile=True))
    assert decode(compiled.program).profile_size == 16 * (1 + 8 * 3)
    with Simulator(compiled.program) as simulator:
        events = simulator.profile([x])
    assert [event.operator for event in events] == [0, *(0, 1, 2) * 8]
    assert [event.start_cycles for event in events[1:]] == [event.stop_cycles for event in events[:-1]]
    assert events[-1].stop_cycles == compiled.report.cycles
    without = compiled_with(graph, steps, rings)
    assert decode(without.program).profile_size == 0
    want = oracle.simulated_outputs(without, inputs)
    np.testing.assert_array_equal(oracle.simulated_outputs(compiled, inputs)[0], want[0])


def test_patches_and_channel_groups_give_the_same_bytes() -> None:
    graph = three_operators()
    whole = compiled_with(graph, (Whole(0), Whole(1), Whole(2)), {})
    code = decode(whole.program)
    quarters = tuple(
        instruction(
            "WINDOW",
            operator=0,
            cycles=1,
            step=0,
            batch0=0,
            batch1=1,
            row0=row,
            row1=row + 9,
            col0=col,
            col1=col + 7,
            channel0=channel,
            channel1=channel + 8,
        )
        for row in (0, 9)
        for col in (0, 7, 14)
        for channel in (0, 8)
    )
    patched = encode(dataclasses.replace(code, code=(*quarters, *code.code[1:])), whole.program.weights)
    inputs = oracle.random_inputs(graph, 11)
    (want,) = oracle.reference_outputs(graph, inputs)
    with Simulator(patched) as simulator:
        np.testing.assert_array_equal(simulator.run(inputs)[0].view(np.int8).reshape(want.shape), want)


def test_fetched_constants_give_the_same_bytes() -> None:
    graph = three_operators()
    compiled = oracle.assert_bit_exact(graph, options=CompileOptions(prefetch_constants=True))
    # The first two operators' weights and requantization constants: the second's come while the first computes.
    report = compiled.report
    assert (report.fetched_bytes if oracle.TARGET.moves_tiles else report.prefetch_bytes) >= 2 * 9 * 64 + 2 * 96


@pytest.mark.without_tiles("inputs and outputs are outside of the memory of the NPU at either place")
def test_inputs_and_outputs_in_the_callers_buffers() -> None:
    graph = three_operators()
    in_arena = oracle.assert_bit_exact(graph)
    outside = oracle.assert_bit_exact(graph, options=CompileOptions(io_place="caller"))
    assert outside.report.arena_bytes == 16 * 16 * 16 + 8 * 8 * 16
    assert in_arena.report.arena_bytes == in_arena.report.bound_bytes
