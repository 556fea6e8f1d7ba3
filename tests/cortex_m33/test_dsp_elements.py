# SPDX-License-Identifier: BSD-3-Clause
"""The kernels that go through elements, for the DSP extension: every byte is the portable kernels'."""

from __future__ import annotations

from tests.cortex_m33 import random_calls


def test_random_calls_leave_the_portable_kernels_bytes() -> None:
    random_calls.compare(random_calls.KERNELS[1:], 0, 300)


def test_they_do_so_too_when_built_for_speed() -> None:
    random_calls.compare(random_calls.KERNELS, 1000, 100, ("-O2",))
