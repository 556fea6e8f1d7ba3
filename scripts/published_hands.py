# SPDX-License-Identifier: BSD-3-Clause
"""MediaPipe's networks for hands, as graphs of the right shapes, with random weights.

The layers are those of palm_detection_{lite,full}.tflite and hand_landmark_{lite,full}.tflite in mediapipe 0.10.21 (Apache-2.0).
"""

from __future__ import annotations

from openneutron.ir import Graph
from scripts.published_detectors import Network


def _palm_block(net: Network, x: str, filters: int, stride: int = 1) -> str:
    """Add a depthwise and a pointwise convolution beside a shortcut, which pools and gets channels of zeros where it has too few."""
    y = net.conv(net.depthwise(x, stride, 5, "NONE"), filters)
    if stride > 1:
        x = net.max_pool(x, 2, 2)
    if net.channels(x) < filters:
        x = net.pad_channels(x, filters)
    return net.prelu(net.add(x, y))


def palm_detection(is_full: bool = False) -> Graph:
    """Palm detection at 192 x 192, up to the scores and boxes of two grids."""
    net, count = Network("palm_detection", 192), 4 if is_full else 3
    x = net.prelu(net.conv("input", 32, 5, 2))
    levels = []
    for filters, following in ((32, 64), (64, 128), (128, 256), (256, 256)):
        for _ in range(count):
            x = _palm_block(net, x, filters)
        levels.append(x)
        x = _palm_block(net, x, following, 2)
    for _ in range(count):
        x = _palm_block(net, x, 256)
    outputs = []
    for level, anchors in ((levels[3], 6), (levels[2], 2)):
        x = net.add(level, net.prelu(net.conv(net.larger(x), net.channels(level))))
        for _ in range(2):
            x = _palm_block(net, x, net.channels(level))
        outputs += [net.conv(x, anchors), net.conv(x, 18 * anchors)]
    return net.graph(outputs)


HAND_LITE = (
    *((4, 16, 3, 2), (6, 16, 3, 1), (6, 24, 5, 2), (6, 24, 5, 1), (6, 48, 3, 2), (6, 48, 3, 1), (6, 48, 3, 1)),
    *((6, 64, 5, 1), (6, 64, 5, 1), (6, 64, 5, 1), (6, 112, 5, 2), (6, 112, 5, 1), (6, 112, 5, 1), (6, 112, 5, 1)),
)
HAND_FULL = (
    *((4, 24, 3, 2), (6, 24, 3, 1), (6, 40, 5, 2), (6, 40, 5, 1), (6, 80, 3, 2), (6, 80, 3, 1), (6, 80, 3, 1)),
    *((6, 112, 5, 1), (6, 112, 5, 1), (6, 112, 5, 1), (6, 192, 5, 2), (6, 192, 5, 1), (6, 192, 5, 1), (6, 192, 5, 1)),
)
"""The blocks of the hand's landmarks: expansion, channels, kernel and stride."""


def hand_landmark(is_full: bool = False) -> Graph:
    """Hand landmarks at 224 x 224: 21 points in the image and in the world, the presence of a hand, and its side."""
    net = Network("hand_landmark", 224)
    x = net.conv(net.depthwise(net.conv("input", 24, 3, 2, "RELU6"), activation="RELU6"), 16)
    for expansion, filters, kernel, stride in HAND_FULL if is_full else HAND_LITE:
        wide = net.depthwise(net.conv(x, expansion * net.channels(x), activation="RELU6"), stride, kernel, "RELU6")
        y = net.conv(wide, filters)
        if stride == 1 and net.channels(x) == filters:
            y = net.add(y, x)
        elif not is_full and expansion == 4:
            y = net.add(y, net.max_pool(x, 2, 2))
        x = y
    x = net.mean(net.depthwise(net.conv(x, 6 * net.channels(x), activation="RELU6"), activation="RELU6"))
    scores = [net.logistic(net.fully_connected(x, 1)) for _ in range(2)]
    return net.graph([*scores, *(net.fully_connected(x, 63) for _ in range(2))])
