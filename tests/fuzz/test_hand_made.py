# SPDX-License-Identifier: BSD-3-Clause
"""The table of hand-made faults fits the sources; ``make soak`` inserts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.hand_made import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_the_text_of_a_fault_occurs_once_and_its_tests_exist(fault: Fault, root: Path) -> None:
    assert (root / fault.path).read_text().count(fault.before) == 1
    assert fault.after != fault.before
    assert fault.tests and all((root / path).is_file() for path in fault.tests)
