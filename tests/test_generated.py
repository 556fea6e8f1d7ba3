# SPDX-License-Identifier: BSD-3-Clause
"""Generated files are what their command makes today."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generate import GENERATED


@pytest.mark.parametrize("name", GENERATED)
def test_generated_file_is_up_to_date(name: str, root: Path) -> None:
    assert (root / name).read_text() == GENERATED[name](), f"{name} is out of date: run `make generate`"
