# SPDX-License-Identifier: BSD-3-Clause
"""Samples for a model's inputs, read when they are needed, and the sources that have them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol, overload

import numpy as np

from openneutron.device.files import FOLDER, obstacle
from openneutron.errors import InvalidOptionError
from openneutron.ir import QuantParams

SHOWN = 3
"""The number of files that a message names. Of further files, the message has the number."""


class UnusableError(Exception):
    """A file or an item has no usable sample. The text is the reason, such as ``it is 20x30 pixels; the model takes
    32x32``."""


class MisfitError(UnusableError):
    """A sound file does not fit the model by its size, length or name, which the suggestion of a Complaint is about."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The parts of a message about a source: the option that names the source, the source, its number of files, and a
    suggestion for files that do not fit (MisfitError)."""

    option: str
    source: str
    total: int
    suggestion: str = ""

    def about(self, problems: Sequence[tuple[str, UnusableError]]) -> InvalidOptionError:
        """Return the error about these files. Each problem is a file's name and a reason. The suggestion is left out
        where no file would become usable by it."""
        listed = "; ".join(f"'{name}': {reason}" for name, reason in problems[:SHOWN])
        fits = any(isinstance(reason, MisfitError) for _, reason in problems)
        end = f" {self.suggestion}" if self.suggestion and fits else ""
        if len(problems) == 1:
            return InvalidOptionError(f"{self.option}: {listed}.{end}")
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        return InvalidOptionError(
            f"{self.option}: {len(problems):,} of the {self.total:,} files of '{self.source}' can't be used: {listed}{more}.{end}"
        )


def problems_of(names: Iterable[str], check: Callable[[int], object]) -> list[tuple[str, UnusableError]]:
    """Return the names for which ``check`` raises UnusableError, each with the reason. ``check`` gets the place of the
    name."""
    found = []
    for place, name in enumerate(names):
        try:
            check(place)
        except UnusableError as error:
            found.append((name, error))
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
    """The interface that reads the samples of a source. Values are read when a sample is asked for. Headers of files,
    and whole ``.npz`` files, are read before, when the reader is made."""

    @property
    def count(self) -> int | None:
        """Return the number of samples; None where it is only known after a pass over all samples."""
        ...

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        """Yield the samples at these places, which are in ascending order. Yield all samples if ``places`` is None. A
        place after the last sample yields nothing.

        Raises InvalidOptionError for a sample that can't be read or does not fit the model.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Samples in a fixed order, each read when it is asked for.

    Iteration reads one sample after the other. ``source[5]`` is one sample, ``source[100:200]`` a source of a
    hundred: a shard. Two sources of the same arguments have the same samples, so each process can open a source and
    take its shard.

    ``classes`` has the class names by label. They come from class folders, from annotations of boxes, or from the
    field ``classes`` of a dataset; without any of these it is empty. ``preprocessing`` is the steps from a file to
    its sample as text, and is empty where a sample is used as stored. ``places`` are the chosen samples; None: all.
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
        """Return a source of at most ``limit`` samples, evenly spread over all samples. Each class folder then has
        about the same share of the samples as before. If the number of samples is unknown, the result has the first
        ones. If there is no limit, or are no more samples than the limit, the same source is returned."""
        total = self.count
        if limit is None or (total is not None and total <= limit):
            return self
        if total is None:
            return replace(self, places=range(limit) if self.places is None else self.places[:limit])
        chosen = [step * total // limit for step in range(limit)]
        return replace(self, places=chosen if self.places is None else [self.places[place] for place in chosen])


LABELS = "labels"
"""The name of the array with the labels, and of the file with the labels without its suffix."""


def load_array(path: Path) -> np.ndarray:
    """Return a ``.npy`` file's array. Raises InvalidOptionError where the file holds no array."""
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds several arrays; a .npy file with one is needed here.")
    return loaded


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return a ``.npz`` file's arrays by name. Raises InvalidOptionError where the file has no named arrays."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds one array without a name; a .npz file is needed here.")
    return loaded


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    problem = obstacle(path)
    if problem == FOLDER:
        raise InvalidOptionError(f"'{path}' is a folder; give each .npy file in it by its name.")
    if problem is not None:
        raise InvalidOptionError(f"'{path}' {problem}.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    # NumPy, zipfile and zlib each raise errors of their own for a damaged file.
    except Exception as error:
        raise InvalidOptionError(
            f"'{path}' is no NumPy file that can be read: {_said(error)}. Write it with numpy.save."
        ) from error


def _said(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def split(array: np.ndarray, wanted: ModelInput) -> np.ndarray:
    """Return the samples in an array, along a new first axis. The array is one sample with or without its batch axis,
    or several samples, along the batch axis or along an additional first axis.

    Raises UnusableError where the array's shape or type does not fit the model's input.
    """
    shape = wanted.shape
    if array.shape == shape:
        found = array[np.newaxis]
    elif array.ndim == len(shape) + 1 and array.shape[1:] == shape:
        found = array
    elif shape[:1] == (1,) and array.shape == shape[1:]:
        found = array[np.newaxis, np.newaxis]
    elif array.ndim == len(shape) > 0 and array.shape[1:] == shape[1:] and array.shape[0] % shape[0] == 0:
        found = array.reshape(-1, *shape)
    else:
        raise UnusableError(
            f"it is {describe(array.dtype, array.shape)}; the model takes {wanted}, one sample or several along the first axis"
        )
    kinds = (array.dtype.kind, wanted.dtype.kind)
    quantized = wanted.quant is not None and kinds in (("f", "i"), ("f", "u"))
    if array.dtype != wanted.dtype and not quantized and kinds not in (("f", "f"), ("i", "i"), ("u", "i")):
        raise UnusableError(
            f"it is {array.dtype}; the model takes {wanted.dtype}. Store the model's inputs after all preprocessing"
        )
    return found


def fitted(values: np.ndarray, wanted: ModelInput) -> np.ndarray:
    """Return a sample's values in the type of the model's input. Floats for an integer input are quantized with the
    input's scale and zero point, with LiteRT's rounding (halves away from zero).

    Raises UnusableError where a value is infinite or not a number.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UnusableError("it has values that are infinite or not a number")
    if values.dtype.kind != "f" or wanted.dtype.kind == "f":
        return np.array(values, wanted.dtype, order="C")
    assert wanted.quant is not None
    limits = np.iinfo(wanted.dtype)
    steps = values.astype(np.float32) / np.float32(wanted.quant.scale)
    rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps)) + wanted.quant.zero_point
    made: np.ndarray = np.clip(rounded, limits.min, limits.max).astype(wanted.dtype)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One or several samples that are stored together. ``parts`` has a file, or an array in memory, for each of the
    model's inputs. ``name`` is the name from which the samples get theirs, and ``title`` the name of the batch in
    messages about files that can't be used."""

    name: str
    title: str
    parts: tuple[Path | np.ndarray, ...] = field(repr=False)
    label: Label = None

    def columns(self, inputs: Sequence[ModelInput]) -> list[np.ndarray]:
        """Return the samples of each input, along a new first axis. The values of a file are read when they are used.

        Raises UnusableError where the samples don't fit the inputs.
        """
        arrays = [_mapped(part) if isinstance(part, Path) else part for part in self.parts]
        made = [split(array, wanted) for array, wanted in zip(arrays, inputs, strict=True)]
        if len({len(column) for column in made}) > 1:
            counts = ", ".join(str(len(column)) for column in made)
            raise UnusableError(f"its inputs have {counts} samples; they must be as many")
        return made


def _mapped(path: Path) -> np.ndarray:
    """Return a file's array as a memory map: its values are read when they are used."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    # NumPy, zipfile and zlib each raise errors of their own for a damaged file.
    except Exception as error:
        raise UnusableError(f"it is no NumPy file that can be read: {_said(error)}") from error
    if not isinstance(loaded, np.ndarray):
        raise UnusableError("it holds several arrays; a .npy file with one is needed here")
    mapped: np.ndarray = loaded
    return mapped


@dataclass(frozen=True, slots=True, eq=False)
class ArrayReader:
    """A reader of ``.npy`` and ``.npz`` files. ``ends`` has for each batch the number of samples up to its end."""

    batches: tuple[Batch, ...]
    inputs: tuple[ModelInput, ...]
    complaint: Complaint
    ends: tuple[int, ...]
    labels: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        batches: Sequence[Batch],
        inputs: Sequence[ModelInput],
        complaint: Complaint,
        labels: np.ndarray | None = None,
    ) -> ArrayReader:
        """Return the reader. Shapes and types are read at once, and values when a sample is read.

        Raises InvalidOptionError where there are no samples, or files don't fit the inputs.
        """
        counts = [0] * len(batches)

        def check(place: int) -> None:
            counts[place] = len(batches[place].columns(inputs)[0])

        if problems := problems_of([batch.title for batch in batches], check):
            raise complaint.about(problems)
        if not sum(counts):
            raise InvalidOptionError(f"{complaint.option}: '{complaint.source}' has no samples in it.")
        if labels is not None and len(labels) != sum(counts):
            raise InvalidOptionError(
                f"{complaint.option}: '{complaint.source}' has {sum(counts):,} samples and {len(labels):,} labels; they must be as "
                "many."
            )
        return cls(tuple(batches), tuple(inputs), complaint, tuple(accumulate(counts)), labels)

    @property
    def count(self) -> int:
        return self.ends[-1]

    def read(self, places: Sequence[int] | None) -> Iterator[Sample]:
        opened, columns = -1, []
        for place in range(self.count) if places is None else places:
            if place >= self.count:
                return
            index = bisect_right(self.ends, place)
            start = self.ends[index - 1] if index else 0
            batch = self.batches[index]
            try:
                if index != opened:
                    opened, columns = index, batch.columns(self.inputs)
                arrays = tuple(
                    fitted(column[place - start], wanted) for column, wanted in zip(columns, self.inputs, strict=True)
                )
            except UnusableError as error:
                problems = problems_of([other.title for other in self.batches], self._check)
                raise self.complaint.about(problems or [(batch.title, error)]) from error
            alone = self.ends[index] - start == 1
            label = batch.label if self.labels is None else label_of(self.labels[place])
            yield Sample(arrays, label, batch.name if alone else f"{batch.name}[{place - start}]")

    def _check(self, index: int) -> None:
        for column, wanted in zip(self.batches[index].columns(self.inputs), self.inputs, strict=True):
            for row in column:
                fitted(row, wanted)


def label_of(value: np.ndarray) -> Label:
    """Return a label: an int for one whole number, otherwise the array."""
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "iub":
        return int(array.reshape(()))
    return array


def open_archive(path: Path, inputs: Sequence[ModelInput], option: str) -> ArrayReader:
    """Return a reader of a ``.npz`` file, all of which is loaded. Raises InvalidOptionError where the file lacks an
    array that the model takes."""
    arrays = load_arrays(path)
    labels = arrays.pop(LABELS, None)
    count = len(inputs)
    names = list(arrays) if count == len(arrays) == 1 else [f"input{place}" for place in range(count)]
    for name in names:
        if name not in arrays:
            has = ", ".join(arrays) or "nothing"
            raise InvalidOptionError(
                f"{option}: '{path}' has no array '{name}'; it has {has}. The model takes {', '.join(names)}."
            )
    batch = Batch(path.stem, str(path), tuple(arrays[name] for name in names))
    return ArrayReader.of([batch], inputs, Complaint(option, str(path), 1), labels)


def open_files(
    folder: Path, files: Sequence[tuple[Path, Label]], inputs: Sequence[ModelInput], option: str
) -> ArrayReader:
    """Return a reader of ``.npy`` files with their labels. If ``folder`` has a ``labels.npy``, the labels of all
    samples are read from this file.

    Raises InvalidOptionError where a file of a sample is absent, or files don't fit the model.
    """
    labels = None
    if (folder / f"{LABELS}.npy", None) in files:
        labels = load_array(folder / f"{LABELS}.npy")
        files = [item for item in files if item[0] != folder / f"{LABELS}.npy"]
    batches = _grouped(folder, files, len(inputs), option)
    return ArrayReader.of(batches, inputs, Complaint(option, str(folder), len(files)), labels)


def _grouped(folder: Path, files: Sequence[tuple[Path, Label]], count: int, option: str) -> list[Batch]:
    """Return one batch for each file, or, with several inputs, for the files of one sample together. ``count`` is the
    number of inputs."""
    if count == 1:
        return [Batch(_name(file, folder), str(file), (file,), label) for file, label in files]
    groups: dict[Path, dict[int, Path]] = {}
    labels: dict[Path, Label] = {}
    odd = []
    for file, label in files:
        match = re.fullmatch(r"(.*)_(\d+)", file.stem)
        if match is None or int(match[2]) >= count:
            odd.append((str(file), MisfitError(f"the model takes {count} inputs")))
            continue
        groups.setdefault(file.with_name(match[1]), {})[int(match[2])] = file
        labels[file.with_name(match[1])] = label
    complaint = Complaint(
        option, str(folder), len(files), f"Name the files of one sample NAME_0.npy to NAME_{count - 1}.npy."
    )
    if odd:
        raise complaint.about(odd)
    absent = [
        (f"{stem}_{place}.npy", MisfitError("it is absent; its siblings are there"))
        for stem, group in groups.items()
        for place in range(count)
        if place not in group
    ]
    if absent:
        raise complaint.about(absent)
    return [
        Batch(_name(stem, folder), f"{stem}_*.npy", tuple(group[place] for place in range(count)), labels[stem])
        for stem, group in groups.items()
    ]


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
