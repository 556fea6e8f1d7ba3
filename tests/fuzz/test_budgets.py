# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of budgets; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from openneutron import targets
from openneutron.ir.graph import DType
from openneutron.ops import BY_NAME
from openneutron.ops.elementwise import COMPARISONS
from tests.fuzz.budgets import check
from tests.support import oracle, random_wide


@pytest.mark.parametrize("seed", [8022, 10089, 40868, *range(24)])
def test_random_graphs_at_random_budgets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third graph for MCX N, the others for i.MX RT700."""
    if seed % 3 == 2:
        monkeypatch.setattr(oracle, "TARGET", targets.get("mcxn94x"))
    check(seed)


@pytest.mark.int16
@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_on_int16_at_random_budgets(seed: int) -> None:
    assert check(seed, "wide") > 0


def test_every_operator_on_int16_has_a_sampler() -> None:
    on_int16 = {name for name, row in BY_NAME.items() if DType.INT16 in row.types}
    assert random_wide.SAMPLERS.keys() == on_int16 | set(COMPARISONS)
