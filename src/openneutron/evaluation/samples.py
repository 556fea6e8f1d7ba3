# SPDX-License-Identifier: BSD-3-Clause
"""Samples with labels, as an evaluation reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np


class Sample(Protocol):
    """One run of a model: an array for each of its inputs, the expected result, and a name for messages.

    ``label`` is the number of a class, an array in the shape of the model's first output, or None.
    """

    @property
    def arrays(self) -> Sequence[np.ndarray]: ...

    @property
    def label(self) -> Any: ...

    @property
    def name(self) -> str: ...


class Samples(Protocol):
    """A sequence of samples. ``classes`` has the names of the classes by number; it is empty where they have none."""

    @property
    def classes(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sample]: ...

    @overload
    def __getitem__(self, place: int, /) -> Sample: ...

    @overload
    def __getitem__(self, place: slice, /) -> Iterable[Sample]: ...


class Description(Protocol):
    """A data set as other processes get it: small, and able to open the samples there."""

    def open(self) -> Samples: ...


@dataclass(frozen=True, slots=True, eq=False)
class GivenSample:
    """A sample from memory."""

    arrays: tuple[np.ndarray, ...]
    label: Any = None
    name: str = ""


class GivenSamples(tuple[GivenSample, ...]):
    """Samples in memory."""

    __slots__ = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Return no names: the classes are numbers."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A range of a data set's samples, from ``start`` to before ``stop``. ``items`` has the samples themselves where the
    data set is in memory; otherwise the description of the data set opens them."""

    start: int
    stop: int
    items: tuple[Sample, ...] | None = None


MOST_SHARDS = 64
"""The shards of a data set: enough that all processes end together, and that progress is seen."""

MOST_SAMPLES = 64
"""The samples of a shard: a process that is killed loses no more than their time."""


def shards(samples: Samples, in_memory: bool) -> list[Shard]:
    """Return the samples in shards. The division depends on the number of samples alone."""
    count = len(samples)
    size = max(1, min(MOST_SAMPLES, -(-count // MOST_SHARDS)))
    found = [(start, min(start + size, count)) for start in range(0, count, size)]
    return [Shard(start, stop, tuple(samples[start:stop]) if in_memory else None) for start, stop in found]
