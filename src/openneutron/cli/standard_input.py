# SPDX-License-Identifier: BSD-3-Clause
"""A file on standard input: ``-`` in place of a file's name."""

from __future__ import annotations

import sys
import tempfile
from functools import cache
from pathlib import Path

from openneutron.device.files import existing
from openneutron.errors import InvalidModelError

DASH = "-"

SUFFIXES = {b"TFL3": ".tflite", b"ET12": ".pte"}
"""The suffix of each format of files, by bytes 4 to 7."""


def given_file(name: str) -> Path:
    """Return the file of this name; for ``-`` the bytes of standard input as a temporary file, which Python deletes when it
    exits.

    Raises InvalidModelError where there is no such file, or nothing on standard input.
    """
    return from_standard_input() if name == DASH else existing(name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-stdin-")


def from_standard_input() -> Path:
    """Return the bytes of standard input as a temporary file, with the suffix of their format. Raises InvalidModelError
    where there are none."""
    data = sys.stdin.buffer.read() if sys.stdin is not None else b""
    if not data:
        raise InvalidModelError("standard input is empty; '-' reads a file from there.")
    path = Path(_folder().name) / f"stdin{SUFFIXES.get(data[4:8], '')}"
    path.write_bytes(data)
    return path
