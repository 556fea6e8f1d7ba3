# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent operators that LiteRT for Microcontrollers alone computes: its bytes, over frames that share a state."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from openneutron import litert, ops
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from tests.support import micro, oracle
from tests.support.recurrent_files import lstm_file, random_svdf, random_wide_lstm

micro.runtime()

FRAMES = 50


def _same_frames(content: bytes, frames: int, message: str) -> int:
    """Compare the results of frames on the NPU with LiteRT for Microcontrollers'; return how many different values they have."""
    graph = litert.read(content).graph
    assert ops.reject(graph, graph.nodes[0]) is None
    compiled = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
    assert len(oracle.kernels_of(compiled)) == 1
    assert compiled.report.state_bytes > 0
    simulator, interpreter = Simulator(compiled.program), micro.MicroInterpreter(content)
    (result,) = compiled.outputs
    found: set[int] = set()
    for frame in range(frames):
        (x,) = oracle.random_inputs(graph, frame)
        got = np.frombuffer(simulator.run([x])[0].tobytes(), result.dtype.numpy)
        np.testing.assert_array_equal(got, interpreter.run(x).reshape(-1), f"{message}, frame {frame}")
        found.update(got.tolist())
    return len(found)


@pytest.mark.int16
@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_lstms_of_int16_have_their_bytes(first: int) -> None:
    values = [_same_frames(random_wide_lstm(seed), 3, f"file {seed}") for seed in range(first, first + 15)]
    assert np.median(values) > 50


@pytest.mark.parametrize(
    "made", [pytest.param(random_wide_lstm, marks=pytest.mark.int16), random_svdf, partial(random_svdf, state="int8")]
)
def test_states_last_over_fifty_frames(made: Callable[[int], bytes]) -> None:
    for seed in range(8):
        _same_frames(made(seed), FRAMES, f"file {seed}")


LACKING: tuple[tuple[dict[str, Any], str], ...] = (
    ({"cifg": True}, "coupled gates"),
    ({"peephole": True}, "peepholes"),
    ({"layer_norm": True}, "normalized gates"),
    ({"outputs": 3}, "a projection"),
    ({"cifg": True, "outputs": 4}, "coupled gates and a projection"),
)


@pytest.mark.parametrize(("form", "what"), LACKING)
def test_a_form_of_int16_without_a_reference_has_a_reason(form: dict[str, Any], what: str) -> None:
    content = lstm_file(0, activations="int16", **form)
    graph = litert.read(content).graph
    assert ops.reject(graph, graph.nodes[0]) == (
        f"it has {what}; LiteRT for Microcontrollers, whose int16 LSTM the NPU computes, has none of them. "
        "Quantize the layer with int8 activations"
    )
    with pytest.raises(RuntimeError, match=re.escape("TFLM failed to allocate tensors")):
        micro.MicroInterpreter(content)
