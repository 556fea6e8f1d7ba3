# SPDX-License-Identifier: BSD-3-Clause
"""MobileNetV3-Small (Howard et al., arXiv 1905.02244); parameter names as in torchvision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from openneutron.pytorch.source.models.mobilenet_v2 import channels_of


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
BLOCKS = (
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


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, swish: bool | None = None
) -> nn.Sequential:
    """Return a convolution and its batch norm. swish: True for hard swish, False for ReLU, None for no activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001),
    ]
    if swish is not None:
        layers.append(nn.Hardswish(inplace=True) if swish else nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


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


class InvertedResidual(nn.Module):
    """Expand, depthwise, squeeze and excite, project; added to the input where the shapes allow."""

    def __init__(self, inputs: int, row: Block) -> None:
        super().__init__()
        self.use_res_connect = row.stride == 1 and inputs == row.channels
        layers: list[nn.Module] = []
        if row.expanded != inputs:
            layers.append(conv_norm(inputs, row.expanded, 1, swish=row.swish))
        layers.append(conv_norm(row.expanded, row.expanded, row.kernel, row.stride, row.expanded, row.swish))
        if row.excites:
            layers.append(SqueezeExcitation(row.expanded, channels_of(row.expanded // 4)))
        layers.append(conv_norm(row.expanded, row.channels, 1))
        self.block = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        features: list[nn.Module] = [conv_norm(3, STEM, 3, 2, swish=True)]
        channels = STEM
        for row in BLOCKS:
            features.append(InvertedResidual(channels, row))
            channels = row.channels
        features.append(conv_norm(channels, LAST, 1, swish=True))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(LAST, WIDE), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(WIDE, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def mobilenet_v3_small() -> MobileNetV3:
    return MobileNetV3()
