# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.evaluate``: the accuracy of a compiled model on a data set, beside that of the model it was made from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.api.litert import CompiledLiteRTModel
from openneutron.cache.digests import LIBRARIES, code
from openneutron.errors import InvalidOptionError
from openneutron.evaluation import cluster, processes
from openneutron.evaluation.job import Job
from openneutron.evaluation.metrics import metric as metric_of
from openneutron.evaluation.metrics import usual
from openneutron.evaluation.records import Failure, Record
from openneutron.evaluation.results import Evaluation, pair_results, side_results, worst_classes
from openneutron.evaluation.samples import Description, GivenSample, GivenSamples, Samples, shards
from openneutron.evaluation.sides import FLOAT, INT8, NPU, PTE, TFLITE, Side, cores
from openneutron.litert.write import pack
from openneutron.options import Progress, silent

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.api.pytorch import CompiledModel

STEP = "Evaluating"


def evaluate(
    program: CompiledModel | CompiledLiteRTModel,
    data: Any,
    *,
    model: nn.Module | ExportedProgram | None = None,
    metric: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Measure the accuracy of a compiled model on a data set, on three sides: float, int8 on the CPU, and the simulated NPU.

    The int8 side on the CPU is the quantized module in PyTorch's own arithmetic, and for a ``.tflite`` LiteRT's interpreter.
    The results do not depend on the number of processes.

    Args:
        program: The result of ``openneutron.compile``.
        data: The samples: a sequence of pairs (input, label) or of inputs alone, where an input is an array or tensor, or a
            tuple of them for a model of several inputs. A label is the number of a class, or an array in the shape of the
            model's first output.
        model: The float model that the program was compiled from; None leaves the float side out. A ``.tflite`` has none.
        metric: ``top1``, ``top5``, ``mse``, or ``file.py:function``, a function that gets the outputs in a tuple and the sample
            (with ``arrays``, ``label`` and ``name``) and returns a number, whose mean is the metric. None: ``top1`` for
            classes, ``mse`` for arrays; without labels the sides are compared with each other alone.
        workers: The number of processes, this one included; None: one for each processor core.
        scheduler: The address of a Dask scheduler, such as ``tcp://localhost:8786``, whose workers do the work.
        progress: A function that is called with the name of a step, the number of its finished samples, and the number of all.

    Returns:
        The evaluation, with the ``sides``, the ``pairs`` of sides, the ``worst`` classes, and ``to_dict()``.

    Raises:
        InvalidOptionError: The data does not fit the model or the metric, the metric fails, or the scheduler does not answer.
        InvalidModelError: A side can't run the model.
        MissingToolError: ``distributed`` is not installed, or ExecuTorch for a ``.pte``.

    >>> import openneutron
    >>> program = openneutron.compile(model, example, calibration=batches)  # doctest: +SKIP
    >>> openneutron.evaluate(program, pairs, model=model).side("npu").metric  # doctest: +SKIP
    >>> openneutron.evaluate(None, [], workers=0)
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: workers: it is 0; at least one process evaluates.
    """
    if workers is not None and workers < 1:
        raise InvalidOptionError(f"workers: it is {workers}; at least one process evaluates.")
    samples = _given(data, inputs(program))
    return evaluated(program, samples, None, "samples in memory", model, metric, workers, scheduler, progress)


def evaluated(
    program: CompiledModel | CompiledLiteRTModel,
    samples: Samples,
    description: Description | None,
    name: str,
    model: nn.Module | ExportedProgram | None,
    metric: str | None,
    workers: int | None,
    scheduler: str | None,
    progress: Progress,
) -> Evaluation:
    """Return the evaluation on these samples, which messages and tables call ``name``. ``description`` opens them in other
    processes; None sends the samples themselves. Raises as ``evaluate`` does."""
    if not len(samples):
        raise InvalidOptionError(f"data: '{name}' has no samples. Give at least one.")
    chosen = usual(samples) if metric is None else metric
    is_share = chosen is not None and metric_of(chosen).is_share
    sides, notes = _sides(program, model)
    if chosen is None:
        notes = (*notes, "The samples have no labels: agreement and SQNR alone.")
    job = Job(program.name, sides, inputs(program), chosen, description, len(samples), code(*LIBRARIES))
    start = time.perf_counter()
    records = _records(job, samples, workers, scheduler, progress)
    seconds = time.perf_counter() - start
    names = [side.name for side in sides]
    return Evaluation(
        model=program.name,
        target=program.target.name,
        data=name,
        samples=len(records),
        metric=chosen,
        sides=side_results(names, records, is_share),
        pairs=pair_results(names, job.pairs, records),
        worst=worst_classes(records, samples.classes),
        notes=notes,
        wall_seconds=seconds,
    )


def inputs(program: CompiledModel | CompiledLiteRTModel) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return shape and type of each of a program's inputs."""
    if isinstance(program, CompiledLiteRTModel):
        graph = program.compiled.graph
        tensors = [graph[tensor] for tensor in graph.inputs]
        return tuple((tensor.shape, tensor.dtype.numpy.name) for tensor in tensors)
    from openneutron.pytorch.run.exported import inputs_of

    return tuple((tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in inputs_of(program.quantized).tensors)


def _sides(
    program: CompiledModel | CompiledLiteRTModel, model: nn.Module | ExportedProgram | None
) -> tuple[tuple[Side, ...], tuple[str, ...]]:
    """Return the sides of a program, and notes on those that are left out."""
    if isinstance(program, CompiledLiteRTModel):
        if model is not None:
            raise InvalidOptionError(
                f"model: '{program.name}' is a .tflite, which has no float side. Leave the model out."
            )
        stock = pack(program.compiled.model.model)
        return (
            (Side(INT8, TFLITE, stock), Side(NPU, TFLITE, program.buffer)),
            ("A .tflite is int8 from the start: there is no float side.",),
        )
    from openneutron.pytorch.run.exported import inputs_of, written

    call = inputs_of(program.quantized)
    quantized, has_state = written(program.quantized, call, program.name)
    sides = [Side(INT8, ".pt2", quantized, has_state), Side(NPU, PTE, program.buffer, has_state)]
    if model is None:
        return tuple(sides), ("The float model is not given: there is no float side.",)
    content, keeps = written(model, call, program.name)
    return (Side(FLOAT, ".pt2", content, keeps), *sides), ()


def _records(
    job: Job, samples: Samples, workers: int | None, scheduler: str | None, progress: Progress
) -> list[Record]:
    """Return the facts of all samples, in their order. Raises InvalidOptionError for the first sample found that can't be
    evaluated."""
    parts = shards(samples, in_memory=job.data is None)
    if scheduler is not None:
        found = cluster.answers(job.to_bytes(), parts, scheduler)
    else:
        found = processes.answers(job.to_bytes(), parts, workers or cores())
    answers: list[tuple[Record, ...]] = [()] * len(parts)
    done = 0
    progress(STEP, 0, job.count)
    for place, answer in found:
        if isinstance(answer, Failure):
            raise InvalidOptionError(answer.words)
        answers[place] = answer
        done += len(answer)
        progress(STEP, done, job.count)
    return [record for answer in answers for record in answer]


def _given(data: Any, wanted: Sequence[tuple[tuple[int, ...], str]]) -> GivenSamples:
    """Return a caller's samples as arrays of the model's inputs."""
    return GivenSamples(_sample(item, place, wanted) for place, item in enumerate(data))


def _sample(item: Any, place: int, wanted: Sequence[tuple[tuple[int, ...], str]]) -> GivenSample:
    has_label = isinstance(item, (tuple, list)) and len(item) == 2
    if has_label and len(wanted) > 1:
        has_label = isinstance(item[0], (tuple, list))
    parts, label = item if has_label else (item, None)
    parts = parts if isinstance(parts, (tuple, list)) else (parts,)
    arrays = tuple(np.asarray(part) for part in parts)
    if len(arrays) == len(wanted):
        arrays = tuple(_fitted(array, *one) for array, one in zip(arrays, wanted, strict=True))
    label = label if label is None or isinstance(label, int) else np.asarray(label)
    return GivenSample(arrays, label, f"sample {place}")


def _fitted(array: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array with the batch axis of the model's input, and in its width; what does not fit stays as it is."""
    if shape[:1] == (1,) and array.shape == shape[1:]:
        array = array[np.newaxis]
    return array.astype(dtype) if array.dtype.kind == np.dtype(dtype).kind else array
