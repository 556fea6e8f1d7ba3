# SPDX-License-Identifier: BSD-3-Clause
"""A small temporal convolutional network (Bai et al., arXiv 1803.01271), with batch instead of weight normalization."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class CausalConv1d(nn.Conv1d):
    """A dilated convolution whose output at one time reads nothing later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(functional.pad(x, (before, 0)))


class TemporalBlock(nn.Module):
    """Two causal convolutions of one dilation beside the identity, or beside a convolution of one point."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            CausalConv1d(inputs, outputs, kernel, dilation=dilation),
            nn.BatchNorm1d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            CausalConv1d(outputs, outputs, kernel, dilation=dilation),
            nn.BatchNorm1d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
        )
        self.downsample = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.layers(x) + identity)


class TCN(nn.Module):
    """Input [N, inputs, time], output [N, classes, time]."""

    def __init__(self, inputs: int = 8, classes: int = 10, channels: int = 24, blocks: int = 4) -> None:
        super().__init__()
        widths = [inputs, *(channels for _ in range(blocks))]
        self.blocks = nn.Sequential(
            *(TemporalBlock(widths[level], widths[level + 1], 3, 1 << level) for level in range(blocks))
        )
        self.head = nn.Conv1d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def tcn() -> TCN:
    return TCN()
