# SPDX-License-Identifier: BSD-3-Clause
"""Make the edits that a how-to page shows, in a copy of the sources.

An edit is a block of code whose title is a path of the repository. A block for a file that does not exist is the file. Any other block is
inserted at the place that the paragraph in front of it names: "at the end of the file", "at the end of the imports", "at the end of `NAME`", a
tuple or dictionary of that name, or "before the line `CODE`".
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from openneutron.device.simulator import LIBRARY

ROOT = Path(__file__).parents[2]

_EDIT = re.compile(
    r"(?P<paragraph>(?:^[^\n]+\n)+)\n(?:<!-- run: no -->\n)?^```\w+ title=\"(?P<path>[^\"]+)\"\n(?P<code>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
_PLACE = re.compile(
    r"at the end of (?:`(?P<name>\w+)`|the (?:file|(?P<imports>imports)))|before the line `(?P<line>[^`]+)`"
)


def copied_sources(folder: Path, with_library: bool = False) -> Path:
    """Return a folder with the package and the runtime, without the compiled library unless it is asked for.

    Python's compiled files stay valid for the sources that no edit changes.
    """
    unneeded = shutil.ignore_patterns("*.new", "*.so")
    for name in ("src/openneutron", "runtime"):
        shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
    if with_library:
        shutil.copy(LIBRARY, folder / "src/openneutron/device/simulator")
    return folder


def edited_by(page: Path, folder: Path) -> list[str]:
    """Make the edits of a page below a folder, and return the paths of the edited files."""
    paths = []
    for edit in _EDIT.finditer(page.read_text()):
        path = folder / edit["path"]
        if path.exists():
            place = _PLACE.search(edit["paragraph"].replace("\n", " "))
            assert place, f"{page.name}: no place for the edit of {edit['path']}"
            path.write_text(_inserted(path.read_text(), edit["code"], place))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(edit["code"])
        paths.append(edit["path"])
    return paths


def _inserted(text: str, code: str, place: re.Match[str]) -> str:
    """Return a module's text with code before a line, or at the end of a tuple or dictionary, of the imports, or of the module."""
    if place["line"] is not None:
        lines = text.splitlines(keepends=True)
        (at,) = (index for index, found in enumerate(lines) if found.strip() == place["line"])
        return "".join((*lines[:at], code, *lines[at:]))
    if place["imports"] is not None:
        last = max(found.end() for found in re.finditer(r"^(?:from|import) .*\n", text, re.MULTILINE))
        return text[:last] + code + text[last:]
    name = place["name"]
    if name is None:
        return f"{text}\n\n{code}"
    (start,) = (found.start() for found in re.finditer(rf"\n{name}(?:: [^\n]*)? = ", text))
    end = min(at for at in (text.find("\n)\n", start), text.find("\n}\n", start)) if at >= 0) + 1
    return text[:end] + code + text[end:]
