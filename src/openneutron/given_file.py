# SPDX-License-Identifier: BSD-3-Clause
"""Files and folders named by a user: the reason why one can't be opened, and the nearest existing name."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable
from pathlib import Path

from openneutron.errors import InvalidModelError

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
    """Return the reason why a path can't be opened as a file, such as ``is a folder``; None where it can be opened."""
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


def existing(name: str) -> Path:
    """Return the file of this name. Raises InvalidModelError, with the nearest existing name, where it can't be
    opened."""
    path = Path(name)
    problem = obstacle(path)
    if problem is None:
        return path
    if problem != ABSENT:
        raise InvalidModelError(f"'{name}' {problem}; a file is what is needed here.")
    folder = path.parent
    if obstacle(folder) != FOLDER:
        raise InvalidModelError(f"'{name}' does not exist: there is no folder '{folder}'.")
    try:
        there = sorted(entry.name for entry in folder.iterdir() if entry.suffix == path.suffix)
    except OSError:  # a folder that may be entered and not listed
        there = []
    raise InvalidModelError(f"'{name}' does not exist.{nearest(path.name, there)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest known names; the empty text where no name is near."""
    # A suffix that all names share does not count as similarity.
    stems = {Path(other).stem: other for other in sorted(known)}
    near = difflib.get_close_matches(Path(name).stem, stems, 2)
    return f" Did you mean {' or '.join(repr(stems[stem]) for stem in near)}?" if near else ""
