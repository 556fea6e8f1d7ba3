# SPDX-License-Identifier: BSD-3-Clause
"""Compiled files compute, byte for byte, what the files they were made from compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.litert.interpret import interpret
from tests.support.litert_files import (
    BUILTIN,
    FileBuilder,
    branching_file,
    float_file,
    inputs_of,
    mixed_file,
    wide_file,
)


def assert_runs_as_before(data: bytes, *not_to_delegate: str) -> None:
    made = compile_file(litert.read(data), "m", operators_not_to_delegate=not_to_delegate)
    runner = FileSimulator(made.to_bytes())
    assert len(runner.nodes) == len(made.parts) > 0
    for seed in range(3):
        inputs = inputs_of(runner, seed)
        for got, want in zip(runner.run(inputs), interpret(data, inputs), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("not_to_delegate", [(), ("ADD",), ("c",), ("MAX_POOL_2D", "RELU")])
def test_a_mixed_file_runs_as_before(not_to_delegate: tuple[str, ...]) -> None:
    assert_runs_as_before(mixed_file(), *not_to_delegate)


def test_a_file_with_a_signature_runs_as_before() -> None:
    assert_runs_as_before(mixed_file(signature=True))


@pytest.mark.parametrize("not_to_delegate", [(), ("ADD",), ("PAD",), ("c",)])
def test_a_mixed_file_of_int16_runs_as_before(not_to_delegate: tuple[str, ...]) -> None:
    assert_runs_as_before(wide_file(), *not_to_delegate)


def test_control_flow_behind_a_node_runs_as_before() -> None:
    assert_runs_as_before(branching_file())


def test_a_file_that_was_not_compiled_runs_too() -> None:
    runner = FileSimulator(float_file())
    inputs = inputs_of(runner, 0)
    np.testing.assert_array_equal(runner.run(inputs)[0], interpret(float_file(), inputs)[0])


def test_outputs_may_be_inputs_constants_or_the_same_twice() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2), scale=0.02)
    b.conv("c", "x", (1, 4, 4, 2), 2, 3)
    b.constant("k", np.arange(4, dtype=np.int32))
    data = b.finish(["x"], ["c", "x", "c", "k"])
    made = compile_file(litert.read(data), "m").to_bytes()
    (x,) = inputs_of(FileSimulator(made), 0)
    outputs = FileSimulator(made).run([x])
    (want,) = interpret(FileBuilder.finish(b, ["x"], ["c"]), [x])
    for got, expected in zip(outputs, (want, x, want, np.arange(4)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_wrong_inputs_say_what_the_model_takes() -> None:
    runner = FileSimulator(mixed_file())
    with pytest.raises(InvalidOptionError) as count:
        runner.run([])
    assert str(count.value) == "input: 0 given; the model takes 1 (float32[1, 8, 8, 4])."
    with pytest.raises(InvalidOptionError) as shape:
        runner.run([np.zeros((1, 8, 8, 3), np.float32)])
    assert str(shape.value) == "input 0 ('x'): it is float32[1, 8, 8, 3]; the model takes float32[1, 8, 8, 4]."


def test_variables_on_both_sides_of_a_node_are_refused() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2), scale=0.02)
    b.tensor("handle", (1,), "int32")
    b.operator(BUILTIN.VAR_HANDLE, [], ["handle"], "VarHandleOptions", sharedName=b"v", container=b"")
    b.operator(BUILTIN.ASSIGN_VARIABLE, ["handle", "x"], [], "AssignVariableOptions")
    b.conv("c", "x", (1, 4, 4, 2), 2, 3)
    b.operator(BUILTIN.ASSIGN_VARIABLE, ["handle", "c"], [], "AssignVariableOptions")
    b.tensor("y", (1, 4, 4, 2), scale=0.05, zero_point=-3)
    b.operator(BUILTIN.READ_VARIABLE, ["handle"], ["y"], "ReadVariableOptions")
    made = compile_file(litert.read(b.finish(["x"], ["y"])), "m").to_bytes()
    with pytest.raises(InvalidModelError) as caught:
        FileSimulator(made)
    assert str(caught.value) == (
        "operators 0 and 3 share LiteRT variables or tables and a NeutronGraph is between them; the parts of a file run in "
        "separate interpreters here, each with variables of its own. Run it on the device."
    )


def test_a_table_on_both_sides_of_a_node_is_refused() -> None:
    """Made before it and looked into behind it."""
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2), scale=0.02)
    b.tensor("table", (1,), "resource")
    b.tensor("size", (1,), "int64")
    b.operator(BUILTIN.HASHTABLE, [], ["table"], "HashtableOptions", tableId=1, keyDtype=4, valueDtype=4)
    b.conv("c", "x", (1, 4, 4, 2), 2, 3)
    b.operator(BUILTIN.HASHTABLE_SIZE, ["table"], ["size"], "HashtableSizeOptions")
    made = compile_file(litert.read(b.finish(["x"], ["c", "size"])), "m").to_bytes()
    with pytest.raises(InvalidModelError, match=r"^operators 0 and 2 share LiteRT variables or tables"):
        FileSimulator(made)


def test_an_operator_the_interpreter_does_not_have_is_named() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4), "float32")
    b.tensor("y", (1, 4), "float32")
    b.operator(BUILTIN.CUSTOM, ["x"], ["y"])
    b.model.operatorCodes[0].customCode = b"Elsewhere"
    with pytest.raises(
        InvalidModelError, match=r"LiteRT's interpreter can't run the operators on the CPU: .*Elsewhere"
    ):
        FileSimulator(b.finish(["x"], ["y"])).run([np.zeros((1, 4), np.float32)])


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError) as caught:
        FileSimulator(tmp_path / "absent.tflite")
    assert str(caught.value) == "'absent.tflite' can't be read: No such file or directory."
