# SPDX-License-Identifier: BSD-3-Clause
"""Arrays from files, and made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from openneutron.errors import InvalidOptionError


def describe(dtype: np.dtype, shape: Sequence[int]) -> str:
    """For instance ``int8[1,32,32,3]``."""
    return f"{dtype}[{','.join(str(extent) for extent in shape)}]"


def load_array(path: Path) -> np.ndarray:
    """A ``.npy`` file's array. Raises InvalidOptionError where there is none in it."""
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds several arrays; a .npy file with one is what is needed here.")
    return loaded


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """A ``.npz`` file's arrays by name. Raises InvalidOptionError where there are none in it."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds one array without a name; a .npz file is what is needed here.")
    return loaded


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    if path.is_dir():
        raise InvalidOptionError(f"'{path}' is a folder; give each .npy file in it by its name.")
    if not path.is_file():
        raise InvalidOptionError(f"'{path}' does not exist.")
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


INDICES = 10
"""Random integers of 32 and 64 bits are below this: they are counts, or places in a table, which seldom has fewer entries."""


def random_array(
    generator: np.random.Generator, dtype: np.dtype, shape: Sequence[int], below: int | None = None
) -> np.ndarray:
    """Values all over a narrow integer type's range, of a wide one from 0 to what is ``below`` (or INDICES); of floats, a standard
    normal distribution's."""
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize >= 4:
        return generator.integers(0, INDICES if below is None else below, shape, dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    raise InvalidOptionError(f"--random: there are no random values of type {dtype}. Give the input with --input.")
