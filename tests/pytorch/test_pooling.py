# SPDX-License-Identifier: BSD-3-Clause
"""Average pools that divide by something else than the number of values under the window."""

from __future__ import annotations

import torch.nn.functional as F

from tests.pytorch.small_models import assert_same_as_litert, compiled, steps_apart


def test_a_divisor_of_the_windows_area_counts_padding() -> None:
    small = compiled(lambda m, x: F.avg_pool2d(m.conv(x), 3, 1, 1, False, False, 9))
    assert small.operators == ["conv_2d", "pad", "average_pool_2d"]
    assert_same_as_litert(small.program)
    assert abs(steps_apart(small)).max() <= 2


def test_a_divisor_of_the_windows_area_counts_what_ceil_mode_adds() -> None:
    small = compiled(lambda m, x: F.avg_pool2d(m.conv(x), 2, 2, 0, True, True, 4), ((1, 8, 7, 7),))
    assert small.operators == ["conv_2d", "pad", "average_pool_2d"]
    assert_same_as_litert(small.program)
    assert abs(steps_apart(small)).max() <= 2


def test_another_divisor_stays_on_the_cpu() -> None:
    small = compiled(lambda m, x: F.avg_pool2d(m.conv(x), 2, divisor_override=3))
    assert ["divisor_override is 3" in reason for reason in small.reasons] == [True]
