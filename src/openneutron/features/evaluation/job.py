# SPDX-License-Identifier: BSD-3-Clause
"""The jobs of an evaluation: a job has the data that all processes need, and each call evaluates a shard of the samples."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from openneutron.device import pte
from openneutron.device.data import Sample, Source
from openneutron.device.mixed import FileSimulator
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.features.evaluation.metrics import Metric, Precision, class_of, metric
from openneutron.features.evaluation.samples import DataSet, Failure, Record, Shard, SideRecord, compared, found
from openneutron.ir import QuantParams, Tensor


@dataclass(frozen=True, slots=True)
class Job:
    """The data that all shards of an evaluation share. A shard is a range of samples that one process evaluates.

    ``precision`` is the measurement for the metric ``map``; None for other metrics. ``data`` opens the samples; it is
    None if each shard contains its samples. ``count`` is the number of samples. ``code`` identifies this package's
    code, the versions of Python and of the libraries that affect results, and the machine's architecture, all of the
    process that began the evaluation. A process with another ``code`` refuses the job, since its results might
    differ.
    """

    model: str
    sides: tuple[Side, ...]
    metric: str | None
    data: DataSet | None
    count: int
    code: str = field(repr=False)
    precision: Precision | None = None

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of sides that are compared. A side is its index in ``sides``."""
        return list(itertools.combinations(range(len(self.sides)), 2))

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)


Answer = tuple[Record, ...] | Failure
"""The records of a shard's samples in their order, or the reason why a sample can't be evaluated."""


def evaluated(job: bytes, shard: Shard) -> Answer:
    """Return the records of a shard's samples; or a Failure if the job can't be opened or a sample can't be
    evaluated. The process keeps the most recent job open for the next call."""
    try:
        opened = _opened(job)
        with one_thread(opened.job.sides):
            return tuple(opened.record(sample) for sample in opened.samples_of(shard))
    except OpenNeutronError as error:
        return Failure(str(error))


def open_early(job: bytes) -> None:
    """Open a job's sides before the first shard arrives. Errors are ignored here, and reported with that shard."""
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
    return _Opened(job, runs, None if job.metric is None else metric(job.metric, job.precision), samples)


FLOAT, INT8, NPU = "float", "int8", "npu"
TITLES = {FLOAT: "float32 on the CPU", INT8: "int8 on the CPU", NPU: "int8 on the simulated NPU"}

EXPORTED, PTE, TFLITE = ".pt2", ".pte", ".tflite"

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""A function that runs a model: it gets an array for each input, and returns an array of real values for each
output."""


@dataclass(frozen=True, slots=True)
class Side:
    """A form of the model: FLOAT, INT8 or NPU, with the content of a model file and the suffix of its format.

    ``has_state`` states that a PyTorch model keeps state between runs. The file is then opened again for each sample, so
    that samples do not depend on each other. A ``.tflite`` is reset for each sample without it.
    """

    name: str
    suffix: str
    content: bytes = field(repr=False)
    has_state: bool = False

    def opened(self, model: str) -> Run:
        """Return a function that runs the side. Messages call the model ``model``."""
        if not self.has_state or self.suffix == TFLITE:
            return self._open(model)
        return lambda arrays: self._open(model)(arrays)

    def _open(self, model: str) -> Run:
        if self.suffix == TFLITE:
            return _litert(self.content)
        with needs_pytorch("PyTorch models take"), suppressed():
            if self.suffix == PTE:
                return _executorch(model, self.content)
            from openneutron.pytorch.run.exported import ExportedRunner

            return ExportedRunner(self.content).run


def _executorch(model: str, content: bytes) -> Run:
    """Return a function that runs a ``.pte``. Inputs and outputs that the file itself has quantized are real values here,
    by the scales in its methods; inputs of the file's own type are passed unchanged."""
    from openneutron.pytorch.run.runner import Runner

    runner, stated = Runner(model, content), pte.numbers(pte.methods(content, model))
    types = [str(dtype).removeprefix("torch.") for _, dtype in runner.inputs]

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = list(arrays)
        for place, (array, dtype) in enumerate(zip(arrays, types, strict=False)):
            if array.dtype.kind == "f" and dtype in STORED and f"input{place}_scale" in stated:
                scale, zero, least, most = (stated[f"input{place}_{what}"] for what in OF_QUANTIZATION)
                whole = np.rint(array.astype(np.float32) * (np.float32(1) / np.float32(scale))) + np.float32(zero)
                given[place] = np.clip(whole, least, most).astype(dtype)
        outputs = [np.asarray(output) for output in runner.run(given)]
        for place, output in enumerate(outputs):
            if output.dtype.kind in "iu" and f"output{place}_scale" in stated:
                scale, zero = (stated[f"output{place}_{what}"] for what in OF_QUANTIZATION[:2])
                outputs[place] = (output.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        return outputs

    return run


STORED = ("int8", "int16")
"""The types of inputs that a file itself quantizes."""

OF_QUANTIZATION = ("scale", "zp", "quant_min", "quant_max")
"""The ends of the names of the methods with which ExecuTorch states the quantization of an input."""


def _litert(content: bytes) -> Run:
    simulator = FileSimulator(content)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        simulator.reset()
        outputs = simulator.run(arrays)
        return [real(tensor, output) for tensor, output in zip(simulator.outputs, outputs, strict=True)]

    return run


def real(tensor: Tensor, output: np.ndarray) -> np.ndarray:
    """Return an output as real values: dequantized to float32 if the tensor has one scale, otherwise unchanged."""
    quant: QuantParams | None = tensor.quant
    if quant is None or quant.per_channel or output.dtype.kind == "f":
        return output
    return ((output.astype(np.float32) - quant.zero_point) * quant.scale).astype(np.float32)


@contextmanager
def one_thread(sides: Sequence[Side]) -> Iterator[None]:
    """Run PyTorch's operators on one thread in this context. With several threads, the order and so the rounding of
    sums may differ. Nothing changes if all sides are ``.tflite`` files, which PyTorch does not run."""
    if all(side.suffix == TFLITE for side in sides):
        yield
        return
    with needs_pytorch("PyTorch models take"):
        from openneutron.pytorch.run.exported import on_one_thread
    with on_one_thread():
        yield


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))
