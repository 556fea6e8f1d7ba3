# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT's interpreter in a child process gives the same bytes, and its crashes are errors."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import numpy as np
import pytest

from openneutron.cli import main
from openneutron.device.mixed import FileSimulator
from openneutron.errors import InvalidModelError
from openneutron.litert.interpret import InterpreterProcess, interpret
from openneutron.litert.interpreter_child import receive, send
from tests.support.litert_files import BUILTIN, FileBuilder, float_file, mixed_file

VALUES = 5184
"""More values than the reference kernel's accumulator holds (12 integer bits, so 4,096): it aborts on a row of equal
values."""


def softmax_file(values: int) -> bytes:
    b = FileBuilder()
    b.tensor("x", (1, values), scale=0.1)
    b.tensor("y", (1, values), scale=1 / 256, zero_point=-128)
    b.operator(BUILTIN.SOFTMAX, ["x"], ["y"], "SoftmaxOptions", beta=1.0)
    return b.finish(["x"], ["y"])


def test_many_models_and_runs_share_a_process() -> None:
    models = (mixed_file(), float_file())
    process = InterpreterProcess([(model, "") for model in models])
    pids = set()
    for seed in range(3):
        for index, model in enumerate(models):
            shapes = [tensor.shape for tensor in FileSimulator(model).inputs]
            generator = np.random.default_rng(seed)
            inputs = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
            for got, want in zip(process.run(index, inputs), interpret(model, inputs), strict=True):
                assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
            pids.add(process._child.pid)
    assert len(pids) == 1


def test_the_process_ends_with_its_owner() -> None:
    process = InterpreterProcess([(float_file(), "")])
    process.run(0, [np.zeros(tensor.shape, np.float32) for tensor in FileSimulator(float_file()).inputs])
    child = process._child
    del process
    gc.collect()
    assert child.poll() == 0


def test_arrays_of_every_kind_go_through() -> None:
    strings = np.empty((2,), object)
    strings[:] = [b"one\0", "zwei"]
    arrays = [
        np.array(3, np.int64),
        np.zeros((0, 4), np.float16),
        np.arange(6, dtype=np.int8).reshape(2, 3).T,
        np.array([True, False]),
        strings,
    ]
    stream = io.BytesIO()
    send(stream, {"error": None}, arrays)
    stream.seek(0)
    message, got = receive(stream)
    assert message == {"error": None}
    for one, other in zip(got, arrays, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert all(np.array_equal(one, other) for one, other in zip(got[:-1], arrays[:-1], strict=True))
    assert got[-1].tolist() == [b"one\0", b"zwei"]


def test_a_refusal_is_litert_s_words_and_the_process_goes_on() -> None:
    process = InterpreterProcess([(float_file(), "")])
    with pytest.raises(InvalidModelError, match="LiteRT's interpreter can't run the operators on the CPU: "):
        process.run(0, [])
    (shape,) = [tensor.shape for tensor in FileSimulator(float_file()).inputs]
    assert process.run(0, [np.zeros(shape, np.float32)])


def test_a_crash_is_an_error_and_the_next_run_works() -> None:
    flat = np.zeros((1, VALUES), np.int8)
    process = InterpreterProcess([(softmax_file(VALUES), "SOFTMAX"), (softmax_file(4), "SOFTMAX")])
    with pytest.raises(InvalidModelError) as caught:
        process.run(0, [flat])
    assert str(caught.value).startswith(
        "LiteRT's interpreter was ended by signal 6 (SIGABRT) when it ran the operators on the CPU (SOFTMAX): the fault is "
        "LiteRT's, with this model."
    )
    assert process.run(1, [np.zeros((1, 4), np.int8)])[0].tolist() == [[-64] * 4]


def test_a_crash_leaves_run_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.tflite").write_bytes(softmax_file(VALUES))
    np.save(tmp_path / "x.npy", np.zeros((1, VALUES), np.int8))
    assert main(["run", "wide.tflite", "--input", "x.npy"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: LiteRT's interpreter was ended by signal ") and said.count("\n") == 1
