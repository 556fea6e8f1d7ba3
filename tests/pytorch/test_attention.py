# SPDX-License-Identifier: BSD-3-Clause
"""Attention: one delegate call, LiteRT's bytes, how near to float that is, and what masks and factors become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openneutron.api.pytorch import analyse
from openneutron.pytorch.operators.annotations import MASKED
from openneutron.pytorch.quantizer.observers import REACH, RowRangeObserver
from tests.pytorch.small_models import Compiled, assert_same_as_litert, outputs_of, steps_apart

attention = F.scaled_dot_product_attention
HEADS = (1, 4, 32, 16)
MASK = torch.arange(32 * 32).reshape(32, 32) % 5 != 3


class Masked(nn.Module):
    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, attn_mask=self.mask)


class Called(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class SelfAttention(nn.Module):
    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


def encoder(**options: bool | str) -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Case:
    """``least``: SQNR against float of normally distributed data, in dB; ``operators``: without views and transposes."""

    name: str
    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    least: float
    operators: str = ""


SHORT = "batch_matmul softmax batch_matmul"
MASKED_SHORT = "lookup batch_matmul add softmax batch_matmul"
DIVIDED_LAST = "reduce_max sub exp batch_matmul mean lookup mul"
MASKED_LONG = f"lookup batch_matmul add {DIVIDED_LAST}"
THREE = "fully_connected fully_connected fully_connected"

CASES = (
    Case("attention", lambda: Called(attention), 3 * (HEADS,), 27, f"lookup batch_matmul {DIVIDED_LAST}"),
    Case("causal", lambda: Called(lambda q, k, v: attention(q, k, v, is_causal=True)), 3 * (HEADS,), 28, MASKED_SHORT),
    Case("booleans as mask", lambda: Masked(MASK), 3 * (HEADS,), 27, MASKED_LONG),
    Case("infinities in a mask", lambda: Masked(torch.where(MASK, 0.5, -torch.inf)), 3 * (HEADS,), 27, MASKED_LONG),
    Case("scale of 1", lambda: Called(lambda q, k, v: attention(q, k, v, scale=1.0)), 3 * ((2, 8, 16),), 27, SHORT),
    Case(
        "many keys",
        lambda: Called(attention),
        ((1, 2, 16, 16), (1, 2, 80, 16), (1, 2, 80, 8)),
        28,
        f"lookup batch_matmul {DIVIDED_LAST}",
    ),
    Case(
        "grouped heads",
        lambda: Called(lambda q, k, v: attention(q, k, v, is_causal=True, enable_gqa=True)),
        (HEADS, (1, 2, 32, 16), (1, 2, 32, 16)),
        28,
    ),
    Case(
        "multi-head",
        lambda: SelfAttention(False),
        ((1, 32, 64),),
        27,
        f"{THREE} batch_matmul {DIVIDED_LAST} fully_connected",
    ),
    Case(
        "multi-head of two samples, with weights",
        lambda: SelfAttention(True),
        ((2, 8, 64),),
        27,
        f"{THREE} {SHORT} fully_connected",
    ),
    Case("encoder layer", lambda: encoder(), ((1, 32, 64),), 30),
    Case("encoder layer, norm first, gelu", lambda: encoder(norm_first=True, activation="gelu"), ((1, 32, 64),), 32),
)


def around(case: Case) -> tuple[Compiled, nn.Module]:
    torch.manual_seed(5)
    module = case.make().eval()
    for layer in module.modules():
        if isinstance(layer, nn.MultiheadAttention):
            nn.init.normal_(layer.in_proj_weight, std=0.15)
    inputs = [tuple(torch.randn(shape) for shape in case.shapes) for _ in range(6)]
    return Compiled(analyse(module, inputs[0], calibration=inputs), inputs), module


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attention(case: Case) -> None:
    small, module = around(case)
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    if case.operators:
        computing = [op for op in small.operators if op not in ("reshape", "transpose")]
        assert computing == case.operators.split()
    assert_same_as_litert(small.program)
    signal = noise = 0.0
    with torch.no_grad():
        for inputs in small.inputs[:3]:
            want, got = outputs_of(module(*inputs))[0], small.program.run(*inputs)[0]
            signal, noise = signal + float((want**2).sum()), noise + float(((got - want) ** 2).sum())
    assert 10 * float(torch.log10(torch.tensor(signal / noise))) >= case.least
    assert (steps_apart(small) <= 1).mean() >= 0.97


def test_masked_keys_count_for_nothing() -> None:
    """Whatever a masked value is, the result is the same, though it is the largest."""
    mask = (torch.arange(16) < 12).expand(16, 16)
    torch.manual_seed(2)
    inputs = [tuple(torch.randn(1, 1, 16, 8) for _ in range(3)) for _ in range(4)]
    program = analyse(Masked(mask), inputs[0], calibration=inputs)
    q, k, v = inputs[0]
    other = torch.where(mask[0, :, None], v, v.flip(-1))
    assert torch.equal(program.run(q, k, v)[0], program.run(q, k, other)[0])


def test_the_range_for_a_softmax_leaves_out_what_is_far_below() -> None:
    observer = RowRangeObserver(
        dim=-1, dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine
    )
    observer(torch.tensor([[1.0, 2.0, MASKED], [-3.0, MASKED, -torch.inf]]))
    assert (float(observer.min_val), float(observer.max_val)) == (-3.0 - REACH, 2.0)
