# SPDX-License-Identifier: BSD-3-Clause
"""Attention that a model spells out is treated as ``scaled_dot_product_attention``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import Compiled, assert_same_as_litert

HEADS = (1, 2, 32, 16)
DIVIDED_LAST = "reduce_max sub exp batch_matmul mean lookup mul"
HIDDEN = torch.arange(32 * 32).reshape(32, 32) % 5 == 3
CAUSAL = torch.full((32, 32), torch.finfo(torch.float32).min).triu(1)


class Written(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.dropout = function, nn.Dropout(0.1)
        self.register_buffer("hidden", HIDDEN)
        self.register_buffer("causal", CAUSAL)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.function(self, q, k, v)


def plain(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(m.dropout(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4, -1)), v)


def filled(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * 0.25
    return F.softmax(scores.masked_fill(m.hidden, -1e9), dim=-1) @ v


def causal(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * 0.25 + m.causal
    return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def summed(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).div(4).softmax(-1), v)


CASES = {
    "plain": (plain, f"batch_matmul lookup {DIVIDED_LAST}"),
    "filled": (filled, f"batch_matmul lookup add {DIVIDED_LAST}"),
    "causal": (causal, "batch_matmul lookup add softmax batch_matmul"),
    "einsum": (summed, f"batch_matmul lookup {DIVIDED_LAST}"),
}


@pytest.mark.parametrize("name", CASES)
def test_written_attention(name: str) -> None:
    function, operators = CASES[name]
    torch.manual_seed(5)
    module = Written(function).eval()
    inputs = [tuple(torch.randn(HEADS) for _ in range(3)) for _ in range(4)]
    small = Compiled(analyse(module, inputs[0], calibration=inputs), inputs)
    assert small.reasons == []
    computing = [op for op in small.operators if op not in ("reshape", "transpose")]
    assert " ".join(computing) == operators
    assert_same_as_litert(small.program)
    want, got = module(*inputs[0]), small.program.run(*inputs[0])[0]
    assert 10 * float(torch.log10((want**2).sum() / ((got - want) ** 2).sum())) >= 27


def test_probabilities_that_are_read_otherwise_stay() -> None:
    def both(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v + weights.sum()

    inputs = [tuple(torch.randn(HEADS) for _ in range(3)) for _ in range(2)]
    small = Compiled(analyse(Written(both).eval(), inputs[0], calibration=inputs), inputs)
    assert "softmax" in small.operators


def test_a_product_with_a_single_number_is_no_attention() -> None:
    inputs = [tuple(torch.randn(1, 1, 4, 4) for _ in range(3))]
    module = Written(lambda m, q, k, v: q.mean().view(1, 1) @ k[0, 0, :1])
    small = Compiled(analyse(module.eval(), inputs[0], calibration=inputs), inputs)
    assert small.reasons == []
    assert_same_as_litert(small.program)
