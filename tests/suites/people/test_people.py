# SPDX-License-Identifier: BSD-3-Clause
"""Some cases of each kind reach their bars; ``make soak`` runs all of them."""

from __future__ import annotations

import pytest

from tests.suites.people.case import CASES, measure
from tests.suites.people.kinds import KINDS

LEAST_CASES = 250
OF_A_KIND = 3
"""Cases of each kind that run here: the first, the last, and one between."""

WITHOUT_ONE_IMAGE = ("text", "states", "several", "integers", "files")
"""Kinds of cases with state, several inputs or outputs, masks, integers, or a file; at least a third of all."""


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= LEAST_CASES
    assert 3 * sum(one.kind in WITHOUT_ONE_IMAGE for one in CASES.values()) >= len(CASES)
    assert {one.kind for one in CASES.values()} == set(KINDS)


def slice_of(kind: str) -> list[str]:
    names = [name for name, one in CASES.items() if one.kind == kind]
    return names[:: max(1, (len(names) - 1) // (OF_A_KIND - 1))][:OF_A_KIND]


@pytest.mark.parametrize("name", [name for kind in KINDS for name in slice_of(kind)])
def test_it_reaches_its_bar(name: str) -> None:
    result = measure(CASES[name])
    assert result.good, result.text
