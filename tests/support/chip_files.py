# SPDX-License-Identifier: BSD-3-Clause
"""Files of chips for tests: that of i.MX RT700 with changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from openneutron import targets


def text_of_chip() -> str:
    """Return the file of i.MX RT700 under the name ``changed``."""
    return targets.KNOWN["imxrt700"].read_text().replace('name = "imxrt700"', 'name = "changed"')


def changed_chip(folder: Path, values: Mapping[str, float]) -> Path:
    """Write the file with other numbers; of several entries with the same name the first one changes."""
    text = text_of_chip()
    for name, value in values.items():
        text, count = re.subn(rf"^({name} = {{ value = )[^,]+", rf"\g<1>{value:g}", text, count=1, flags=re.MULTILINE)
        assert count == 1, name
    path = folder / "changed.toml"
    path.write_text(text)
    return path
