# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Values, converts


@converts("MatMul")
def _matmul(node: NodeView, a: Tensor, b: Tensor) -> Values:
    return torch.matmul(a, b)


@converts("Gemm")
def _gemm(node: NodeView, a: Tensor, b: Tensor, c: Tensor | None = None) -> Values:
    """Convert to a linear layer if alpha is 1, and the third operand is missing, or is a vector of biases and beta is
    1. Otherwise alpha, beta and the third operand are applied after the product."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.t() if node.get("transA", 0) else a
    weights = b if node.get("transB", 0) else b.t()
    if alpha == 1 and (c is None or (beta == 1 and c.shape == weights.shape[:1])):
        return F.linear(a, weights, c)
    y = F.linear(a, weights)
    y = y if alpha == 1 else y * alpha
    if c is None:
        return y
    return y + (c if beta == 1 else c * beta)


@converts("Einsum")
def _einsum(node: NodeView, *inputs: Tensor) -> Values:
    return torch.einsum(node.get("equation").replace(" ", ""), *inputs)


@converts("Det")
def _det(node: NodeView, x: Tensor) -> Values:
    return torch.linalg.det(x)
