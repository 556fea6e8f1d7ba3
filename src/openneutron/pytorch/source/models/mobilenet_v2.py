# SPDX-License-Identifier: BSD-3-Clause
"""MobileNetV2 (Sandler et al., arXiv 1801.04381); parameter names as in torchvision."""

from __future__ import annotations

import torch
from torch import nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, first stride: table 2 of the paper."""


def channels_of(channels: float) -> int:
    """Return the nearest multiple of 8 that is not more than 10 % below (the reference implementation's rule)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def conv_norm_relu6(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; added to the input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.use_res_connect = stride == 1 and inputs == outputs
        layers: list[nn.Module] = [conv_norm_relu6(inputs, hidden, 1)] if expansion != 1 else []
        layers += [
            conv_norm_relu6(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = channels_of(32 * width)
        last = channels_of(1280 * max(1.0, width))
        features: list[nn.Module] = [conv_norm_relu6(3, channels, 3, 2)]
        for expansion, stage_channels, blocks, first_stride in STAGES:
            outputs = channels_of(stage_channels * width)
            for block in range(blocks):
                features.append(InvertedResidual(channels, outputs, first_stride if block == 0 else 1, expansion))
                channels = outputs
        features.append(conv_norm_relu6(channels, last, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


def mobilenet_v2() -> MobileNetV2:
    return MobileNetV2()
