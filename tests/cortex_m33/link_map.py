# SPDX-License-Identifier: BSD-3-Clause
"""Read GNU ld's map file of an image: the sections with their objects, and their padding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_START = "Linker script and memory map"
_OUTPUT = re.compile(r"^(\.\S+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)$", re.MULTILINE)
_INPUT = re.compile(r"^ (\.\S+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S+)$", re.MULTILINE)
_FILL = re.compile(r"^ \*fill\*\s+0x[0-9a-f]+\s+0x([0-9a-f]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LinkMap:
    """Bytes of some output sections: all of them, each input section's by its object and name, and padding."""

    size: int
    sections: dict[tuple[str, str], int]
    padding: int


def read(path: Path, outputs: tuple[str, ...] = (".text", ".rodata")) -> LinkMap:
    """The map of ``outputs``. Objects are named by their file, those of archives by ``archive.a(object.o)``."""
    text = path.read_text().split(_START, 1)[1]
    starts = [*_OUTPUT.finditer(text)]
    size = padding = 0
    sections: dict[tuple[str, str], int] = {}
    for found, following in zip(starts, [*starts[1:], None], strict=True):
        if found[1] not in outputs:
            continue
        size += int(found[2], 16)
        part = text[found.end() : None if following is None else following.start()]
        padding += sum(int(fill, 16) for fill in _FILL.findall(part))
        for name, length, file in _INPUT.findall(part):
            key = (Path(file).name, name)
            sections[key] = sections.get(key, 0) + int(length, 16)
    return LinkMap(size, {key: length for key, length in sections.items() if length}, padding)
