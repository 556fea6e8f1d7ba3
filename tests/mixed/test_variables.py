# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT's variables that one partition alone reads and writes are states of its program, byte-equal with LiteRT over frames."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import openneutron
from openneutron import litert
from openneutron.mixed import FileSimulator, compile_file
from tests.support.litert_files import BUILTIN, FileBuilder

FRAMES = 20


class StreamBuilder(FileBuilder):
    """A file whose ring of frames is a variable, set once to -3 in every byte."""

    def handle(self, name: str, variable: bytes) -> None:
        self.tensor(name, (1,), "resource")
        self.operator(BUILTIN.VAR_HANDLE, [], [name], "VarHandleOptions", sharedName=variable, container=b"")

    def set_once(self, variable: bytes, first: np.ndarray) -> None:
        """Add a subgraph that sets the variable, and the call of it."""
        main, places = self.graph, self.places
        self.graph, self.places = schema.SubGraphT(), {}
        self.graph.name = b"set " + variable
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs.append(self.graph)
        self.handle("handle", variable)
        self.tensor("first", first.shape, "int8", 0.05, -3, first)
        self.operator(BUILTIN.ASSIGN_VARIABLE, ["handle", "first"], [], "AssignVariableOptions")
        self.graph.inputs = self.graph.outputs = np.zeros(0, np.int32)
        self.graph, self.places = main, places
        index = len(self.model.subgraphs) - 1
        self.operator(BUILTIN.CALL_ONCE, [], [], "CallOnceOptions", initSubgraphIndex=index)

    def stream(self, kind: str, first: np.ndarray, held: str = "ring") -> None:
        """Read the variable, put the frame behind it, and write the newest rows back."""
        self.set_once(kind.encode(), first)
        self.handle(f"{kind}/handle", kind.encode())
        self.tensor(held, (1, 2, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.READ_VARIABLE, [f"{kind}/handle"], [held], "ReadVariableOptions")
        self.tensor("rows", (1, 3, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.CONCATENATION, [held, "x"], ["rows"], "ConcatenationOptions", axis=1)
        self.conv("y", "rows", (1, 3, 4, 2), 2, 1)
        self.constant("begin", np.array([0, 1, 0, 0], np.int32))
        self.constant("size", np.array([1, 2, 4, 2], np.int32))
        self.tensor("next", (1, 2, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.SLICE, ["rows", "begin", "size"], ["next"], "SliceOptions")

    def assign(self, kind: str, value: str) -> None:
        self.operator(BUILTIN.ASSIGN_VARIABLE, [f"{kind}/handle", value], [], "AssignVariableOptions")


def streaming_file(first: np.ndarray) -> bytes:
    b = StreamBuilder()
    b.tensor("x", (1, 1, 4, 2), scale=0.05, zero_point=-3)
    b.stream("ring", first)
    b.assign("ring", "next")
    return b.finish(["x"], ["y"])


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
