# SPDX-License-Identifier: BSD-3-Clause
"""Networks with recurrent layers: keyword spotters of one layer."""

from __future__ import annotations

import torch
from torch import nn


class KeywordSpotter(nn.Module):
    """A recurrent layer and a linear layer of its last state (the LSTM and the GRU of Zhang et al., arXiv 1711.07128). Input
    [N, time, features], output [N, classes]."""

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], features: int = 40, units: int = 64, classes: int = 12
    ) -> None:
        super().__init__()
        self.layer = layer(features, units, batch_first=True)
        self.fc = nn.Linear(units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.layer(x)
        return self.fc(outputs[:, -1])
