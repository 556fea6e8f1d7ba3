# SPDX-License-Identifier: BSD-3-Clause
"""Arrays from files, and calibration sets of them.

A folder of ``.npy`` files, in the order of their names: each has one sample, or several along the first
axis. For a model of several inputs the files of one sample (or batch of them) are ``NAME_0.npy``, ``NAME_1.npy``, ...

Or a ``.npz`` file: arrays ``input0``, ``input1``, ... with samples along the first axis; for a model of one input a single
array of any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openneutron.errors import InvalidOptionError
from openneutron.files import FOLDER, obstacle


def describe(dtype: np.dtype, shape: Sequence[int]) -> str:
    """Return type and shape, for instance ``int8[1,32,32,3]``."""
    return f"{dtype}[{','.join(str(extent) for extent in shape)}]"


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
    # A damaged file fails in the ways of NumPy, zipfile and zlib.
    except Exception as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidOptionError(
            f"'{path}' is no NumPy file that can be read: {words}. Write it with numpy.save."
        ) from error


@dataclass(frozen=True, slots=True)
class Wanted:
    """The shape and type of one of a model's inputs."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return describe(self.dtype, self.shape)


Sample = tuple[np.ndarray, ...]


def load(path: Path, inputs: Sequence[Wanted]) -> list[Sample]:
    """Return the samples in a folder or ``.npz`` file, each with one array for each of the model's inputs.

    Raises InvalidOptionError where there are no samples, or a sample does not fit the model.
    """
    files = files_in(path)
    samples: list[Sample] = []
    for where, columns in (
        _from_archive(path, len(inputs)) if files == [path] else _from_folder(path, files, len(inputs))
    ):
        parts = [pieces(array, wanted, name) for (name, array), wanted in zip(columns, inputs, strict=True)]
        counts = [len(part) for part in parts]
        if len(set(counts)) > 1:
            raise InvalidOptionError(
                f"--calibration: {where}: its inputs have {', '.join(map(str, counts))} samples; they must be as many."
            )
        samples += zip(*parts, strict=True)
    if not samples:
        raise InvalidOptionError(f"--calibration: '{path}' has no samples in it; int8 scales come from at least one.")
    return samples


def files_in(path: Path) -> list[Path]:
    """Return the ``.npy`` files of a folder, in the order of their names, or the ``.npz`` file itself.

    Raises InvalidOptionError where the path is neither.
    """
    problem = obstacle(path)
    if problem is None and path.suffix == ".npz":
        return [path]
    if problem is None:
        raise InvalidOptionError(f"--calibration: '{path}' is neither a folder of .npy files nor a .npz file.")
    if problem != FOLDER:
        raise InvalidOptionError(f"--calibration: '{path}' {problem}.")
    files = sorted(entry for entry in path.iterdir() if entry.suffix == ".npy")
    if not files:
        raise InvalidOptionError(f"--calibration: there are no .npy files in '{path}'.")
    return files


Columns = list[tuple[str, np.ndarray]]
"""An array of samples for each of the model's inputs, with its name in messages."""


def _from_folder(path: Path, files: Sequence[Path], inputs: int) -> Iterator[tuple[str, Columns]]:
    if inputs == 1:
        yield from ((str(file), [(str(file), load_array(file))]) for file in files)
        return
    groups: dict[str, dict[int, Path]] = {}
    for file in files:
        match = re.fullmatch(r"(.*)_(\d+)", file.stem)
        if match is None or int(match[2]) >= inputs:
            raise InvalidOptionError(
                f"--calibration: '{file}': the model takes {inputs} inputs; name the files of one sample "
                f"NAME_0.npy to NAME_{inputs - 1}.npy."
            )
        groups.setdefault(match[1], {})[int(match[2])] = file
    for name, group in groups.items():
        for place in range(inputs):
            if place not in group:
                raise InvalidOptionError(
                    f"--calibration: '{path / f'{name}_{place}.npy'}' is absent; its siblings are there."
                )
        yield f"{path / name}_*.npy", [(str(group[place]), load_array(group[place])) for place in range(inputs)]


def _from_archive(path: Path, inputs: int) -> Iterator[tuple[str, Columns]]:
    arrays = load_arrays(path)
    names = list(arrays) if inputs == len(arrays) == 1 else [f"input{place}" for place in range(inputs)]
    for name in names:
        if name not in arrays:
            has = ", ".join(arrays) or "nothing"
            raise InvalidOptionError(
                f"--calibration: '{path}' has no array '{name}'; it has {has}. The model takes {', '.join(names)}."
            )
    yield str(path), [(f"{path}, array '{name}'", arrays[name]) for name in names]


def pieces(array: np.ndarray, wanted: Wanted, where: str) -> list[np.ndarray]:
    """Return the samples in one array: one sample, one without its batch axis, several along the first axis, or several along
    an additional axis.

    Raises InvalidOptionError where the array's shape or type does not fit the model's input.
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
        raise InvalidOptionError(
            f"--calibration: {where}: it is {describe(array.dtype, array.shape)}; the model takes {wanted}, one sample or "
            "several along the first axis."
        )
    if array.dtype != wanted.dtype and (array.dtype.kind, wanted.dtype.kind) not in (
        ("f", "f"),
        ("i", "i"),
        ("u", "i"),
    ):
        raise InvalidOptionError(
            f"--calibration: {where}: it is {array.dtype}; the model takes {wanted.dtype}. Store the model's inputs "
            "after all preprocessing."
        )
    found = found.astype(wanted.dtype)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise InvalidOptionError(f"--calibration: {where}: it has values that are infinite or not a number.")
    return list(found)
