# SPDX-License-Identifier: BSD-3-Clause
"""Compile what the tests need of the runtime before they run: ``OPENNEUTRON_BUILT=FOLDER python -m tests.support.prepared``

``make test`` does so while pip installs packages with one processor. The tests find the objects in the folder by their content. This module
needs no package. What takes a compiler that is not installed is left to the tests, which say so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from scripts.firmware_build import BUILDS, COMMANDS, flags_of, library_sources, missing_tools
from tests.support import aarch64, fuzzer
from tests.support.objects import compiled
from tests.support.runtime_builds import MEMORY_CHECKED, WITHOUT_HEAP, c_compiler, driver_sources, kernel_sources
from tests.support.tools import sanitizing_compiler


def _compile(compiler: str, flags: Sequence[str], sources: Sequence[str | Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compiled(Path(folder), compiler, flags, sources)


def _for_a_cortex_m33() -> None:
    if missing_tools():
        return
    for build in BUILDS:
        _compile(COMMANDS[build.compiler], flags_of(build), library_sources())


def _with_sanitizers() -> None:
    compiler = sanitizing_compiler(MEMORY_CHECKED)
    for variant in fuzzer.VARIANTS.values():
        _compile(compiler, fuzzer.flags_with(*variant), fuzzer.sources())


def _without_a_heap() -> None:
    _compile(c_compiler(), WITHOUT_HEAP, [*driver_sources(), *kernel_sources()])


def main() -> None:
    for prepare in (_for_a_cortex_m33, _with_sanitizers, _without_a_heap, aarch64.library_folder):
        try:
            prepare()
        except SkipTest:
            continue


if __name__ == "__main__":
    main()
