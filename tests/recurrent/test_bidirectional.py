# SPDX-License-Identifier: BSD-3-Clause
"""LSTMs in both directions: as TensorFlow's converter writes Keras' Bidirectional(LSTM), and as LiteRT's one operator for it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openneutron import litert, ops
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from openneutron.ir import Graph
from openneutron.litert.write import expanded
from tests.support import micro, oracle
from tests.support.recurrent_files import BidirectionalFile, Lstm

FRAMES = 5

Run = Callable[[np.ndarray], np.ndarray]


def _compiled(graph: Graph) -> Compiled:
    assert [ops.reject(graph, node) for node in graph.nodes] == [None] * len(graph.nodes)
    return compile_graph(graph, oracle.TARGET, CompileOptions(check=True))


def _on_npu(compiled: Compiled) -> Run:
    simulator, (result,) = Simulator(compiled.program), compiled.outputs
    return lambda x: np.frombuffer(simulator.run([x])[0].tobytes(), result.dtype.numpy).reshape(result.shape)


def _reference(content: bytes, activations: str) -> Run:
    if activations == "int16":
        return micro.MicroInterpreter(content).run
    interpreter = oracle.interpreter_of(content)
    return lambda x: oracle.results_of(interpreter, [x])[0]


def _assert_equal(graph: Graph, got: Run, want: Run) -> None:
    for frame in range(FRAMES):
        (x,) = oracle.random_inputs(graph, frame)
        np.testing.assert_array_equal(got(x), want(x), f"frame {frame}")


WIDE = pytest.param("int16", marks=pytest.mark.int16)


@pytest.mark.parametrize("activations", ["int8", WIDE])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("whole_sequences", [True, False])
def test_what_tensorflow_s_converter_writes_compiles_whole(
    activations: str, time_major: bool, whole_sequences: bool
) -> None:
    form = Lstm(batches=2, steps=6, inputs=7, cells=9, time_major=time_major, activations=activations)
    content = BidirectionalFile(form, 1).bytes(whole_sequences=whole_sequences)
    graph = litert.read(content).graph
    compiled = _compiled(graph)
    kernels = Counter(oracle.kernels_of(compiled))
    assert kernels[f"unidirectional_sequence_lstm_{'s8' if activations == 'int8' else 's16'}"] == 2
    assert kernels.total() <= 7
    _assert_equal(graph, _on_npu(compiled), _reference(content, activations))


@pytest.mark.parametrize("activations", ["int8", WIDE])
@pytest.mark.parametrize("time_major", [False, True])
def test_one_operator_is_the_same_as_two_layers(activations: str, time_major: bool) -> None:
    file = Lstm(batches=2, steps=6, inputs=7, cells=9, time_major=time_major, activations=activations)
    whole = litert.read(BidirectionalFile(file, 2).bytes(as_one=True)).graph
    layers = litert.read(BidirectionalFile(file, 2).bytes()).graph
    compiled = _compiled(whole)
    assert compiled.report.state_bytes == _compiled(layers).report.state_bytes
    _assert_equal(whole, _on_npu(compiled), _on_npu(_compiled(layers)))


def test_coupled_gates_and_peepholes_of_int8_go_in_both_directions() -> None:
    form = Lstm(steps=6, cells=9, cifg=True, peephole=True)
    whole = litert.read(BidirectionalFile(form, 3).bytes(as_one=True)).graph
    layers = litert.read(BidirectionalFile(form, 3).bytes()).graph
    _assert_equal(whole, _on_npu(_compiled(whole)), _on_npu(_compiled(layers)))


def test_a_backward_layer_is_written_between_two_reversals() -> None:
    """A node that goes backwards is a form of this compiler: a file has REVERSE_V2 around the layer."""
    graph = litert.read(BidirectionalFile(Lstm(steps=6), 4).bytes(as_one=True)).graph
    parts = ops.BY_NAME["bidirectional_sequence_lstm"].composition(graph, graph.nodes[0]).within(graph)
    written = expanded(parts)
    assert [node.op for node in written.nodes] == [
        "unidirectional_sequence_lstm",
        "reverse_v2",
        "unidirectional_sequence_lstm",
        "reverse_v2",
        "concatenation",
    ]
    (x,) = oracle.random_inputs(graph, 0)
    want = oracle.reference_outputs(litert.write(parts), [x])
    np.testing.assert_array_equal(_on_npu(_compiled(graph))(x), want[0])


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"merge_outputs": False}, "its directions have outputs of their own. Merge the outputs, and slice the result"),
    ({"activation": "RELU6"}, "activation is RELU6; what there is: TANH"),
)


@pytest.mark.parametrize(("attributes", "reason"), REFUSED)
def test_other_forms_of_the_operator_have_a_reason(attributes: dict[str, Any], reason: str) -> None:
    graph = litert.read(BidirectionalFile(Lstm(), 0).bytes(as_one=True)).graph
    (node,) = graph.nodes
    assert ops.reject(graph, dataclasses.replace(node, attrs={**node.attrs, **attributes})) == reason


def test_a_projection_has_a_reason() -> None:
    graph = litert.read(BidirectionalFile(Lstm(outputs=6), 0).bytes(as_one=True)).graph
    assert ops.reject(graph, graph.nodes[0]) == (
        "it has a projection; no file states the quantization in front of it. Use two UNIDIRECTIONAL_SEQUENCE_LSTM"
    )


def test_a_hidden_state_of_another_scale_has_a_reason() -> None:
    file = BidirectionalFile(Lstm(), 0)
    file.bytes(as_one=True)
    file.set_scale("backward/hidden", 0.5, 0)
    graph = litert.read(file.finish(["x"], ["y"])).graph
    assert ops.reject(graph, graph.nodes[0]) == (
        "its backward hidden state 'backward/hidden' and its output are quantized in different ways"
    )


def test_a_fault_of_one_direction_has_the_reason_of_its_layer() -> None:
    graph = litert.read(BidirectionalFile(Lstm(cell_bits=8), 0).bytes(as_one=True)).graph
    want = "its cell state has scale 0.00390625; it must be a power of two from 2^-15 to 2^-9"
    assert ops.reject(graph, graph.nodes[0]) == want
