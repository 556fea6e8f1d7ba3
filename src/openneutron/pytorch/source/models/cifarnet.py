# SPDX-License-Identifier: BSD-3-Clause
"""CifarNet, the network of NXP's published i.MX RT700 latencies: 12.3 million multiply-accumulates."""

from __future__ import annotations

import torch
from torch import nn


class CifarNet(nn.Module):
    """Three 5x5 convolutions with 2x2 max pools, one linear layer, softmax. Input [N, 3, 32, 32], output [N, classes]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(64 * 4 * 4, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.pool(self.relu(self.conv3(x)))
        return self.softmax(self.fc(x.flatten(1)))


def cifarnet() -> CifarNet:
    return CifarNet()
