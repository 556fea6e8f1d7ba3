# SPDX-License-Identifier: BSD-3-Clause
"""Some cases of each kind reach their bars; ``make soak`` runs all of them."""

from __future__ import annotations

import pytest

from tests.suites.people.case import CASES, Result, measure
from tests.suites.people.kinds import KINDS
from tests.suites.people.page import PAGE, bar, page, rows

LEAST_CASES = 250
OF_A_KIND = 3
"""Cases of each kind that run here: the first, the last, and one between."""

WITHOUT_ONE_IMAGE = ("text", "states", "several", "integers", "files")
"""Kinds of cases with state, several inputs or outputs, masks, integers, or a file; at least a third of all."""


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= LEAST_CASES
    assert 3 * sum(one.kind in WITHOUT_ONE_IMAGE for one in CASES.values()) >= len(CASES)
    assert {one.kind for one in CASES.values()} == set(KINDS)


def test_the_page_has_every_case_with_its_bar() -> None:
    """The figures are those of the last ``python -m tests.suites.people --write``, of which ``test_it_reaches_its_bar`` measures some."""
    found = rows(PAGE.read_text())
    assert {name: bars for name, (bars, _) in found.items()} == {name: bar(one) for name, one in CASES.items()}
    assert [name for name, one in CASES.items() if one.reason and f"({one.reason})" not in found[name][1]] == []
    results = {"lenet": Result(True, "43.0 dB"), "vgg_block": Result(False, "3.0 dB, 2 calls: a | b")}
    again = rows(page(results, page(dict.fromkeys(CASES, Result(True, "1.0 dB")))))
    assert again["lenet"] == ("30", "43.0 dB")
    assert again["vgg_block"][1] == "**short**: 3.0 dB, 2 calls: a \\| b"
    assert again["double_precision_model"] == ("30", "1.0 dB")


def slice_of(kind: str) -> list[str]:
    names = [name for name, one in CASES.items() if one.kind == kind]
    return names[:: max(1, (len(names) - 1) // (OF_A_KIND - 1))][:OF_A_KIND]


@pytest.mark.parametrize("name", [name for kind in KINDS for name in slice_of(kind)])
def test_it_reaches_its_bar(name: str) -> None:
    result = measure(CASES[name])
    assert result.good, result.text
