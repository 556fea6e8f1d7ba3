# SPDX-License-Identifier: BSD-3-Clause
"""The depthwise convolution for the DSP extension: every byte is the portable kernel's."""

from __future__ import annotations

import pytest

from tests.cortex_m33 import random_calls
from tests.cortex_m33.firmware import SIZE, SPEED


@pytest.mark.parametrize("build", [SIZE, SPEED])
def test_random_calls_leave_the_portable_kernels_bytes(build: tuple[str, ...]) -> None:
    random_calls.compare(["depthwise_conv_2d_s8", "depthwise_conv_2d_s8:3x3"], 0, 400, build)
