# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of the DSP extension against the portable ones: random calls on tensors laid out in any way, with any table."""

from __future__ import annotations

import pytest

from tests.cortex_m33 import random_convolutions
from tests.cortex_m33.firmware import SIZE, SPEED

BUILDS = {
    "for size": (SIZE, "gcc"),
    "for speed": (SPEED, "gcc"),
    "clang, for size": (SIZE, "clang"),
    "portable": (("-Os", "-mcpu=cortex-m33+nodsp"), "gcc"),
}
"""Flags and a compiler."""


@pytest.mark.parametrize("form", ["", "_16"])
@pytest.mark.parametrize("build", BUILDS)
def test_random_calls_give_the_portable_kernels_bytes(build: str, form: str) -> None:
    random_convolutions.compare(form, *BUILDS[build])
