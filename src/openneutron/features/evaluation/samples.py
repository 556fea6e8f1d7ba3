# SPDX-License-Identifier: BSD-3-Clause
"""The samples of an evaluation, divided into shards, and the record of each sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from openneutron.device.data import ModelInput, Sample, Source, source
from openneutron.device.data.python_function import parsed
from openneutron.features.evaluation.metrics import Scored, row

OPTION = "--data"


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set in a form that can be sent to other processes: the arguments of ``data.source``, which opens the
    samples."""

    given: str
    inputs: tuple[ModelInput, ...]
    preprocess: str | None = None
    sample_rate: int | None = None
    limit: int | None = None
    option: str = OPTION

    def open(self) -> Source:
        """Return the samples. Raises as ``data.source`` does."""
        return source(
            self.given,
            self.inputs,
            preprocess=self.preprocess,
            sample_rate=self.sample_rate,
            limit=self.limit,
            option=self.option,
        )

    def absolute(self) -> DataSet:
        """Return the data set with absolute paths, for processes with another working directory."""
        steps = None if self.preprocess is None or parsed(self.preprocess) is None else absolute(self.preprocess)
        return replace(self, given=absolute(self.given), preprocess=steps or self.preprocess)


def absolute(text: str) -> str:
    """Return an absolute path. A text ``file.py:name`` keeps its name."""
    named = parsed(text)
    if named is None:
        return os.fspath(Path(text).absolute())
    return f"{Path(named[0]).absolute()}:{named[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The samples from index ``start`` to before ``stop`` of a data set. ``items`` has the samples themselves if other
    processes can't open the data set; it is None otherwise."""

    start: int
    stop: int
    items: tuple[Sample, ...] | None = None


MOST_SHARDS = 64
"""The largest number of shards of a data set. It is large enough for all processes to end at about the same time, and
for progress."""

MOST_SAMPLES = 64
"""The largest number of samples of a shard. If a process is killed, no more samples than these are evaluated again."""


def shards(count: int, items: Sequence[Sample] | None) -> list[Shard]:
    """Return ``count`` samples divided into shards. With ``items``, the shards contain these samples. The division
    depends only on ``count``."""
    size = max(1, min(MOST_SAMPLES, -(-count // MOST_SHARDS)))
    found = [(start, min(start + size, count)) for start in range(0, count, size)]
    return [Shard(start, stop, None if items is None else tuple(items[start:stop])) for start, stop in found]


@dataclass(frozen=True, slots=True)
class SideRecord:
    """The result of one side (form of the model: float, int8 or NPU) for a sample.

    ``score`` is the metric of the sample, or its boxes for the metric ``map``; None without a metric. ``found`` is
    the index of the largest value of the first output; None if this output is not one row of values. ``seconds`` is
    the time of the run.
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
    """The reason why a sample can't be evaluated, as text of an error message for the user."""

    words: str


def found(outputs: Sequence[np.ndarray]) -> int | None:
    """Return the index of the first output's largest value; None if this output is not one row."""
    values = row(outputs[0]) if outputs else None
    return None if values is None else int(values.argmax())


LARGEST_SIGNAL = 1e30
"""Larger values, infinities and NaN are fillers, such as those of masks. They carry no signal, and are no noise. The
ranges of a quantization leave them out too (pytorch/quantizer/observers.py)."""

INFINITE = float(np.finfo(np.float32).max)
"""The value that stands for infinity where the other side has a value."""


def compared(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> PairRecord:
    """Return the comparison of two sides' outputs. Sums are computed in float64. Outputs of different shapes are not
    identical. They are left out of the sums, and so are indices and booleans, whose differences are no noise."""
    signal = noise = 0.0
    identical = len(first) == len(second)
    for one, other in zip(first, second, strict=False):
        identical = identical and one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=_has_nan(one)))
        if one.shape != other.shape or "f" not in (one.dtype.kind, other.dtype.kind):
            continue
        known = np.abs(one.astype(np.float64)) <= LARGEST_SIGNAL
        wide = np.where(known, one.astype(np.float64), 0.0)
        found = np.nan_to_num(np.where(known, other.astype(np.float64), 0.0), posinf=INFINITE, neginf=-INFINITE)
        signal += float(np.square(wide).sum())
        noise += float(np.square(found - wide).sum())
    return PairRecord(identical, signal, noise)


def _has_nan(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"
