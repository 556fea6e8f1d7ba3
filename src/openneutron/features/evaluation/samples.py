# SPDX-License-Identifier: BSD-3-Clause
"""The samples of an evaluation, divided into shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openneutron.device.data import ModelInput, Sample, Source, source
from openneutron.device.data.python_function import parsed

OPTION = "--data"


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set as other processes get it: the arguments of ``data.source``, which open the same samples there."""

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
        """Return the data set with paths from the root, for processes that run in another folder."""
        steps = None if self.preprocess is None or parsed(self.preprocess) is None else absolute(self.preprocess)
        return replace(self, given=absolute(self.given), preprocess=steps or self.preprocess)


def absolute(text: str) -> str:
    """Return a path, or ``file.py:name``, with the path from the root."""
    named = parsed(text)
    if named is None:
        return os.fspath(Path(text).absolute())
    return f"{Path(named[0]).absolute()}:{named[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A range of a data set's samples, from ``start`` to before ``stop``. ``items`` has the samples themselves where no
    data set can be opened elsewhere."""

    start: int
    stop: int
    items: tuple[Sample, ...] | None = None


MOST_SHARDS = 64
"""The shards of a data set: enough that all processes end together, and that progress is seen."""

MOST_SAMPLES = 64
"""The samples of a shard: a process that is killed loses no more than their time."""


def shards(count: int, items: Sequence[Sample] | None) -> list[Shard]:
    """Return ``count`` samples in shards, which have the samples where these are given. The division depends on the number
    of samples alone."""
    size = max(1, min(MOST_SAMPLES, -(-count // MOST_SHARDS)))
    found = [(start, min(start + size, count)) for start in range(0, count, size)]
    return [Shard(start, stop, None if items is None else tuple(items[start:stop])) for start, stop in found]
