# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library, built once for the tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scripts.firmware_build import Build, Library
from tests.support import firmware_libraries


@pytest.fixture(scope="session")
def libraries() -> Mapping[Build, Library]:
    """The library as each compiler makes it at each level."""
    return firmware_libraries.libraries()
