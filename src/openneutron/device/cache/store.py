# SPDX-License-Identifier: BSD-3-Clause
"""A folder of entries, each a file with a checksum, which several processes may use at once.

An entry is data and is never executed. It is written completely or not at all, so a reader finds a whole entry or none.
Two processes that write one entry write the same bytes. An entry that is damaged, can't be read or is gone counts as
absent, and is made again. An entry that can't be written, for instance to a full disk, is left out: the compile goes on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from openneutron.device import files
from openneutron.errors import InvalidOptionError

MAGIC = b"openneutron cache 1\n"
DIGEST_BYTES = 32

LIMIT_BYTES = 1 << 30
"""The bytes of all entries, at most. The entries that were used least recently go first."""

ABANDONED_SECONDS = 3600
"""The age from which on a temporary file is one that a killed process left."""

_ENTRY = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{{files.SHORT}}}\.\w+")


@dataclass(frozen=True, slots=True)
class Store:
    """The entries in a folder. Files of other names in it are left alone."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the content of an entry; None where the entry is absent or damaged.

        Args:
            kind: What the entry is, a word.
            key: The SHA-256 of all that the content depends on, in hexadecimal digits.
        """
        path = self._path(kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST_BYTES
        content = data[start:]
        if data[:start] != MAGIC + _sha256(content):
            return None
        with suppress(OSError):
            os.utime(path)
        return content

    def put(self, kind: str, key: str, content: bytes) -> None:
        """Write an entry, where the folder takes it, and remove those used least recently beyond the limit."""
        data = MAGIC + _sha256(content) + content
        with suppress(InvalidOptionError):
            files.write({self._path(kind, key): data})
        self._trim()

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / f"{key}.{kind}"

    def _trim(self) -> None:
        entries: list[tuple[float, int, Path]] = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                with suppress(OSError):  # gone since, by another process
                    if _ENTRY.fullmatch(path.name):
                        entries.append((path.stat().st_mtime, path.stat().st_size, path))
                    elif _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                        path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                return
            with suppress(OSError):
                path.unlink()
            total -= size


def opened(folder: str | os.PathLike[str]) -> Store:
    """Return the entries in a folder, which is made where it is absent.

    Raises InvalidOptionError where the path is no folder, or files in it can't be read and written.
    """
    path = Path(folder)
    try:
        files.make_folder(path)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"cache: {error}") from error
    return Store(path)


_STORE: ContextVar[Store | None] = ContextVar("openneutron_cache", default=None)
"""The cache of the compile that runs. ExecuTorch calls the backend, and passes nothing on to it."""


@contextmanager
def caching(store: Store | None) -> Iterator[None]:
    """Keep the results of what runs inside in this cache, and take those that it has."""
    token = _STORE.set(store)
    try:
        yield
    finally:
        _STORE.reset(token)


def current() -> Store | None:
    """Return the cache of the compile that runs; None where it has none."""
    return _STORE.get()


def _sha256(content: bytes) -> bytes:
    import hashlib  # here, since it loads OpenSSL, which most compiles do without

    return hashlib.sha256(content).digest()
