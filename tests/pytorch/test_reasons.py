# SPDX-License-Identifier: BSD-3-Clause
"""Small functions whose reasons name the real obstacle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import compiled

SHAPE = (1, 8, 12, 12)
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "two computed tensors": (
        lambda m, x: torch.atan2(x, m.conv(x)),
        "aten.atan2 'atan2 (small_models.py)' stays on the CPU: it is a function of 2 computed tensors, for which there is no kernel; of "
        "one it would be a table. Sums, products, quotients, maxima and comparisons of two tensors are there.",
    ),
    "a rounded quotient": (
        lambda m, x: torch.fmod(x, m.conv(x)),
        "aten.fmod 'fmod (small_models.py)' stays on the CPU: it rounds a quotient of two computed tensors; where that is near a whole "
        "number, half a step of an operand decides which one. Divide without rounding.",
    ),
    "weights that are computed": (
        lambda m, x: F.conv2d(x, m.conv.weight * x.mean()),
        "conv2d (aten.convolution) 'conv2d (small_models.py)' stays on the CPU: its weights are computed at run time; they must be "
        "constant.",
    ),
    "positions of maxima": (
        lambda m, x: F.max_pool2d(x.repeat(1, 1, 4, 4), 2, return_indices=True),
        "aten.max_pool2d_with_indices 'max_pool2d_with_indices (small_models.py)' stays on the CPU: its indices are used; for them at most "
        "524288 pairs of an element and a window are compared.",
    ),
    "values that are dropped": (
        lambda m, x: F.dropout(m.conv(x), 0.5, True),
        "dropout (aten.native_dropout) 'dropout (small_models.py)' stays on the CPU: it drops values at random. Export the model in "
        "eval mode, with training=False in calls of F.dropout.",
    ),
    "numbers in a circle": (
        lambda m, x: torch.atan2(y := torch.atan2(x, m.conv(x)), y.gather(1, y.argmax(1, keepdim=True))),
        "aten.argmax 'argmax (small_models.py)' stays on the CPU: it exchanges values with 'atan2 (small_models.py)', which stays on the "
        "CPU.",
    ),
    "numbers drawn": (
        lambda m, x: m.conv(x) + torch.rand_like(x),
        "aten.rand_like 'rand_like (small_models.py)' stays on the CPU: it draws random numbers, for which there is no kernel. Pass them to "
        "the model as an input. ExecuTorch has no kernel for it on the CPU either: the program won't load.",
    ),
    "a result of no fixed size": (
        lambda m, x: x[x > 0],
        "getitem (aten.index) 'getitem (small_models.py)' stays on the CPU: how many values its result has is known only when it runs; the "
        "NPU's tensors have fixed shapes. torch.where and masked_fill keep the shape.",
    ),
    "sums of integers": (
        lambda m, x: (x > 0).long() ** 2,
        "aten.pow 'pow (small_models.py)' stays on the CPU: its result is int64; the NPU computes on int8 and int16. The NPU's operators "
        "on integers and booleans are those of indices, positions and conditions.",
    ),
    "complex numbers": (
        lambda m, x: torch.fft.fft(x).abs(),
        "fft_fft (aten._fft_r2c) 'fft_fft (small_models.py)' stays on the CPU: its result is complex64; there are kernels for real "
        "numbers alone.",
    ),
    "an operator without a rule": (
        lambda m, x: x.as_strided((1, 3, 4, 4), (1, 16, 4, 1)),
        "aten.as_strided_copy 'as_strided (small_models.py)' stays on the CPU: the quantizer has no rule for it.",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reason(name: str) -> None:
    function, reason = FUNCTIONS[name]
    assert reason in compiled(function, [SHAPE]).reasons


def test_integers_are_named_as_the_reason() -> None:
    """Ids that are divided, and the position of the largest id, have nothing to quantize."""

    class Ids(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 8)

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.table(ids // 2), ids.to(torch.int32).argmax(-1)

    ids = torch.arange(4)[None]
    reasons = {item.operator: item.reason for item in analyse(Ids(), (ids,), calibration=[(ids,)]).delegation.on_cpu}
    assert reasons["floordiv (aten.div)"] == "its result is int64; the NPU computes on int8 and int16"
    assert reasons["aten.argmax"].endswith("is int32; the NPU computes on int8")
