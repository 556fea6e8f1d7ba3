# SPDX-License-Identifier: BSD-3-Clause
"""Samples for a model's inputs, read when they are needed, and the sources that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, overload

import numpy as np

from openneutron.errors import InvalidOptionError
from openneutron.ir import QuantParams

SHOWN = 3
"""The number of files that a message names. Of further files, the message has the number."""


class UnusableError(Exception):
    """A file or an item has no usable sample. The text is the reason, such as ``it is 20x30 pixels; the model takes
    32x32``."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The parts of a message about a source: the option that names the source, the source, its number of files, and a
    suggestion."""

    option: str
    source: str
    total: int
    suggestion: str = ""

    def about(self, problems: Sequence[tuple[str, str]]) -> InvalidOptionError:
        """Return the error about these files. Each problem is a file's name and a reason."""
        listed = "; ".join(f"'{name}': {reason}" for name, reason in problems[:SHOWN])
        end = f" {self.suggestion}" if self.suggestion else ""
        if len(problems) == 1:
            return InvalidOptionError(f"{self.option}: {listed}.{end}")
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        return InvalidOptionError(
            f"{self.option}: {len(problems):,} of the {self.total:,} files of '{self.source}' can't be used: {listed}{more}.{end}"
        )


def problems_of(names: Iterable[str], check: Callable[[int], object]) -> list[tuple[str, str]]:
    """Return the names for which ``check`` raises UnusableError, each with the reason. ``check`` gets the place of the
    name."""
    found = []
    for place, name in enumerate(names):
        try:
            check(place)
        except UnusableError as error:
            found.append((name, str(error)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The labelled objects of a picture.

    Attributes:
        height: The picture's height in pixels.
        width: Its width.
        classes: int64[n], the place of each object's class in ``classes`` of the source.
        corners: float32[n, 4] with x1, y1, x2, y2 in pixels of the picture.
        crowds: bool[n], whether a box has a crowd of objects, which a measurement ignores.
    """

    height: int
    width: int
    classes: np.ndarray = field(repr=False)
    corners: np.ndarray = field(repr=False)
    crowds: np.ndarray = field(repr=False)


Label = int | np.ndarray | Boxes | None
"""A sample's label: the number of a class, an array from a user's loader, the boxes in a picture, or None where the source has no
labels."""


def describe(dtype: np.dtype, shape: Sequence[int]) -> str:
    """Return the type and the shape in words, for instance ``int8[1,32,32,3]``."""
    return f"{dtype}[{','.join(str(extent) for extent in shape)}]"


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One of a model's inputs: its shape with the batch axis, and its type.

    ``quant`` is the input's scale and zero point, if floats of a source are to be quantized as the model's caller would
    quantize them (``.tflite`` files). ``channels_last`` is True where images of the input have their channels
    innermost, as in LiteRT, and False where the channels come first, as in PyTorch. If it is None, the shape decides:
    the channel axis is the axis of 1, 3 or 4 elements, and the first of two such axes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    quant: QuantParams | None = None
    channels_last: bool | None = None

    def __str__(self) -> str:
        return describe(self.dtype, self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The inputs for one call of a model, with their label.

    ``arrays`` has one array for each of the model's inputs, with the input's shape, including the batch axis, and type.
    ``name`` is the sample's name in messages and tables: a file's path below the source's folder, or ``item 5`` of a
    loader.
    """

    arrays: tuple[np.ndarray, ...] = field(repr=False)
    label: Label = None
    name: str = ""


class Reader(Protocol):
    """The interface that reads the samples of a source. Nothing is read before a sample is asked for."""

    @property
    def count(self) -> int | None:
        """Return the number of samples; None where it is only known after a pass over all samples."""
        ...

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        """Yield the samples at these places, which ascend; all samples for None. A place after the last sample yields
        nothing.

        Raises InvalidOptionError for a sample that can't be read or does not fit the model.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Samples in a fixed order, each read when it is asked for.

    Iteration reads one sample after the other. ``source[5]`` is one sample, ``source[100:200]`` a source of a hundred:
    a shard. Two sources of the same arguments have the same samples, so each process can open a source and take its
    shard.

    ``classes`` has the class names by label, and is empty without class folders. ``preprocessing`` is the steps from a
    file to its sample as text, and is empty where a sample is used as stored. ``places`` are the chosen samples; None:
    all.
    """

    name: str
    reader: Reader = field(repr=False)
    classes: tuple[str, ...] = ()
    preprocessing: str = ""
    places: Sequence[int] | None = field(default=None, repr=False)

    @property
    def count(self) -> int | None:
        """Return the number of samples; None where it is only known after a pass over all samples."""
        total = self.reader.count
        if self.places is None or total is None:
            return total
        return sum(place < total for place in self.places)

    def __len__(self) -> int:
        """Return the number of samples. A loader of unknown length is read to its end for this."""
        known = self.count
        return sum(1 for _ in self) if known is None else known

    def __iter__(self) -> Iterator[Sample]:
        return self.reader.read(self.places)

    @overload
    def __getitem__(self, place: int) -> Sample: ...

    @overload
    def __getitem__(self, place: slice) -> Source: ...

    def __getitem__(self, place: int | slice) -> Sample | Source:
        places = range(len(self)) if self.places is None else self.places
        if isinstance(place, slice):
            if place.step is not None and place.step < 1:
                raise ValueError("a source is read forwards: the step of a slice is at least 1")
            return replace(self, places=places[place])
        found = next(self.reader.read([places[place]]), None)
        if found is None:
            raise IndexError(f"'{self.name}' has no sample {place}")
        return found

    def limited(self, limit: int | None) -> Source:
        """Return a source of at most ``limit`` samples, evenly spread over all samples, so that each class folder is
        represented. Where the number of samples is unknown, take the first ones."""
        total = self.count
        if limit is None or (total is not None and total <= limit):
            return self
        chosen: Sequence[int] = range(limit) if total is None else [step * total // limit for step in range(limit)]
        return replace(self, places=chosen if self.places is None else [self.places[place] for place in chosen])
