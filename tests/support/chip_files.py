# SPDX-License-Identifier: BSD-3-Clause
"""Files of chips for tests: those of the package with changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from openneutron import targets


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
