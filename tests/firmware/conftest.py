# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library, built once for the tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scripts import firmware_build
from scripts.firmware_build import Build, Library
from tests.support.tools import required


@pytest.fixture(scope="session")
def libraries() -> Mapping[Build, Library]:
    """The library as each compiler makes it at each level."""
    for name in firmware_build.TOOLS:
        required(name)
    return firmware_build.libraries()
