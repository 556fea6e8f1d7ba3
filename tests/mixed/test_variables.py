# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT's variables that one partition alone reads and writes are states of its program, byte-equal with LiteRT over frames."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import openneutron
from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.litert.read import unpack
from openneutron.litert.write import pack
from tests.support.litert_files import BUILTIN
from tests.support.stream_files import StreamBuilder, streaming_file

FRAMES = 20


def frames(seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(-128, 128, (FRAMES, 1, 1, 4, 2)).astype(np.int8))


def reference(data: bytes, given: list[np.ndarray]) -> list[np.ndarray]:
    """Return LiteRT's outputs frame by frame, in one interpreter."""
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for frame in given:
        interpreter.set_tensor(source["index"], frame)
        interpreter.invoke()
        found.append(interpreter.get_tensor(result["index"]))
    return found


@pytest.mark.parametrize(
    "first", [np.full((1, 2, 4, 2), -3, np.int8), np.arange(16, dtype=np.int8).reshape(1, 2, 4, 2)]
)
def test_a_variable_is_a_state_of_the_program(first: np.ndarray) -> None:
    data, given = streaming_file(first), frames()
    compiled = compile_file(litert.read(data), "stream")
    assert len(compiled.parts) == 1 and not compiled.partitioning.on_cpu
    assert compiled.parts[0].report.states == ("ring",)
    made = compiled.to_bytes()
    assert [node.op for node in litert.read(made).graph.nodes] == ["CUSTOM NeutronGraph"]
    simulator = FileSimulator(made)
    want = reference(data, given)
    for _ in range(2):
        for frame, expected in zip(given, want, strict=True):
            np.testing.assert_array_equal(simulator.run([frame])[0], expected)
        simulator.reset()


def test_a_compiled_model_keeps_its_state_until_a_reset(tmp_path) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(streaming_file(np.full((1, 2, 4, 2), -3, np.int8)))
    program, given = openneutron.compile(str(path)), frames()
    want = reference(path.read_bytes(), given)
    program.save(tmp_path / "made.tflite")
    loaded = openneutron.load(tmp_path / "made.tflite")
    for model in (program, loaded):
        for _ in range(2):
            for frame, expected in zip(given, want, strict=True):
                np.testing.assert_array_equal(model.run(frame)[0], expected)
            model.reset()
    assert "State        16 B kept between runs: ring\n" in program.summary()
    assert "State      16 B kept between runs\n" in loaded.summary()


def test_a_variable_that_the_cpu_writes_stays_in_the_file() -> None:
    b = StreamBuilder()
    b.tensor("x", (1, 1, 4, 2), scale=0.05, zero_point=-3)
    b.stream("ring", np.full((1, 2, 4, 2), -3, np.int8))
    b.tensor("other", (1, 2, 4, 2), scale=0.05, zero_point=-3)
    b.operator(BUILTIN.ROUND, ["next"], ["other"])
    b.assign("ring", "other")
    compiled = compile_file(litert.read(b.finish(["x"], ["y"])), "stream")
    assert not any(part.report.states for part in compiled.parts)
    reasons = {item.operator: item.reason for item in compiled.partitioning.on_cpu}
    words = "an operator on the CPU reads or writes its variable, or another partition; one partition alone can keep it"
    assert reasons["READ_VARIABLE"] == reasons["ASSIGN_VARIABLE"] == words
    names = [node.op for node in litert.read(compiled.to_bytes()).graph.nodes]
    assert names.count("READ_VARIABLE") == names.count("ASSIGN_VARIABLE") == names.count("CALL_ONCE") == 1


@pytest.mark.parametrize("size", [0, 32])
def test_a_first_value_of_another_size_than_its_buffer(size: int) -> None:
    model = unpack(streaming_file(np.full((1, 2, 4, 2), -3, np.int8)), "stream")
    (place,) = {tensor.buffer for tensor in model.subgraphs[1].tensors if tensor.name == b"first"}
    model.buffers[place].data = np.full(size, 253, np.uint8)
    compiled = compile_file(litert.read(pack(model)), "stream")
    assert bool(compiled.parts[0].report.states) == (size > 0)
