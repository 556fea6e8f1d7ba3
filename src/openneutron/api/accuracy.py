# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.accuracy``: the accuracy that each layer of a PyTorch model loses to int8."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from openneutron.api.compile import LOADING, loaded, model_form
from openneutron.device import files
from openneutron.device.forms import Kind, kind_of
from openneutron.device.third_party import needs_pytorch
from openneutron.device.timings import measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.accuracy.report import AccuracyReport, RepairReport
from openneutron.features.evaluation.metrics import check as check_metric
from openneutron.features.evaluation.metrics import metric as metric_of
from openneutron.options import (
    EIQ,
    CompileOptions,
    DataOptions,
    DelegationOptions,
    InputOptions,
    LoadingOptions,
    Progress,
    QuantizationOptions,
    Request,
    changed,
    silent,
)

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.features.accuracy.session import Session


def accuracy(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    *,
    calibration: Any = None,
    data: Any = None,
    data_options: DataOptions = DataOptions(),
    metric: str | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    inputs: InputOptions = InputOptions(),
    loading: LoadingOptions = LoadingOptions(),
    name: str | None = None,
    progress: Progress = silent,
) -> AccuracyReport:
    """Compare every layer of a model on the simulated NPU with the float model.

    The tensors inside a delegate call come from the simulator. It runs a second program of the same graph that keeps
    all tensors whole. The compiled program itself may compute several layers stripe by stripe (a cascade), and then
    never has the whole tensors between them. Values on the CPU are those of PyTorch.

    Args:
        model: A module with ``example_inputs``, an ExportedProgram, or the path of a ``.pt2``. A model that is
            quantized already is compared with itself, computed with float activations. Both sides then have the same
            weights: the values that its integers stand for.
        example_inputs: As of ``openneutron.compile``.
        calibration: Typical inputs, as of ``openneutron.compile``. The int8 scales come from these inputs. None: ``data``.
        data: The inputs of the comparison, in the forms of ``calibration``. None: the calibration inputs. If the data
            has labels, the report also has the ``metric``.
        data_options: The preprocessing of pictures and sounds, and the number of samples.
        metric: As of ``openneutron.evaluate``. None: ``top1`` for classes, ``mse`` for arrays, none without labels.
        example_kwargs: The arguments that the module takes by keyword.
        options: The target and the other options of the compiler.
        quantization: Layers that stay float, and the layout of inputs and outputs.
        delegation: Operators that stay on the CPU.
        inputs: The format of a camera's frames. Samples are frames, or the model's own pictures.
        loading: Code and modules that the loading of a ``.pt2`` may need.
        name: The model's name in messages; None: the file's name, or "model".
        progress: A function as of ``openneutron.compile``.

    Returns:
        The report, with ``summary()`` and ``to_dict()``. Its ``layers`` are in order of the accuracy that they cost,
        the most costly first. An interrupt ends the comparison with the samples before it, and ``complete`` is False.

    Raises:
        InvalidModelError: The model is a ``.tflite``, or can't be compiled.
        InvalidOptionError: An option or a sample is unusable, or the metric fails.
        MissingToolError: torch is not installed.

    >>> import openneutron
    >>> report = openneutron.accuracy(model, example, calibration=batches)  # doctest: +SKIP
    >>> report.layers[0].name  # doctest: +SKIP
    'features.1'
    """
    check_metric(metric)
    request = Request(
        model=model,
        example_inputs=example_inputs,
        example_kwargs=example_kwargs,
        calibration=data if calibration is None else calibration,
        data=data_options,
        options=options,
        quantization=quantization,
        delegation=delegation,
        inputs=inputs,
        loading=loading,
        name=name or "",
        progress=progress,
    )
    return measured_accuracy(request, data, metric)


def measured_accuracy(request: Request, data: Any, metric: str | None) -> AccuracyReport:
    """Return the accuracy of each layer of a request's model on ``data`` (None: the calibration inputs).

    Raises as ``accuracy`` does.
    """
    with measured(request.progress):
        asked, session = _session(request)
        report: AccuracyReport = session.report(asked, data, None if metric is None else metric_of(metric))
    return report


def repair(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    *,
    target_db: float,
    calibration: Any = None,
    data: Any = None,
    data_options: DataOptions = DataOptions(),
    example_kwargs: Mapping[str, Any] | None = None,
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    inputs: InputOptions = InputOptions(),
    loading: LoadingOptions = LoadingOptions(),
    journal: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: Progress = silent,
) -> RepairReport:
    """Search the cheapest measures that raise the signal-to-noise ratio of a model's results to ``target_db``.

    Measures that cost nothing when the model runs come first: observers, equalized channels, SmoothQuant, rounded weights
    and corrected biases. Layers are left float only for what is still missing. The same model and samples have the same result.

    Args:
        model: As of ``accuracy``, as are the parameters that are not listed here.
        example_inputs: As of ``openneutron.compile``.
        target_db: The ratio to reach, in dB, between the float model's results and their difference to the NPU's.
        calibration: Typical inputs, from which the int8 scales come. None: ``data``.
        data: The inputs to measure the ratio with; None: the calibration inputs.
        data_options: The preprocessing of pictures and sounds, and the number of samples.
        example_kwargs: The arguments that the module takes by keyword.
        options: The target and the other options of the compiler.
        quantization: The measures to begin with.
        delegation: Operators that stay on the CPU.
        inputs: The format of a camera's frames. Samples are frames, or the model's own pictures.
        loading: Code and modules that the loading of a ``.pt2`` may need.
        journal: A file that keeps each tried set of measures. A search that was interrupted continues from this file.
            The file is deleted at the end of the search. None: no file.
        name: The model's name in messages; None: the file's name, or "model".
        progress: A function as of ``openneutron.compile``.

    Returns:
        The measures, with their gains and costs. If none reach the target, these are the best that were found.
        ``quantization`` has the entries of a file for ``QuantizationOptions.from_file``. An interrupt ends the search
        with the best so far, and ``complete`` is False.

    Raises:
        InvalidModelError: The model is quantized already, or can't be compiled.
        InvalidOptionError: An option or a sample is unusable.
        MissingToolError: torch is not installed.

    >>> import openneutron
    >>> found = openneutron.repair(model, example, target_db=30, calibration=batches)  # doctest: +SKIP
    >>> found.quantization  # doctest: +SKIP
    {'version': 1, 'equalize': True}
    """
    request = Request(
        model=model,
        example_inputs=example_inputs,
        example_kwargs=example_kwargs,
        calibration=data if calibration is None else calibration,
        data=data_options,
        options=options,
        quantization=quantization,
        delegation=delegation,
        inputs=inputs,
        loading=loading,
        name=name or "",
        progress=progress,
    )
    return found_repair(request, data, target_db, None if journal is None else Path(journal))


def found_repair(request: Request, data: Any, target_db: float, path: Path | None) -> RepairReport:
    """Search the measures with which a request's model reaches ``target_db`` on ``data`` (None: the calibration
    inputs), and return the report.

    If no measures reach the target, the report has the best that were found. ``path`` is the file of the journal, if
    there is one. Raises as ``repair`` does, and InvalidOptionError for a target that is not above 0 and at most
    ``MOST_DB``.
    """
    if not 0 < target_db <= MOST_DB:
        raise InvalidOptionError(
            f"target_db: it is {target_db:g}; a ratio to reach is above 0 and at most {MOST_DB:g} dB."
        )
    if path is not None:
        files.check(path)
    with measured(request.progress):
        asked, session = _session(request)
        report: RepairReport = session.repair(asked, data, float(target_db), path)
    return report


MOST_DB = 150.0
"""The largest ratio in dB that ``repair`` accepts, which is that of float32 itself."""


def _session(request: Request) -> tuple[Session, ModuleType]:
    """Return the accuracy session of a request, and the module ``features.accuracy.session``, which is imported here
    because it needs torch.

    Raises InvalidOptionError for a request without calibration samples, or with options that a comparison of layers
    can't use, and InvalidModelError for a ``.tflite``.
    """
    if request.options.converter == EIQ:
        raise InvalidOptionError(
            "converter: the tensors inside NXP's programs can't be read. Leave it out: the layers lose the same to int8."
        )
    if request.calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments."
        )
    if request.quantization.train_fn is not None:
        raise InvalidOptionError(
            "train_fn: a trained model has other weights than the float model. Leave it out, or compare the results alone with "
            "openneutron.evaluate."
        )
    path = request.file
    if path is not None and kind_of(path) is Kind.LITERT:
        raise InvalidModelError(
            f"'{path.name}' is a .tflite, and the layers of PyTorch models are compared here. Pass the PyTorch model; `openneutron evaluate` compares a float .tflite."
        )
    with needs_pytorch("PyTorch models take"), step(LOADING):
        from openneutron.api.pytorch import compile_module
        from openneutron.features.accuracy import session
        from openneutron.pytorch.source.exporting import as_read
    if path is not None:
        request = loaded(request, model_form(path))
    if changed(request.inputs):
        from openneutron.pytorch.frames import framed

        request = framed(request)
    return session.Session(as_read(request), compile_module), session
