# SPDX-License-Identifier: BSD-3-Clause
"""Float ``.tflite`` files, which are quantized with AI Edge Quantizer and then compiled."""

from __future__ import annotations

import copy
import importlib.util
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import openneutron
from openneutron import QuantizationOptions, litert
from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.litert import quantizing
from openneutron.litert.interpret import interpret
from openneutron.litert.read import with_archive
from openneutron.litert.write import pack
from tests.litert.float_networks import directly_quantized
from tests.support.litert_files import BUILTIN, FileBuilder, float_file

SHAPE = (1, 4, 4, 2)


def samples(count: int = 4) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(SHAPE).astype(np.float32) for _ in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A convolution and a softmax in float32."""
    path = tmp_path / "float.tflite"
    path.write_bytes(float_file())
    return path


@pytest.mark.filterwarnings("ignore::UserWarning:ai_edge_litert")
def test_the_result_equals_the_quantizers_own_file_in_reference_kernels(path: Path) -> None:
    program = openneutron.compile(path, calibration=samples(), quantization=QuantizationOptions(io_dtype="int8"))
    reference = directly_quantized(path.read_bytes(), [(sample,) for sample in samples()])
    for seed in range(4):
        image = np.random.default_rng(seed).integers(-128, 128, SHAPE, np.int8)
        (ours,), (theirs,) = program.run(image), interpret(reference, [image])
        assert np.array_equal(ours, theirs)
    assert not program.compiled.partitioning.on_cpu


def test_inputs_and_outputs_stay_float_with_any_form_of_weights(tmp_path: Path) -> None:
    """float32 weights, float16 weights behind a DEQUANTIZE, and int8 weights of float operators."""
    images = samples()
    exact = interpret(float_file(), [images[0]])[0]
    for kind, activations in (("float32", "int16"), ("float16", "int8"), ("int8", "int8")):
        path = tmp_path / f"{kind}.tflite"
        path.write_bytes(float_file_with(kind))
        program = openneutron.compile(
            path, calibration=images, quantization=QuantizationOptions(activations=activations)
        )
        assert [item.operator for item in program.report.on_cpu] == ["QUANTIZE", "DEQUANTIZE"]
        (found,) = program.run(images[0])
        assert found.dtype == np.float32
        assert np.abs(found - exact).max() < 0.03


def float_file_with(kind: str) -> bytes:
    """Return ``float_file`` with weights of another type."""
    b = FileBuilder()
    weights = np.random.default_rng(0).standard_normal((3, 3, 3, 2)).astype(np.float32)
    b.tensor("x", (1, 4, 4, 2), "float32")
    name = "w"
    if kind == "int8":
        scales = np.abs(weights).max((1, 2, 3)) / 127
        b.constant("w", np.round(weights / scales[:, None, None, None]).astype(np.int8))
        quant = b.graph.tensors[b.places["w"]].quantization
        quant.scale, quant.zeroPoint, quant.quantizedDimension = scales, np.zeros(3, np.int64), 0
    elif kind == "float16":
        b.constant("half", weights.astype(np.float16))
        b.operator(BUILTIN.DEQUANTIZE, ["half"], [b.tensor("w", weights.shape, "float32")], "DequantizeOptions", 3)
    else:
        b.constant("w", weights)
    b.constant("b", np.zeros(3, np.float32))
    b.tensor("c", (1, 4, 4, 3), "float32")
    b.operator(BUILTIN.CONV_2D, ["x", name, "b"], ["c"], "Conv2DOptions", 5, padding=0, strideH=1, strideW=1)
    b.tensor("y", (1, 4, 4, 3), "float32")
    b.operator(BUILTIN.SOFTMAX, ["c"], ["y"], "SoftmaxOptions", 1, beta=1.0)
    return b.finish(["x"], ["y"])


def test_an_operator_that_stays_float(path: Path) -> None:
    program = openneutron.compile(path, calibration=samples(), quantization=QuantizationOptions(keep_float=["SOFTM*"]))
    assert [item.operator for item in program.report.on_cpu] == ["QUANTIZE", "DEQUANTIZE", "SOFTMAX"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "calibration: there are no samples; int8 scales come from typical inputs. Pass calibration=[...], each item the model's "
            "input or a tuple of its inputs.",
        ),
        (
            {"calibration": []},
            "calibration: 'list' yields no samples.",
        ),
        (
            {"calibration": [np.full(SHAPE, np.nan, np.float32)]},
            "calibration: 'item 0': it has values that are infinite or not a number.",
        ),
        (
            {"calibration": samples(1), "quantization": QuantizationOptions(keep_float=["RELU"])},
            "keep_float: 'RELU' is neither an operator nor an output of one in 'float.tflite'. It has CONV_2D, SOFTMAX.",
        ),
        (
            {"calibration": samples(1), "quantization": QuantizationOptions(io_dtype="int16")},
            "io_dtype: it is int16; activations of 'float.tflite' are int8. Choose float32 or int8.",
        ),
        (
            {"calibration": samples(1), "quantization": QuantizationOptions(equalize=True)},
            "equalize: it is for PyTorch models; 'float.tflite' is a .tflite. Leave it out.",
        ),
    ],
)
def test_what_can_not_be_used_is_one_clear_error(options: dict[str, object], message: str, path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(path, **options)
    assert str(caught.value) == message


def test_the_package_is_named_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(quantizing, "find_spec", lambda name: None if name == "ai_edge_quantizer" else find(name))
    with pytest.raises(MissingToolError) as caught:
        openneutron.compile(path, calibration=samples(1))
    assert str(caught.value) == (
        "'float.tflite' computes in float32, and its quantization takes ai-edge-quantizer; 'ai_edge_quantizer' is not installed: pip "
        "install 'openneutron[quantizer]'."
    )


def test_signatures_other_graphs_and_metadata_stay(tmp_path: Path) -> None:
    """The second signature's graph, whose tensors have the names of the first's, stays float."""
    model = litert.read(float_file()).model
    model.subgraphs.append(copy.deepcopy(model.subgraphs[0]))
    model.signatureDefs = [signature(model, b"serve", 0), signature(model, b"train", 1)]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("labels.txt", "a\nb\nc")
    path = tmp_path / "two.tflite"
    path.write_bytes(with_archive(pack(model), archive.getvalue()))
    program = openneutron.compile(path, calibration=samples())
    made = litert.read(program.buffer).model
    first, second = made.signatureDefs
    assert (first.signatureKey, second.signatureKey) == (b"serve", b"train")
    assert [first.inputs[0].tensorIndex, first.outputs[0].tensorIndex] == [
        *made.subgraphs[0].inputs,
        *made.subgraphs[0].outputs,
    ]
    assert [tensor.name for tensor in made.subgraphs[1].tensors] == [b"x", b"w", b"b", b"c", b"y"]
    assert {tensor.type for tensor in made.subgraphs[1].tensors} == {schema.TensorType.FLOAT32}
    assert zipfile.ZipFile(io.BytesIO(program.buffer)).namelist() == ["labels.txt"]


def signature(model: Any, key: bytes, subgraph: int) -> Any:
    """Return a signature of a graph with one input and one output."""
    made, ends = schema.SignatureDefT(), model.subgraphs[subgraph]
    made.signatureKey, made.subgraphIndex = key, subgraph
    made.inputs, made.outputs = [schema.TensorMapT()], [schema.TensorMapT()]
    for entry, name, place in (
        (made.inputs[0], b"image", ends.inputs[0]),
        (made.outputs[0], b"classes", ends.outputs[0]),
    ):
        entry.name, entry.tensorIndex = name, int(place)
    return made
