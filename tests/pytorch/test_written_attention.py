# SPDX-License-Identifier: BSD-3-Clause
"""Attention that a model spells out is treated as ``scaled_dot_product_attention``."""

from __future__ import annotations

import math
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

    def forward(self, *given: Tensor) -> Tensor:
        return self.function(self, *given)


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
    "plain": (plain, f"lookup batch_matmul {DIVIDED_LAST}"),
    "filled": (filled, f"lookup batch_matmul add {DIVIDED_LAST}"),
    "causal": (causal, "lookup batch_matmul add softmax batch_matmul"),
    "einsum": (summed, f"lookup batch_matmul {DIVIDED_LAST}"),
}


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def attended(masked: Tensor, v: Tensor) -> Tensor:
    return F.softmax(masked, -1) @ v


def with_negative_infinity(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    below = torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32)
    return attended(scores(q, k).masked_fill(below[:, :, :32, :32] == 0, float("-inf")), v)


def with_triangle(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    above = torch.triu(torch.ones(32, 32, dtype=torch.bool), 1)
    return attended(scores(q, k).masked_fill(above, torch.finfo(q.dtype).min), v)


def chosen(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(torch.where(m.hidden, -1e9, scores(q, k)), v)


def chosen_from_tensor(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(torch.where(~m.hidden, scores(q, k), torch.full([], -1e4)), v)


def filled_twice(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(scores(q, k).masked_fill(m.hidden, -1e9).masked_fill(torch.arange(32) > 28, -1e9), v)


def built_in(m: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~m.hidden)


def given(m: Written, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attended(scores(q, k).masked_fill(~mask, -torch.inf), v)


def given_and_compared(m: Written, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attended(scores(q, k).masked_fill(mask == 0, -1e9), v)


def given_and_chosen(m: Written, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attended(torch.where(torch.ne(mask, False), scores(q, k), -1e9), v)


BOOLEANS = (with_negative_infinity, with_triangle, chosen, chosen_from_tensor, filled_twice, built_in)
GIVEN = (given, given_and_compared, given_and_chosen)
"""Masks of booleans, as models write them: constants, and inputs."""


@pytest.mark.parametrize("function", (*BOOLEANS, *GIVEN))
def test_attention_with_a_mask_of_booleans_is_one_call(function: Callable[..., Tensor]) -> None:
    torch.manual_seed(5)
    mask = (~HIDDEN.view(1, 1, 32, 32),) if function in GIVEN else ()
    inputs = [(*(torch.randn(HEADS) for _ in range(3)), *mask) for _ in range(3)]
    module = Written(function).eval()
    small = Compiled(analyse(module, inputs[0], calibration=inputs), inputs)
    assert small.reasons == []
    (part,) = small.program.partitions
    kernels = [call.kernel for call in part.compiled.report.operators]
    # A mask that is an input becomes a tensor of two numbers first.
    assert kernels[-1] == "attention_s8" and set(kernels[:-1]) <= ({"lookup_s8", "select_s8"} if mask else set())
    assert_same_as_litert(small.program)
    want, got = module(*inputs[0]), small.program.run(*inputs[0])[0]
    assert 10 * float(torch.log10((want**2).sum() / ((got - want) ** 2).sum())) >= 29


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
