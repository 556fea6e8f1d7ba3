# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library, built once for the tests that look at it."""

from __future__ import annotations

import pytest

from scripts.firmware_build import Build, Library, compile_libraries, missing_tools


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[Build, Library]:
    """The library as each compiler makes it at each level."""
    missing = missing_tools()
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed, and the library is built for the Cortex-M33 with them")
    return compile_libraries(tmp_path_factory.mktemp("firmware"))
