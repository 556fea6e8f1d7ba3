# SPDX-License-Identifier: BSD-3-Clause
"""Sources of samples in the forms in which people have data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data.arrays import ArrayReader, Batch, open_archive, open_files
from openneutron.device.data.folders import ARRAYS, PICTURES, Listing, listing
from openneutron.device.data.items import Items, OwnSteps
from openneutron.device.data.pictures import ImageInput, PictureSteps, check_channels, decoded, opened, pillow
from openneutron.device.data.preprocessing import FOR_PICTURES, FOR_SOUNDS, Preprocess
from openneutron.device.data.python_function import PythonFunction, parsed
from openneutron.device.data.readers import FileReader, ItemReader, StreamReader
from openneutron.device.data.samples import ModelInput, Reader, Source
from openneutron.device.data.sounds import SoundSteps, header, read, resampler, resamples
from openneutron.device.data.unusable import Complaint
from openneutron.device.files import FOLDER, existing, obstacle
from openneutron.errors import InvalidModelError, InvalidOptionError

FORMS = "a folder of pictures, WAV files or .npy files, a .npy or .npz file, or file.py:loader"


def source(
    given: Any,
    inputs: Sequence[ModelInput],
    *,
    preprocess: str | Callable[[Any], Any] | None = None,
    sample_rate: int | None = None,
    limit: int | None = None,
    option: str = "--calibration",
) -> Source:
    """Return the samples of a source for a model's inputs. Headers of files are read here, samples when they are asked for.

    Args:
        given: A path or ``file.py:loader`` as text; or a loader itself: a PyTorch Dataset or DataLoader, or any iterable of items.
            A folder has pictures (``.png``, ``.jpg``, ``.jpeg``, ``.bmp``), ``.wav`` or ``.npy`` files, flat or with a folder for
            each class.
        inputs: The model's inputs.
        preprocess: The steps from a picture or sound to the model's input: a text (``Preprocess``), ``file.py:function``, or a function.
        sample_rate: The rate in Hz that WAV files are resampled to; None: as they are.
        limit: At most so many samples, evenly spread over all of them.
        option: The option that messages name, ``calibration`` or ``--calibration``.

    Returns:
        The source.

    Raises:
        InvalidOptionError: The source does not exist, has no samples, or has samples that don't fit the model: the message
            names the first three files, with the number of the others.
        MissingToolError: Pictures are given and Pillow is not installed, or the resampling takes SciPy.

    >>> import numpy as np
    >>> found = source([np.zeros((2, 2)), np.ones((1, 2))], [ModelInput((1, 2), np.dtype("float32"))])
    >>> [sample.name for sample in found]
    ['item 0[0]', 'item 0[1]', 'item 1']
    """
    asked = Asked.of(given, preprocess, sample_rate, limit, option)
    made = asked.opened(tuple(inputs))
    return made.limited(limit)


def check(
    given: str | os.PathLike[str],
    preprocess: str | None = None,
    sample_rate: int | None = None,
    limit: int | None = None,
    option: str = "--calibration",
) -> None:
    """Check what is known of a source before the model's inputs are: the text, the files' names, and the packages that read the first
    file.

    Raises InvalidOptionError and MissingToolError as ``source`` does.
    """
    asked = Asked.of(given, preprocess, sample_rate, limit, option)
    if isinstance(asked.given, PythonFunction):
        asked.given.check(InvalidOptionError)
    if isinstance(asked.steps, PythonFunction):
        asked.steps.check(InvalidOptionError)
    asked.listed()


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of ``source``, read and checked. ``steps`` is None without a preprocessing."""

    given: Any
    steps: Preprocess | PythonFunction | Callable[[Any], Any] | None
    rate: int | None
    option: str

    @classmethod
    def of(cls, given: Any, preprocess: Any, rate: int | None, limit: int | None, option: str) -> Asked:
        """Return the arguments. Raises InvalidOptionError where one of them can't be used."""
        for name, value in (("sample_rate", rate), (f"{option.lstrip('-')}_samples", limit)):
            if value is not None and value < 1:
                raise InvalidOptionError(f"{_spelled(option, name)}: it is {value}; it is at least 1.")
        words = _spelled(option, "preprocess")
        if isinstance(given, (str, os.PathLike)):
            given = _named(os.fspath(given), option) or Path(given)
        steps = preprocess
        if isinstance(preprocess, str):
            steps = _named(preprocess, words) or Preprocess.parse(preprocess, words)
        if isinstance(steps, Preprocess) and steps.sample_rate is not None:
            if rate not in (None, steps.sample_rate):
                name = _spelled(option, "sample_rate")
                raise InvalidOptionError(f"{name}: it is {rate}, and {words} has {steps.sample_rate}. Leave one out.")
            rate = steps.sample_rate
        return cls(given, steps, rate, option)

    @property
    def preprocessing(self) -> str:
        """Return the preprocessing as text."""
        if self.steps is None or isinstance(self.steps, (Preprocess, PythonFunction)):
            return str(self.steps or "")
        return getattr(self.steps, "__qualname__", type(self.steps).__name__)

    def listed(self) -> Listing | None:
        """Return the files of a folder; None of another source. Raises InvalidOptionError where there is nothing, or the
        preprocessing is not for these files."""
        if not isinstance(self.given, Path):
            self._refuse_rate("items of a loader")
            return None
        path, problem = self.given, obstacle(self.given)
        if problem is None and path.suffix in (".npy", ".npz"):
            self._refuse_steps(f"'{path}'")
            return None
        if problem is None:
            raise InvalidOptionError(f"{self.option}: '{path}' is no source of samples: it is {FORMS}.")
        if problem != FOLDER:
            raise InvalidOptionError(f"{self.option}: '{path}' {problem}.")
        found = listing(path, self.option)
        if found.kind == ARRAYS:
            self._refuse_steps(f"the .npy files of '{path}'")
        elif found.kind == PICTURES:
            pillow()
            self._refuse_rate("pictures")
        elif self.rate is not None and resamples(found.files[0][0], self.rate):
            resampler()
        if isinstance(self.steps, Preprocess):
            of_others = FOR_SOUNDS if found.kind == PICTURES else FOR_PICTURES
            self.steps.refuse(of_others, found.kind, _spelled(self.option, "preprocess"))
        return found

    def _refuse_rate(self, what: str) -> None:
        if self.rate is not None:
            name = _spelled(self.option, "sample_rate")
            raise InvalidOptionError(f"{name}: it is for WAV files, not for {what}. Leave it out.")

    def _refuse_steps(self, what: str) -> None:
        if self.steps is not None:
            name = _spelled(self.option, "preprocess")
            raise InvalidOptionError(
                f"{name}: it is for pictures and WAV files; {what} must have the model's inputs already. Leave it out."
            )
        self._refuse_rate("arrays")

    def opened(self, inputs: tuple[ModelInput, ...]) -> Source:
        """Return the source for a model's inputs. Raises InvalidOptionError where its samples don't fit them."""
        found = self.listed()
        if found is not None:
            reader: Reader
            if found.kind == ARRAYS:
                reader = open_files(found.folder, found.files, inputs, self.option)
            elif len(inputs) != 1:
                raise InvalidOptionError(
                    f"{self.option}: {found.kind} are for a model of one input; this one takes {len(inputs)}. Give a loader: "
                    "file.py:loader."
                )
            else:
                reader = self._files(found, inputs[0])
            return Source(str(found.folder), reader, found.classes, self._stated(found.kind))
        if isinstance(self.given, Path):
            return Source(str(self.given), self._array_file(self.given, inputs))
        return self._loader(inputs)

    def _stated(self, kind: str) -> str:
        """Return the preprocessing of files with the resampling, as text that ``preprocess`` takes where no function is in it."""
        if kind == ARRAYS:
            return ""
        if isinstance(self.steps, Preprocess) or self.steps is None:
            return str(replace(self.steps or Preprocess(), sample_rate=self.rate))
        rate = "" if self.rate is None else f"sample_rate={self.rate},"
        return f"{rate}{self.preprocessing}"

    def _array_file(self, path: Path, inputs: tuple[ModelInput, ...]) -> ArrayReader:
        if path.suffix == ".npz":
            return open_archive(path, inputs, self.option)
        if len(inputs) != 1:
            raise InvalidOptionError(
                f"{self.option}: '{path}' has one array; the model takes {len(inputs)} inputs. Give a .npz file, or a folder of .npy "
                "files."
            )
        batch = Batch(path.stem, str(path), (path,))
        return ArrayReader.of([batch], inputs, Complaint(self.option, str(path), 1))

    def _files(self, found: Listing, wanted: ModelInput) -> FileReader:
        steps_option = _spelled(self.option, "preprocess")
        own = self._own(wanted)
        suggestion = ""
        load: Callable[[Path], np.ndarray]
        check: Callable[[Path], Any]
        if own is not None and found.kind == PICTURES:
            load, check = (lambda path: own(decoded(path).convert("RGB"), str(path))), _check_picture
        elif own is not None:
            load, check = (lambda path: own(_mono(read(path, self.rate)), str(path))), header
        else:
            steps = self.steps or Preprocess()
            assert isinstance(steps, Preprocess)
            if found.kind == PICTURES:
                pictures = _picture_steps(steps, wanted, self.option)
                load, check = (lambda path: pictures(decoded(path))), pictures.check
                size = pictures.input
                if steps.resize is None and steps.crop is None:
                    text = f"{size.height}" if size.height == size.width else f"{size.height}x{size.width}"
                    suggestion = (
                        f"Give a size, for instance {steps_option}{_equals(self.option, f'resize={text},crop={text}')}."
                    )
            else:
                sounds = SoundSteps.of(steps, wanted, self.rate, self.option)
                load, check = sounds, sounds.check
                if steps.length is None:
                    words = _equals(self.option, f"length={wanted.shape[-1]}")
                    suggestion = f"{steps_option}{words} cuts longer files and fills shorter ones with zeros."
        complaint = Complaint(self.option, str(found.folder), len(found.files), suggestion)
        reader = FileReader(found.folder, found.files, load, complaint)
        reader.check(check)
        return reader

    def _own(self, wanted: ModelInput) -> OwnSteps | None:
        """Return the preprocessing by a function; None for a text."""
        if self.steps is None or isinstance(self.steps, Preprocess):
            return None
        option = _spelled(self.option, "preprocess")
        if isinstance(self.steps, PythonFunction):
            call = self.steps.load("it must be a function that returns the model's input", InvalidOptionError)
            return OwnSteps(call, wanted, self.steps, option)
        return OwnSteps(self.steps, wanted, None, option)

    def _loader(self, inputs: tuple[ModelInput, ...]) -> Source:
        named, given = None, self.given
        if isinstance(given, PythonFunction):
            named = given
            given = named.load("it must yield samples", InvalidOptionError, _is_loader)
        title = type(given).__name__ if named is None else str(named)
        items = Items(inputs, self._item_steps(inputs))
        complaint = Complaint(self.option, title, 1)
        if _is_dataset(given):
            get = given.__getitem__ if named is None else partial(_item, named, given)
            reader = ItemReader(len(given), get, items, complaint)
            return Source(title, reader, _classes(given), self.preprocessing)
        if named is None and not isinstance(given, Iterable):
            raise InvalidOptionError(
                f"{self.option}: it is of type {title}; it is {FORMS}, a Dataset or DataLoader, or an iterable."
            )
        begin = _once(given, self.option) if named is None else (lambda: _guarded(named, given))
        return Source(title, StreamReader(begin, items, complaint), _classes(given), self.preprocessing)

    def _item_steps(self, inputs: tuple[ModelInput, ...]) -> Callable[[Any, str], np.ndarray] | None:
        """Return the preprocessing of pictures among a loader's items; None without one."""
        if self.steps is None:
            return None
        own = self._own(inputs[0])
        if own is not None:
            return own
        assert isinstance(self.steps, Preprocess)
        self.steps.refuse(FOR_SOUNDS, PICTURES, _spelled(self.option, "preprocess"))
        steps = _picture_steps(self.steps, inputs[0], self.option)
        return lambda picture, _name: steps(picture)


def _spelled(option: str, name: str) -> str:
    """Return the name of another option as the given one is spelled: on the command line, or in Python."""
    return f"--{name.replace('_', '-')}" if option.startswith("--") else name


def _equals(option: str, value: str) -> str:
    return f" {value}" if option.startswith("--") else f"='{value}'"


def _named(text: str, option: str) -> PythonFunction | None:
    """Return what ``file.py:name`` names; None for another text. Raises InvalidOptionError where it can't be named so."""
    found = parsed(text)
    if found is None:
        return None
    file, name = found
    if not name.isidentifier():
        raise InvalidOptionError(f"{option}: '{text}': '{name}' is no function's name. Write file.py:function.")
    try:
        return PythonFunction(existing(file), name)
    except InvalidModelError as error:
        raise InvalidOptionError(f"{option}: {error}") from error


def _picture_steps(steps: Preprocess, wanted: ModelInput, option: str) -> PictureSteps:
    image = ImageInput.of(wanted, option)
    check_channels(steps, image.channels, _spelled(option, "preprocess"))
    return PictureSteps(steps, image)


def _check_picture(path: Path) -> None:
    with opened(path):
        pass


def _mono(values: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = values.mean(1)
    return mixed.astype(np.float32)


def _is_dataset(given: Any) -> bool:
    """Return whether items are read by their places, as those of PyTorch's Dataset. A list is a loader: its items may be
    batches."""
    return hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "__iter__")


def _is_loader(given: Any) -> bool:
    return callable(given) or _is_dataset(given) or isinstance(given, Iterable)


def _classes(given: Any) -> tuple[str, ...]:
    """Return the names of the classes that a dataset of torchvision, or the dataset of a DataLoader, states."""
    names = getattr(given, "classes", None) or getattr(getattr(given, "dataset", None), "classes", None) or ()
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


def _once(given: Iterable[Any], option: str) -> Callable[[], Iterable[Any]]:
    """Return a function that begins an iterable; the second time, an iterator can't begin again."""
    begun: list[bool] = []

    def begin() -> Iterable[Any]:
        if begun and iter(given) is given:
            raise InvalidOptionError(
                f"{option}: the {type(given).__name__} can be read only once. Pass a list, or a DataLoader."
            )
        begun.append(True)
        return given

    return begin


def _item(named: PythonFunction, dataset: Any, place: int) -> Any:
    """Return an item of a user's dataset; its exceptions are messages."""
    return named.run(lambda: dataset[place], "it must return a sample", InvalidOptionError)


def _guarded(named: PythonFunction, given: Any) -> Iterator[Any]:
    """Yield the items of a user's loader, or of what it returns where it is a function; its exceptions are messages."""
    purpose = "it must yield samples"
    end = object()
    loader = given if isinstance(given, Iterable) else named.run(given, purpose, InvalidOptionError)
    if _is_dataset(loader):
        dataset: Any = loader
        loader = (dataset[place] for place in range(len(dataset)))
    if not isinstance(loader, Iterable):
        raise InvalidOptionError(f"'{named}' returned {type(loader).__name__}; it must yield samples.")
    items = iter(loader)
    while (item := named.run(lambda: next(items, end), purpose, InvalidOptionError)) is not end:
        yield item
