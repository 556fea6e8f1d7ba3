# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of processors; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from openneutron import targets
from tests.fuzz import cpus


@pytest.mark.parametrize("seed", [*range(8), 42, 442, 465, 3652, 4462, 10004, 10020, 10704])
def test_random_graphs_on_random_processors(seed: int) -> None:
    cpus.check(seed)


def test_the_processors_differ() -> None:
    drawn = [cpus.target_of(seed) for seed in range(40)]
    assert {target.name for target in drawn} == set(targets.CPUS)
    assert {len(target.regions) for target in drawn} == {1, 2}
    assert {len(cpus.target_of(cpus.THREE + seed).regions) for seed in range(8)} == {1, 3}
