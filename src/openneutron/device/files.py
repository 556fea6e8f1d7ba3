# SPDX-License-Identifier: BSD-3-Clause
"""Open the files that a user names, with a reason where that fails, and write results completely or not at all."""

from __future__ import annotations

import difflib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from openneutron.errors import InvalidModelError, InvalidOptionError

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
    """Return the reason why a path is no file that can be opened, such as ``is a folder``; None for a regular file.
    Whether the user may read the file is not checked."""
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
    """Return the path of the file with this name. Raises InvalidModelError, with the nearest existing name, where the
    file can't be opened."""
    path = Path(name)
    problem = obstacle(path)
    if problem is None:
        return path
    if problem != ABSENT:
        raise InvalidModelError(f"'{name}' {problem}; a file is needed here.")
    code, colon, function = name.rpartition(":")
    if colon and function.isidentifier() and code.endswith(".py"):
        raise InvalidModelError(
            f"'{name}' names a function of a model; a file is needed here. Compile it first: openneutron compile {name}."
        )
    folder = path.parent
    if obstacle(folder) != FOLDER:
        raise InvalidModelError(f"'{name}' does not exist: there is no folder '{folder}'.")
    try:
        there = sorted(entry.name for entry in folder.iterdir() if entry.suffix == path.suffix)
    except OSError:  # a folder that may be entered and not listed
        there = []
    raise InvalidModelError(f"'{name}' does not exist.{nearest(path.name, there)}")


def content(path: Path) -> bytes:
    """Return the bytes of a user's file. Raises InvalidModelError where it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"'{path}' can't be read: {error.strerror}.") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest known names; the empty text where no name is near."""
    # A suffix that all names share does not count as similarity.
    stems = {Path(other).stem: other for other in sorted(known)}
    near = difflib.get_close_matches(Path(name).stem, stems, 2)
    return f" Did you mean {' or '.join(repr(stems[stem]) for stem in near)}?" if near else ""


def write(files: Mapping[Path, bytes], folder: Path | None = None) -> None:
    """Write files with these contents. ``folder``, and the folders of the files below it, are made where they are
    absent.

    All contents are first written to temporary files beside their places. Then they are moved to their places in the
    order given. After an error no temporary files are left. Files that were already moved stay; folders that were
    made are removed if they are empty. Raises InvalidOptionError where something can't be written.
    """
    below = set() if folder is None else {folder, *(path.parent for path in files if path.is_relative_to(folder))}
    absent = {parent for place in below for parent in (place, *place.parents) if not parent.exists()}
    staged: dict[Path, Path] = {}
    try:
        for place in below:
            _make(place)
        for path, content in files.items():
            staged[path] = _staged(path, content)
        for path, temporary in staged.items():
            with _told(path):
                temporary.replace(path)
    except BaseException:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
        for parent in sorted(absent, reverse=True):  # those inside others first
            with suppress(OSError):  # not empty, or never made
                parent.rmdir()
        raise


def check(path: Path) -> None:
    """Raise InvalidOptionError for a file that is to be written later, if it is known already that writing will fail."""
    with _told(path):
        if stat.S_ISDIR(_mode(path)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISDIR(path.parent.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_folder(folder: Path) -> None:
    """Raise InvalidOptionError where the path exists and is not a folder."""
    mode = 0
    with suppress(OSError, ValueError):
        mode = folder.stat().st_mode
    if mode and not stat.S_ISDIR(mode):
        raise InvalidOptionError(f"'{folder}' can't be used as a folder: {os.strerror(errno.EEXIST)}.")


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


SHORT = 40
"""The number of characters of a file's name that the name of its temporary file repeats. A name has at most 255 bytes,
and a character takes up to 4."""


def _staged(path: Path, content: bytes) -> Path:
    """Return the path of a temporary file with the content, in the folder of ``path``."""
    with _told(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:SHORT]}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            # Only its owner can read a temporary file. A result gets the permissions of any new file.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return temporary


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidOptionError(f"'{path}' can't be written: {error.strerror or error}.") from error


def make_folder(folder: Path) -> None:
    """Make the folder where it is absent. Raises InvalidOptionError where files in it can't be read and written."""
    check_folder(folder)
    _make(folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidOptionError(f"'{folder}' can't be used as a folder: {os.strerror(errno.EACCES)}.")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:  # a NUL in the name
        raise InvalidOptionError(f"'{folder}' can't be used as a folder: {error}.") from error
    except OSError as error:
        raise InvalidOptionError(f"'{folder}' can't be used as a folder: {error.strerror or error}.") from error
