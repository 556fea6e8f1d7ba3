# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of budgets; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from tests.fuzz.budgets import check


@pytest.mark.parametrize("seed", [8022, 10089, 40868, *range(24)])
def test_random_graphs_at_random_budgets(seed: int) -> None:
    check(seed)
