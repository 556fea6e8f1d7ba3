# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.evaluate``: measure the accuracy of a compiled model on a data set, and of the model that it was made from."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron import litert
from openneutron.api.float_litert import inputs_of
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.api.load import LoadedFile
from openneutron.device import forms, pte
from openneutron.device.cache import LIBRARIES, Digest, code
from openneutron.device.data import ModelInput, Sample, Source
from openneutron.device.data import source as source_of
from openneutron.device.data.python_function import parsed
from openneutron.errors import InvalidOptionError
from openneutron.features.detection import Detector
from openneutron.features.evaluation import processes
from openneutron.features.evaluation.job import EXPORTED, FLOAT, INT8, NPU, PTE, TFLITE, Job, Side
from openneutron.features.evaluation.metrics import MAP, Precision, usual
from openneutron.features.evaluation.metrics import metric as metric_of
from openneutron.features.evaluation.results import Evaluation, pair_results, side_results, worst_classes
from openneutron.features.evaluation.samples import DataSet, Failure, Record, Shard, absolute, shards
from openneutron.litert.write import pack
from openneutron.options import BOXES, LoadingOptions, Progress, silent

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.api.pytorch import CompiledModel

STEP = "Evaluating"


def evaluate(
    program: CompiledModel | CompiledLiteRTModel | LoadedFile,
    data: Any,
    *,
    model: nn.Module | ExportedProgram | None = None,
    metric: str | None = None,
    preprocess: str | Callable[[Any], Any] | None = None,
    sample_rate: int | None = None,
    data_samples: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Measure the accuracy of a compiled model on a data set, on three sides: float, int8 on the CPU, and the simulated NPU.

    The int8 side on the CPU is the quantized module in PyTorch's own arithmetic. For a ``.tflite``, it is the file in
    LiteRT's interpreter. The results do not depend on the number of processes.

    Args:
        program: The result of ``openneutron.compile`` or of ``openneutron.load``. A loaded file has only the side of
            the NPU.
        data: The samples with their labels: a folder of pictures, WAV files or ``.npy`` files with a folder for each class, a
            ``.npz`` file with an array ``labels``, a folder with COCO's annotations or Ultralytics' ``data.yaml``, ``file.py:loader``, a
            Dataset or DataLoader, or any iterable of (input, label). A label is the number of a class, or an array in the shape of the model's first output.
        model: The float model that a PyTorch program was compiled from; None leaves the float side out. For a
            ``.tflite`` and for a loaded file it must be None: the float side of a ``.tflite`` is its own file before
            the quantization, if that was float and the program's inputs stay float.
        metric: ``top1``, ``top5``, ``mse``, ``map`` (mean average precision of boxes), or ``file.py:function``, a function that gets the outputs in a tuple and the sample
            (with ``arrays``, ``label`` and ``name``) and returns a number, whose mean is the metric. None: ``top1`` for
            classes, ``mse`` for arrays, ``map`` for boxes; without labels the sides are compared with each other alone.
        preprocess: The steps from a picture or sound to the model's input, as text, ``file.py:function`` or a function.
        sample_rate: The rate in Hz that WAV files are resampled to.
        data_samples: At most so many samples, evenly spread over all of them.
        workers: The number of processes, this one included; None: one for each processor core, or fewer for little work.
        scheduler: The address of a Dask scheduler, such as ``tcp://localhost:8786``, whose workers do the work.
        progress: A function that is called with the name of a step, the number of its finished samples, and the number of all.

    Returns:
        The evaluation, with the ``sides``, the ``pairs`` of sides, the ``worst`` classes, ``to_dict()`` and ``summary()``. An
        interrupt (KeyboardInterrupt) ends the evaluation with the samples that are finished; ``complete`` is then False.

    Raises:
        InvalidOptionError: The data does not fit the model or the metric, the metric fails, or the scheduler does not answer.
        InvalidModelError: A side can't run the model.
        MissingToolError: ``distributed`` is not installed, or ExecuTorch for a ``.pte``.

    >>> import openneutron
    >>> program = openneutron.compile(model, example, calibration=batches)  # doctest: +SKIP
    >>> openneutron.evaluate(program, "digits/", model=model).side("npu").metric  # doctest: +SKIP
    >>> openneutron.evaluate(None, [], workers=0)
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: workers: it is 0; at least one process evaluates.
    """
    if workers is not None and workers < 1:
        raise InvalidOptionError(f"workers: it is {workers}; at least one process evaluates.")
    wanted = inputs(program)
    if isinstance(data, (str, os.PathLike)) and (preprocess is None or isinstance(preprocess, str)):
        data_set = DataSet(os.fspath(data), wanted, preprocess, sample_rate, data_samples, "data")
        return evaluated(program, data_set, model, metric, workers, scheduler, progress, True)
    samples = source_of(data, wanted, preprocess=preprocess, sample_rate=sample_rate, limit=data_samples, option="data")
    return evaluated(program, samples, model, metric, workers, scheduler, progress, True)


def evaluated(
    program: CompiledModel | CompiledLiteRTModel | LoadedFile,
    data: DataSet | Source,
    model: nn.Module | ExportedProgram | None,
    metric: str | None,
    workers: int | None,
    scheduler: str | None,
    progress: Progress,
    keep_interrupted: bool = False,
) -> Evaluation:
    """Return the evaluation of a program on ``data``. Raises as ``evaluate`` does.

    Each process opens a ``DataSet`` itself. If ``data`` is a ``Source``, or a data set of unknown length, its samples
    are read here and sent to the other processes. With ``keep_interrupted``, an interrupt ends the evaluation with
    the finished samples. Without it, or before the first sample is finished, KeyboardInterrupt is raised.
    """
    source = data if isinstance(data, Source) else data.open()
    # A loader of unknown length is read once here, and not again in each process.
    items = tuple(source) if isinstance(data, Source) or source.count is None else None
    count = len(source) if items is None else len(items)
    if not count:
        raise InvalidOptionError(f"data: '{source.name}' has no samples. Give at least one.")
    first: Sample = source[0] if items is None else items[0]
    chosen = usual(first.label) if metric is None else metric
    precision = None
    if chosen == MAP:
        is_litert = isinstance(program, CompiledLiteRTModel) or (isinstance(program, LoadedFile) and program.is_litert)
        precision = Precision.of(Detector.of(program.metadata, is_litert), source.classes)
    measure = None if chosen is None else metric_of(chosen, precision)
    sides, notes = _sides(program, model)
    if chosen is None:
        notes = (*notes, "The samples have no labels: agreement and SQNR alone.")
    data_set = data if items is None and isinstance(data, DataSet) else None
    if precision is not None and precision.detector.has_boxes:
        notes = (*notes, "The program drops boxes below its own score, which the mean average precision would count.")
    job = Job(program.name, sides, chosen, data_set, count, code(*LIBRARIES), precision)
    start = time.perf_counter()
    records = _records(job, shards(count, items), workers, scheduler, progress, keep_interrupted)
    seconds = time.perf_counter() - start
    names = [side.name for side in sides]
    return Evaluation(
        model=program.name,
        target=_target(program),
        data=source.name,
        samples=len(records),
        metric=chosen,
        sides=side_results(names, records, measure),
        pairs=pair_results(names, job.pairs, records),
        worst=worst_classes(records, source.classes),
        notes=notes,
        wall_seconds=seconds,
        complete=len(records) == count,
    )


def _target(program: CompiledModel | CompiledLiteRTModel | LoadedFile) -> str:
    if not isinstance(program, LoadedFile):
        return program.target.name
    target = program.report.target
    return "" if target is None else target.name


def inputs(program: CompiledModel | CompiledLiteRTModel | LoadedFile) -> tuple[ModelInput, ...]:
    """Return the shapes and types of a program's inputs."""
    if isinstance(program, CompiledLiteRTModel):
        return inputs_of(program.compiled.graph)
    if isinstance(program, LoadedFile):
        if program.is_litert:
            return inputs_of(litert.read(program.buffer).graph)
        method = pte.forward(program.buffer, program.name)
        values = [method.values[place] for place in method.inputs]
        tensors = [value for value in values if isinstance(value, pte.TensorValue)]
        return tuple(ModelInput(tensor.shape, np.dtype(tensor.dtype)) for tensor in tensors)
    from openneutron.pytorch.run import exported
    from openneutron.pytorch.source import calibration_data

    return tuple(calibration_data.inputs_of(exported.inputs_of(program.quantized)))


def _sides(
    program: CompiledModel | CompiledLiteRTModel | LoadedFile, model: nn.Module | ExportedProgram | None
) -> tuple[tuple[Side, ...], tuple[str, ...]]:
    """Return the sides of a program that an evaluation compares (float, int8 on the CPU, simulated NPU), and notes on
    the sides that are left out.

    The float side of a ``.tflite`` is its own file before the quantization. It is left out if the file was quantized
    already, or if the program's inputs are quantized. Raises InvalidOptionError where ``model`` is given for a
    compiled file or a ``.tflite``.
    """
    if isinstance(program, LoadedFile):
        if model is not None:
            raise InvalidOptionError(
                f"model: '{program.name}' is a compiled file, which is evaluated alone. Leave the model out, or compile it again."
            )
        suffix = TFLITE if program.is_litert else PTE
        note = "A compiled file has the side of the NPU alone; give the model itself to compare with float and int8 on the CPU."
        return (Side(NPU, suffix, program.buffer, program.has_state),), (note,)
    if isinstance(program, CompiledLiteRTModel):
        if model is not None:
            raise InvalidOptionError(
                f"model: '{program.name}' is a .tflite, which has no float side. Leave the model out."
            )
        sides = (Side(INT8, TFLITE, pack(program.compiled.model.model)), Side(NPU, TFLITE, program.buffer))
        if program.real is None:
            return sides, ("The .tflite is quantized: there is no float side.",)
        graph = program.compiled.graph
        if any(graph[name].quant is not None for name in graph.inputs):
            return sides, ("The inputs are quantized, and the float model's are not: there is no float side.",)
        return (Side(FLOAT, TFLITE, program.real), *sides), ()
    from openneutron.pytorch.run.exported import inputs_of, written

    call = inputs_of(program.quantized)
    quantized, has_state = written(program.whole, call, program.name)
    sides = (Side(INT8, EXPORTED, quantized, has_state), Side(NPU, PTE, program.buffer, has_state))
    if model is None:
        return sides, ("The float model is not given: there is no float side.",)
    if forms.of_object(model) is not None:
        from openneutron.pytorch.yolo import staged

        head, shape = program.metadata.get("head", BOXES), tuple(call.leaves[0].shape)
        model = staged(model, program.name, LoadingOptions(head=head, input_shapes={"images": shape}))
    content, keeps = written(model, call, program.name)
    return (Side(FLOAT, EXPORTED, content, keeps), *sides), ()


def _records(
    job: Job,
    parts: Sequence[Shard],
    workers: int | None,
    scheduler: str | None,
    progress: Progress,
    keep_interrupted: bool,
) -> list[Record]:
    """Return the records of all samples in their order. With ``keep_interrupted``, an interrupt ends the evaluation,
    and only the records of the finished samples are returned.

    Raises InvalidOptionError for the first failure that a process reports. Raises KeyboardInterrupt if an interrupt
    comes without ``keep_interrupted``, or before any sample is finished.
    """
    if scheduler is not None:
        found = processes.answers_of_cluster(_for_another_folder(job).to_bytes(), parts, scheduler)
    else:
        found = processes.answers(job.to_bytes(), parts, workers)
    answers: list[tuple[Record, ...]] = [()] * len(parts)
    done = 0
    progress(STEP, 0, job.count)
    try:
        for place, answer in found:
            if isinstance(answer, Failure):
                raise InvalidOptionError(answer.words)
            answers[place] = answer
            done += len(answer)
            progress(STEP, done, job.count)
    except KeyboardInterrupt:
        if not done or not keep_interrupted:
            raise
    finally:
        found.close()
    return [record for answer in answers for record in answer]


def _for_another_folder(job: Job) -> Job:
    metric = absolute(job.metric) if job.metric is not None and parsed(job.metric) else job.metric
    return dataclasses.replace(job, metric=metric, data=None if job.data is None else job.data.absolute())


PROBES = 4
"""The number of samples whose outputs ``outputs_digest`` hashes."""


def outputs_digest(program: CompiledModel | CompiledLiteRTModel, data: DataSet) -> str:
    """Return a hash of the simulated NPU's outputs for the first ``PROBES`` samples.

    Programs that compute the same outputs have equal hashes. Such programs need only one evaluation for all of them.
    """
    suffix = TFLITE if isinstance(program, CompiledLiteRTModel) else PTE
    run = Side(NPU, suffix, program.buffer).opened(program.name)
    digest = Digest(program.name)
    for sample in itertools.islice(data.open(), PROBES):
        for output in run(sample.arrays):
            digest.add(repr((output.dtype.str, output.shape)).encode())
            digest.add(output.tobytes())
    return digest.hex()
