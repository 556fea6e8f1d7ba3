# SPDX-License-Identifier: BSD-3-Clause
"""An encoder block of a transformer (Vaswani et al., arXiv 1706.03762), PyTorch's own module."""

from __future__ import annotations

from torch import nn

WIDTH, HEADS, INNER, LENGTH = 64, 4, 256, 32


def transformer_encoder() -> nn.TransformerEncoderLayer:
    """Input and output [N, 32, 64]: self-attention of 4 heads and two linear layers with ReLU, each added and normalized."""
    return nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
