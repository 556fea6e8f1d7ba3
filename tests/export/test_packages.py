# SPDX-License-Identifier: BSD-3-Clause
"""Packages for CMake, CMSIS-Pack, Arduino and ESP-IDF: each is built from a fresh folder as its own tool does, and its example checks itself.

Arduino's core and ESP-IDF are not here: their functions have stand-ins (stand_ins/). Cores other than this computer's run in QEMU.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

import openneutron
from openneutron import __version__, litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.features.export.bundle import export_bundle
from scripts.published_networks import Chain
from tests.export.bundles import TEMPLATES, execute
from tests.support import oracle
from tests.support.chip_files import three_regions
from tests.support.litert_files import graph_file
from tests.support.objects import compiled
from tests.support.tools import required

pytestmark = pytest.mark.without_tiles("a bundle is firmware of a core that runs the kernels")

STAND_INS = Path(__file__).parent / "stand_ins"
PORT = TEMPLATES / "cortex_m33" / "files" / "port"
PASSED = "small\nconv_2d_0: 288 of 288 bytes as expected\n"

LINUX = "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR {machine})\nset(CMAKE_C_COMPILER {machine}-linux-gnu-gcc)\n"
"""A toolchain file for a Linux on another machine."""

CONSUMER = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C)
if(BUNDLE)
    add_subdirectory(${BUNDLE} ${CMAKE_BINARY_DIR}/bundle)
else()
    find_package(openneutron %VERSION% REQUIRED)
endif()
add_executable(app ${EXAMPLE}/main.c ${EXAMPLE}/selfcheck.c ${EXAMPLE}/golden.c ${BOARD})
target_include_directories(app PRIVATE ${EXAMPLE} ${PORT})
target_link_libraries(app PRIVATE openneutron::openneutron)
target_link_options(app PRIVATE ${LINK_OPTIONS})
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = Chain("small", (1, 6, 6, 4)).conv(8, 3).graph()
    path = tmp_path_factory.mktemp("model") / "small.tflite"
    path.write_bytes(graph_file(graph, compile_graph(graph, oracle.TARGET).program))
    return path


@pytest.fixture(scope="module")
def cmake_package(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cmake") / "bundle"
    export_bundle(model, folder, form="cmake")
    return folder


def run(command: Sequence[str | Path], **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cmake(source: Path, build: Path, *options: str, target: str = "all", **environment: str) -> str:
    required("cmake")
    said = run(["cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=MinSizeRel", *options], **environment)
    return said + run(["cmake", "--build", build, "--target", target], **environment)


def test_a_cmake_package_on_this_computer(cmake_package: Path, tmp_path: Path) -> None:
    """Built by itself, installed and found, and installed files are not those of the build."""
    build, installed = tmp_path / "build", tmp_path / "installed"
    said = cmake(cmake_package, build, "-DOPENNEUTRON_WERROR=ON", target="run")
    assert f"{PASSED}passed\n" in said
    run(["cmake", "--install", build, "--prefix", installed])
    source = tmp_path / "consumer"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CONSUMER.replace("%VERSION%", __version__))
    example = tmp_path / "example"
    cmake_package_example = cmake_package / "example"
    example.mkdir()
    for file in cmake_package_example.iterdir():
        (example / file.name).write_bytes(file.read_bytes())
    moved = tmp_path / "elsewhere"
    installed.rename(moved)
    options = (f"-DCMAKE_PREFIX_PATH={moved}", f"-DEXAMPLE={example}", f"-DBOARD={example / 'board_stdio.c'}")
    cmake(source, tmp_path / "consumer_build", *options)
    assert run([tmp_path / "consumer_build" / "app"]) == f"{PASSED}passed\n"


def test_a_cmake_package_in_a_project_for_a_cortex_m33(cmake_package: Path, tmp_path: Path) -> None:
    required("arm-none-eabi-gcc")
    source = tmp_path / "consumer"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CONSUMER.replace("%VERSION%", __version__))
    options = [f"-DCMAKE_TOOLCHAIN_FILE={PORT / 'toolchain.cmake'}", f"-DBUNDLE={cmake_package}", f"-DPORT={PORT}"]
    options += [f"-DEXAMPLE={cmake_package / 'example'}", f"-DBOARD={PORT / 'board.c'};{PORT / 'startup.c'}"]
    options += [f"-DLINK_OPTIONS=-nostartfiles;-T{PORT / 'mps2_an505.ld'};-Wl,--gc-sections", "-DOPENNEUTRON_WERROR=ON"]
    cmake(source, tmp_path / "build", *options)
    done = execute(tmp_path / "build" / "app")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(rf"{PASSED}stack used: \d+ bytes\npassed\n", done.stdout + done.stderr)


def test_a_cmake_package_with_threads(cmake_package: Path, tmp_path: Path) -> None:
    """Four threads compute each call together, also calls that are too small for threads to be worth it."""
    options = ("-DOPENNEUTRON_THREADS=ON", "-DOPENNEUTRON_WERROR=ON", "-DCMAKE_C_FLAGS=-DNEUTRON_LEAST_SHARED_WORK=1")
    assert f"{PASSED}passed\n" in cmake(cmake_package, tmp_path / "build", *options, target="run")
    symbols = run([required("nm"), tmp_path / "build" / "example"])
    assert {"neutron_host_threads_parallel", "openneutron_set_threads"} <= set(symbols.split())


@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_a_cmake_package_for_linux_elsewhere(cmake_package: Path, tmp_path: Path, machine: str) -> None:
    required(f"{machine}-linux-gnu-gcc")
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text(LINUX.format(machine=machine))
    options = (f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DOPENNEUTRON_WERROR=ON", "-DCMAKE_EXE_LINKER_FLAGS=-static")
    cmake(cmake_package, tmp_path / "build", *options)
    assert run([required(f"qemu-{machine}"), tmp_path / "build" / "example"]) == f"{PASSED}passed\n"


CORE = ("-mcpu=cortex-m33", "-mthumb", "-Os", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra", "-Werror")


def linked(folder: Path, sources: Sequence[Path], includes: Sequence[Path], *more: str) -> Path:
    """Compile C and C++ sources for a Cortex-M33 and link them with the start code of the port."""
    required("arm-none-eabi-g++")
    flags = [*CORE, *(f"-I{path}" for path in includes)]
    kinds = {
        ".c": ("arm-none-eabi-gcc", "-std=c99"),
        ".cpp": ("arm-none-eabi-g++", "-std=gnu++11", "-fno-exceptions", *more),
    }
    objects = [
        each
        for suffix, (compiler, *own) in kinds.items()
        for each in compiled(folder, compiler, [*own, *flags], [path for path in sources if path.suffix == suffix])
    ]
    program = folder / "program.elf"
    command = ["arm-none-eabi-gcc", *CORE[:2], "-nostartfiles", "-T", PORT / "mps2_an505.ld", "-Wl,--gc-sections"]
    run([*command, "-Wl,-z,noexecstack", *objects, "-o", program])
    return program


# -- Memory regions of a CPU ------------------------------------------------------------------------------------------


def test_a_model_in_two_memory_regions(tmp_path: Path) -> None:
    """A CPU's model comes as a CMake package. Each region has an arena; on a Cortex-M33 one memory has both."""
    required("arm-none-eabi-gcc")
    graph = Chain("small", (1, 6, 6, 4)).conv(8, 3).conv(8, 3).graph()
    options = CompileOptions(sram_budget={"dtcm": 256, "sram": 4096})
    model = tmp_path / "small.tflite"
    model.write_bytes(graph_file(graph, compile_graph(graph, targets.get("cortex-m7"), options).program))
    bundle = export_bundle(model, tmp_path / "package")
    assert bundle.form == "cmake"
    header = (bundle.folder / "model" / "small_model.h").read_text()
    arenas = "void *dtcm, size_t dtcm_bytes, void *sram, size_t sram_bytes"
    assert f"NeutronError small_init(small_instance *instance, {arenas});" in header
    sizes = {name: int(size) for name, size in re.findall(r"#define SMALL_(\w+)_BYTES (\d+)u", header)}
    assert 0 < sizes["DTCM"] <= 256 < sizes["SRAM"] and bundle.memory["arena"] == sizes["DTCM"] + sizes["SRAM"]
    source = (bundle.folder / "model" / "openneutron_models.c").read_text()
    assert '#define OPENNEUTRON_DTCM __attribute__((section(".dtcm")))' in source
    expected = PASSED.replace("conv_2d_0", "conv_2d_1")
    assert f"{expected}passed\n" in cmake(bundle.folder, tmp_path / "build", target="run")

    export_bundle(model, tmp_path / "firmware", form="cortex_m33")
    cmake(tmp_path / "firmware", tmp_path / "m33", "-DOPENNEUTRON_WERROR=ON")
    done = execute(tmp_path / "m33" / "example.elf")
    assert done.returncode == 0 and (done.stdout + done.stderr).startswith(expected)


def test_a_model_in_three_memory_regions(tmp_path: Path) -> None:
    """The far buffer is in a memory of its own. The firmware puts each arena into another memory of the board."""
    required("arm-none-eabi-gcc")
    model = tmp_path / "small.tflite"
    model.write_bytes(litert.write(Chain("small", (1, 6, 6, 4)).conv(8, 3).conv(8, 3).graph()))
    budget = {"dtcm": 144, "sram": 304, "psram": 4096}
    options = CompileOptions(target=str(three_regions(tmp_path)), sram_budget=budget)
    bundle = export_bundle(openneutron.compile(model, options=options), tmp_path / "firmware", form="cortex_m33")
    header = (bundle.folder / "model" / "small_tflite_model.h").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"#define SMALL_TFLITE_(\w+)_BYTES (\d+)u", header)}
    assert all(0 < sizes[name.upper()] <= most for name, most in budget.items())
    assert "void *dtcm, size_t dtcm_bytes, void *sram, size_t sram_bytes, void *psram, size_t psram_bytes" in header
    script = next(bundle.folder.rglob("mps2_an505.ld"))
    text = script.read_text().replace(" .dtcm .psram)", ")")
    text = text.replace(
        "MEMORY\n{",
        "MEMORY\n{\n    PSRAM (rw) : ORIGIN = 0x80000000, LENGTH = 16M\n    DTCM (rw) : ORIGIN = 0x30000000, LENGTH = 32K",
    )
    script.write_text(
        text.replace(
            "SECTIONS\n{",
            "SECTIONS\n{\n    .psram (NOLOAD) : { *(.psram) } > PSRAM\n    .dtcm (NOLOAD) : { *(.dtcm) } > DTCM",
        )
    )
    cmake(bundle.folder, tmp_path / "m33", "-DOPENNEUTRON_WERROR=ON")
    symbols = run(["arm-none-eabi-nm", tmp_path / "m33" / "example.elf"])
    places = dict(re.findall(r"(\w{2})\w{6} \w openneutron_(dtcm|sram|psram)\n", symbols))
    assert places == {"30": "dtcm", "38": "sram", "80": "psram"}
    done = execute(tmp_path / "m33" / "example.elf")
    assert done.returncode == 0 and (done.stdout + done.stderr).startswith(
        PASSED.replace("conv_2d_0", "conv_2d_1").replace("small", "small.tflite")
    )


# -- Arduino ----------------------------------------------------------------------------------------------------------

CATEGORIES = {
    "Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing", "Data Storage",
    "Data Processing", "Other",
}  # fmt: skip
"""The values of ``category``: Arduino, "Library specification", library.properties file format."""


def test_an_arduino_library(model: Path, tmp_path: Path) -> None:
    """An Arduino build compiles all sources below ``src`` with ``src`` as include directory, and the files of the sketch's folder."""
    folder = tmp_path / "OpenNeutron_small"
    export_bundle(model, folder, form="arduino")
    lines = (folder / "library.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    required_keys = {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "url",
        "architectures",
    }
    assert properties.keys() == required_keys | {"includes"}
    assert all(properties.values())
    assert re.fullmatch(r"[A-Za-z][\w.-]{0,62}", properties["name"]) and "arduino" not in properties["name"].lower()
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"]) and properties["category"] in CATEGORIES
    assert not properties["paragraph"].startswith(properties["sentence"])
    assert properties["name"] == folder.name and properties["includes"] == f"{folder.name}.h"
    assert {path.name for path in folder.iterdir()} == {
        "LICENSE", "README.md", "bundle.json", "examples", "library.properties", "src",
    }  # fmt: skip
    sketch = folder / "examples" / "selfcheck"
    assert [path.name for path in folder.rglob("*.ino")] == ["selfcheck.ino"]
    assert not [*folder.rglob("*.cpp"), *folder.rglob("*.S")]

    preprocessed = tmp_path / "selfcheck.ino.cpp"
    preprocessed.write_text(f"#include <Arduino.h>\n{(sketch / 'selfcheck.ino').read_text()}")
    core = STAND_INS / "arduino"
    sources = [*sorted((folder / "src").rglob("*.c")), *sorted(sketch.glob("*.c")), preprocessed]
    sources += [core / "core.cpp", core / "console.c", PORT / "startup.c"]
    done = execute(linked(tmp_path, sources, (folder / "src", sketch, core, PORT), "-fno-rtti"))
    assert (done.returncode, done.stdout + done.stderr) == (0, f"{PASSED}passed\n")


# -- CMSIS-Pack -------------------------------------------------------------------------------------------------------

CATEGORIES_OF_FILES = {"doc", "include", "header", "source"}


def test_a_cmsis_pack(model: Path, tmp_path: Path) -> None:
    """The pack has one description at its top, whose files are in the pack; they build as the description lists them.

    The rules are those of Open-CMSIS-Pack's PACK.xsd and "Pack description format".
    """
    for name in ("one", "two"):
        export_bundle(model, tmp_path / name, form="cmsis-pack")
    (pack,) = (tmp_path / "one").glob("*.pack")
    assert pack.read_bytes() == (tmp_path / "two" / pack.name).read_bytes()
    folder = tmp_path / "installed"
    with zipfile.ZipFile(io.BytesIO(pack.read_bytes())) as archive:
        archive.extractall(folder)
    (description,) = folder.glob("*.pdsc")
    package = ElementTree.fromstring(description.read_text())
    texts = {child.tag: (child.text or "").strip() for child in package}
    assert list(texts) == ["vendor", "name", "description", "url", "license", "releases", "keywords", "components"]
    assert all(re.fullmatch(r"[\-_A-Za-z0-9]+", texts[tag]) for tag in ("vendor", "name"))
    assert package.get("schemaVersion") == "1.7.7" and (folder / texts["license"]).is_file()
    (release,) = package.iterfind("releases/release")
    version = release.get("version")
    assert version is not None and re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert pack.name == f"{description.stem}.{version}.pack" == f"{texts['vendor']}.{texts['name']}.{version}.pack"
    (component,) = package.iterfind("components/component")
    assert component.attrib == {
        "Cclass": "Machine Learning", "Cgroup": "OpenNeutron", "Csub": "small", "Cversion": version,
    }  # fmt: skip
    assert [child.tag for child in component] == ["description", "files"]
    files = [(file.attrib["category"], folder / file.attrib["name"]) for file in component.iterfind("files/file")]
    assert {category for category, _ in files} == CATEGORIES_OF_FILES
    for category, path in files:
        assert path.is_dir() if category == "include" else path.is_file()
    example = [folder / "example" / f"{name}.c" for name in ("main", "selfcheck", "golden")]
    sources = [path for category, path in files if category == "source"]
    assert set(sources) == set(folder.rglob("*.c")) - set(example)

    includes = [path for category, path in files if category == "include"]
    board = [*example, STAND_INS / "cmsis" / "board.c", PORT / "startup.c"]
    done = execute(linked(tmp_path, [*sources, *board], (*includes, folder / "example", PORT)))
    assert (done.returncode, done.stdout + done.stderr) == (0, f"{PASSED}passed\n")


# -- ESP-IDF ----------------------------------------------------------------------------------------------------------


def test_an_esp_idf_component(model: Path, tmp_path: Path) -> None:
    """The project builds for RISC-V, the cores of newer ESP32 chips, and its example runs in QEMU."""
    required("riscv64-linux-gnu-gcc")
    folder = tmp_path / "openneutron"
    export_bundle(model, folder, form="esp-idf")
    manifest = yaml.safe_load((folder / "idf_component.yml").read_text())
    assert manifest.keys() == {"version", "description", "url", "license"} and manifest["version"] == __version__
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text(LINUX.format(machine="riscv64"))
    options = (f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DCMAKE_EXE_LINKER_FLAGS=-static")
    cmake(folder / "examples" / "selfcheck", tmp_path / "build", *options, IDF_PATH=str(STAND_INS / "esp_idf"))
    assert run([required("qemu-riscv64"), tmp_path / "build" / "app"]) == f"{PASSED}passed\n"
