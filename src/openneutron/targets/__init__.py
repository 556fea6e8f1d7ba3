# SPDX-License-Identifier: BSD-3-Clause
"""Chips: one TOML file each, every number with its source."""

from __future__ import annotations

import difflib
import zlib
from functools import lru_cache
from pathlib import Path

from openneutron.errors import InvalidTargetError
from openneutron.targets.target import Number, Target

KNOWN: dict[str, Path] = {path.stem: path for path in sorted((Path(__file__).parent / "chips").glob("*.toml"))}
"""The files of the chips that come with this package, by name."""

DEFAULT = "imxrt700"
"""The target where none is specified: the one that ExecuTorch's NXP backend compiles for."""

SUFFIX = ".toml"
"""A target with this end is the path of a file."""


def names() -> list[str]:
    """Return the known targets that this project compiles for."""
    return [name for name in KNOWN if described(name).obstacle is None]


def checksum(name: str) -> int:
    """Return the number by which a program states its target: the CRC-32 of the target's name."""
    return zlib.crc32(name.encode())


def with_checksum(number: int) -> Target | None:
    """Return the known chip of a program's number; None for a chip that does not come with this package."""
    return next((described(name) for name in KNOWN if checksum(name) == number), None)


def is_file(name: str) -> bool:
    """Return whether a target is the path of a file, rather than the name of a known chip."""
    return name.endswith(SUFFIX)


def described(name: str) -> Target:
    """Return the target of this name, or in this file, even if it can't be compiled for.

    Raises InvalidTargetError where the name is unknown or no text, or the file has a mistake.
    """
    if not isinstance(name, str):
        raise InvalidTargetError(
            f"target: it is {name!r}; it is the name of a chip, or the path of a {SUFFIX} file, as a text."
        )
    if is_file(name):
        path = Path(name)
        return _read(path, _state(path), tuple(KNOWN))
    if name not in KNOWN:
        raise InvalidTargetError(
            f"Target `{name}` is not a valid target. Must be one of `{names()}`, or the path of a .toml file.{_hint(name)}"
        )
    return _read(KNOWN[name], _state(KNOWN[name]))


def get(name: str) -> Target:
    """Return the target of this name, or in this file. Raises InvalidTargetError where it is unknown or can't be compiled for."""
    target = described(name)
    if target.obstacle is not None:
        raise InvalidTargetError(f"Target `{name}` {target.obstacle} Choose one of `{names()}`.")
    return target


def _hint(name: str) -> str:
    """Return what the user may have meant: a file, or a chip of a similar name; empty where there is neither."""
    if Path(name + SUFFIX).is_file():
        return f" Did you mean '{name}{SUFFIX}'?"
    if Path(name).is_file():
        return f" The name of the file '{name}' does not end in {SUFFIX}; rename it."
    near = difflib.get_close_matches(name, KNOWN, 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with a file's contents; zeros where the file is absent."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=32)
def _read(path: Path, _state_of_file: tuple[int, int], taken: tuple[str, ...] = ()) -> Target:
    # Imported on use: only a compile, and not every command, needs a chip.
    from openneutron.targets.chip_file import read_chip

    return read_chip(path, taken)


__all__ = [
    "DEFAULT",
    "KNOWN",
    "Number",
    "Target",
    "checksum",
    "described",
    "get",
    "is_file",
    "names",
    "with_checksum",
]
