# SPDX-License-Identifier: BSD-3-Clause
"""Files of recurrent operators with a fault: one reason each, and one error for a sequence of another length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import openneutron
from openneutron import litert, ops
from openneutron.errors import InvalidOptionError
from tests.support.recurrent_files import Lstm, LstmFile

Change = Callable[[LstmFile], None]


def _typed(name: str, dtype: str) -> Change:
    def change(file: LstmFile) -> None:
        tensor = file.graph.tensors[file.places[name]]
        tensor.type = getattr(schema.TensorType, dtype.upper())
        if tensor.buffer:
            file.model.buffers[tensor.buffer].data = np.zeros(8 * int(np.prod(tensor.shape)), np.uint8)

    return change


def _scaled(name: str, scale: float, zero_point: int) -> Change:
    return lambda file: file.set_scale(name, scale, zero_point)


def _shaped(name: str, *shape: int) -> Change:
    def change(file: LstmFile) -> None:
        file.graph.tensors[file.places[name]].shape = np.array(shape, np.int32)

    return change


def _biased(value: int) -> Change:
    def change(file: LstmFile) -> None:
        tensor = file.graph.tensors[file.places["b_output"]]
        file.model.buffers[tensor.buffer].data = np.frombuffer(np.full(6, value, np.int64).tobytes(), np.uint8)

    return change


BIAS = "its bias of the forget gate 'b_forget' is constant"
WIDE = "with int16 activations"
FAULTS: tuple[tuple[str, Change, str], ...] = (
    ("int16", _typed("b_forget", "int32"), f"{BIAS} int32[6]; it must be constant int64[6] {WIDE}"),
    ("int16", _typed("b_forget", "int8"), f"{BIAS} int8[6]; it must be constant int64[6] {WIDE}"),
    ("int8", _typed("b_forget", "int64"), f"{BIAS} int64[6]; it must be constant int32[6]"),
    ("int16", _scaled("x", 3e-5, 3), "input 'x' has zero point 3; int16 has 0 alone"),
    ("int16", _scaled("y", 3e-5, -1), "output 'y' has zero point -1; int16 has 0 alone"),
    ("int16", _scaled("hidden", 3e-5, 3), "hidden state 'hidden' has zero point 3; int16 has 0 alone"),
    ("int16", _scaled("cell", 2.0**-11, 3), "cell state 'cell' has zero point 3; int16 has 0 alone"),
    ("int8", _scaled("cell", 2.0**-11, 3), "cell state 'cell' has zero point 3; int16 has 0 alone"),
    (
        "int16",
        _scaled("cell", 0.00075, 0),
        "its cell state has scale 0.00075; it must be a power of two from 2^-15 to 2^0",
    ),
    (
        "int16",
        _scaled("w_cell", 0.01, 2),
        "its input weights of the cell gate 'w_cell' must be quantized per tensor with a zero point of 0",
    ),
    (
        "int16",
        _typed("hidden", "int8"),
        "its hidden state 'hidden' is int8, and its input 'x' int16; both must have one type",
    ),
    ("int8", _typed("y", "int16"), "its output 'y' is int16, and its input 'x' int8; both must have one type"),
    ("int16", _typed("cell", "int8"), "its cell state 'cell' is int8; it must be int16"),
    ("int16", _shaped("x", 1, -1, 5), "input 'x' has shape [1, -1, 5]; every extent must be known and above 0"),
    ("int8", _shaped("x", 1, 0, 5), "input 'x' has shape [1, 0, 5]; every extent must be known and above 0"),
    (
        "int16",
        _biased(-(2**47)),
        "its accumulator may reach 1.40738e+14; with int16 activations LiteRT rescales those below 2^47",
    ),
    ("int16", _shaped("x", 2, 4, 5), "its state 'hidden' has 6 values for 2 sequences of 6 units"),
)


@pytest.mark.parametrize(
    ("activations", "change", "reason"), FAULTS, ids=lambda value: "" if callable(value) else str(value)[:60]
)
def test_a_fault_has_one_reason(activations: str, change: Change, reason: str) -> None:
    file = LstmFile(Lstm(activations=activations), 0)
    file.bytes()
    change(file)
    graph = litert.read(file.finish(["x"], ["y"])).graph
    assert ops.reject(graph, graph.nodes[0]) == reason


@pytest.mark.parametrize("activations", ["int8", "int16"])
def test_a_sequence_of_another_length_is_an_error(activations: str, tmp_path: Path) -> None:
    """A file may leave the length open; its shape has the one that is compiled."""
    file = LstmFile(Lstm(activations=activations), 0)
    file.bytes()
    file.graph.tensors[file.places["x"]].shapeSignature = np.array([1, -1, 5], np.int32)
    path = tmp_path / "lstm.tflite"
    path.write_bytes(file.finish(["x"], ["y"]))
    model = openneutron.compile(path)
    assert model.run(np.zeros((1, 4, 5), activations))[0].shape == (1, 4, 6)
    with pytest.raises(InvalidOptionError) as caught:
        model.run(np.zeros((1, 6, 5), activations))
    assert str(caught.value) == f"input 0 ('x'): it is {activations}[1, 6, 5]; the model takes {activations}[1, 4, 5]."
