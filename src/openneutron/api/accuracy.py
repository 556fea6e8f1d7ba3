# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.accuracy``: the accuracy that each layer of a PyTorch model loses to int8."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import (
    OPEN,
    CompileOptions,
    DataOptions,
    DelegationOptions,
    LoadingOptions,
    Progress,
    QuantizationOptions,
    silent,
)
from openneutron.report.accuracy import AccuracyReport
from openneutron.third_party import needs_pytorch
from openneutron.timings import measured, step

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

LOADING = "Loading PyTorch"


def accuracy(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    *,
    calibration: Any = None,
    data: Any = None,
    data_options: DataOptions = DataOptions(),
    example_kwargs: Mapping[str, Any] | None = None,
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    loading: LoadingOptions = LoadingOptions(),
    name: str | None = None,
    progress: Progress = silent,
) -> AccuracyReport:
    """Compare every layer of a model on the simulated NPU with the float model.

    The tensors inside a delegate call are those of the simulator, of a second program of the same graph that keeps them all;
    in cascades they would exist only in stripes. Values on the CPU are those of PyTorch.

    Args:
        model: A float module with ``example_inputs``, an ExportedProgram, or the path of a ``.pt2``.
        example_inputs: As of ``openneutron.compile``.
        calibration: Typical inputs, as of ``openneutron.compile``. The int8 scales come from these inputs. None: ``data``.
        data: The inputs to compare with, in the same forms; None: the calibration inputs. Data with the numbers of classes as
            labels gives ``top_one`` too.
        data_options: The preprocessing of pictures and sounds, and the number of samples.
        example_kwargs: The arguments that the module takes by keyword.
        options: The target and the other options of the compiler.
        quantization: Layers that stay float, and the layout of inputs and outputs.
        delegation: Operators that stay on the CPU.
        loading: Code and modules that the loading of a ``.pt2`` may need.
        name: The model's name in messages; None: the file's name, or "model".
        progress: A function as of ``openneutron.compile``.

    Returns:
        The layers, those that cost most first, with ``summary()`` and ``to_dict()``.

    Raises:
        InvalidModelError: The model is quantized already, changes its state, or can't be compiled.
        InvalidOptionError: An option or a sample is unusable.
        MissingToolError: torch is not installed.

    >>> import openneutron
    >>> report = openneutron.accuracy(model, example, calibration=batches)  # doctest: +SKIP
    >>> report.layers[0].name  # doctest: +SKIP
    'features.1'
    """
    if options.converter != OPEN:
        raise InvalidOptionError(
            "converter: the tensors inside NXP's programs can't be read. Leave it out: the layers lose the same to int8."
        )
    if calibration is None and data is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments."
        )
    if quantization.train_fn is not None:
        raise InvalidOptionError(
            "train_fn: a trained model has other weights than the float model. Leave it out, or compare the results alone with "
            "openneutron.evaluate."
        )
    path = Path(model) if isinstance(model, (str, os.PathLike)) else None
    if path is not None and path.suffix == ".tflite":
        raise InvalidModelError(
            f"'{path.name}' is quantized already, so that there is no float model. Pass the PyTorch model."
        )
    with measured(progress):
        with needs_pytorch("PyTorch models take"), step(LOADING):
            from openneutron.layer_accuracy import session
            from openneutron.pytorch.source.exported_file import load_exported
        found: Any = model
        if path is not None:
            with step("Reading"):
                found = load_exported(path, loading.trust, loading.imports)
        asked = session.Session(
            found,
            example_inputs,
            example_kwargs,
            data if calibration is None else calibration,
            data_options,
            options,
            quantization,
            delegation,
            name or ("model" if path is None else path.name),
        )
        return session.report(asked, data)
