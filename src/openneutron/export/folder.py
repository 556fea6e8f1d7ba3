# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a bundle, and the files that may be overwritten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from openneutron import files
from openneutron.errors import InvalidOptionError

MANIFEST = "bundle.json"


def digests(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file, in the order of their names."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())}


def check(folder: Path, force: bool) -> dict[str, str]:
    """Return the files of an earlier export and their digests; nothing where the folder is absent or empty.

    Raises InvalidOptionError where the folder can't be used: it has other things in it, or files of an earlier export that
    were changed since, and ``force`` is false.
    """
    if not folder.parent.is_dir():
        raise InvalidOptionError(f"--to '{folder}': there is no folder '{folder.parent}'. Make it first.")
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise InvalidOptionError(f"--to '{folder}': it is a file; a bundle is a folder. Choose another name.")
    earlier = _manifest(folder)
    if earlier is None:
        if any(folder.iterdir()) and not force:
            raise InvalidOptionError(
                f"--to '{folder}': it has files in it that no export made. Choose an empty folder, or add --force to write among "
                "them."
            )
        return {}
    changed = [
        name
        for name, digest in earlier.items()
        if (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]
    if changed and not force:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise InvalidOptionError(
            f"--to '{folder}': '{changed[0]}'{more} was changed since it was exported. Choose another folder, or add --force to "
            "overwrite it."
        )
    return earlier


def _manifest(folder: Path) -> dict[str, str] | None:
    """Return the files of an earlier export from its manifest; None without a manifest."""
    try:
        stated = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(stated, dict):
        return None
    return {
        name: digest
        for name, digest in stated.items()
        if isinstance(name, str) and isinstance(digest, str) and _is_inside(name)
    }


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts


def write(folder: Path, contents: Mapping[str, bytes], earlier: Mapping[str, str]) -> None:
    """Write a bundle; files of an earlier export that it no longer has are removed.

    Raises InvalidOptionError where something can't be written; folders made for it are then removed again.
    """
    files.write({folder / name: data for name, data in contents.items()}, folder)
    for name in earlier.keys() - contents.keys():
        with suppress(OSError):
            (folder / name).unlink()
            for parent in (folder / name).relative_to(folder).parents[:-1]:
                (folder / parent).rmdir()
