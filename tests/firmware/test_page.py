# SPDX-License-Identifier: BSD-3-Clause
"""The example of docs/firmware.md compiles without a warning and runs, and its commands build."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.firmware_build import (
    BUILDS,
    COMMANDS,
    INCLUDES,
    PORT,
    TOOLCHAINS,
    TYPES,
    WARNINGS,
    Build,
    Library,
    flags_of,
    library_sources,
    machine_flags,
    needed_symbols,
    run,
)
from tests.support import programs
from tests.support.objects import compiled
from tests.support.runtime_builds import WITHOUT_HEAP, c_compiler, driver_sources, kernel_sources
from tests.support.tools import required

MAIN = """
#include <stdio.h>

NeutronError prepare(void);
NeutronError infer(const int8_t *input, int8_t *output);

int main(void) {
    int8_t input[90], output[90] = {0};
    for (int i = 0; i < 90; ++i) input[i] = (int8_t)(i - 45);
    if (prepare() != ENONE || infer(input, output) != ENONE) return 1;
    for (int i = 0; i < 90; ++i) {
        if (input[i] != output[i]) return 2;
    }
    return 0;
}
"""


def example(root: Path) -> str:
    (text,) = re.findall(r"^```c\n(.*?)^```$", (root / "docs" / "firmware.md").read_text(), re.DOTALL | re.MULTILINE)
    return re.sub(r"^(NeutronError \w+\(.*\)) \{", r"\1;\n\1 {", text, flags=re.MULTILINE)


def as_c(name: str, data: bytes) -> str:
    return f"_Alignas(16) const uint8_t {name}[] = {{{', '.join(map(str, data)) or 0}}};\n"


def test_the_example_runs(root: Path, tmp_path: Path) -> None:
    """On the host, with a driver that has no heap either."""
    program = programs.inverted_twice()
    blobs = as_c("microcode", program.microcode) + as_c("weights", program.weights)
    (tmp_path / "app.c").write_text(example(root) + blobs + MAIN)
    sources = [tmp_path / "app.c", *driver_sources(), *kernel_sources()]
    objects = compiled(tmp_path, c_compiler(), WITHOUT_HEAP, sources)
    subprocess.run([c_compiler(), *objects, "-o", "app"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "app"], check=False).returncode == 0


@pytest.mark.parametrize("compiler", COMMANDS)
def test_the_example_compiles_for_the_chip(
    compiler: str, root: Path, tmp_path: Path, libraries: Mapping[Build, Library]
) -> None:
    assert libraries.keys() == set(BUILDS)
    (tmp_path / "app.c").write_text(example(root))
    flags = [*machine_flags(compiler), *WARNINGS, "-Wmissing-prototypes", INCLUDES[0]]
    run(COMMANDS[compiler], *flags, "-c", "app.c", folder=tmp_path)


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_cmake_compiles_the_library_with_these_flags(build: Build, root: Path, tmp_path: Path) -> None:
    """So the library of these tests is CMake's, without a warning from either compiler."""
    required("ninja")
    toolchain = PORT / TOOLCHAINS[build.compiler]
    options = [
        f"-DCMAKE_BUILD_TYPE={TYPES[build.level]}",
        "-DOPENNEUTRON_WERROR=ON",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    run(required("cmake"), "-S", root, "-B", tmp_path, "-G", "Ninja", "--toolchain", toolchain, *options)
    commands = {
        Path(entry["file"]): shlex.split(entry["command"])
        for entry in json.loads((tmp_path / "compile_commands.json").read_text())
    }
    assert sorted(commands) == library_sources()
    for source, (_, *flags) in commands.items():
        assert sorted(flags[: flags.index("-o")]) == sorted(flags_of(build)), source


TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m7 -mfloat-abi=softfp -mfpu=fpv5-d16")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
"""


def test_a_toolchain_of_ones_own(root: Path, tmp_path: Path, libraries: Mapping[Build, Library]) -> None:
    """Another core and float ABI, a port that the toolchain does not name, every option, and the library inside of a project."""
    required("cmake")
    required("ninja")
    assert libraries.keys() == set(BUILDS)
    (tmp_path / "toolchain.cmake").write_text(TOOLCHAIN)
    (tmp_path / "app.c").write_text(example(root) + "#if !NO_HEAP_USAGE\n#error\n#endif\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(app LANGUAGES C)\n"
        f"add_subdirectory({root} openneutron)\n"
        "add_library(app STATIC app.c)\n"
        "target_link_libraries(app PRIVATE neutron)\n"
    )
    options = ["--toolchain", "toolchain.cmake", "-DOPENNEUTRON_WERROR=ON", "-DNEUTRON_PORT=cortex_m33"]
    options += ["-DNEUTRON_PORTABLE_ONLY=ON", "-DNEUTRON_MAX_WORK=1000000000"]
    run("cmake", "-S", ".", "-B", "build", "-G", "Ninja", *options, folder=tmp_path)
    run("cmake", "--build", "build", folder=tmp_path)
    archive = tmp_path / "build" / "openneutron" / "libneutron.a"
    assert re.search(r"\bconv_2d\b", run("cmake", "--build", "build", "--target", "sizes", folder=tmp_path))
    symbols = run("arm-none-eabi-nm", archive)
    assert " T neutron_cortex_m33_port\n" in symbols and " T neutronRunBlocking\n" in symbols
    assert re.search(r" [Tt] \w+_dsp$", symbols, re.MULTILINE) is None, "these are not portable"
    assert re.search(r" [Tt] \w+_dsp$", run("arm-none-eabi-nm", *libraries[BUILDS[0]].objects), re.MULTILINE)
    commands = (tmp_path / "build" / "build.ninja").read_text()
    assert "-DNEUTRON_MAX_WORK=1000000000 " in commands and "-DNO_HEAP_USAGE=1" in commands
    needed = needed_symbols(Library(Build("gcc", "-Os"), tmp_path, (archive,), {}))
    # The kernels of language models divide 64 bits.
    assert needed == {"memcpy", "memset", "__aeabi_ldivmod", "__aeabi_uldivmod"}
