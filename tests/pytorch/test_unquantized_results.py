# SPDX-License-Identifier: BSD-3-Clause
"""An operator that only rearranges values, without a quantization behind it, stays on the CPU with a reason, and runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import openneutron


@pytest.mark.parametrize("last", [nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)])
def test_a_result_that_nothing_quantizes_stays_float(last: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), last).eval()
    inputs = [(torch.randn(1, 3, 16, 16),) for _ in range(4)]
    program = openneutron.compile(model, inputs[0], calibration=inputs)
    (output,) = program.run(*inputs[0])
    assert output.dtype == torch.float32
    expected = model(*inputs[0])
    assert float((output - expected).norm() / expected.norm()) < 0.05
