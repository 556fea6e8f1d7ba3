# SPDX-License-Identifier: BSD-3-Clause
"""Quantized ONNX graphs become the graphs that the partitioner knows. `python -m tests.onnx_models.quantized` compares networks with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra [onnx] is not installed")

import torch  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import openneutron  # noqa: E402
import openneutron.pytorch  # noqa: E402
from openneutron.errors import InvalidModelError  # noqa: E402
from openneutron.pytorch.onnx.read import module_of  # noqa: E402
from tests.onnx_models.made import model, random, saved  # noqa: E402
from tests.onnx_models.one_rounding import REPLACED  # noqa: E402

Array = np.ndarray[Any, Any]


def operators(made: onnx.ModelProto) -> list[str]:
    """Return the names of the operators of PyTorch that a model becomes."""
    module, examples = module_of(made, "net.onnx")
    graph = torch.export.export(module, tuple(examples)).graph
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]


def results(made: onnx.ModelProto, *inputs: Array) -> list[Array]:
    module, _ = module_of(made, "net.onnx")
    with torch.no_grad():
        return [np.asarray(value) for value in module(*map(torch.from_numpy, inputs))]


def node(operator: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """Return a node; "-" is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), domain=domain, **attributes)


WEIGHTS = np.random.default_rng(0).integers(-127, 128, (6, 4)).astype(np.int8)

DYNAMIC = [
    node("DynamicQuantizeLinear", "x", "q s z"),
    node("MatMulInteger", "q w z wz", "i"),
    node("Cast", "i", "f", to=TensorProto.FLOAT),
    node("Mul", "s ws", "scale"),
    node("Mul", "f scale", "m"),
    node("Add", "m b", "y"),
]


def test_dynamic_quantization_is_read_as_float() -> None:
    constants = {"w": WEIGHTS, "wz": np.int8(3), "ws": np.full(4, 0.02, np.float32), "b": random(4, seed=1)}
    made, x = model(DYNAMIC, {"x": [2, 6]}, ["y"], constants), random(2, 6)
    real = (WEIGHTS.astype(np.float32) - 3) * 0.02
    np.testing.assert_allclose(results(made, x)[0], x @ real + constants["b"], rtol=1e-5, atol=1e-5)
    assert operators(made) == ["linear"]


def test_a_convolution_of_dynamic_values_keeps_its_padding() -> None:
    nodes = [
        DYNAMIC[0],
        node("ConvInteger", "q w z", "i", pads=[1, 1, 1, 1]),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "f ws", "y"),
    ]
    weights = np.random.default_rng(1).integers(-127, 128, (2, 3, 3, 3)).astype(np.int8)
    made = model(nodes, {"x": [1, 3, 4, 4]}, ["y"], {"w": weights, "ws": np.float32(0.01)})
    x = random(1, 3, 4, 4)
    real = torch.from_numpy(weights.astype(np.float32) * np.float32(0.01))
    wanted = torch.nn.functional.conv2d(torch.from_numpy(x), real, padding=1).numpy()
    np.testing.assert_allclose(results(made, x)[0], wanted, rtol=1e-4, atol=1e-4)
    assert operators(made) == ["conv2d"]


def test_integers_of_dynamic_quantization_are_no_result() -> None:
    with pytest.raises(InvalidModelError) as caught:
        module_of(model(DYNAMIC[:1], {"x": [2, 6]}, ["q"]), "net.onnx")
    assert str(caught.value) == (
        "'net.onnx': node DynamicQuantizeLinear of 'q' gives integers with a scale that is computed from data. Quantize the float "
        "model with fixed scales, as onnxruntime's quantize_static does, or compile the float model."
    )


def test_a_dynamic_lstm_has_real_weights() -> None:
    rng = np.random.default_rng(2)
    w, r = (rng.integers(-127, 128, (1, size, 12)).astype(np.int8) for size in (4, 3))
    bias = random(1, 24)
    constants = {
        "w": w, "r": r, "b": bias, "ws": np.full(1, 0.01, np.float32), "wz": np.zeros(1, np.int8),
        "rs": np.full((1, 12), 0.02, np.float32), "rz": np.ones((1, 12), np.int8),
    }  # fmt: skip
    names = "x w r b - - - - ws wz rs rz"
    made = model(
        [node("DynamicQuantizeLSTM", names, "y", "com.microsoft", hidden_size=3)], {"x": [5, 2, 4]}, ["y"], constants
    )
    real = {
        "w": w.transpose(0, 2, 1) * np.float32(0.01),
        "r": (r.transpose(0, 2, 1) - np.float32(1)) * np.float32(0.02),
        "b": bias,
    }
    plain = model([node("LSTM", "x w r b", "y", hidden_size=3)], {"x": [5, 2, 4]}, ["y"], real)
    x = random(5, 2, 4)
    np.testing.assert_allclose(results(made, x)[0], results(plain, x)[0], rtol=1e-5, atol=1e-6)


def test_quantized_gains_of_a_normalization_are_real() -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "a"),
        node("DequantizeLinear", "g gs gz", "gain"),
        node("LayerNormalization", "a gain", "b"),
        node("QuantizeLinear", "b s z", "c"),
        node("DequantizeLinear", "c s z", "y"),
    ]
    constants = {
        "s": np.float32(0.05), "z": np.int8(0), "g": np.arange(100, 106).astype(np.uint8), "gs": np.float32(0.01), "gz": np.uint8(2),
    }  # fmt: skip
    made, x = model(nodes, {"x": [2, 6]}, ["y"], constants), random(2, 6)
    assert operators(made) == [
        "quantize_per_tensor", "dequantize_per_tensor", "layer_norm", "quantize_per_tensor", "dequantize_per_tensor"
    ]  # fmt: skip
    np.testing.assert_allclose(results(made, x)[0], ReferenceEvaluator(made).run(None, {"x": x})[0], atol=0.0501)


@pytest.mark.parametrize(("shape", "convolution"), [([1, 3, 4, 4], "conv2d"), ([2, 3, 5], "conv1d")])
def test_a_batch_normalization_of_quantized_values_is_a_convolution_of_one_point(
    shape: list[int], convolution: str
) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "a"),
        node("BatchNormalization", "a scale bias mean variance", "b", epsilon=1e-3),
        node("QuantizeLinear", "b s z", "c"),
        node("DequantizeLinear", "c s z", "y"),
    ]
    constants = {
        "s": np.float32(0.05), "z": np.int8(3), "scale": np.array([0.7, 0.0, -1.3], np.float32), "bias": random(3, seed=1),
        "mean": random(3, seed=2), "variance": np.array([0.5, 1.0, 2.0], np.float32),
    }  # fmt: skip
    made, x = model(nodes, {"x": shape}, ["y"], constants), random(*shape)
    both = ["quantize_per_tensor", "dequantize_per_tensor"]
    assert operators(made) == [*both, "dequantize_per_channel", convolution, *both]
    np.testing.assert_allclose(results(made, x)[0], ReferenceEvaluator(made).run(None, {"x": x})[0], atol=0.0501)


def test_a_channel_whose_weights_are_0_keeps_its_bias(tmp_path: Path) -> None:
    """The unit of a bias is tiny there: 1 would be beyond int32."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "a"),
        node("BatchNormalization", "a scale bias mean variance", "b", epsilon=1e-3),
        node("QuantizeLinear", "b s z", "c"),
        node("DequantizeLinear", "c s z", "d"),
        node("DequantizeLinear", "w ws", "real", axis=0),
        node("Conv", "d real wb", "e"),
        node("QuantizeLinear", "e s z", "f"),
        node("DequantizeLinear", "f s z", "y"),
    ]
    constants = {
        "s": np.float32(0.05), "z": np.int8(3), "scale": np.array([1e-30, 0.0, -1.3], np.float32),
        "bias": np.array([1, -2, 0.5], np.float32), "mean": np.zeros(3, np.float32), "variance": np.ones(3, np.float32),
        "w": np.array([[0, 0, 0], [100, 0, 50]], np.int8).reshape(2, 3, 1, 1), "ws": np.array([1e-20, 0.01], np.float32),
        "wb": np.array([-1.5, 0.25], np.float32),
    }  # fmt: skip
    made, x = model(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants), random(1, 3, 4, 4)
    compiled = openneutron.compile(saved(tmp_path, made), calibration=[(torch.from_numpy(x),)])
    found = np.asarray(compiled.run(torch.from_numpy(x))[0])
    np.testing.assert_allclose(found, ReferenceEvaluator(made).run(None, {"x": x})[0], atol=0.0501)
    np.testing.assert_allclose(found[0, 0], -1.5, atol=1e-6)


FLOATS_BETWEEN = [
    (node("Pow", "a two", "b"), ["mul"]),
    (node("Pow", "a half", "b"), ["sqrt"]),
    (node("ReduceL2", "a axes", "b", keepdims=1), ["mul", "sum", "sqrt"]),
    (node("BatchNormalization", "a g g g g", "b"), ["mul", "add"]),
]


@pytest.mark.parametrize(("between", "wanted"), FLOATS_BETWEEN)
def test_floats_of_a_quantized_graph_need_no_operator_that_executorch_lacks(
    between: onnx.NodeProto, wanted: list[str]
) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "a"),
        between,
        node("ReduceMean", "b axes", "y"),
    ]
    constants = {
        "s": np.float32(0.05), "z": np.int8(-128), "two": np.float32(2), "half": np.float32(0.5), "axes": np.array([-1]),
        "g": np.linspace(0.5, 2, 6, dtype=np.float32),
    }  # fmt: skip
    made, x = model(nodes, {"x": [2, 6]}, ["y"], constants), np.abs(random(2, 6))
    assert operators(made) == ["quantize_per_tensor", "dequantize_per_tensor", *wanted, "mean"]
    np.testing.assert_allclose(results(made, x)[0], ReferenceEvaluator(made).run(None, {"x": x})[0], rtol=1e-5)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_unsigned_constants_are_the_signed_ones_of_the_same_value(kind: type) -> None:
    constants = {"w": np.array([3, 200, 255], kind), "s": np.float32(0.5), "z": np.array(130, kind)}
    made = model([node("DequantizeLinear", "w s z", "r"), node("Add", "x r", "y")], {"x": [3]}, ["y"], constants)
    assert list(results(made, np.zeros(3, np.float32))[0]) == [-63.5, 35.0, 62.5]


def test_operators_that_move_integers_stand_between_real_values() -> None:
    domain = "com.microsoft"
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearSigmoid", "q s z ys yz", "a", domain),
        node("Reshape", "a shape", "b"),
        node("DequantizeLinear", "b ys yz", "y"),
    ]
    constants = {
        "s": np.float32(0.05), "z": np.uint8(128), "ys": np.float32(1 / 256), "yz": np.uint8(0), "shape": np.array([6]),
    }  # fmt: skip
    made = model(nodes, {"x": [2, 3]}, ["y"], constants)
    both = ["quantize_per_tensor", "dequantize_per_tensor"]
    assert operators(made) == [*both, "sigmoid", *both, "reshape", *both]
    x = random(2, 3)
    np.testing.assert_allclose(results(made, x)[0], 1 / (1 + np.exp(-x.reshape(-1))), atol=0.02)


def test_weights_of_four_bits_in_blocks_are_real() -> None:
    packed = helper.make_tensor("w", TensorProto.INT4, [4, 2], [-8, 7, 1, -1, 3, 4, -5, 0])
    nodes = [node("DequantizeLinear", "w s", "r", axis=0, block_size=2), node("MatMul", "x r", "y")]
    made = model(nodes, {"x": [1, 4]}, ["y"], {"s": np.array([[0.5, 1], [2, 4]], np.float32)}, opset=21)
    made.graph.initializer.append(packed)
    real = numpy_helper.to_array(packed).astype(np.float32) * np.repeat([[0.5, 1], [2, 4]], 2, 0)
    np.testing.assert_allclose(results(made, np.eye(4, dtype=np.float32)[:1])[0], real[:1])
    assert operators(made) == ["matmul"]


def test_the_texts_that_one_rounding_replaces_are_in_the_kernels(root: Path) -> None:
    for name, old, _ in REPLACED:
        assert (root / "runtime" / "kernels" / name).read_text().count(old) == 1, old
