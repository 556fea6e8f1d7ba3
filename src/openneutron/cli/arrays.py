# SPDX-License-Identifier: BSD-3-Clause
"""Arrays from files and random arrays, for the inputs of files that ``openneutron run`` runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.errors import InvalidOptionError
from openneutron.files import FOLDER, obstacle
from openneutron.ir import QuantParams


def describe(dtype: np.dtype, shape: Sequence[int]) -> str:
    """Return type and shape, for instance ``int8[1,32,32,3]``."""
    return f"{dtype}[{','.join(str(extent) for extent in shape)}]"


def load_array(path: Path) -> np.ndarray:
    """Return a ``.npy`` file's array. Raises InvalidOptionError where the file holds no array."""
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds several arrays; a .npy file with one is what is needed here.")
    return loaded


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return a ``.npz`` file's arrays by name. Raises InvalidOptionError where there are none in it."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise InvalidOptionError(f"'{path}' holds one array without a name; a .npz file is what is needed here.")
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


INDICES = 10
"""Random integers of 32 and 64 bits are below this: they are counts, or places in a table, which seldom has fewer entries."""


DRAWN_BYTES = 8
"""NumPy draws floats as float64 and narrows them afterwards."""


def _memory() -> int:
    """Return the computer's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def random_array(
    generator: np.random.Generator, dtype: np.dtype, shape: Sequence[int], below: int | None = None
) -> np.ndarray:
    """Return random values: over the full range of a narrow integer type, from 0 to ``below`` (or INDICES) for a wide
    integer type, from a standard normal distribution for floats.

    Raises InvalidOptionError for a type or shape without values: a negative extent, or more bytes than the computer's memory.
    """
    size = math.prod(shape) * max(dtype.itemsize, DRAWN_BYTES)
    if min(shape, default=1) < 0 or size > _memory():
        why = (
            "an extent is negative"
            if min(shape, default=1) < 0
            else f"that takes {size:,} bytes of this computer's {_memory():,}"
        )
        raise InvalidOptionError(
            f"--random: there are no random values of {describe(dtype, shape)}: {why}. Give the input with --input."
        )
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


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input of a file; ``quant`` is None where it is not quantized per tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    quant: QuantParams | None = None
    below: int | None = None
    """The bound that integers must be below, where they are places in a table."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A file that is ready to run. ``where`` names the part that runs on the NPU."""

    inputs: Sequence[InputTensor]
    where: str
    run: Callable[[Sequence[np.ndarray]], Sequence[Any]] = field(repr=False)
