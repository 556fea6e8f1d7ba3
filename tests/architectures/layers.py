# SPDX-License-Identifier: BSD-3-Clause
"""Layers that several architectures are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


def conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, act: nn.Module | None = None, **more: int
) -> nn.Sequential:
    """A padded convolution, a batch normalization and an activation (ReLU unless given)."""
    dilation = more.get("dilation", 1)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2 * dilation, bias=False, **more),
        nn.BatchNorm2d(outputs),
        nn.ReLU() if act is None else act,
    )


def head(channels: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Model(nn.Module):
    """Layers by name and a function of them and the inputs."""

    def __init__(self, function: Callable[..., object], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(self, *args)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up, self.gate = (
            nn.Conv2d(channels, channels // 4, 1),
            nn.Conv2d(channels // 4, channels, 1),
            gate,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
