# SPDX-License-Identifier: BSD-3-Clause
"""Detectors whose i.MX 95 latency is published, as graphs of the right shapes, with random weights.

The graphs end where NXP's converter ended in the published runs: behind the heads' last convolutions. Boxes and scores are decoded on the
host core.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openneutron import ops
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor
from scripts.published_networks import ACTIVATION

LOGISTIC = per_tensor(1 / 256, -128)
TANH = per_tensor(1 / 128, 0)


class Network:
    """A graph while it is made. Methods add operators and return the name of the result."""

    def __init__(self, name: str, extent: int) -> None:
        self.name = name
        self.tensors = {"input": Tensor("input", (1, extent, extent, 3), DType.INT8, ACTIVATION)}
        self.nodes: list[Node] = []
        self.generator = np.random.default_rng(0)

    def _add(
        self, op: str, operands: Sequence[str], shape: tuple[int, ...], quant: object = ACTIVATION, **attrs: object
    ) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.tensors[name] = Tensor(name, shape, DType.INT8, quant)
        defaults = {attribute.name: attribute.default for attribute in ops.BY_NAME[op].attributes}
        self.nodes.append(Node(op, tuple(operands), (name,), {**defaults, **attrs}))
        return name

    def _constant(self, data: np.ndarray, quant: object = None) -> str:
        name = f"constant_{len(self.tensors)}"
        self.tensors[name] = constant(name, data, quant)
        return name

    def channels(self, name: str) -> int:
        """Return the channels of a tensor."""
        return self.tensors[name].shape[3]

    def _weights(self, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
        scales = np.full(shape[axis], 0.01, np.float32)
        weights = self.generator.integers(-127, 128, shape, np.int8)
        bias = np.zeros(shape[axis], np.int32)
        scaled = per_channel(scales * np.float32(ACTIVATION.scales[0]), 0)
        return self._constant(weights, per_channel(scales, axis)), self._constant(bias, scaled)

    def conv(self, x: str, filters: int, kernel: int = 1, stride: int = 1, activation: str = "NONE") -> str:
        """Add a padded convolution."""
        _, height, width, channels = self.tensors[x].shape
        constants = self._weights((filters, kernel, kernel, channels), 0)
        shape = (1, -(-height // stride), -(-width // stride), filters)
        attrs = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "activation": activation}
        return self._add("conv_2d", (x, *constants), shape, **attrs)

    def depthwise(self, x: str, stride: int = 1, kernel: int = 3, activation: str = "RELU") -> str:
        """Add a padded depthwise convolution."""
        _, height, width, channels = self.tensors[x].shape
        constants = self._weights((1, kernel, kernel, channels), 3)
        attrs = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "activation": activation}
        return self._add(
            "depthwise_conv_2d", (x, *constants), (1, height // stride, width // stride, channels), **attrs
        )

    def separable(self, x: str, filters: int, stride: int = 1) -> str:
        """Add a depthwise convolution and a pointwise one, each with a ReLU."""
        return self.conv(self.depthwise(x, stride), filters, activation="RELU")

    def silu(self, x: str, filters: int, kernel: int = 1, stride: int = 1) -> str:
        """Add a convolution and a SiLU, which LiteRT has as a logistic function and a product."""
        y = self.conv(x, filters, kernel, stride)
        shape = self.tensors[y].shape
        return self._add("mul", (y, self._add("logistic", (y,), shape, LOGISTIC)), shape)

    def add(self, a: str, b: str) -> str:
        """Add a sum."""
        return self._add("add", (a, b), self.tensors[a].shape)

    def concatenate(self, parts: Sequence[str]) -> str:
        """Add a concatenation of channels."""
        shape = (*self.tensors[parts[0]].shape[:3], sum(map(self.channels, parts)))
        return self._add("concatenation", parts, shape, axis=3)

    def halves(self, x: str) -> tuple[str, str]:
        """Add slices of the first and the second half of the channels."""
        *extents, channels = self.tensors[x].shape
        shape = (*extents, channels // 2)
        size = self._constant(np.array(shape, np.int32))
        starts = [self._constant(np.array([0, 0, 0, start], np.int32)) for start in (0, channels // 2)]
        first, second = (self._add("slice", (x, start, size), shape) for start in starts)
        return first, second

    def twice(self, x: str) -> str:
        """Add a resize to twice the rows and columns."""
        _, height, width, channels = self.tensors[x].shape
        size = self._constant(np.array([2 * height, 2 * width], np.int32))
        return self._add("resize_nearest_neighbor", (x, size), (1, 2 * height, 2 * width, channels))

    def max_pool(self, x: str, kernel: int, stride: int = 1) -> str:
        """Add a padded max pool."""
        _, height, width, channels = self.tensors[x].shape
        shape = (1, -(-height // stride), -(-width // stride), channels)
        attrs = {"kernel_h": kernel, "kernel_w": kernel, "stride_h": stride, "stride_w": stride}
        return self._add("max_pool_2d", (x,), shape, padding="SAME", **attrs)

    def multiply(self, a: str, b: str) -> str:
        """Add a product of elements."""
        return self._add("mul", (a, b), self.tensors[a].shape)

    def tanh(self, x: str) -> str:
        """Add a hyperbolic tangent."""
        return self._add("tanh", (x,), self.tensors[x].shape, TANH)

    def prelu(self, x: str) -> str:
        """Add a ReLU with a slope for each channel."""
        slopes = self.generator.integers(-127, 128, (1, 1, self.channels(x)), np.int8)
        return self._add("prelu", (x, self._constant(slopes, per_tensor(0.01, 0))), self.tensors[x].shape)

    def pad_channels(self, x: str, channels: int) -> str:
        """Add channels of zeros behind the channels of ``x``."""
        *extents, given = self.tensors[x].shape
        widths = self._constant(np.array([[0, 0], [0, 0], [0, 0], [0, channels - given]], np.int32))
        return self._add("pad", (x, widths), (*extents, channels))

    def larger(self, x: str) -> str:
        """Add a bilinear resize to twice the rows and columns."""
        _, height, width, channels = self.tensors[x].shape
        size = self._constant(np.array([2 * height, 2 * width], np.int32))
        return self._add("resize_bilinear", (x, size), (1, 2 * height, 2 * width, channels), half_pixel_centers=True)

    def mean(self, x: str) -> str:
        """Add a mean over rows and columns."""
        axes = self._constant(np.array([1, 2], np.int32))
        return self._add("mean", (x, axes), (1, self.channels(x)))

    def fully_connected(self, x: str, outputs: int) -> str:
        """Add a fully connected layer on a tensor of two dimensions."""
        weights = self._weights((outputs, self.tensors[x].shape[1]), 0)
        return self._add("fully_connected", (x, *weights), (1, outputs))

    def logistic(self, x: str) -> str:
        """Add a logistic function."""
        return self._add("logistic", (x,), self.tensors[x].shape, LOGISTIC)

    def graph(self, outputs: Sequence[str]) -> Graph:
        """Return the finished graph."""
        made = Graph(self.name, self.tensors, tuple(self.nodes), ("input",), tuple(outputs))
        made.verify()
        return made


SIZES = {"n": (1, 4, 1024), "s": (1, 8, 1024), "m": (2, 12, 768), "l": (3, 16, 512), "x": (3, 20, 512)}
"""Of YOLOv8's sizes the depth in thirds, the width in sixteenths and the most channels: Ultralytics' configuration yolov8.yaml."""


def _c2f(net: Network, x: str, filters: int, count: int, residual: bool = False) -> str:
    parts = list(net.halves(net.silu(x, filters)))
    for _ in range(count):
        y = net.silu(net.silu(parts[-1], filters // 2, 3), filters // 2, 3)
        parts.append(net.add(parts[-1], y) if residual else y)
    return net.silu(net.concatenate(parts), filters)


def yolov8(size: str, extent: int = 640, classes: int = 80, further: int = 0) -> Graph:
    """YOLOv8 up to the boxes' distributions and the scores of the three grids.

    ``further``: the channels of a third branch of the head, 51 for poses of 17 points or 32 for masks; 0: it is absent.
    """
    thirds, sixteenths, most = SIZES[size]
    net = Network(f"yolov8{size}", extent)

    def wide(channels: int) -> int:
        return min(channels, most) * sixteenths // 16

    def deep(count: int) -> int:
        return count * thirds // 3

    x = net.silu(net.silu("input", wide(64), 3, 2), wide(128), 3, 2)
    x = _c2f(net, x, wide(128), deep(3), True)
    p3 = _c2f(net, net.silu(x, wide(256), 3, 2), wide(256), deep(6), True)
    p4 = _c2f(net, net.silu(p3, wide(512), 3, 2), wide(512), deep(6), True)
    x = _c2f(net, net.silu(p4, wide(1024), 3, 2), wide(1024), deep(3), True)
    pools = [net.silu(x, wide(1024) // 2)]
    for _ in range(3):
        pools.append(net.max_pool(pools[-1], 5))
    p5 = net.silu(net.concatenate(pools), wide(1024))
    p4 = _c2f(net, net.concatenate((net.twice(p5), p4)), wide(512), deep(3))
    p3 = _c2f(net, net.concatenate((net.twice(p4), p3)), wide(256), deep(3))
    p4 = _c2f(net, net.concatenate((net.silu(p3, wide(256), 3, 2), p4)), wide(512), deep(3))
    p5 = _c2f(net, net.concatenate((net.silu(p4, wide(512), 3, 2), p5)), wide(1024), deep(3))
    outputs = []
    branches = [(max(64, wide(256) // 4), 64), (max(wide(256), min(classes, 100)), classes)]
    for level in (p3, p4, p5):
        heads = [_head(net, level, *branch) for branch in branches]
        outputs.append(net.concatenate(heads))
        if further:
            outputs.append(_head(net, level, max(wide(256) // 4, further), further))
    return net.graph(outputs)


def _head(net: Network, x: str, filters: int, outputs: int) -> str:
    return net.conv(net.silu(net.silu(x, filters, 3), filters, 3), outputs)


SCRFD_STAGES = ((40, 2), (72, 3), (152, 2), (288, 6))
"""Channels and blocks of the stages behind the stem: InsightFace's configuration scrfd_500m_bnkps."""


def scrfd_500m(extent: int = 640) -> Graph:
    """SCRFD-500M with five points for each face, up to the scores, boxes and points of three grids."""
    net = Network("scrfd_500m", extent)
    x = net.separable(net.conv("input", 16, 3, 2, "RELU"), 16)
    levels = []
    for filters, count in SCRFD_STAGES:
        x = net.separable(x, filters, 2)
        for _ in range(count - 1):
            x = net.separable(x, filters)
        levels.append(x)
    inner = [net.conv(level, 16) for level in levels[1:]]
    for i in (1, 0):
        inner[i] = net.add(inner[i], net.twice(inner[i + 1]))
    outer = [net.conv(level, 16, 3) for level in inner]
    for i in (1, 2):
        outer[i] = net.add(outer[i], net.conv(outer[i - 1], 16, 3, 2))
    outer = [outer[0], *(net.conv(level, 16, 3) for level in outer[1:])]
    outputs = []
    for level in outer:
        x = net.separable(net.separable(level, 64), 64)
        outputs += [net.conv(x, filters, 3) for filters in (2, 8, 20)]
    return net.graph(outputs)


RESNET_18 = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
"""Channels and stride of ResNet-18's blocks: table 1 of arXiv 1512.03385."""


def nanosam_encoder(extent: int = 1024) -> Graph:
    """The image encoder of NanoSAM: ResNet-18 and a head with GELUs (EdgeFirstAI/nanosam, nanosam/tools/build_tflite_encoder.py).

    The transposed convolution runs on the host core in the published run. A resize stands for it.
    """
    net = Network("nanosam_encoder", extent)
    x = net.max_pool(net.conv("input", 64, 7, 2, "RELU"), 3, 2)
    for filters, stride in RESNET_18:
        y = net.conv(net.conv(x, filters, 3, stride, "RELU"), filters, 3)
        x = net.add(y, x if net.channels(x) == filters else net.conv(x, filters, 1, stride))
    for _ in range(3):
        x = _gelu(net, net.conv(x, 256, 3))
    x = _gelu(net, net.twice(x))
    return net.graph([net.conv(_gelu(net, net.conv(x, 256, 3)), 256)])


def _gelu(net: Network, x: str) -> str:
    """Add the operators of a GELU with a hyperbolic tangent, but for scalings."""
    cube = net.multiply(net.multiply(x, x), x)
    return net.multiply(x, net.tanh(net.add(x, cube)))
