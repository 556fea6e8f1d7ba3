# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent operators of LiteRT files: the bytes of LiteRT's reference kernels, and a reason for each form that has none."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import litert, ops
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.simulator import Simulator
from tests.support import oracle
from tests.support.recurrent_files import lstm_file, random_lstm


def _same_bytes(content: bytes, seed: int) -> Compiled:
    """Compare the results of a file's graph, and of the file that this graph is written to, with LiteRT's."""
    graph = litert.read(content).graph
    assert ops.reject(graph, graph.nodes[0]) is None
    compiled = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(content, inputs)
    for got in (oracle.simulated_outputs(compiled, inputs), oracle.reference_outputs(graph, inputs)):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
    return compiled


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_lstms_have_litert_s_bytes(first: int) -> None:
    for seed in range(first, first + 10):
        _same_bytes(random_lstm(seed), seed)


def test_a_sequence_is_one_kernel_call() -> None:
    compiled = _same_bytes(lstm_file(0, steps=49, inputs=40, cells=64), 0)
    assert [operator.kernel for operator in compiled.report.operators] == ["unidirectional_sequence_lstm_s8"]


def test_states_last_over_fifty_frames() -> None:
    for seed in range(8):
        content = random_lstm(seed)
        graph = litert.read(content).graph
        compiled = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
        assert compiled.report.state_bytes > 0
        simulator = Simulator(compiled.program)
        interpreter = oracle.interpreter_of(content)
        for frame in range(50):
            (x,) = oracle.random_inputs(graph, frame)
            (want,) = oracle.results_of(interpreter, [x])
            got = np.frombuffer(simulator.run([x])[0].tobytes(), np.int8).reshape(want.shape)
            np.testing.assert_array_equal(got, want, f"file {seed}, frame {frame}")
        simulator.reset()
        (x,) = oracle.random_inputs(graph, 0)
        got = np.frombuffer(simulator.run([x])[0].tobytes(), np.int8)
        np.testing.assert_array_equal(got, oracle.reference_outputs(content, [x])[0].reshape(-1))
