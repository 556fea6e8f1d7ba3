# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 library as each compiler makes it at each level, compiled once for all processes of a run of the tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from scripts.firmware_build import BUILDS, COMMANDS, TOOLS, Build, Library, flags_of, library_sources
from tests.support.objects import compiled
from tests.support.tools import required


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-firmware-")


@cache
def libraries() -> Mapping[Build, Library]:
    """Return every build, as ``scripts.firmware_build.libraries`` does, in folders that are kept until Python ends."""
    for name in TOOLS:
        required(name)
    return {build: _library(build, Path(_folder().name) / str(build).replace(" ", "")) for build in BUILDS}


def _library(build: Build, folder: Path) -> Library:
    folder.mkdir()
    sources = {f"{path.stem}.o": path for path in library_sources()}
    objects = compiled(folder, COMMANDS[build.compiler], flags_of(build), tuple(sources.values()))
    return Library(build, folder, tuple(objects), sources)
