# SPDX-License-Identifier: BSD-3-Clause
"""Results on stdout, and files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from openneutron.errors import InvalidOptionError
from openneutron.report.text import plain

WIDE = 200
"""Columns of what is not shown on a terminal: nobody's tables are wrapped in a file."""


def show(renderable: RenderableType) -> None:
    """Prints a table or text, coloured and fitted where stdout is a terminal."""
    if sys.stdout.isatty():
        Console(highlight=False).print(renderable)
    else:
        sys.stdout.write(plain(renderable, WIDE))


def show_json(data: Any) -> None:
    """Prints data as JSON."""
    print(json.dumps(data, indent=2))


def write(path: Path, content: bytes) -> None:
    """Writes a file beside its place and then moves it there. Raises InvalidOptionError where that can't be done."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            try:
                file.write(content)
                file.close()
                # A temporary file is its owner's alone; a result has the permissions any new file has.
                mask = os.umask(0)
                os.umask(mask)
                temporary.chmod(0o666 & ~mask)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidOptionError(f"'{path}' can't be written: {error.strerror or error}.") from error


def directory(path: Path) -> Path:
    """The folder, made where it is absent. Raises InvalidOptionError where that can't be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f"'{path}' can't be used as a folder: {error.strerror or error}.") from error
    return path
