# SPDX-License-Identifier: BSD-3-Clause
"""A slice of the random calls on aarch64, with the dot product extension and without it."""

from __future__ import annotations

import pytest

from tests.cortex_m33 import random_calls
from tests.fuzz import aarch64


@pytest.mark.parametrize("cpu", aarch64.CPUS)
def test_neon_gives_the_portable_kernels_bytes(cpu: str) -> None:
    aarch64.compare_convolutions(7, 600, cpu)
    aarch64.compare_elements(random_calls.KERNELS[1:], 0, 30, cpu)
