# SPDX-License-Identifier: BSD-3-Clause
"""Random weights under which a deep network still computes something."""

from __future__ import annotations

import torch
from torch import nn


def settle(model: nn.Module, inputs: torch.Tensor) -> None:
    """Draws the weights (He et al., arXiv 1502.01852) and sets every batch norm to the statistics of ``inputs``.

    The model comes back in eval mode. Uses PyTorch's global random generator.
    """
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=0.1)
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
            layer.reset_running_stats()
            layer.momentum = None
    model.train()
    with torch.no_grad():
        model(inputs)
    model.eval()
    for layer in model.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.momentum = 0.1
