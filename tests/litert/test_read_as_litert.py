# SPDX-License-Identifier: BSD-3-Clause
"""Fields that LiteRT's kernels do not read are no reason to refuse a file or an operator: such files run whole,
byte-equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron import litert
from openneutron.device.mixed import CompiledFile, FileSimulator, compile_file
from openneutron.litert.neutron_graph import OPERATOR_NAME
from tests.support.litert_files import BUILTIN, FileBuilder
from tests.support.oracle import reference_outputs

SHAPE = (1, 4, 4, 4)


def small_file() -> FileBuilder:
    """Return CONV_2D to ``c``, then RELU to ``y``; the bias has a scale, as LiteRT's own converter writes it."""
    b = FileBuilder()
    b.tensor("x", SHAPE, scale=0.02)
    b.conv("c", "x", SHAPE, 4, 3)
    quantize(b, "c/bias", [0.0002], [0])
    b.tensor("y", SHAPE, scale=0.05, zero_point=-3)
    b.operator(BUILTIN.RELU, ["c"], ["y"], version=2)
    return b


def tensor(b: FileBuilder, name: str) -> Any:
    return b.graph.tensors[b.places[name]]


def quantize(b: FileBuilder, name: str, scales: list[float], zero_points: list[int], axis: int = 0) -> None:
    item = tensor(b, name).quantization = schema.QuantizationParametersT()
    item.scale, item.zeroPoint = np.array(scales, np.float32), np.array(zero_points, np.int64)
    item.quantizedDimension = axis


def compiled(data: bytes) -> CompiledFile:
    return compile_file(litert.read(data), "model.tflite", must_delegate=False)


def outputs(data: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of the compiled file; asserts that it is one NeutronGraph."""
    made = compiled(data).to_bytes()
    assert [node.op for node in litert.read(made).graph.nodes] == [OPERATOR_NAME]
    return FileSimulator(made).run(inputs)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(-128, 128, shape, np.int8)


def bias_without_quantization(b: FileBuilder) -> None:
    tensor(b, "c/bias").quantization = None


def bias_of_one_scale_with_an_axis(b: FileBuilder) -> None:
    quantize(b, "c/weights", [0.01], [0])
    quantize(b, "c/bias", [0.0002] * 4, [0] * 4)


def weights_of_one_scale_along_an_axis(b: FileBuilder) -> None:
    quantize(b, "c/weights", [0.01], [0], 3)


def weights_scaled_along_another_axis_of_as_many(b: FileBuilder) -> None:
    quantize(b, "c/weights", [0.01, 0.02, 0.005, 0.03], [0] * 4, 3)


def extents_that_a_caller_may_change(b: FileBuilder) -> None:
    for item in b.graph.tensors:
        item.shapeSignature = np.array([-1, *item.shape[1:]], np.int32)


def ranges_beside_the_scales(b: FileBuilder) -> None:
    for item in b.graph.tensors:
        item.quantization.min, item.quantization.max = np.array([-1], np.float32), np.array([1], np.float32)


def tensors_that_nothing_uses(b: FileBuilder) -> None:
    b.tensor("float", (3, 3), "float32")
    b.tensor("text", (2,), "string")
    b.constant("numbers", np.arange(4, dtype=np.int64))


def a_variable_that_nothing_uses(b: FileBuilder) -> None:
    b.tensor("state", (1, 3))
    tensor(b, "state").isVariable = True


def operator_codes_that_nothing_uses(b: FileBuilder) -> None:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = BUILTIN.SVDF
    b.model.operatorCodes.append(code)


def operator_codes_in_the_deprecated_field(b: FileBuilder) -> None:
    for code in b.model.operatorCodes:
        code.builtinCode = 0


def an_older_version_of_an_operator(b: FileBuilder) -> None:
    b.model.operatorCodes[0].version = 1


def constants_that_share_a_buffer(b: FileBuilder) -> None:
    b.conv("d", "x", SHAPE, 4, 3)
    tensor(b, "d/weights").buffer = tensor(b, "c/weights").buffer
    tensor(b, "d/bias").buffer = tensor(b, "c/bias").buffer
    b.tensor("z", SHAPE, scale=0.1)
    b.operator(BUILTIN.ADD, ["y", "d"], ["z"], "AddOptions", 2)


def activations_that_share_an_empty_buffer(b: FileBuilder) -> None:
    b.model.buffers.append(schema.BufferT())
    for name in ("x", "c", "y"):
        tensor(b, name).buffer = len(b.model.buffers) - 1


def a_buffer_longer_than_its_tensor(b: FileBuilder) -> None:
    buffer = b.model.buffers[tensor(b, "c/bias").buffer]
    buffer.data = np.concatenate([buffer.data, np.zeros(24, np.uint8)])


def tensors_of_one_name(b: FileBuilder) -> None:
    for item in b.graph.tensors:
        item.name = b"same"


def tensors_without_a_name(b: FileBuilder) -> None:
    for item in b.graph.tensors:
        item.name = None


def metadata_and_a_subgraph_beside(b: FileBuilder) -> None:
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"note", b.buffer(b"of somebody's")
    b.model.metadata = [entry]
    other = FileBuilder()
    other.model, other.graph.name = b.model, b"another_signature"
    b.model.subgraphs.append(other.graph)
    other.tensor("in", (1, 2), "float32")
    other.tensor("out", (1, 2), "float32")
    other.operator(BUILTIN.ABS, ["in"], ["out"])
    other.graph.inputs, other.graph.outputs = np.array([0], np.int32), np.array([1], np.int32)
    b.model.signatureDefs = []
    for place, name in ((0, "y"), (1, "out")):
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = name.encode(), place
        entry_of = schema.TensorMapT()
        entry_of.name, entry_of.tensorIndex = b"result", (b if place == 0 else other).places[name]
        signature.outputs = [entry_of]
        b.model.signatureDefs.append(signature)


@pytest.mark.parametrize(
    "change",
    [
        bias_without_quantization,
        bias_of_one_scale_with_an_axis,
        weights_of_one_scale_along_an_axis,
        weights_scaled_along_another_axis_of_as_many,
        extents_that_a_caller_may_change,
        ranges_beside_the_scales,
        tensors_that_nothing_uses,
        a_variable_that_nothing_uses,
        operator_codes_that_nothing_uses,
        operator_codes_in_the_deprecated_field,
        an_older_version_of_an_operator,
        constants_that_share_a_buffer,
        activations_that_share_an_empty_buffer,
        a_buffer_longer_than_its_tensor,
        tensors_of_one_name,
        tensors_without_a_name,
        metadata_and_a_subgraph_beside,
    ],
)
def test_a_file_that_litert_runs_is_one_neutron_graph(change: Callable[[FileBuilder], None]) -> None:
    b = small_file()
    change(b)
    data = b.finish(["x"], ["z" if "z" in b.places else "y"])
    x = values(*SHAPE)
    np.testing.assert_array_equal(outputs(data, [x]), reference_outputs(data, [x]))


@pytest.mark.parametrize(("scales", "axis"), [(4, 3), (1, 3), (3, 0)])
def test_parameters_of_a_bias_that_do_not_fit_it_are_not_looked_at(scales: int, axis: int) -> None:
    """Converters of TensorFlow 1 gave biases the weights' axis.

    LiteRT 2 refuses these when it reads the file; its kernels, and LiteRT for microcontrollers, ignore them.
    """
    sound, odd = small_file(), small_file()
    quantize(odd, "c/bias", [0.0002] * scales, [0] * scales, axis)
    x = values(*SHAPE)
    np.testing.assert_array_equal(
        outputs(odd.finish(["x"], ["y"]), [x]), reference_outputs(sound.finish(["x"], ["y"]), [x])
    )


@pytest.mark.parametrize("scales", [3, 5])
def test_parameters_of_an_activation_that_do_not_fit_it_are_a_reason(scales: int) -> None:
    b = small_file()
    quantize(b, "y", [0.05] * scales, [0] * scales, 3)
    (relu,) = compiled(b.finish(["x"], ["y"])).partitioning.on_cpu
    assert str(relu) == "RELU 'y' stays on the CPU: output 'y' has no quantization parameters."


def test_one_zero_point_for_many_scales_is_the_zero_point_of_each() -> None:
    """Otherwise asymmetric weights would be taken for symmetric ones."""
    b = small_file()
    quantize(b, "c/weights", [0.01, 0.02, 0.005, 0.03], [3])
    made = compiled(b.finish(["x"], ["y"]))
    quant = made.graph["c/weights"].quant
    assert quant is not None and quant.zero_points == (3, 3, 3, 3)
    (conv,) = made.partitioning.on_cpu
    assert str(conv) == (
        "CONV_2D 'c' stays on the CPU: its weights 'c/weights' have a zero point; weights must be symmetric. Quantize them as "
        "int8 with the zero point 0 (as uint8 it is 128)."
    )


def test_zero_points_that_are_neither_one_nor_one_for_each_scale_are_none() -> None:
    b = small_file()
    quantize(b, "c/weights", [0.01, 0.02, 0.005, 0.03], [0, 3])
    (conv,) = compiled(b.finish(["x"], ["y"])).partitioning.on_cpu
    assert conv.reason == "its weights 'c/weights' have no quantization parameters"


def test_an_absent_operand_may_be_stated_or_left_out() -> None:
    x = values(1, 4)
    for absent in ([], [-1]):
        b = FileBuilder()
        b.tensor("x", (1, 4), scale=0.02)
        b.constant("w", values(3, 4))
        b.tensor("y", (1, 3), scale=0.01)
        b.operator(BUILTIN.FULLY_CONNECTED, ["x", "w"], ["y"], "FullyConnectedOptions", 4)
        operator = b.graph.operators[0]
        operator.inputs = np.array([*operator.inputs, *absent], np.int32)
        data = b.finish(["x"], ["y"])
        np.testing.assert_array_equal(outputs(data, [x]), reference_outputs(data, [x]))


def test_a_variable_stays_with_its_operator_on_the_cpu() -> None:
    b = FileBuilder()
    random = np.random.default_rng(1)
    b.tensor("x", (1, 4), "float32")
    for name, shape in (("w", (4, 4)), ("r", (4, 4)), ("b", (4,))):
        b.constant(name, random.standard_normal(shape).astype(np.float32))
    b.tensor("state", (1, 4), "float32")
    tensor(b, "state").isVariable = True
    b.tensor("f", (1, 4), "float32")
    b.operator(BUILTIN.RNN, ["x", "w", "r", "b", "state"], ["f"], "RNNOptions", fusedActivationFunction=1)
    b.tensor("q", (1, 4), scale=0.05)
    b.operator(BUILTIN.QUANTIZE, ["f"], ["q"], "QuantizeOptions")
    b.tensor("y", (1, 4), scale=0.03)
    b.operator(BUILTIN.RELU, ["q"], ["y"], version=2)
    data = b.finish(["x"], ["y"])
    made = compiled(data)
    assert [item.operator for item in made.partitioning.on_cpu] == ["RNN", "QUANTIZE"]
    x = random.standard_normal((1, 4)).astype(np.float32)
    np.testing.assert_array_equal(FileSimulator(made.to_bytes()).run([x]), reference_outputs(data, [x]))
