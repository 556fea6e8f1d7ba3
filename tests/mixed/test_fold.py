# SPDX-License-Identifier: BSD-3-Clause
"""Operators of any kind that read only constants are computed when a file is compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from openneutron import litert
from openneutron.device.mixed import CompiledFile, FileSimulator, compile_file
from openneutron.device.mixed.tables import folded
from openneutron.features.report import of_compiled_file
from openneutron.features.report.text import summary_rows
from tests.support.litert_files import BUILTIN, FileBuilder
from tests.support.oracle import reference_outputs

RANDOM = np.random.default_rng(7)
INT8 = RANDOM.integers(-127, 128, (3, 4), np.int8)
FLOAT = RANDOM.uniform(-1, 1, (3, 4)).astype(np.float32)


def transposed(b: FileBuilder) -> str:
    b.constant("t", INT8.T)
    b.constant("order", np.array([1, 0], np.int32))
    b.tensor("w", (3, 4), scale=0.01)
    b.operator(BUILTIN.TRANSPOSE, ["t", "order"], ["w"], "TransposeOptions", 2)
    return "w"


def quantized(b: FileBuilder) -> str:
    b.constant("f", FLOAT)
    b.tensor("w", (3, 4), scale=0.01)
    b.operator(BUILTIN.QUANTIZE, ["f"], ["w"], "QuantizeOptions")
    return "w"


def dequantized_transposed_and_quantized(b: FileBuilder) -> str:
    b.tensor("u", (4, 3), "uint8", 0.01, 131, (INT8.T.astype(np.int16) + 128).astype(np.uint8))
    b.constant("order", np.array([1, 0], np.int32))
    b.tensor("f", (4, 3), "float32")
    b.tensor("t", (3, 4), "float32")
    b.tensor("w", (3, 4), scale=0.013)
    b.operator(BUILTIN.DEQUANTIZE, ["u"], ["f"], "DequantizeOptions", 2)
    b.operator(BUILTIN.TRANSPOSE, ["f", "order"], ["t"], "TransposeOptions")
    b.operator(BUILTIN.QUANTIZE, ["t"], ["w"], "QuantizeOptions")
    return "w"


def reshaped_padded_and_sliced(b: FileBuilder) -> str:
    b.constant("flat", INT8.reshape(-1))
    b.constant("shape", np.array([3, 4], np.int32))
    b.constant("around", np.array([[1, 0], [0, 2]], np.int32))
    b.constant("begin", np.array([1, 1], np.int32))
    b.constant("size", np.array([3, 4], np.int32))
    for name, extents in (("r", (3, 4)), ("p", (4, 6)), ("w", (3, 4))):
        b.tensor(name, extents, scale=0.01)
    b.operator(BUILTIN.RESHAPE, ["flat", "shape"], ["r"], "ReshapeOptions")
    b.operator(BUILTIN.PAD, ["r", "around"], ["p"], "PadOptions", 2)
    b.operator(BUILTIN.SLICE, ["p", "begin", "size"], ["w"], "SliceOptions", 2)
    return "w"


def cast_from_int64(b: FileBuilder) -> str:
    b.constant("wide", INT8.astype(np.int64))
    b.tensor("w", (3, 4), scale=0.01)
    b.operator(BUILTIN.CAST, ["wide"], ["w"], "CastOptions")
    return "w"


def layer(b: FileBuilder, weights: str) -> bytes:
    """Return FULLY_CONNECTED from ``x`` to ``y``."""
    if "x" not in b.places:
        b.tensor("x", (2, 4), scale=0.02, zero_point=3)
    b.constant("bias", np.array([100, -200, 0], np.int32))
    b.tensor("y", (2, 3), scale=0.02, zero_point=-5)
    b.operator(BUILTIN.FULLY_CONNECTED, ["x", weights, "bias"], ["y"], "FullyConnectedOptions", 4)
    return b.finish(["x"], ["y"])


def compiled(data: bytes) -> CompiledFile:
    return compile_file(litert.read(data), "m", must_delegate=False)


@pytest.mark.parametrize(
    "weights",
    [transposed, quantized, dequantized_transposed_and_quantized, reshaped_padded_and_sliced, cast_from_int64],
)
def test_weights_behind_operators_are_constant(weights: Callable[[FileBuilder], str]) -> None:
    b = FileBuilder()
    data = layer(b, weights(b))
    made = compiled(data)
    assert made.partitioning.on_cpu == ()
    assert [node.op for node in made.graph.nodes] == ["fully_connected"]
    x = RANDOM.integers(-128, 128, (2, 4), np.int8)
    np.testing.assert_array_equal(FileSimulator(made.to_bytes()).run([x]), reference_outputs(data, [x]))


def test_a_file_without_such_operators_is_the_same_object() -> None:
    b = FileBuilder()
    b.constant("w", INT8)
    model = litert.read(layer(b, "w"))
    assert folded(model) is model


def test_floats_that_the_cpu_reads_stay_as_small_as_they_are() -> None:
    """The weights of a model with 16-bit floats, beside a layer whose weights share their DEQUANTIZE."""
    b = FileBuilder()
    b.constant("half", FLOAT.astype(np.float16))
    b.tensor("f", (3, 4), "float32")
    b.tensor("w", (3, 4), scale=0.01)
    b.tensor("z", (3, 4), "float32")
    b.tensor("x2", (3, 4), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["half"], ["f"], "DequantizeOptions", 3)
    b.operator(BUILTIN.QUANTIZE, ["f"], ["w"], "QuantizeOptions")
    b.operator(BUILTIN.ADD, ["x2", "f"], ["z"], "AddOptions")
    layer(b, "w")
    data = b.finish(["x", "x2"], ["y", "z"])
    made = compiled(data)
    assert [node.op for node in made.graph.nodes] == ["DEQUANTIZE", "add", "fully_connected"]
    inputs = [RANDOM.integers(-128, 128, (2, 4), np.int8), FLOAT]
    for got, want in zip(FileSimulator(made.to_bytes()).run(inputs), reference_outputs(data, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("extent", "operators"), [(1 << 14, ["add"]), (1 << 18, ["fill", "add"])])
def test_a_result_that_would_make_the_file_much_larger_is_computed_at_run_time(
    extent: int, operators: list[str]
) -> None:
    b = FileBuilder()
    b.constant("dims", np.array([1, extent], np.int32))
    b.constant("value", np.array(7, np.int8))
    for name in ("x", "v", "y"):
        b.tensor(name, (1, extent), scale=0.01)
    b.operator(BUILTIN.FILL, ["dims", "value"], ["v"], "FillOptions", 3)
    b.operator(BUILTIN.ADD, ["x", "v"], ["y"], "AddOptions", 2)
    assert [node.op for node in folded(litert.read(b.finish(["x"], ["y"]))).graph.nodes] == operators


def test_an_operator_that_litert_can_not_run_stays() -> None:
    b = FileBuilder()
    b.constant("t", INT8)
    b.constant("order", np.array([1, 7], np.int32))
    b.tensor("w", (3, 4), scale=0.01)
    b.operator(BUILTIN.TRANSPOSE, ["t", "order"], ["w"], "TransposeOptions", 2)
    made = compiled(layer(b, "w"))
    assert [item.operator for item in made.partitioning.on_cpu] == ["TRANSPOSE", "FULLY_CONNECTED"]


def test_a_returned_constant_is_stored() -> None:
    b = FileBuilder()
    weights = transposed(b)
    layer(b, weights)
    data = b.finish(["x"], [weights, "y"])
    x = RANDOM.integers(-128, 128, (2, 4), np.int8)
    for got, want in zip(FileSimulator(compiled(data).to_bytes()).run([x]), reference_outputs(data, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_model_with_float_inputs_and_outputs_is_said_to_run_whole() -> None:
    b = FileBuilder()
    b.tensor("input", (2, 4), "float32")
    b.tensor("output", (2, 3), "float32")
    weights = transposed(b)
    b.tensor("x", (2, 4), scale=0.02, zero_point=3)
    b.operator(BUILTIN.QUANTIZE, ["input"], ["x"], "QuantizeOptions")
    layer(b, weights)
    b.operator(BUILTIN.DEQUANTIZE, ["y"], ["output"], "DequantizeOptions", 2)
    summary = of_compiled_file(compiled(b.finish(["input"], ["output"])))
    assert summary.whole
    assert summary_rows(summary)[0] == (
        "On the NPU",
        "1 of 3 operators, in 1 partition of 1 kernel call: "
        "the whole model but for QUANTIZE and DEQUANTIZE at its float inputs and outputs",
    )
