# SPDX-License-Identifier: BSD-3-Clause
"""What CompileOptions refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.options import kib_in_bytes


@pytest.mark.parametrize("given", [1.5, "12", True])
def test_budgets_are_whole_numbers(given: Any) -> None:
    for make, unit in ((CompileOptions, "bytes"), (kib_in_bytes, "KiB above 0")):
        text = f"sram_budget: it is {given!r}; a budget is a whole number of {unit}."
        with pytest.raises(InvalidOptionError, match=f"^{re.escape(text)}$"):
            make(given)


def test_budgets_in_kib() -> None:
    assert kib_in_bytes(None) is None
    assert kib_in_bytes(3) == 3072
    with pytest.raises(
        InvalidOptionError, match=r"^sram_budget: it is -3; a budget is a whole number of KiB above 0\.$"
    ):
        kib_in_bytes(-3)
