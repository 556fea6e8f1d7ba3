# SPDX-License-Identifier: BSD-3-Clause
"""A small U-Net (Ronneberger et al., arXiv 1505.04597), with padded convolutions and batch normalization."""

from __future__ import annotations

import itertools

import torch
from torch import nn


def two_convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Input [N, 3, H, W] with H and W multiples of 2 ** (levels - 1), output [N, classes, H, W]."""

    def __init__(self, classes: int = 4, channels: int = 8, levels: int = 3) -> None:
        super().__init__()
        widths = [channels << level for level in range(levels)]
        self.down = nn.ModuleList(
            two_convolutions(inputs, outputs) for inputs, outputs in zip([3, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for narrow, wide in itertools.pairwise(widths))
        self.join = nn.ModuleList(two_convolutions(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = []
        for layer in self.down[:-1]:
            passed.append(layer(x))
            x = self.pool(passed[-1])
        x = self.down[-1](x)
        for level in range(len(passed) - 1, -1, -1):
            x = self.join[level](torch.cat([passed[level], self.up[level](x)], 1))
        return self.head(x)


def unet() -> UNet:
    return UNet()
