# SPDX-License-Identifier: BSD-3-Clause
"""Input shapes that a ``.tflite`` leaves open, given by the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import openneutron
from openneutron import LoadingOptions
from openneutron.errors import OpenNeutronError
from openneutron.features.doctor.model import described
from openneutron.litert.interpret import interpret
from openneutron.litert.read import unpack
from openneutron.litert.write import pack
from tests.support.litert_files import BUILTIN, FileBuilder


def open_file(size: int = 1) -> bytes:
    """An int8 convolution, which a SHAPE, a multiplication and a RESHAPE flatten. The height and the width are open, and ``size`` in the file."""
    b = FileBuilder()
    b.tensor("x", (1, size, size, 2))
    b.constant("w", np.random.default_rng(0).integers(-127, 128, (3, 3, 3, 2), dtype=np.int8))
    b.tensor("c", (1, size, size, 3))
    b.tensor("bias", (3,), "int32", data=np.zeros(3, np.int32))
    b.operator(BUILTIN.CONV_2D, ["x", "w", "bias"], ["c"], "Conv2DOptions", 3, padding=0, strideH=1, strideW=1)
    b.tensor("shape", (4,), "int32")
    b.operator(BUILTIN.SHAPE, ["c"], ["shape"], "ShapeOptions", 1, outType=schema.TensorType.INT32)
    b.constant("axis", np.array([0], np.int32))
    b.tensor("count", (1,), "int32")
    b.operator(BUILTIN.REDUCE_PROD, ["shape", "axis"], ["count"], "ReducerOptions", 1, keepDims=True)
    b.tensor("y", (size * size * 3,))
    b.operator(BUILTIN.RESHAPE, ["c", "count"], ["y"], "", 1)
    model = unpack(b.finish(["x"], ["y"]), "model")
    for tensor in model.subgraphs[0].tensors:
        if tensor.name in (b"x", b"c"):
            tensor.shapeSignature = np.array([-1, -1, -1, tensor.shape[3]], np.int32)
    return pack(model)


def test_the_shape_is_given_and_all_others_follow(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(open_file())
    program = openneutron.compile(path, loading=LoadingOptions(input_shapes={"x": (1, 6, 5, 2)}))
    assert not program.report.on_cpu
    image = np.random.default_rng(1).integers(-128, 128, (1, 6, 5, 2), np.int8)
    (found,) = program.run(image)
    (wanted,) = interpret(path.read_bytes(), [image])
    assert found.shape == (90,) and np.array_equal(found, wanted)


def test_a_batch_and_sizes_of_the_file_itself_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(open_file(4))
    assert openneutron.compile(path).run(np.zeros((1, 4, 4, 2), np.int8))[0].shape == (48,)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            None,
            "'net.tflite': the shape ?x?x?x2 of the input 'x' is not fixed. Give it: --input-shape x=1x1x1x2, with your sizes.",
        ),
        ({"image": (1, 4, 4, 2)}, "input_shapes: 'net.tflite' has no input 'image'; its inputs are 'x'."),
        ({"x": (1, 4, 2)}, "input_shapes: 'x' of 'net.tflite' has 4 axes; 3 sizes are given."),
        (
            {"x": (1, 4, 4, 3)},
            "input_shapes: 'x' of 'net.tflite' has the size 2 on axis 3; 3 is given.",
        ),
        ({"x": (1, 1 << 20, 1 << 20, 2)}, "'net.tflite': the input 'x' has 2199023255552 bytes; at most 1073741824 are taken."),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit(tmp_path: Path, shapes: dict[str, tuple[int, ...]] | None, message: str) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(open_file())
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.compile(path, loading=LoadingOptions(input_shapes=shapes))
    assert str(caught.value) == message


def test_the_doctor_states_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(open_file())
    found = described(path)
    assert (found.inputs[0].shape, found.command) == ("?x?x?x2", "openneutron compile {} --input-shape x=1xNxNx2")
