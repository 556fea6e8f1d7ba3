# SPDX-License-Identifier: BSD-3-Clause
"""The facts of one sample: small, and the same in whichever process they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SideRecord:
    """One side's run of a sample.

    ``score``: the metric of the sample, None without one. ``found``: the place of the largest of the first output's
    values, None where this output is not one row of values.
    """

    score: float | None
    found: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class PairRecord:
    """The outputs of two sides compared: whether all bytes are the same, and the energies of the first side's values and of
    the differences."""

    identical: bool
    signal: float
    noise: float


@dataclass(frozen=True, slots=True)
class Record:
    """The facts of one sample: a record for each side, and for each pair of sides. ``label`` is the number of its class,
    None where it has none."""

    label: int | None
    sides: tuple[SideRecord, ...]
    pairs: tuple[PairRecord, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that can't be evaluated, for a reason that the user can change, in words."""

    words: str


def row(output: np.ndarray) -> np.ndarray | None:
    """Return an output of one row of at least two values as one axis; None for any other output."""
    if output.ndim == 0 or output.size < 2 or output.size != max(output.shape) or output.dtype.kind not in "iuf":
        return None
    return output.reshape(-1)


def found(outputs: Sequence[np.ndarray]) -> int | None:
    """Return the place of the first output's largest value, where this output is one row."""
    values = row(outputs[0]) if outputs else None
    return None if values is None else int(values.argmax())


def compared(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> PairRecord:
    """Return the comparison of two sides' outputs, summed in float64."""
    signal = noise = 0.0
    identical = len(first) == len(second)
    for one, other in zip(first, second, strict=False):
        identical = identical and one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=_has_nan(one)))
        if one.shape != other.shape:
            continue
        wide = one.astype(np.float64)
        signal += float(np.square(wide).sum())
        noise += float(np.square(wide - other.astype(np.float64)).sum())
    return PairRecord(identical, signal, noise)


def _has_nan(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"
