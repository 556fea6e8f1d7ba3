# SPDX-License-Identifier: BSD-3-Clause
"""The kernels on other cores than the Cortex-M33."""

from __future__ import annotations

from tests.cortex_m33 import random_calls
from tests.cortex_m33.boards import TRAPPING_CORTEX_M4


def test_a_build_without_unaligned_accesses_runs_where_they_are_faults() -> None:
    """CCR.UNALIGN_TRP is set, and the inputs and outputs begin at any address."""
    random_calls.compare(random_calls.KERNELS, 0, 30, board=TRAPPING_CORTEX_M4)
