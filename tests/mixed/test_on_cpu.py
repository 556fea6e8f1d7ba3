# SPDX-License-Identifier: BSD-3-Clause
"""Files whose stateful operators stay on the CPU beside a part on the NPU run and have a summary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import DelegationOptions, litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.errors import InvalidModelError
from tests.support import oracle
from tests.support.litert_files import BUILTIN
from tests.support.recurrent_files import Lstm, LstmFile, Svdf, svdf_file
from tests.support.stream_files import streaming_file


def lstm_and_relu() -> bytes:
    b = LstmFile(Lstm(), 0)
    b.layer("x", "h", b.begin())
    quant = b.graph.tensors[b.places["h"]].quantization
    b.tensor("y", (1, 4, 6), scale=float(quant.scale[0]), zero_point=int(quant.zeroPoint[0]))
    b.operator(BUILTIN.RELU, ["h"], ["y"])
    return b.finish(["x"], ["y"])


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (lstm_and_relu(), ["UNIDIRECTIONAL_SEQUENCE_LSTM"]),
        (lstm_and_relu(), []),
        (svdf_file(Svdf(), 0), ["SVDF"]),
    ],
)
def test_a_recurrent_operator_on_the_cpu(data: bytes, left: list[str]) -> None:
    compiled = compile_file(litert.read(data), "m", operators_not_to_delegate=left, must_delegate=False)
    for file in (data, compiled.to_bytes()):
        simulator = FileSimulator(file)
        inputs = oracle.random_inputs(litert.read(data).graph, 0)
        for got, want in zip(simulator.run(inputs), oracle.reference_outputs(data, inputs), strict=True):
            np.testing.assert_array_equal(got, want)


def test_variables_that_stay_in_the_file(tmp_path: Path) -> None:
    data = streaming_file(np.full((1, 2, 4, 2), -3, np.int8))
    path = tmp_path / "stream.tflite"
    path.write_bytes(data)
    program = openneutron.compile(path, delegation=DelegationOptions(operators_not_to_delegate=["CONCATENATION"]))
    left = {item["operator"] for item in program.report.to_dict()["on_cpu"]}
    assert left == {"CALL_ONCE", "CONCATENATION", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
    assert "ASSIGN_VARIABLE" in program.summary()
    with pytest.raises(InvalidModelError, match="share LiteRT variables or tables and a NeutronGraph is between them"):
        program.run(np.zeros((1, 1, 4, 2), np.int8))
