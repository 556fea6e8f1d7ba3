# SPDX-License-Identifier: BSD-3-Clause
"""The two networks whose i.MX RT700 latency is published, as graphs of the right shapes, with random weights."""

from __future__ import annotations

import numpy as np

from openneutron import ops
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor

ACTIVATION = per_tensor(0.05, 0)
PROBABILITY = per_tensor(1 / 256, -128)


class Chain:
    """A graph made one operator behind the other."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.tensors = {"input": Tensor("input", shape, DType.INT8, ACTIVATION)}
        self.nodes: list[Node] = []
        self.last = self.tensors["input"]
        self.generator = np.random.default_rng(0)

    def _add(
        self, op: str, shape: tuple[int, ...], attrs: dict[str, object], *constants: Tensor, quant: object = ACTIVATION
    ) -> Chain:
        result = Tensor(f"{op}_{len(self.nodes)}", shape, DType.INT8, quant)
        self.tensors.update({tensor.name: tensor for tensor in (*constants, result)})
        operands = (self.last.name, *(tensor.name for tensor in constants))
        defaults = {attribute.name: attribute.default for attribute in ops.BY_NAME[op].attributes}
        self.nodes.append(Node(op, operands, (result.name,), {**defaults, **attrs}))
        self.last = result
        return self

    def _constants(self, shape: tuple[int, ...], axis: int) -> tuple[Tensor, Tensor]:
        scales = np.full(shape[axis], 0.01, np.float32)
        index = len(self.nodes)
        weights = constant(
            f"weights_{index}", self.generator.integers(-127, 128, shape, np.int8), per_channel(scales, axis)
        )
        bias = constant(f"bias_{index}", np.zeros(shape[axis], np.int32), per_channel(scales * np.float32(0.05), 0))
        return weights, bias

    def conv(self, filters: int, kernel: int, stride: int = 1) -> Chain:
        """Padded convolution with a fused ReLU."""
        _, height, width, channels = self.last.shape
        constants = self._constants((filters, kernel, kernel, channels), 0)
        return self._add("conv_2d", (1, height // stride, width // stride, filters), _window(stride), *constants)

    def depthwise(self, stride: int) -> Chain:
        """Padded 3x3 depthwise convolution with a fused ReLU."""
        _, height, width, channels = self.last.shape
        constants = self._constants((1, 3, 3, channels), 3)
        shape = (1, height // stride, width // stride, channels)
        return self._add("depthwise_conv_2d", shape, _window(stride), *constants)

    def max_pool(self) -> Chain:
        """2x2, stride 2."""
        _, height, width, channels = self.last.shape
        attrs = {"kernel_h": 2, "kernel_w": 2, "padding": "VALID", "stride_h": 2, "stride_w": 2}
        return self._add("max_pool_2d", (1, height // 2, width // 2, channels), attrs)

    def mean(self) -> Chain:
        """Over rows and columns."""
        axes = constant(f"axes_{len(self.nodes)}", np.array([1, 2], np.int32))
        return self._add("mean", (1, self.last.shape[3]), {}, axes)

    def flatten(self) -> Chain:
        return self._add("reshape", (1, self.last.elements), {"new_shape": (1, self.last.elements)})

    def fully_connected(self, outputs: int) -> Chain:
        weights, bias = self._constants((outputs, self.last.shape[1]), 0)
        return self._add("fully_connected", (1, outputs), {}, weights, bias)

    def softmax(self) -> Chain:
        return self._add("softmax", self.last.shape, {}, quant=PROBABILITY)

    def graph(self) -> Graph:
        made = Graph(self.name, self.tensors, tuple(self.nodes), ("input",), (self.last.name,))
        made.verify()
        return made


def _window(stride: int) -> dict[str, object]:
    return {
        "padding": "SAME",
        "stride_h": stride,
        "stride_w": stride,
        "activation": "RELU",
    }


def cifarnet() -> Graph:
    """Three padded 5x5 convolutions with 2x2 max pools, fully connected, softmax; 12.3 million multiply-accumulates."""
    chain = Chain("cifarnet", (1, 32, 32, 3))
    for filters in (32, 32, 64):
        chain.conv(filters, 5).max_pool()
    return chain.flatten().fully_connected(10).softmax().graph()


SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Output channels and stride of MobileNetV1's blocks: table 1 of arXiv 1704.04861."""


def mobilenet_v1(width: float = 1.0, extent: int = 224) -> Graph:
    """MobileNetV1 with 1001 classes; 1.0 at 224x224 has 569 million multiply-accumulates."""
    chain = Chain("mobilenet_v1", (1, extent, extent, 3)).conv(int(32 * width), 3, 2)
    for filters, stride in SEPARABLE:
        chain.depthwise(stride).conv(int(filters * width), 1)
    return chain.mean().fully_connected(1001).softmax().graph()
