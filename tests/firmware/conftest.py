# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library, built once for the tests that look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.firmware_build import BUILDS, Build, Library, compile_library, missing_tools


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[Build, Library]:
    """The library as each compiler makes it at each level."""
    missing = missing_tools()
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed, and the library is built for the Cortex-M33 with them")
    folder: Path = tmp_path_factory.mktemp("firmware")
    return {build: compile_library(build, folder / str(build).replace(" ", "")) for build in BUILDS}
