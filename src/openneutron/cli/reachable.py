# SPDX-License-Identifier: BSD-3-Clause
"""Paths that are given for files, looked at before they are opened."""

from __future__ import annotations

import stat
from pathlib import Path

ABSENT = "does not exist"
FOLDER = "is a folder"

_KINDS = (
    (stat.S_ISDIR, FOLDER),
    (stat.S_ISFIFO, "is a FIFO"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def obstacle(path: Path) -> str | None:
    """Return words for why a path is no file that can be opened, such as ``is a folder``; None where it is one."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:  # a name that is too long, a loop of links, a folder that may not be entered
        return f"can't be read: {error.strerror}"
    except ValueError:  # a NUL in the name
        return ABSENT
    if stat.S_ISREG(mode):
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "is no regular file")
