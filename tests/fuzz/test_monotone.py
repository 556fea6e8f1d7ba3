# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of many budgets; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from tests.fuzz import monotone


# 2, 12, 20 and 22: few rows of a tall input alone. 50: a schedule below half of the budget alone, in a graph of several calls.
@pytest.mark.parametrize("chip", ["imx95", "imx943", "imxrt700", "mcxn94x"])
@pytest.mark.parametrize("seed", [2, 12, 20, 22, 50])
def test_more_memory_is_never_worse(seed: int, chip: str) -> None:
    assert monotone.check(seed, chip) > 0
