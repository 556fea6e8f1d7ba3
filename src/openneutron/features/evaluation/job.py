# SPDX-License-Identifier: BSD-3-Clause
"""The work of an evaluation as data: a job for all processes, and a shard of the samples for each call."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from openneutron.device.data import Sample, Source
from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.features.evaluation.metrics import Metric, class_of, metric
from openneutron.features.evaluation.records import Failure, Record, SideRecord, compared, found
from openneutron.features.evaluation.samples import DataSet, Shard
from openneutron.features.evaluation.sides import Run, Side, one_thread


@dataclass(frozen=True, slots=True)
class Job:
    """All that the shards of an evaluation have in common.

    ``data`` opens the samples; None where each shard has its own. ``count`` is the number of samples. ``code`` is the digest of the package and its versions in the process that began the
    evaluation: others must have the same, or results would depend on the process.
    """

    model: str
    sides: tuple[Side, ...]
    metric: str | None
    data: DataSet | None
    count: int
    code: str = field(repr=False)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of sides that are compared, each by its places among the sides."""
        return list(itertools.combinations(range(len(self.sides)), 2))

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)


Answer = tuple[Record, ...] | Failure
"""The facts of a shard's samples in their order, or the reason why one of them can't be evaluated."""


def evaluated(job: bytes, shard: Shard) -> Answer:
    """Return the facts of a shard's samples. Processes keep the last job open from call to call."""
    try:
        opened = _opened(job)
        with one_thread(opened.job.sides):
            return tuple(opened.record(sample) for sample in opened.samples_of(shard))
    except OpenNeutronError as error:
        return Failure(str(error))


def open_early(job: bytes) -> None:
    """Open a job's sides ahead of the first shard. What can't be opened is reported with that shard."""
    with suppress(OpenNeutronError):
        _opened(job)


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A job whose sides are ready to run."""

    job: Job
    runs: tuple[Run, ...]
    metric: Metric | None
    samples: Source | None

    def samples_of(self, shard: Shard) -> Iterable[Sample]:
        if shard.items is not None:
            return shard.items
        assert self.samples is not None
        return self.samples[shard.start : shard.stop]

    def record(self, sample: Sample) -> Record:
        outputs: list[list[np.ndarray]] = []
        sides: list[SideRecord] = []
        for run in self.runs:
            start = time.perf_counter()
            outputs.append(run(sample.arrays))
            seconds = time.perf_counter() - start
            score = None if self.metric is None else self.metric.score(outputs[-1], sample)
            sides.append(SideRecord(score, found(outputs[-1]), seconds))
        pairs = tuple(compared(outputs[one], outputs[other]) for one, other in self.job.pairs)
        return Record(None if sample.label is None else class_of(sample.label), tuple(sides), pairs)


@lru_cache(maxsize=1)
def _opened(content: bytes) -> _Opened:
    from openneutron.device.cache import LIBRARIES, code

    job: Job = pickle.loads(content)
    if job.code != code(*LIBRARIES):
        raise InvalidOptionError(
            "scheduler: a worker has another version of openneutron, Python or NumPy than this process, which could change "
            "results. Install the same versions on both."
        )
    samples = None if job.data is None else job.data.open()
    if samples is not None and len(samples) != job.count:
        raise InvalidOptionError(
            f"data: a worker finds {len(samples)} samples where this process finds {job.count}. Put the same data under the "
            "same path on every machine."
        )
    runs = tuple(side.opened(job.model) for side in job.sides)
    return _Opened(job, runs, None if job.metric is None else metric(job.metric), samples)
