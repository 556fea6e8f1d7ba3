# SPDX-License-Identifier: BSD-3-Clause
"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from openneutron.errors import InvalidOptionError


def write(files: Mapping[Path, bytes], folder: Path | None = None) -> None:
    """Writes files; ``folder`` is made where it is absent.

    All are written beside their places before the first is moved there, in the order given. After an error neither
    temporary files nor folders made for them are left. Raises InvalidOptionError where something can't be written.
    """
    made = [] if folder is None else [parent for parent in (folder, *folder.parents) if not parent.exists()]
    staged: dict[Path, Path] = {}
    try:
        if folder is not None:
            _make(folder)
        for path, content in files.items():
            staged[path] = _staged(path, content)
        for path, temporary in staged.items():
            with _told(path):
                temporary.replace(path)
    except BaseException:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
        for parent in made:
            with suppress(OSError):  # not empty, or never made
                parent.rmdir()
        raise


def _staged(path: Path, content: bytes) -> Path:
    """A temporary file with the content, in the folder where ``path`` will be."""
    with _told(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            # A temporary file is its owner's alone; a result has the permissions any new file has.
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


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f"'{folder}' can't be used as a folder: {error.strerror or error}.") from error
