# SPDX-License-Identifier: BSD-3-Clause
"""MobileNetV1, V2 and V3-Small; parameter names of V2 and V3 as in torchvision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Return a convolution, its batch norm, and the activation if there is one."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation(inplace=True)]))


BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Output channels at width 1 and stride of each separable convolution: table 1 of the paper."""


class MobileNetV1(nn.Module):
    """MobileNetV1 (Howard et al., arXiv 1704.04861). Input [N, 3, H, W], output [N, classes].

    ``softmax`` ends with probabilities, as MLPerf Tiny's visual wake words network of width 0.25 and two classes does
    (mlcommons/tiny, benchmark/training/visual_wake_words).
    """

    def __init__(self, classes: int = 1000, width: float = 1.0, softmax: bool = False) -> None:
        super().__init__()
        channels = int(32 * width)
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.ReLU)]
        for block_channels, stride in BLOCKS:
            outputs = int(block_channels * width)
            layers.append(conv_norm(channels, channels, 3, stride, channels, nn.ReLU))
            layers.append(conv_norm(channels, outputs, 1, 1, 1, nn.ReLU))
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)
        self.softmax = nn.Softmax(dim=1) if softmax else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.features(x))
        return self.softmax(self.classifier(x.flatten(1)))


def visual_wake_words() -> MobileNetV1:
    """Width 0.25, two classes, for 96x96 images (mlcommons/tiny, benchmark/training/visual_wake_words)."""
    return MobileNetV1(classes=2, width=0.25, softmax=True)


STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, first stride: table 2 of the paper."""


def channels_of(channels: float) -> int:
    """Return the nearest multiple of 8 that is not more than 10 % below (the reference implementation's rule)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; added to the input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.use_res_connect = stride == 1 and inputs == outputs
        layers: list[nn.Module] = [conv_norm(inputs, hidden, 1, 1, 1, nn.ReLU6)] if expansion != 1 else []
        layers += [
            conv_norm(hidden, hidden, 3, stride, hidden, nn.ReLU6),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., arXiv 1801.04381). Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = channels_of(32 * width)
        last = channels_of(1280 * max(1.0, width))
        features: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.ReLU6)]
        for expansion, stage_channels, blocks, first_stride in STAGES:
            outputs = channels_of(stage_channels * width)
            for block in range(blocks):
                features.append(InvertedResidual(channels, outputs, first_stride if block == 0 else 1, expansion))
                channels = outputs
        features.append(conv_norm(channels, last, 1, 1, 1, nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the paper's table 2: kernel, channels inside and after, squeeze-and-excite, hard swish or ReLU, stride."""

    kernel: int
    expanded: int
    channels: int
    excites: bool
    swish: bool
    stride: int


STEM = 16
V3_BLOCKS = (
    Block(3, 16, 16, True, False, 2),
    Block(3, 72, 24, False, False, 2),
    Block(3, 88, 24, False, False, 1),
    Block(5, 96, 40, True, True, 2),
    Block(5, 240, 40, True, True, 1),
    Block(5, 240, 40, True, True, 1),
    Block(5, 120, 48, True, True, 1),
    Block(5, 144, 48, True, True, 1),
    Block(5, 288, 96, True, True, 2),
    Block(5, 576, 96, True, True, 1),
    Block(5, 576, 96, True, True, 1),
)
LAST, WIDE = 576, 1024
EPS = 0.001
"""Of the batch norms of MobileNetV3."""


class SqueezeExcitation(nn.Module):
    """Each channel times a factor in [0, 1] that two layers make of all channels' means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return self.scale_activation(scale) * x


class ExcitedResidual(nn.Module):
    """Expand, depthwise, squeeze and excite, project; added to the input where the shapes allow."""

    def __init__(self, inputs: int, row: Block) -> None:
        super().__init__()
        self.use_res_connect = row.stride == 1 and inputs == row.channels
        activation: type[nn.Module] = nn.Hardswish if row.swish else nn.ReLU
        layers: list[nn.Module] = []
        if row.expanded != inputs:
            layers.append(conv_norm(inputs, row.expanded, 1, 1, 1, activation, EPS))
        layers.append(conv_norm(row.expanded, row.expanded, row.kernel, row.stride, row.expanded, activation, EPS))
        if row.excites:
            layers.append(SqueezeExcitation(row.expanded, channels_of(row.expanded // 4)))
        layers.append(conv_norm(row.expanded, row.channels, 1, eps=EPS))
        self.block = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """MobileNetV3-Small (Howard et al., arXiv 1905.02244). Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        features: list[nn.Module] = [conv_norm(3, STEM, 3, 2, 1, nn.Hardswish, EPS)]
        channels = STEM
        for row in V3_BLOCKS:
            features.append(ExcitedResidual(channels, row))
            channels = row.channels
        features.append(conv_norm(channels, LAST, 1, 1, 1, nn.Hardswish, EPS))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(LAST, WIDE), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(WIDE, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
