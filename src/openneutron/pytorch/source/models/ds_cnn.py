# SPDX-License-Identifier: BSD-3-Clause
"""DS-CNN (Zhang et al., arXiv 1711.07128), MLPerf Tiny's keyword spotting network."""

from __future__ import annotations

import torch
from torch import nn


def separable(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 1),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )


class DSCNN(nn.Module):
    """Input [N, 1, 49, 10] (cepstra over time), output [N, classes]."""

    def __init__(self, classes: int = 12, channels: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((1, 1, 4, 5)),
            nn.Conv2d(1, channels, (10, 4), stride=2),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
        )
        self.blocks = nn.Sequential(*(separable(channels) for _ in range(blocks)))
        self.dropout = nn.Dropout(0.4)
        self.pool = nn.AvgPool2d((25, 5))
        self.fc = nn.Linear(channels, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.dropout(self.blocks(self.stem(x))))
        return self.softmax(self.fc(x.flatten(1)))


def ds_cnn() -> DSCNN:
    return DSCNN()
