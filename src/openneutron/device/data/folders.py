# SPDX-License-Identifier: BSD-3-Clause
"""Folders of files of one kind, flat or with a folder for each class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from openneutron.device.data.unusable import SHOWN
from openneutron.errors import InvalidOptionError

PICTURES, SOUNDS, ARRAYS = "pictures", "sounds", "arrays"

SUFFIXES = {
    ".png": PICTURES,
    ".jpg": PICTURES,
    ".jpeg": PICTURES,
    ".bmp": PICTURES,
    ".wav": SOUNDS,
    ".npy": ARRAYS,
}

CLASSES_FILE = "classes.txt"
"""A file with the name of a class in each line, in the order of the model's results."""

MOST_DIGITS = 5
"""Names of class folders of at most so many digits are numbers of classes; a date such as 20260131 is a name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder with their labels, in the order of their classes and names. ``kind`` is what they hold;
    ``classes`` are names by label, empty for a flat folder."""

    folder: Path
    kind: str
    files: tuple[tuple[Path, int | None], ...] = field(repr=False)
    classes: tuple[str, ...] = ()


def listing(folder: Path, option: str) -> Listing:
    """Return the samples' files in a folder.

    A flat folder has the files themselves. Otherwise each folder in it is a class, with files at any depth. Labels are the
    lines of ``classes.txt``, where there is one; the numbers, where all classes are named by whole numbers; else the places of the
    names in their order, as with torchvision's ``ImageFolder``. Names that begin with a dot are ignored.

    Raises InvalidOptionError where there are no files, both files and classes, empty classes, or several kinds of files.
    """
    try:
        flat = [entry for entry in _entries(folder) if entry.suffix.lower() in SUFFIXES and entry.is_file()]
        folders = [entry for entry in _entries(folder) if entry.is_dir()]
        found = {entry: list(_below(entry)) for entry in folders}
    except OSError as error:
        raise InvalidOptionError(f"{option}: '{folder}' can't be read: {error.strerror}.") from error
    suffixes = ", ".join(SUFFIXES)
    if flat and any(found.values()):
        first = next(entry for entry, files in found.items() if files)
        raise InvalidOptionError(
            f"{option}: '{folder}' has files, such as '{flat[0].name}', beside folders of files, such as '{first.name}'. Keep the "
            "files, or a folder for each class."
        )
    if not flat and not any(found.values()):
        raise InvalidOptionError(
            f"{option}: there are no samples in '{folder}': no {suffixes} files, nor class folders of them."
        )
    empty = [] if flat else [entry.name for entry, files in found.items() if not files]
    if empty:
        more = f" and {len(empty) - SHOWN:,} more" if len(empty) > SHOWN else ""
        shown = ", ".join(f"'{name}'" for name in empty[:SHOWN])
        raise InvalidOptionError(
            f"{option}: class folders of '{folder}' have no {suffixes} files: {shown}{more}. Remove them, or add files."
        )
    _check_kinds(folder, [*flat, *(file for files in found.values() for file in files)], option)
    classes, labels = ((), {}) if flat else _classes(folder, [entry.name for entry in folders], option)
    files: list[tuple[Path, int | None]] = [(file, None) for file in flat]
    files += [(file, labels[entry.name]) for entry in folders for file in found[entry]]
    if not flat:
        files.sort(key=lambda item: (item[1] or 0, item[0]))
    return Listing(folder, SUFFIXES[files[0][0].suffix.lower()], tuple(files), classes)


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__")))


def _below(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _below(entry)
        elif entry.suffix.lower() in SUFFIXES:
            yield entry


def _check_kinds(folder: Path, files: list[Path], option: str) -> None:
    first: dict[str, Path] = {}
    for file in files:
        first.setdefault(SUFFIXES[file.suffix.lower()], file)
    if len(first) > 1:
        words = " and ".join(f"{kind} ('{file.relative_to(folder)}')" for kind, file in first.items())
        raise InvalidOptionError(f"{option}: '{folder}' has {words}. Keep files of one kind.")


def _classes(folder: Path, names: list[str], option: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the names of the classes by label, and the label of each folder."""
    stated = folder / CLASSES_FILE
    if stated.is_file():
        listed = [line.strip() for line in stated.read_text(errors="replace").splitlines() if line.strip()]
        unknown = [name for name in names if name not in listed]
        if unknown:
            more = f" and {len(unknown) - SHOWN:,} more" if len(unknown) > SHOWN else ""
            shown = ", ".join(f"'{name}'" for name in unknown[:SHOWN])
            raise InvalidOptionError(
                f"{option}: '{stated}' has no line for the class folders {shown}{more}. It has the name of a class in each line, "
                "in the order of the model's results."
            )
        return tuple(listed), {name: listed.index(name) for name in names}
    numbers = {name: int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS}
    titles = {number: name for name, number in numbers.items()}
    if len(titles) == len(names):
        return tuple(titles.get(label, str(label)) for label in range(max(titles) + 1)), numbers
    return tuple(names), {name: label for label, name in enumerate(names)}
