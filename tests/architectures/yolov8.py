# SPDX-License-Identifier: BSD-3-Clause
"""YOLOv8n in its published dimensions: the width multiple 0.25 and the depth multiple 0.33 of YOLOv8, 80 classes.

Sources of the structure: the figure and the configuration `yolov8n` of Ultralytics' documentation. The head returns, for each
cell of the three grids, box distances before the distribution's softmax, boxes after it and class scores.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BINS = 16
"""Bins of the distribution of each of a box's four distances."""


class Conv(nn.Sequential):
    """A convolution with batch normalization and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
        )


class Bottleneck(nn.Module):
    """Two 3 x 3 convolutions, with a residual connection or without."""

    def __init__(self, channels: int, residual: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels, 3), Conv(channels, channels, 3)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.cv2(self.cv1(x))
        return x + y if self.residual else y


class C2f(nn.Module):
    """A block whose bottlenecks' results are concatenated."""

    def __init__(self, inputs: int, outputs: int, count: int, residual: bool = False) -> None:
        super().__init__()
        self.half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, outputs), Conv((2 + count) * self.half, outputs)
        self.m = nn.ModuleList(Bottleneck(self.half, residual) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).split((self.half, self.half), 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        y: Tensor = self.cv2(torch.cat(parts, 1))
        return y


class Sppf(nn.Module):
    """Three max pools, one after the other, and their concatenation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(2 * channels, channels)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.m(parts[-1]))
        y: Tensor = self.cv2(torch.cat(parts, 1))
        return y


class Detect(nn.Module):
    """The head: boxes as distributions of distances, and class scores."""

    def __init__(self, channels: tuple[int, ...], classes: int) -> None:
        super().__init__()
        boxes, scores = max(16, channels[0] // 4, 4 * BINS), max(channels[0], min(classes, 100))
        self.cv2 = nn.ModuleList(
            nn.Sequential(Conv(c, boxes, 3), Conv(boxes, boxes, 3), nn.Conv2d(boxes, 4 * BINS, 1)) for c in channels
        )
        self.cv3 = nn.ModuleList(
            nn.Sequential(Conv(c, scores, 3), Conv(scores, scores, 3), nn.Conv2d(scores, classes, 1)) for c in channels
        )
        self.register_buffer("bins", torch.arange(BINS, dtype=torch.float32).reshape(1, BINS, 1, 1))

    def forward(self, levels: list[Tensor]) -> Tensor:
        distances = torch.cat([head(x).flatten(2) for head, x in zip(self.cv2, levels, strict=True)], 2)
        scores = torch.cat([head(x).flatten(2) for head, x in zip(self.cv3, levels, strict=True)], 2)
        chances = distances.unflatten(1, (4, BINS)).transpose(1, 2).softmax(1)
        boxes = nn.functional.conv2d(chances, self.bins).squeeze(1)
        return torch.cat([boxes, scores.sigmoid()], 1)


class YoloV8n(nn.Module):
    """The detector; images of shape [N, 3, H, W], H and W multiples of 32; returns [N, 84, H W / 64 (1 + 1/4 + 1/16)]."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.to_p3 = nn.Sequential(
            Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), C2f(32, 32, 1, True), Conv(32, 64, 3, 2), C2f(64, 64, 2, True)
        )
        self.to_p4 = nn.Sequential(Conv(64, 128, 3, 2), C2f(128, 128, 2, True))
        self.to_p5 = nn.Sequential(Conv(128, 256, 3, 2), C2f(256, 256, 1, True), Sppf(256))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up4, self.up3 = C2f(384, 128, 1), C2f(192, 64, 1)
        self.down4, self.down5 = Conv(64, 64, 3, 2), Conv(128, 128, 3, 2)
        self.out4, self.out5 = C2f(192, 128, 1), C2f(384, 256, 1)
        self.detect = Detect((64, 128, 256), classes)

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.to_p3(x)
        p4 = self.to_p4(p3)
        p5 = self.to_p5(p4)
        p4 = self.up4(torch.cat([self.up(p5), p4], 1))
        p3 = self.up3(torch.cat([self.up(p4), p3], 1))
        p4 = self.out4(torch.cat([self.down4(p3), p4], 1))
        p5 = self.out5(torch.cat([self.down5(p4), p5], 1))
        y: Tensor = self.detect([p3, p4, p5])
        return y
