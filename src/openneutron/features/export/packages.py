# SPDX-License-Identifier: BSD-3-Clause
"""The layouts of packages for IDEs: Arduino libraries and CMSIS-Packs."""

from __future__ import annotations

import io
import os.path
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from xml.etree import ElementTree

_INCLUDE = re.compile(rb'^(\s*#\s*include\s+")([^"]+)"', re.MULTILINE)

PUBLIC = ("include", "model", "runtime/include", "runtime/ports/cortex_m33", "runtime/ports/host")
"""The folders of the headers that an application may include, the include directories of every form."""

PRIVATE = ("src", "runtime/driver", "runtime/kernels")
"""Other folders in which the sources' headers are searched."""


def with_relative_includes(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the paths of private headers relative to the including file, so that the public folders are
    all that a build has to name."""
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
    """Return the files at their places in an Arduino library: sources in ``src``, whose public headers are in ``src`` itself,
    and the example as a sketch.

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
    """Return the files with the description of a CMSIS-Pack and the pack itself, whose bytes depend on nothing else.

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
    """Return an archive with the oldest date that a ZIP file has, and without compression, whose bytes differ between versions
    of its library."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(contents.items()):
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()
