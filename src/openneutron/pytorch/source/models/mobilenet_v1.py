# SPDX-License-Identifier: BSD-3-Clause
"""MobileNetV1 (Howard et al., arXiv 1704.04861), and MLPerf Tiny's visual wake words network made of it."""

from __future__ import annotations

import torch
from torch import nn

BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)
"""Output channels at width 1 and stride of each separable convolution: table 1 of the paper."""


def conv_norm_relu(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class MobileNetV1(nn.Module):
    """Input [N, 3, H, W], output [N, classes]; ``softmax`` ends with probabilities as MLPerf Tiny's file does."""

    def __init__(self, classes: int = 1000, width: float = 1.0, softmax: bool = False) -> None:
        super().__init__()
        channels = int(32 * width)
        layers: list[nn.Module] = [conv_norm_relu(3, channels, 3, 2)]
        for block_channels, stride in BLOCKS:
            outputs = int(block_channels * width)
            layers.append(conv_norm_relu(channels, channels, 3, stride, groups=channels))
            layers.append(conv_norm_relu(channels, outputs, 1, 1))
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)
        self.softmax = nn.Softmax(dim=1) if softmax else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.features(x))
        return self.softmax(self.classifier(x.flatten(1)))


def mobilenet_v1() -> MobileNetV1:
    return MobileNetV1()


def visual_wake_words() -> MobileNetV1:
    """Width 0.25, two classes, for 96x96 images (mlcommons/tiny, benchmark/training/visual_wake_words)."""
    return MobileNetV1(classes=2, width=0.25, softmax=True)
