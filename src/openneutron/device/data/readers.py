# SPDX-License-Identifier: BSD-3-Clause
"""Readers of files with one sample each, of datasets, and of loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data.items import Items
from openneutron.device.data.samples import Sample
from openneutron.device.data.unusable import Complaint, UnusableError, problems_of
from openneutron.errors import InvalidOptionError


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """Files with one sample each, and their labels. ``load`` raises UnusableError for a file that gives no sample."""

    folder: Path
    files: Sequence[tuple[Path, int | None]] = field(repr=False)
    load: Callable[[Path], np.ndarray] = field(repr=False)
    complaint: Complaint

    def check(self, check: Callable[[Path], object]) -> None:
        """Raise InvalidOptionError where the check raises UnusableError for files."""
        if problems := problems_of(self._titles, lambda place: check(self.files[place][0])):
            raise self.complaint.about(problems)

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def _titles(self) -> list[str]:
        return [str(file) for file, _ in self.files]

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        for place in range(self.count) if places is None else places:
            if place >= self.count:
                return
            file, label = self.files[place]
            try:
                array = self.load(file)
            except UnusableError as error:
                # The message has the first unusable files and the number of the others, so that each file is tried.
                problems = problems_of(self._titles, lambda place: self.load(self.files[place][0]))
                raise self.complaint.about(problems or [(str(file), str(error))]) from error
            yield Sample((array,), label, file.relative_to(self.folder).as_posix())


@dataclass(frozen=True, slots=True, eq=False)
class ItemReader:
    """A dataset: items by their places, each with one sample. ``get`` returns an item."""

    count: int
    get: Callable[[int], Any] = field(repr=False)
    items: Items
    complaint: Complaint

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        for place in range(self.count) if places is None else places:
            if place >= self.count:
                return
            name = f"item {place}"
            try:
                found = list(self.items.samples(self.get(place), name))
                if len(found) != 1:
                    raise UnusableError(f"it has {len(found)} samples; an item of a dataset is one sample")
            except UnusableError as error:
                raise self.complaint.about([(name, str(error))]) from error
            yield found[0]


@dataclass(frozen=True, slots=True, eq=False)
class StreamReader:
    """A loader: ``begin`` returns its items from the first one on, each with one sample or several."""

    begin: Callable[[], Iterable[Any]] = field(repr=False)
    items: Items
    complaint: Complaint

    @property
    def count(self) -> None:
        return None

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        wanted = None if places is None else iter(places)
        following = None if wanted is None else next(wanted, -1)
        if following == -1:
            return
        place = 0
        for sample in self._samples():
            if wanted is None:
                yield sample
            elif place == following:
                yield sample
                following = next(wanted, -1)
                if following == -1:
                    return
            place += 1
        if not place:
            raise InvalidOptionError(f"{self.complaint.option}: '{self.complaint.source}' yields no samples.")

    def _samples(self) -> Iterator[Sample]:
        for number, item in enumerate(self.begin()):
            name = f"item {number}"
            try:
                yield from self.items.samples(item, name)
            except UnusableError as error:
                raise self.complaint.about([(name, str(error))]) from error
