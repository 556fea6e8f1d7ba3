# SPDX-License-Identifier: BSD-3-Clause
"""The page on quantization quality says what the bench measures."""

from __future__ import annotations

import pytest

from bench.quality_cases import cases
from bench.quantization_quality import PAGE, measure

ROWS = ("mul", "x * sigmoid(x)", "mean over rows and columns", "squeeze-excite, sigmoid", "layer norm", "attention")
TOLERANCE_DB = 0.3
"""The permitted change by float32 sums in another order."""


def test_some_rows_of_the_page() -> None:
    told = {}
    for line in PAGE.read_text().split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].replace(".", "").isdigit():
            told[cells[0]] = float(cells[1]), float(cells[2])
    everything = cases()
    assert list(told) == [case.name for case in everything], "every case is delegated as a whole, and on the page"
    for found in measure([case for case in everything if case.name in ROWS]):
        assert found.is_enough
        assert found.on_cpu == ()
        assert (found.ours, found.exact) == pytest.approx(told[found.case.name], abs=TOLERANCE_DB)
