# SPDX-License-Identifier: BSD-3-Clause
"""Quantize a model as ``openneutron.compile`` does, for other runtimes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openneutron.api.compile import LOADING, check_for_tflite, loaded, model_form
from openneutron.device.forms import LITERT, Kind
from openneutron.device.third_party import needs_pytorch, older_objects_kept
from openneutron.device.timings import measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import (
    CompileOptions,
    DataOptions,
    LoadingOptions,
    Progress,
    QuantizationOptions,
    Request,
    silent,
)

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.litert import LiteRTModel

SUFFIXES = (".pt2", ".tflite", ".onnx")
"""The forms of a quantized model's file."""


def check_suffix(suffix: str, subject: str = "suffix") -> None:
    """Raise InvalidOptionError for a suffix that a quantized model's file does not have. ``subject`` begins the message."""
    if suffix not in SUFFIXES:
        found = f"'{suffix}' is another suffix" if suffix else "this name has no suffix"
        raise InvalidOptionError(
            f"{subject}: a quantized model's file is a .pt2, .tflite or .onnx; {found}. Choose one of these."
        )


class QuantizedModel(ABC):
    """A quantized model, with the values that ``openneutron.compile`` compiles.

    >>> quantize(model, example, calibration=batches).save("q.onnx")  # doctest: +SKIP
    """

    name: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, in the form of the file's suffix: ``.pt2``, ``.tflite`` or ``.onnx``.

        Raises as ``to_bytes`` does, and OSError where the file can't be written.
        """
        Path(path).write_bytes(self.to_bytes(Path(path).suffix))

    def to_bytes(self, suffix: str) -> bytes:
        """Return the bytes of a file of this form.

        Args:
            suffix: ``.pt2`` for torch.export's form, ``.tflite`` for LiteRT, ``.onnx`` for ONNX with QuantizeLinear and
                DequantizeLinear.

        Raises:
            InvalidOptionError: ``suffix`` is none of these.
            InvalidModelError: The model has no such form.
            MissingToolError: A package is not installed.
        """
        check_suffix(suffix)
        return self._written(suffix)

    @abstractmethod
    def _written(self, suffix: str) -> bytes: ...


@dataclass(frozen=True, eq=False)
class QuantizedLiteRT(QuantizedModel):
    """A quantized LiteRT model."""

    name: str
    model: LiteRTModel = field(repr=False)

    def _written(self, suffix: str) -> bytes:
        from openneutron.litert.read import with_archive
        from openneutron.litert.write import pack

        if suffix != LITERT.suffix:
            raise InvalidModelError(
                f"'{self.name}': a .tflite is quantized as a .tflite. Name the result so, or quantize the model that it was made from."
            )
        data, archive = pack(self.model.model), self.model.appended
        return with_archive(data, archive) if archive else data


def quantize(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    *,
    calibration: Iterable[Any] | str | os.PathLike[str] | None = None,
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    example_kwargs: Mapping[str, Any] | None = None,
    data: DataOptions = DataOptions(),
    loading: LoadingOptions = LoadingOptions(),
    name: str | None = None,
    progress: Progress = silent,
) -> QuantizedModel:
    """Quantize a model as ``openneutron.compile`` does, for other runtimes.

    Args:
        model: As of ``openneutron.compile``.
        example_inputs: As of ``openneutron.compile``.
        calibration: Typical inputs, as of ``openneutron.compile``.
        options: The target decides which operators are quantized.
        quantization: Layers that stay float, the type of activations, and other options of the quantizer. ``io_dtype`` is for
            ``.tflite`` files.
        example_kwargs: The arguments that the module takes by keyword.
        data: The preprocessing of pictures and sounds, and the number of samples.
        loading: Code and modules that the loading of a file may need, and shapes of its inputs.
        name: The model's name in messages; None: the file's name, or "model".
        progress: A function as of ``openneutron.compile``.

    Returns:
        The quantized model, with ``save`` and ``to_bytes``.

    Raises:
        InvalidModelError: The model or its file can't be quantized.
        InvalidOptionError: An option or a sample is unusable.
        MissingToolError: A package is not installed.

    >>> quantize("net.onnx", calibration=batches).save("q.tflite")  # doctest: +SKIP
    """
    return quantized(
        Request(
            model=model,
            example_inputs=example_inputs,
            example_kwargs=example_kwargs,
            calibration=calibration,
            options=options,
            quantization=quantization,
            data=data,
            loading=loading,
            name=name or "",
            progress=progress,
        )
    )


def quantized(request: Request) -> QuantizedModel:
    """Return the quantized model of a request. Raises as ``quantize`` does."""
    path = request.file
    form = None if path is None else model_form(path)
    with measured(request.progress):
        if form is not None and form.kind is Kind.LITERT:
            from openneutron.api.float_litert import quantize as quantize_litert

            request = loaded(request, form)
            if not request.model.is_float:
                raise InvalidModelError(f"'{request.name}' is quantized already. Pass the float model.")
            check_for_tflite(request, {}, is_float=True)
            return QuantizedLiteRT(request.name, quantize_litert(request))
        with needs_pytorch("PyTorch models take"), step(LOADING):
            from openneutron.features.quantize.pytorch import quantized_module
        with older_objects_kept():
            return quantized_module(request if form is None else loaded(request, form))
