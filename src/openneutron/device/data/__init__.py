# SPDX-License-Identifier: BSD-3-Clause
"""Read data as users have them (folders of pictures, sounds and arrays, loaders, datasets) as samples for a model's
inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data.boxes import labelled
from openneutron.device.data.preprocessing import (
    COLORS,
    FOR_PICTURES,
    FOR_SOUNDS,
    ImageInput,
    PictureSteps,
    Preprocess,
    Size,
    SoundSteps,
    check_channels,
    decoded,
    header,
    opened,
    pillow,
    read,
    resampler,
    resamples,
)
from openneutron.device.data.python_function import PythonFunction, parsed
from openneutron.device.data.samples import (
    SHOWN,
    ArrayReader,
    Batch,
    Complaint,
    Label,
    ModelInput,
    Reader,
    Sample,
    Source,
    UnusableError,
    describe,
    fitted,
    label_of,
    open_archive,
    open_files,
    problems_of,
    split,
)
from openneutron.device.files import FOLDER, existing, obstacle
from openneutron.errors import InvalidModelError, InvalidOptionError


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """A reader of files that each have one sample, with their labels. ``load`` returns a file's sample, and raises
    UnusableError where the file has none."""

    folder: Path
    files: Sequence[tuple[Path, Label]] = field(repr=False)
    load: Callable[[Path], np.ndarray] = field(repr=False)
    complaint: Complaint

    def check(self, check: Callable[[Path], object]) -> None:
        """Raise InvalidOptionError with the files for which ``check`` raises UnusableError."""
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
                # The other files are tried too: the message names the first unusable files and their number.
                problems = problems_of(self._titles, lambda place: self.load(self.files[place][0]))
                raise self.complaint.about(problems or [(str(file), error)]) from error
            name = file.relative_to(self.folder) if file.is_relative_to(self.folder) else file
            yield Sample((array,), label, name.as_posix())


@dataclass(frozen=True, slots=True, eq=False)
class ItemReader:
    """A reader of a dataset. ``get`` returns the item at a place; each item is one sample."""

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
                raise self.complaint.about([(name, error)]) from error
            yield found[0]


@dataclass(frozen=True, slots=True, eq=False)
class StreamReader:
    """A reader of a loader. ``begin`` returns the loader's items from the first one on; an item has one sample or
    several."""

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
                raise self.complaint.about([(name, error)]) from error


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
"""The name of a file with one class name in each line, in the order of the model's results."""

MOST_DIGITS = 5
"""The most digits of a class folder's name that is read as the number of a class. A longer name, such as the date
20260131, is a class name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The sample files in a folder with their labels.

    ``kind`` is the kind of the files. Files are in the order of classes and names; files with labelled boxes
    (``has_boxes``) are in the order of their annotations. ``classes`` are the class names by label; it is empty for a
    folder without class folders and without labelled boxes.
    """

    folder: Path
    kind: str
    files: tuple[tuple[Path, Label], ...] = field(repr=False)
    classes: tuple[str, ...] = ()
    has_boxes: bool = False


def listing(folder: Path, option: str) -> Listing:
    """Return the sample files in a folder.

    The files are in the folder itself, or each folder in it is a class, with files at any depth. If there is a
    ``classes.txt``, the label of a class is the place of its line there. Otherwise, if all class folders are named by
    different whole numbers of at most ``MOST_DIGITS`` digits, the labels are these numbers. Otherwise they are the
    places of the names in their order, as with torchvision's ``ImageFolder``. Names that begin with a dot or two
    underscores are ignored.

    Raises InvalidOptionError where there are no files, files both in the folder and in folders inside it, empty class
    folders, several kinds of files, or class folders without a line in ``classes.txt``.
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
    classes, labels = ((), {}) if flat else _class_names(folder, [entry.name for entry in folders], option)
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


def _class_names(folder: Path, names: list[str], option: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the class names by label, and the label of each class folder by the folder's name."""
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


PROCESSED = ("pixel_values", "input_values", "input_features")
"""The names under which processors of Hugging Face's transformers return a model's input."""


def as_array(value: Any) -> np.ndarray:
    """Return a value as an array. The value is a tensor, an array, a number, or nested lists of numbers with rows of equal lengths. It
    can also be the result of a Hugging Face processor: a dict with a single entry or with a key of ``PROCESSED``, whose value is taken,
    or a list of one item.

    Raises UnusableError for anything else.
    """
    if isinstance(value, Mapping):
        name = next((name for name in PROCESSED if name in value), next(iter(value), None) if len(value) == 1 else None)
        if name is None:
            raise UnusableError(
                f"it is a dict of {', '.join(map(str, value)) or 'nothing'}; an array or a tensor is needed"
            )
        return as_array(value[name])
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return as_array(value[0])
    detach = getattr(value, "detach", None)
    try:
        found = np.asarray(value if detach is None else detach().cpu().numpy())
    except (TypeError, ValueError) as error:  # a type that NumPy does not know, or rows of different lengths
        raise UnusableError(f"it is {type(value).__name__}, which is no array: {str(error).splitlines()[0]}") from error
    if found.dtype.kind not in "biuf":
        raise UnusableError(f"it is {type(value).__name__}; an array or a tensor is needed")
    return found


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """A user's function as preprocessing. ``call`` takes a picture of Pillow, or the values of a sound. It returns the
    model's input as a tensor or an array, with or without its batch axis, or in the form of a processor of
    transformers."""

    call: Callable[[Any], Any] = field(repr=False)
    wanted: ModelInput
    named: PythonFunction | None
    option: str

    def __call__(self, value: Any, name: str) -> np.ndarray:
        """Return the model's input for a picture or a sound. ``name`` is the name of its file or item in messages.

        Raises UnusableError where the function's result does not fit the model. Raises InvalidOptionError where a
        function that is given as ``file.py:function`` raises; exceptions of a function that is given as an object are
        not converted.
        """
        if self.named is None:
            result = self.call(value)
        else:
            try:
                result = self.named.run(lambda: self.call(value), "it must return an array", InvalidOptionError)
            except InvalidOptionError as error:
                raise InvalidOptionError(f"{self.option}: on '{name}': {error}") from error
        samples = split(as_array(result), self.wanted)
        if len(samples) != 1:
            raise UnusableError(f"its preprocessing has returned {len(samples)} samples; it is one")
        return fitted(samples[0], self.wanted)


@dataclass(frozen=True, slots=True)
class Items:
    """The conversion of a loader's or dataset's items to samples for a model with these inputs.

    An item is the only input, or a tuple of the inputs. With a label, the item is ``(input, label)``, ``(*inputs,
    label)`` or ``(inputs, label)``. If the inputs have a batch of samples, the label has one entry for each of them.
    ``steps`` turns a picture of Pillow into an input.
    """

    inputs: tuple[ModelInput, ...]
    steps: Callable[[Any, str], np.ndarray] | None = field(default=None, repr=False)

    def samples(self, item: Any, name: str) -> Iterator[Sample]:
        """Yield the samples of an item. Raises UnusableError where the item does not fit the model."""
        values, label = self._parts(item)
        columns = [self._column(value, wanted, name) for value, wanted in zip(values, self.inputs, strict=True)]
        counts = [len(column) for column in columns]
        if len(set(counts)) > 1:
            raise UnusableError(f"its inputs have {', '.join(map(str, counts))} samples; they must be as many")
        labels = self._labels(label, counts[0])
        for row in range(counts[0]):
            arrays = tuple(fitted(column[row], wanted) for column, wanted in zip(columns, self.inputs, strict=True))
            yield Sample(arrays, labels[row], name if counts[0] == 1 else f"{name}[{row}]")

    def _parts(self, item: Any) -> tuple[Sequence[Any], Any]:
        """Return the inputs of an item, and its label; None where the item has no label. Raises UnusableError for a
        wrong number of inputs."""
        count = len(self.inputs)
        if not isinstance(item, (tuple, list)):
            parts, label = [item], None
        elif len(item) == 2 and isinstance(item[0], (tuple, list)):
            parts, label = list(item[0]), item[1]
        elif len(item) == count + 1:
            parts, label = list(item[:count]), item[count]
        else:
            parts, label = list(item), None
        if len(parts) != count:
            inputs = "1 input, and a label behind it" if count == 1 else f"{count} inputs, and a label behind them"
            raise UnusableError(f"it has {len(parts)} parts; the model takes {inputs} is optional")
        return parts, label

    def _column(self, value: Any, wanted: ModelInput, name: str) -> np.ndarray:
        """Return the samples in one input of an item, along a new first axis. Raises UnusableError where they don't fit
        the model."""
        if hasattr(value, "convert") and hasattr(value, "mode"):
            if self.steps is None:
                raise UnusableError("it has a picture of Pillow; give its preprocessing, or an array")
            return self.steps(value, name)[np.newaxis]
        return split(as_array(value), wanted)

    def _labels(self, label: Any, count: int) -> list[Label]:
        if label is None:
            return [None] * count
        values = as_array(label)
        if count == 1 and values.size == 1:
            return [label_of(values)]
        if values.shape[:1] == (count,):
            return [label_of(row) for row in values]
        if count == 1:
            return [values]
        raise UnusableError(f"it has {count} samples and labels of shape {list(values.shape)}; they must be as many")


FORMS = "a folder of pictures, WAV files or .npy files, a .npy or .npz file, COCO's annotations, a data.yaml, or file.py:loader"


def source(
    given: Any,
    inputs: Sequence[ModelInput],
    *,
    preprocess: str | Callable[[Any], Any] | None = None,
    sample_rate: int | None = None,
    limit: int | None = None,
    option: str = "--calibration",
) -> Source:
    """Return the samples of a source for a model's inputs. This call reads only the headers of files. A sample is read when it is asked
    for.

    Args:
        given: A path or ``file.py:loader`` as text; or a loader itself: a PyTorch Dataset or DataLoader, or any iterable of items.
            A folder has pictures (``.png``, ``.jpg``, ``.jpeg``, ``.bmp``), ``.wav`` or ``.npy`` files, flat or with a folder for
            each class.
        inputs: The model's inputs.
        preprocess: The steps from a picture or sound to the model's input: a text (``Preprocess``), ``file.py:function``, or a function.
        sample_rate: The rate in Hz that WAV files are resampled to; None: as they are.
        limit: At most so many samples, evenly spread over all of them; the first ones of a loader without a known
            length. None: all.
        option: The option that messages name, ``calibration`` or ``--calibration``.

    Returns:
        The source.

    Raises:
        InvalidOptionError: The source does not exist, has no samples, or has samples that don't fit the model: the message
            names the first three files, with the number of the others.
        MissingToolError: Pictures are given and Pillow is not installed, a WAV file must be resampled and SciPy is
            not installed, or a data.yaml is given and PyYAML is not installed.

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
    """Check a source as far as possible before the model's inputs are known: the text, the files' names, and whether
    the packages that read the files are installed.

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
    """The arguments of ``source`` after reading and checking. ``steps`` is None without a preprocessing."""

    given: Any
    steps: Preprocess | PythonFunction | Callable[[Any], Any] | None
    rate: int | None
    option: str

    @classmethod
    def of(cls, given: Any, preprocess: Any, rate: int | None, limit: int | None, option: str) -> Asked:
        """Return the arguments, read and checked. Raises InvalidOptionError where one of them can't be used."""
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
        """Return the preprocessing as text: the steps, the file and function, or the function's name. Empty without a
        preprocessing."""
        if self.steps is None or isinstance(self.steps, (Preprocess, PythonFunction)):
            return str(self.steps or "")
        return getattr(self.steps, "__qualname__", type(self.steps).__name__)

    def listed(self) -> Listing | None:
        """Return the files of a folder, or the pictures of COCO's annotations or of a data.yaml. None is returned
        where the source is a loader, or a ``.npy`` or ``.npz`` file.

        Raises InvalidOptionError where the path is no source of samples, there are no samples, or the preprocessing
        is not for these files. Raises MissingToolError where a package that reads the files is not installed.
        """
        if not isinstance(self.given, Path):
            self._refuse_rate("items of a loader")
            return None
        path, problem = self.given, obstacle(self.given)
        boxes = (
            labelled(path, self.option) if problem in (None, FOLDER) and path.suffix not in (".npy", ".npz") else None
        )
        if boxes is not None:
            pillow()
            self._refuse_rate("pictures")
            if isinstance(self.steps, Preprocess) and self.steps.letterbox is None:
                name = _spelled(self.option, "preprocess")
                raise InvalidOptionError(
                    f"{name}: the labels of '{path}' are boxes, which take a letterbox. Add letterbox=SIZE."
                )
            return Listing(path if path.is_dir() else path.parent, PICTURES, tuple(boxes[1]), boxes[0], has_boxes=True)
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
            title = str(self.given if found.has_boxes else found.folder)
            return Source(title, reader, found.classes, self._stated(found.kind))
        if isinstance(self.given, Path):
            return Source(str(self.given), self._array_file(self.given, inputs))
        return self._loader(inputs)

    def _stated(self, kind: str) -> str:
        """Return the preprocessing and the resampling of files as text. ``preprocess`` accepts the text if no function
        is in it."""
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
            if found.has_boxes and self.steps is None:
                image = ImageInput.of(wanted, self.option)
                steps = Preprocess(letterbox=Size(image.height, image.width))
            if found.kind == PICTURES:
                pictures = picture_steps(steps, wanted, self.option)
                load, check = (lambda path: pictures(decoded(path))), pictures.check
                size = pictures.input
                if steps.resize is None and steps.crop is None and steps.letterbox is None:
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
        """Return the preprocessing if it is a function; None where it is a text or absent."""
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
        """Return the preprocessing of the pictures among a loader's items; None without a preprocessing."""
        if self.steps is None:
            return None
        own = self._own(inputs[0])
        if own is not None:
            return own
        assert isinstance(self.steps, Preprocess)
        self.steps.refuse(FOR_SOUNDS, PICTURES, _spelled(self.option, "preprocess"))
        steps = picture_steps(self.steps, inputs[0], self.option)
        return lambda picture, _name: steps(picture)


def _spelled(option: str, name: str) -> str:
    """Return the name of another option in the form of ``option``: a flag of the command line, or a parameter in
    Python."""
    return f"--{name.replace('_', '-')}" if option.startswith("--") else name


def _equals(option: str, value: str) -> str:
    return f" {value}" if option.startswith("--") else f"='{value}'"


def _named(text: str, option: str) -> PythonFunction | None:
    """Return the function that ``file.py:name`` names; None for another text. Raises InvalidOptionError where the name
    or the file can't be used."""
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


def picture_steps(steps: Preprocess, wanted: ModelInput, option: str) -> PictureSteps:
    """Return the steps from a picture to a model's input. Raises InvalidOptionError where they don't fit the input."""
    image = ImageInput.of(wanted, option)
    check_channels(steps, image.channels, _spelled(option, "preprocess"))
    return PictureSteps(steps, image)


def _check_picture(path: Path) -> None:
    with opened(path):
        pass


def _mono(values: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = values.mean(1)
    return mixed.astype(np.float32)


def in_colors(given: Any, preprocess: Any, color: str) -> Any:
    """Return the preprocessing with a step ``color`` in front. Return it unchanged if ``color`` is ``rgb``, if the source is not a folder
    of pictures, or if the preprocessing is a function or already states a color. None stands for a preprocessing without steps."""
    if (
        color == COLORS[0]
        or callable(preprocess)
        or not isinstance(given, (str, os.PathLike))
        or not Path(given).is_dir()
    ):
        return preprocess
    text = preprocess or ""
    if parsed(text) is not None or Preprocess.parse(text).color is not None:
        return preprocess
    if listing(Path(given), "calibration").kind != PICTURES:
        return preprocess
    return f"color={color}" + (f",{text}" if text else "")


def _is_dataset(given: Any) -> bool:
    """Return whether ``given`` is a dataset like PyTorch's ``Dataset``: its items are read by index, and it can't be iterated. A list is
    no dataset in this sense but a loader, whose items may be batches."""
    return hasattr(given, "__getitem__") and hasattr(given, "__len__") and not hasattr(given, "__iter__")


def _is_loader(given: Any) -> bool:
    return callable(given) or _is_dataset(given) or isinstance(given, Iterable)


def _classes(given: Any) -> tuple[str, ...]:
    """Return the class names that a torchvision dataset, or the dataset of a DataLoader, states; empty where it states
    none."""
    names = getattr(given, "classes", None) or getattr(getattr(given, "dataset", None), "classes", None) or ()
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


def _once(given: Iterable[Any], option: str) -> Callable[[], Iterable[Any]]:
    """Return a function that returns the iterable ``given``. If ``given`` is an iterator, a second call of the function raises
    InvalidOptionError, since an iterator can't begin again."""
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
    """Return an item of a user's dataset. Raises InvalidOptionError with the message of an exception in the user's
    code."""
    return named.run(lambda: dataset[place], "it must return a sample", InvalidOptionError)


def _guarded(named: PythonFunction, given: Any) -> Iterator[Any]:
    """Yield the items of a user's loader, or of the loader that a user's function returns. Raises InvalidOptionError
    with the message of an exception in the user's code."""
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


__all__ = ["Label", "ModelInput", "Sample", "Source", "check", "describe", "source"]
