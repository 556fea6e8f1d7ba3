# SPDX-License-Identifier: BSD-3-Clause
"""The library needs two functions of a C library and of a compiler's own, also under Arm's names for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.firmware_build import BUILDS, INCLUDES, Build, Library, link, machine_flags, needed_symbols, run

C_LIBRARY = {"memcpy", "memset"}
ARM_NAMES = re.compile(r"__aeabi_mem(cpy|set|clr)[48]?")
"""Of the run-time ABI for the Arm architecture (IHI 0043), 5.3.4: memcpy and memset; clr sets to 0, 4 and 8 promise an
alignment. No helper of 5.1 and 5.2 is among them: no division of 64 bits, no floating point."""


def of_integers(library: Library) -> set[str]:
    """Return the symbols that the library needs without the kernels of language models, which compute with floats and divide 64 bits."""
    whole = tuple(path for path in library.objects if not path.stem.endswith("_f32"))
    return {
        name
        for name in needed_symbols(replace(library, objects=whole))
        if not re.fullmatch(r"\w+_f32_(run|check)", name)
    }


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_memcpy_and_memset_are_all(build: Build, libraries: Mapping[Build, Library]) -> None:
    needed = of_integers(libraries[build])
    assert {name for name in needed if name not in C_LIBRARY and not ARM_NAMES.fullmatch(name)} == set()
    assert needed, "nothing at all is needed: are these the library's objects?"


def test_a_heap_is_seen(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    """A driver with a heap has the symbols that the test above looks for."""
    library = libraries[BUILDS[0]]
    flags = [*machine_flags("gcc"), *INCLUDES]
    run("arm-none-eabi-gcc", *flags, "-c", library.sources["driver.o"], "-o", "driver.o", folder=tmp_path)
    others = [path for path in library.objects if path.name != "driver.o"]
    with_heap = Library(library.build, tmp_path, (*others, tmp_path / "driver.o"), library.sources)
    assert needed_symbols(with_heap) - needed_symbols(library) == {"free", "malloc"}


def test_floats_are_seen(tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    """Helpers for arithmetic would be in the list: the M33 of the toolchain file computes with integers alone."""
    library = libraries[BUILDS[0]]
    source = tmp_path / "average.c"
    source.write_text("float average(float a, long long b, long long c) { return a / (float)(b / c); }\n")
    run("arm-none-eabi-gcc", *machine_flags("gcc"), "-c", source, folder=tmp_path)
    added = Library(library.build, tmp_path, (tmp_path / "average.o",), {})
    assert needed_symbols(added) == {"__aeabi_ldivmod", "__aeabi_l2f", "__aeabi_fdiv"}


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_the_library_links_without_startup_code(build: Build, libraries: Mapping[Build, Library]) -> None:
    image = link(libraries[build], "all")
    assert image.bytes_of(".text") > 10000
    assert image.bytes_of(".data") == 0, "nothing has to be copied to RAM when the chip starts"
    assert 0 < image.bytes_of(".bss") <= 64
