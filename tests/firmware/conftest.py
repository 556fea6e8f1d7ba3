# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library, built once for the tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.firmware_build import BUILDS, COMMANDS, TOOLS, Build, Library, flags_of, library_sources
from tests.support.objects import compiled
from tests.support.tools import required


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Build, Library]:
    """The library as each compiler makes it at each level."""
    for name in TOOLS:
        required(name)
    return {build: _library(build, tmp_path_factory.mktemp("library")) for build in BUILDS}


def _library(build: Build, folder: Path) -> Library:
    sources = {f"{path.stem}.o": path for path in library_sources()}
    objects = compiled(folder, COMMANDS[build.compiler], flags_of(build), tuple(sources.values()))
    return Library(build, folder, tuple(objects), sources)
