# SPDX-License-Identifier: BSD-3-Clause
"""MLPerf Tiny's anomaly detection autoencoder (mlcommons/tiny, benchmark/training/anomaly_detection)."""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (128, 128, 128, 128, 8, 128, 128, 128, 128)


class Autoencoder(nn.Module):
    """Linear layers with batch norm and ReLU, a bottleneck of 8. Input and output [N, 640]."""

    def __init__(self, inputs: int = 640) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for outputs in WIDTHS:
            layers += [nn.Linear(width, outputs), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
            width = outputs
        self.layers = nn.Sequential(*layers, nn.Linear(width, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def autoencoder() -> Autoencoder:
    return Autoencoder()
