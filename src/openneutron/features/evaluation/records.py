# SPDX-License-Identifier: BSD-3-Clause
"""The record of one sample. It is small, and does not depend on the process that computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openneutron.features.evaluation.precision import Scored


@dataclass(frozen=True, slots=True)
class SideRecord:
    """The result of one side for a sample.

    ``score`` is the metric of the sample, for the metric ``map`` its boxes; None without a metric. ``found`` is the index of the largest value of the
    first output; None if this output is not one row of values. ``seconds`` is the time of the run.
    """

    score: float | Scored | None
    found: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class PairRecord:
    """The comparison of the outputs of two sides. ``identical`` states that they are equal. ``signal`` is the sum of
    squares of the first side's values, and ``noise`` is that of the differences."""

    identical: bool
    signal: float
    noise: float


@dataclass(frozen=True, slots=True)
class Record:
    """The results of one sample for each side and for each pair of sides. ``label`` is the number of the sample's
    class; None if the label is not a class."""

    label: int | None
    sides: tuple[SideRecord, ...]
    pairs: tuple[PairRecord, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a sample can't be evaluated, in words, as an error of the user's."""

    words: str


def row(output: np.ndarray) -> np.ndarray | None:
    """Return the values of an output as an array of one axis; None for an output that is not one row of at least two
    values."""
    if output.ndim == 0 or output.size < 2 or output.size != max(output.shape) or output.dtype.kind not in "iuf":
        return None
    return output.reshape(-1)


def found(outputs: Sequence[np.ndarray]) -> int | None:
    """Return the index of the first output's largest value; None if this output is not one row."""
    values = row(outputs[0]) if outputs else None
    return None if values is None else int(values.argmax())


def compared(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> PairRecord:
    """Return the comparison of two sides' outputs. Sums are computed in float64."""
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
