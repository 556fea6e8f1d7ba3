# SPDX-License-Identifier: BSD-3-Clause
"""Networks with the operators and shapes of the trained test models, for machines without these models.

Weights are random. Each layer's weight scales keep the spread of its output near that of its input, so that values
neither saturate nor vanish over many layers. Memory depends only on shapes, so the bounds in the tests hold for both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from openneutron import litert, ops
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant, per_channel, per_tensor

TRAINED_MODELS = Path(__file__).parents[3] / "shared" / "models"
"""The folder of trained models beside the checkout, where there is one."""

SIGNED = per_tensor(0.03, 4)
POSITIVE = per_tensor(0.02, -128)
PROBABILITY = per_tensor(1 / 256, -128)

HALF_RANGE = {"NONE": 3.6, "RELU": 2.5, "RELU6": 2.5}
"""Return about half of the real values that a layer's output can hold, by its activation."""


class Layers:
    """A graph that grows layer by layer: each method adds one operator behind a tensor and returns its result."""

    def __init__(self, name: str, shape: tuple[int, ...], seed: int) -> None:
        self.name = name
        self.input = Tensor("input", shape, DType.INT8, SIGNED)
        self.tensors = {"input": self.input}
        self.nodes: list[Node] = []
        self.random = np.random.default_rng(seed)

    def operator(
        self, op: str, operands: tuple[Tensor, ...], shape: tuple[int, ...], quant: QuantParams, **attrs: object
    ) -> Tensor:
        """Add an operator with the default attributes, but for those that are specified."""
        result = Tensor(f"{op}_{len(self.nodes)}", shape, DType.INT8, quant)
        self.tensors.update({tensor.name: tensor for tensor in (*operands, result)})
        defaults = {
            attribute.name: attribute.default for attribute in ops.BY_NAME[op].attributes if not attribute.unstated
        }
        self.nodes.append(Node(op, tuple(item.name for item in operands), (result.name,), {**defaults, **attrs}))
        return result

    def _weights(self, source: Tensor, shape: tuple[int, ...], axis: int, activation: str) -> tuple[Tensor, Tensor]:
        """Return uniform weights with a scale for each output, and biases; ``axis`` counts the outputs."""
        taps = int(np.prod(shape)) // shape[axis]
        spread = HALF_RANGE[activation] / HALF_RANGE["NONE"] * np.sqrt(3 / taps) / 127
        scales = (spread * self.random.uniform(0.6, 1.4, shape[axis])).astype(np.float32)
        assert source.quant is not None
        index = len(self.nodes)
        weights = constant(
            f"weights_{index}", self.random.integers(-127, 128, shape, np.int8), per_channel(scales, axis)
        )
        steps = scales * np.float32(source.quant.scale)
        bias = (self.random.normal(0, 0.3, shape[axis]) / steps).astype(np.int32)
        return weights, constant(f"bias_{index}", bias, per_channel(steps, 0))

    def constant(self, *values: int) -> Tensor:
        """Return a list of int32 constants, which becomes part of the graph with the operator that reads it."""
        return constant(f"constant_{len(self.nodes)}_{'_'.join(map(str, values))}", np.array(values, np.int32))

    def conv(
        self, source: Tensor, outputs: int, kernel: tuple[int, int] = (1, 1), stride: int = 1, activation: str = "RELU"
    ) -> Tensor:
        """Add a padded convolution."""
        batches, height, width, channels = source.shape
        constants = self._weights(source, (outputs, *kernel, channels), 0, activation)
        return self.operator(
            "conv_2d",
            (source, *constants),
            (batches, -(-height // stride), -(-width // stride), outputs),
            _quantization(activation),
            padding="SAME",
            stride_h=stride,
            stride_w=stride,
            activation=activation,
        )

    def depthwise(self, source: Tensor, stride: int = 1, activation: str = "RELU") -> Tensor:
        """Add a padded 3x3 depthwise convolution."""
        batches, height, width, channels = source.shape
        constants = self._weights(source, (1, 3, 3, channels), 3, activation)
        return self.operator(
            "depthwise_conv_2d",
            (source, *constants),
            (batches, -(-height // stride), -(-width // stride), channels),
            _quantization(activation),
            padding="SAME",
            stride_h=stride,
            stride_w=stride,
            activation=activation,
            depth_multiplier=1,
        )

    def add(self, a: Tensor, b: Tensor, activation: str = "NONE") -> Tensor:
        return self.operator("add", (a, b), a.shape, _quantization(activation), activation=activation)

    def whole_average(self, source: Tensor) -> Tensor:
        """Add an average pool over all rows and columns, as a list of channels."""
        _, height, width, channels = source.shape
        assert source.quant is not None
        pooled = self.operator(
            "average_pool_2d",
            (source,),
            (1, 1, 1, channels),
            source.quant,
            padding="VALID",
            kernel_h=height,
            kernel_w=width,
            stride_h=height,
            stride_w=width,
        )
        return self.operator("reshape", (pooled,), (1, channels), source.quant, new_shape=(1, channels))

    def mean(self, source: Tensor) -> Tensor:
        """Add the mean over rows and columns."""
        return self.operator("mean", (source, self.constant(1, 2)), (1, source.shape[3]), per_tensor(0.015, -128))

    def fully_connected(self, source: Tensor, outputs: int, activation: str = "NONE") -> Tensor:
        constants = self._weights(source, (outputs, source.shape[1]), 0, activation)
        quant = _quantization(activation)
        return self.operator("fully_connected", (source, *constants), (1, outputs), quant, activation=activation)

    def softmax(self, source: Tensor) -> Tensor:
        return self.operator("softmax", (source,), source.shape, PROBABILITY)

    def graph(self, output: Tensor) -> Graph:
        made = Graph(self.name, self.tensors, tuple(self.nodes), ("input",), (output.name,))
        made.verify()
        return made


def _quantization(activation: str) -> QuantParams:
    return SIGNED if activation == "NONE" else POSITIVE


def anomaly_detection() -> Graph:
    """The autoencoder of MLPerf Tiny: ten fully connected layers over 640 values."""
    layers = Layers("anomaly_detection", (1, 640), 1)
    last = layers.input
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        last = layers.fully_connected(last, outputs, "RELU")
    return layers.graph(layers.fully_connected(last, 640))


def keyword_spotting() -> Graph:
    """The DS-CNN of MLPerf Tiny over 49 frames of 10 coefficients."""
    layers = Layers("keyword_spotting", (1, 49, 10, 1), 2)
    last = layers.conv(layers.input, 64, (10, 4), 2)
    for _ in range(4):
        last = layers.conv(layers.depthwise(last), 64)
    return layers.graph(layers.softmax(layers.fully_connected(layers.whole_average(last), 12)))


def resnet8() -> Graph:
    """The residual network of MLPerf Tiny over images of 32x32."""
    layers = Layers("resnet8", (1, 32, 32, 3), 3)
    last = layers.conv(layers.input, 16, (3, 3))
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        branch = layers.conv(layers.conv(last, outputs, (3, 3), stride), outputs, (3, 3), activation="NONE")
        skip = last if stride == 1 else layers.conv(last, outputs, stride=stride, activation="NONE")
        last = layers.add(skip, branch, "RELU")
    return layers.graph(layers.softmax(layers.fully_connected(layers.whole_average(last), 10)))


QUARTER_WIDTH = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2), (256, 1))
"""Output channels and stride of the blocks of MobileNetV1 0.25: table 1 of arXiv 1704.04861, a quarter of its channels."""


def visual_wake_words() -> Graph:
    """MobileNetV1 0.25 over images of 96x96, two classes, as in MLPerf Tiny."""
    layers = Layers("visual_wake_words", (1, 96, 96, 3), 4)
    last = layers.conv(layers.input, 8, (3, 3), 2)
    for outputs, stride in QUARTER_WIDTH:
        last = layers.conv(layers.depthwise(last, stride), outputs)
    return layers.graph(layers.softmax(layers.fully_connected(layers.whole_average(last), 2)))


INVERTED = ((6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, output channels, repeats and first stride of MobileNetV2's stages behind the first: table 2 of arXiv 1801.04381."""


def mobilenet_v2() -> Graph:
    """MobileNetV2 1.0 over images of 224x224, 1000 classes."""
    layers = Layers("mobilenet_v2", (1, 224, 224, 3), 5)
    last = layers.depthwise(layers.conv(layers.input, 32, (3, 3), 2, "RELU6"), 1, "RELU6")
    last = layers.conv(last, 16, activation="NONE")
    for expansion, outputs, repeats, first_stride in INVERTED:
        for block in range(repeats):
            wide = layers.conv(last, expansion * last.shape[3], activation="RELU6")
            wide = layers.depthwise(wide, 1 if block else first_stride, "RELU6")
            narrow = layers.conv(wide, outputs, activation="NONE")
            last = layers.add(last, narrow) if block else narrow
    last = layers.mean(layers.conv(last, 1280, activation="RELU6"))
    return layers.graph(layers.softmax(layers.fully_connected(last, 1000)))


NETWORKS: Mapping[str, Callable[[], Graph]] = {
    "mlperf_tiny_ad01_int8": anomaly_detection,
    "mlperf_tiny_kws_int8": keyword_spotting,
    "mlperf_tiny_resnet8_int8": resnet8,
    "mlperf_tiny_vww96_int8": visual_wake_words,
    "mobilenet_v2_224_random_int8": mobilenet_v2,
}
"""A network for each trained model, by the name of the model's file."""


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with every network as a LiteRT file, under the name of the model that it stands in for."""
    folder = tempfile.TemporaryDirectory(prefix="openneutron-models-")
    for name, network in NETWORKS.items():
        Path(folder.name, f"{name}.tflite").write_bytes(litert.write(network()))
    return folder


def models_folder() -> Path:
    """Return the folder of trained models, or, where it is absent, a folder of this module's networks."""
    return TRAINED_MODELS if TRAINED_MODELS.is_dir() else Path(_temporary_folder().name)
