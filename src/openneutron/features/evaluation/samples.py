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
