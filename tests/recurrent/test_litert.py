# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent operators of LiteRT files: the bytes of LiteRT's reference kernels, and a reason for each form that has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openneutron import litert, ops
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from tests.support import oracle
from tests.support.recurrent_files import Svdf, lstm_file, random_lstm, random_svdf, svdf_file


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
    assert oracle.kernels_of(compiled) == ["unidirectional_sequence_lstm_s8"]


@pytest.mark.parametrize("made", [random_lstm, random_svdf])
def test_states_last_over_fifty_frames(made: Callable[[int], bytes]) -> None:
    for seed in range(8):
        content = made(seed)
        graph = litert.read(content).graph
        compiled = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
        assert len(oracle.kernels_of(compiled)) == 1
        assert compiled.report.state_bytes > 0
        simulator = Simulator(compiled.program)
        interpreter = oracle.interpreter_of(content)
        for frame in range(50):
            (x,) = oracle.random_inputs(graph, frame)
            (want,) = oracle.results_of(interpreter, [x])
            np.testing.assert_array_equal(_run(simulator, x), want.reshape(-1), f"file {seed}, frame {frame}")
        simulator.reset()
        (x,) = oracle.random_inputs(graph, 0)
        np.testing.assert_array_equal(_run(simulator, x), oracle.reference_outputs(content, [x])[0].reshape(-1))


def _run(simulator: Simulator, x: np.ndarray) -> np.ndarray:
    return np.frombuffer(simulator.run([x])[0].tobytes(), np.int8)


def test_an_svdf_with_a_state_of_int8_is_near_its_real_numbers() -> None:
    """LiteRT's interpreter reads such a state as int16; LiteRT for Microcontrollers has the kernel."""
    form = Svdf(state="int8", sequences=1)
    graph = litert.read(svdf_file(form, 3)).graph
    simulator = Simulator(compile_graph(graph, oracle.TARGET, CompileOptions(check=True)).program)
    features, time, bias, x, y = (graph[name] for name in ("features", "time", "bias", "x", "y"))
    assert x.quant is not None and y.quant is not None and features.data is not None and time.data is not None
    factor = x.quant.scale * graph["features"].quant.scale / graph["state"].quant.scale
    result_factor = graph["state"].quant.scale * graph["time"].quant.scale / y.quant.scale
    kept = np.zeros(time.shape)
    for frame in range(20):
        (given,) = oracle.random_inputs(graph, frame)
        newest = features.data.astype(int) @ (given[0].astype(int) - x.quant.zero_point) * factor
        kept = np.concatenate([kept[:, 1:], np.clip(np.round(newest), -128, 127)[:, None]], axis=1)
        sums = (kept * time.data).sum(axis=1).reshape(-1, form.rank).sum(axis=1) + bias.data
        want = np.clip(sums * result_factor + y.quant.zero_point, -128, 127)
        # Two halves among the kept results may be rounded the other way.
        assert np.abs(_run(simulator, given) - want).max() < 2 * 127 * result_factor + 1


BAD = (
    ({"cell_bits": 8}, "its cell state has scale 0.00390625; it must be a power of two from 2^-15 to 2^-9"),
    ({"outputs": 3, "peephole": True}, "it has 6 units, 3 outputs and peepholes; the two must be equal"),
)


@pytest.mark.parametrize(("form", "reason"), BAD)
def test_a_form_that_litert_has_no_meaning_for_has_a_reason(form: dict[str, Any], reason: str) -> None:
    graph = litert.read(lstm_file(0, **form)).graph
    assert ops.reject(graph, graph.nodes[0]) == reason
