# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in one dimension, which become ones of a single row."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from tests.pytorch.small_models import assert_same_as_litert, compiled, steps_apart


@pytest.mark.parametrize(
    "stride, padding, dilation, length", [(1, 1, 1, 20), (2, 1, 1, 20), (1, 2, 2, 20), (3, 0, 1, 20), (2, 2, 1, 19)]
)
def test_every_setting_runs_on_the_npu(stride: int, padding: int, dilation: int, length: int) -> None:
    small = compiled(
        lambda m, x: F.conv1d(x, m.conv.weight[:, :, 0], m.conv.bias, stride, padding, dilation), ((1, 8, length),)
    )
    assert not small.reasons
    assert "conv_2d" in small.operators
    assert_same_as_litert(small.program)
    assert abs(steps_apart(small)).max() <= 1
