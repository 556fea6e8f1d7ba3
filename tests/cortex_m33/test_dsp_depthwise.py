# SPDX-License-Identifier: BSD-3-Clause
"""The depthwise convolution for the DSP extension: every byte is the portable kernel's."""

from __future__ import annotations

from tests.cortex_m33 import random_calls


def test_random_calls_leave_the_portable_kernels_bytes() -> None:
    random_calls.compare(["depthwise_conv_2d_s8"], 0, 600)
