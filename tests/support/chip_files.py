# SPDX-License-Identifier: BSD-3-Clause
"""Files of chips for tests: those of the package with changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from openneutron import targets
from openneutron.targets import Target


def text_of_chip(name: str = "imxrt700") -> str:
    """Return the file of a chip under the name ``changed``."""
    return targets.KNOWN[name].read_text().replace(f'name = "{name}"', 'name = "changed"')


def changed_chip(folder: Path, values: Mapping[str, float]) -> Path:
    """Write the file of i.MX RT700 with other numbers; of several entries with the same name the first one changes."""
    text = text_of_chip()
    for name, value in values.items():
        text, count = re.subn(rf"^({name} = {{ value = )[^,]+", rf"\g<1>{value:g}", text, count=1, flags=re.MULTILINE)
        assert count == 1, name
    path = folder / "changed.toml"
    path.write_text(text)
    return path


def with_psram(target: Target) -> Target:
    """Return a CPU target with 8 MiB of PSRAM as a further memory of activations, which is slower than the others."""
    last = target.regions[-1]
    size, rate = replace(last.size, value=8192.0), replace(last.bandwidth, value=0.4)
    psram = replace(last, name="psram", section=".psram", size=size, bandwidth=rate)
    place = target.memories.index(last) + 1
    return replace(target, memories=(*target.memories[:place], psram, *target.memories[place:]))


def three_regions(folder: Path) -> Path:
    """Write the file of a Cortex-M7 with PSRAM beside its tightly coupled memory and its SRAM."""
    text = text_of_chip("cortex-m7")
    start, end = text.index('[[memory]]\nname = "sram"'), text.index('[[memory]]\nname = "flash"')
    psram = text[start:end].replace('name = "sram"', 'name = "psram"\nsection = ".psram"')
    psram = psram.replace("size = { value = 512", "size = { value = 8192").replace("{ value = 4,", "{ value = 0.4,")
    path = folder / "three.toml"
    path.write_text(text[:end] + psram + text[end:])
    return path
