# SPDX-License-Identifier: BSD-3-Clause
"""Generated files are what their command makes today."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import firmware_page
from scripts.generate import GENERATED
from tests.support import firmware_libraries


@pytest.mark.parametrize("name", GENERATED)
def test_generated_file_is_up_to_date(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The objects are those of the page's own commands, and the tests of the library have compiled them.
    monkeypatch.setattr(firmware_page, "libraries", firmware_libraries.libraries)
    assert (root / name).read_text() == GENERATED[name](), f"{name} is out of date: run `make generate`"
