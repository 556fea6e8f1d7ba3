# SPDX-License-Identifier: BSD-3-Clause
"""The package forms of exported folders: build systems, and the layouts of packages for IDEs."""

from __future__ import annotations

import io
import os.path
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from xml.etree import ElementTree

_INCLUDE = re.compile(rb'^(\s*#\s*include\s+")([^"]+)"', re.MULTILINE)

PUBLIC = ("include", "model", "runtime/include", "runtime/ports/cortex_m33", "runtime/ports/host")
"""The folders of the headers that an application may include, the include directories of every form."""

PRIVATE = ("src", "runtime/driver", "runtime/kernels")
"""Other folders in which the sources' headers are searched."""


def with_relative_includes(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with includes of private headers written as paths relative to the including file. A build then needs only the public
    folders as include directories."""
    changed = dict(contents)
    for name, data in contents.items():
        if not name.endswith((".c", ".h", ".cpp")):
            continue
        folder = PurePosixPath(name).parent.as_posix()

        def relative(match: re.Match[bytes], folder: str = folder) -> bytes:
            header = match[2].decode()
            for place in (folder, *PUBLIC, *PRIVATE):
                path = os.path.normpath(f"{place}/{header}")
                if path in contents:
                    path = header if place in PUBLIC else os.path.relpath(path, folder)
                    return match[1] + path.encode() + b'"'
            return match[0]

        changed[name] = _INCLUDE.sub(relative, data)
    return changed


def arduino_library(contents: Mapping[str, bytes], words: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files in the layout of an Arduino library: sources in ``src``, public headers directly in ``src``, and the example as a sketch.

    See Arduino's library specification, https://arduino.github.io/arduino-cli/latest/library-specification/.
    """
    moved = {}
    for name, data in contents.items():
        top, _, rest = name.partition("/")
        if PurePosixPath(name).parent.as_posix() in PUBLIC or top == "src":
            place = f"src/{PurePosixPath(name).name}"
        elif top == "runtime":
            place = f"src/{name}"
        elif top == "example":
            place = f"examples/selfcheck/{rest}"
        else:
            place = name
        if place not in ("examples/selfcheck/main.c", "sources.cmake"):
            assert place not in moved, place
            moved[place] = data
    moved[f"src/{words['PACKAGE']}.h"] = (
        b'/* SPDX-License-Identifier: BSD-3-Clause */\n#include "openneutron_models.h"\n'
    )
    for name, data in moved.items():  # sources that were moved from folders beside runtime/
        if PurePosixPath(name).parent.as_posix() == "src":
            moved[name] = re.sub(rb'(#\s*include\s+")\.\./runtime/', rb"\1runtime/", data)
    return moved


def cmsis_pack(contents: Mapping[str, bytes], words: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files with the description of a CMSIS-Pack and the pack itself. The bytes of the pack depend only on the arguments.

    See the Open-CMSIS-Pack specification, https://open-cmsis-pack.github.io/Open-CMSIS-Pack-Spec/main/html/packFormat.html.
    """
    name = f"{words['VENDOR']}.{words['PACKAGE']}"
    packed = {path: data for path, data in contents.items() if path != "sources.cmake"}
    packed[f"{name}.pdsc"] = _description(packed, words)
    return {**packed, f"{name}.{words['VERSION']}.pack": _zip(packed)}


def _description(paths: Iterable[str], words: Mapping[str, str]) -> bytes:
    package = ElementTree.Element("package", schemaVersion="1.7.7")
    package.set("xmlns:xs", "http://www.w3.org/2001/XMLSchema-instance")
    package.set("xs:noNamespaceSchemaLocation", "PACK.xsd")
    for tag, text in (
        ("vendor", words["VENDOR"]),
        ("name", words["PACKAGE"]),
        ("description", f"{words['NAME']}: a compiled neural network"),
        ("url", words["URL"]),
        ("license", "LICENSE"),
    ):
        ElementTree.SubElement(package, tag).text = text
    releases = ElementTree.SubElement(package, "releases")
    ElementTree.SubElement(releases, "release", version=words["VERSION"]).text = f"Made by {words['MADE_BY']}"
    keywords = ElementTree.SubElement(package, "keywords")
    ElementTree.SubElement(keywords, "keyword").text = "neural network"
    components = ElementTree.SubElement(package, "components")
    attributes = {"Cclass": "Machine Learning", "Cgroup": "OpenNeutron", "Csub": words["PREFIXES"]}
    component = ElementTree.SubElement(components, "component", {**attributes, "Cversion": words["VERSION"]})
    ElementTree.SubElement(component, "description").text = f"The model, its kernels and the driver: {words['NAME']}"
    files = ElementTree.SubElement(component, "files")
    listed = sorted(paths)
    ElementTree.SubElement(files, "file", category="doc", name="README.md")
    for folder in PUBLIC:
        if any(path.startswith(f"{folder}/") for path in listed):
            ElementTree.SubElement(files, "file", category="include", name=f"{folder}/")
    for path in listed:
        if path.endswith(".h") and PurePosixPath(path).parent.as_posix() in PUBLIC:
            ElementTree.SubElement(files, "file", category="header", name=path)
        if path.endswith(".c") and not path.startswith("example/"):
            ElementTree.SubElement(files, "file", category="source", name=path)
    ElementTree.indent(package)
    text = ElementTree.tostring(package, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _zip(contents: Mapping[str, bytes]) -> bytes:
    """Return a ZIP archive of the files. All files have the oldest date that ZIP allows. They are not compressed, since compressed bytes differ
    between versions of zlib."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(contents.items()):
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


Contents = Mapping[str, bytes]


def _unchanged(contents: Contents, _words: Mapping[str, str]) -> Contents:
    return contents


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which ``openneutron export`` writes models.

    The folder ``templates/<name>`` has the files of the form in ``files``, at their paths in the exported folder, and the README's section
    about building in ``BUILD.md``. A file whose name ends in ``.in`` loses this ending, and its placeholders get their values. ``table`` has
    the README's table rows about these files.
    """

    name: str
    words: str
    table: str
    memory: str
    options: str
    """The place where options are given, in words."""
    next_step: str
    """The command to type next, where ``{folder}`` is the exported folder."""
    executorch: str = ""
    """The template of the README's section about ExecuTorch's own runtime; without one the folder has no delegate."""
    ports: tuple[str, ...] = ()
    """The driver's ports in the folder: ``cortex_m33`` counts cycles, ``host`` has the threads of Linux."""
    layout: str = ""
    """The README's paragraph about places other than those of its table."""
    includes: tuple[str, ...] = ()
    """Other forms whose files are part of the folder; a file of this form replaces theirs."""
    is_nxp: bool = False
    """True where the programs are those of NXP's converter, and the folder links NXP's driver, which the user has."""
    finish: Callable[[Contents, Mapping[str, str]], Contents] = _unchanged
    """The last step, which may move files and add packed ones. It gets the values of the placeholders."""


CORTEX_M33 = Form(
    name="cortex_m33",
    words=" for a Cortex-M33 with a GNU toolchain and CMake",
    table="| `port/` | toolchain file, start code, linker script and semihosting for QEMU's mps2-an505 |",
    memory="The example prints the used memory. The build ends with a table of flash, SRAM and stack of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
    includes=("cmake",),
)

ZEPHYR = Form(
    name="zephyr",
    words=" as a Zephyr module",
    table="| `zephyr/` | the module: `module.yml`, `CMakeLists.txt`, `Kconfig`, Zephyr's clock for the driver |\n"
    "| `samples/selfcheck/` | an application that checks the model |",
    memory="Zephyr's targets `rom_report` and `ram_report` print the sizes of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="west build -b BOARD {folder}/samples/selfcheck",
)

MCUXPRESSO = Form(
    name="mcuxpresso",
    words=" as a component of the MCUXpresso SDK",
    table="| `mcux/` | the component: `module.yml`, `CMakeLists.txt`, `Kconfig` |",
    memory="The SDK's build ends with the used part of each memory region of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
)

MCXN947 = Form(
    name="mcxn947",
    words=" for the MCX N947 with CMake, Zephyr or the MCUXpresso SDK",
    table="\n".join((CORTEX_M33.table, ZEPHYR.table, MCUXPRESSO.table))
    + "\n| `port/mcxn947.ld`, `port/chip.cmake` | the memory of the chip, and an image linked for it |\n"
    "| `samples/selfcheck/boards/` | the memory and the floating-point unit of `frdm_mcxn947` for Zephyr |",
    memory="The example prints the used memory. The CMake build ends with a table of flash, SRAM and stack of the code linked for the chip.",
    options="given to CMake as `-DNAME=VALUE`, in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33",),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
    includes=("cmake", "cortex_m33", "zephyr", "mcuxpresso"),
)

CMAKE = Form(
    name="cmake",
    words=" as a CMake package",
    table="| `CMakeLists.txt` | the library `openneutron::openneutron`, its installation, and the example |",
    memory="The tool `size` of the compiler prints the sizes of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    ports=("cortex_m33", "host"),
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
)

ARDUINO = Form(
    name="arduino",
    words=" as an Arduino library",
    table="| `library.properties` | the library's name and version |\n| `examples/selfcheck/` | a sketch that checks the model |",
    memory="The IDE prints the flash and the RAM of the linked sketch.",
    options="written as `#define NAME VALUE` at the top of `src/openneutron.h`",
    layout="\nIn this form the headers and sources of `include`, `model` and `src` are in `src`, the runtime is in `src/runtime`, and the "
    "example is in `examples/selfcheck`.\n",
    next_step="arduino-cli compile -b BOARD --library {folder} {folder}/examples/selfcheck",
    finish=arduino_library,
)

CMSIS_PACK = Form(
    name="cmsis-pack",
    words=" as a CMSIS-Pack",
    table="| `*.pdsc`, `*.pack` | the description of the pack, and the packed files |",
    memory="The linker's map has the sizes of the linked code.",
    options="given as definitions of the project",
    next_step="cpackget add {folder}/*.pack",
    finish=cmsis_pack,
)

ESP_IDF = Form(
    name="esp-idf",
    words=" as an ESP-IDF component",
    table="| `CMakeLists.txt`, `idf_component.yml` | the component |\n| `examples/selfcheck/` | a project that checks the model |",
    memory="`idf.py size` prints the sizes of the linked code.",
    options="given as compile definitions of the component",
    next_step="idf.py -C {folder}/examples/selfcheck build",
)

NXP_TABLE = "| `nxp/` | the search for NXP's driver, and the test of its release at start-up |\n"

ZEPHYR_NXP = Form(
    name="zephyr-nxp",
    words=" as a Zephyr module that links NXP's driver",
    table=NXP_TABLE + ZEPHYR.table.replace(", Zephyr's clock for the driver", ""),
    memory=ZEPHYR.memory,
    options=ZEPHYR.options,
    next_step="west build -b BOARD {folder}/samples/selfcheck -- -DNEUTRON_SDK=SDK",
    includes=("nxp",),
    is_nxp=True,
)

MCUXPRESSO_NXP = Form(
    name="mcuxpresso-nxp",
    words=" as a component of the MCUXpresso SDK that links NXP's driver",
    table=NXP_TABLE + MCUXPRESSO.table,
    memory=MCUXPRESSO.memory,
    options=MCUXPRESSO.options,
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
    includes=("nxp",),
    is_nxp=True,
)

LINUX_NXP = Form(
    name="linux-nxp",
    words=" for Linux on aarch64 with NXP's driver library",
    table=NXP_TABLE
    + "| `CMakeLists.txt`, `port/` | the library, the example, and the functions that open `libNeutronDriver.so` |",
    memory="The tool `size` of the compiler prints the sizes of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    next_step="cmake -S {folder} -B {folder}/build -DNEUTRON_SDK=SDK && cmake --build {folder}/build",
    includes=("nxp",),
    is_nxp=True,
)

_OWN_DRIVER = (CORTEX_M33, ZEPHYR, MCUXPRESSO, MCXN947, CMAKE, ARDUINO, CMSIS_PACK, ESP_IDF)
FORMS = {form.name: form for form in (*_OWN_DRIVER, ZEPHYR_NXP, MCUXPRESSO_NXP, LINUX_NXP)}
"""The forms by name, the default form first."""
