# SPDX-License-Identifier: BSD-3-Clause
"""Results on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType

from openneutron.report.text import plain

WIDE = 200
"""Columns of what is not shown on a terminal: nobody's tables are wrapped in a file."""


def show(renderable: RenderableType) -> None:
    """Print a table or text, coloured and fitted where stdout is a terminal."""
    if sys.stdout.isatty():
        Console(highlight=False).print(renderable)
    else:
        sys.stdout.write(plain(renderable, WIDE))


def show_json(data: Any) -> None:
    """Print data as JSON."""
    print(json.dumps(data, indent=2))


def note(text: str) -> None:
    """Print an important note on stderr, in bold where stderr is a terminal."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {text}", style="bold", markup=False)
