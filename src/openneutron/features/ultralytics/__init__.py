# SPDX-License-Identifier: BSD-3-Clause
"""Write compiled programs into folders that Ultralytics can predict with: ``YOLO(folder).predict(...)`` and ``.val(...)`` then run on the
simulated NPU.

A folder has the layout of Ultralytics' own export to ExecuTorch: a ``.pte`` and ``metadata.yaml`` in a folder whose name ends with
``_executorch_model``. Ultralytics itself is not changed. It runs the ``.pte`` in ExecuTorch's Python runtime, in which ``simulate`` registers
the simulated NPU.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openneutron.api.compile import compile as compile_model
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.api.load import LoadedFile
from openneutron.device import files
from openneutron.device.forms import YOLO, form_of
from openneutron.device.third_party import needs_pytorch
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import DECODED, RAW, LoadingOptions

if TYPE_CHECKING:
    from openneutron.api.pytorch import CompiledModel


SUFFIX = "_executorch_model"
"""The end of a folder's name by which Ultralytics knows a ``.pte`` (``export_formats`` in engine/exporter.py, 8.4)."""


def export(model: Any, folder: str | os.PathLike[str] | None = None, **keywords: Any) -> Path:
    """Compile a model of Ultralytics into a folder that Ultralytics predicts with, and return the folder's path.

    >>> folder = export(YOLO("yolov8n.pt"), calibration="street", data=openneutron.DataOptions(preprocess="letterbox=640"))  # doctest: +SKIP
    >>> YOLO(folder).val(data="coco8.yaml")  # doctest: +SKIP

    Args:
        model: The ``YOLO`` object, or the path of its ``.pt`` or of its ``.onnx``.
        folder: As for ``write``.
        keywords: Those of ``openneutron.compile``. Without ``loading`` the results of a detector, given as a ``YOLO``
        object or ``.pt``, are boxes before the suppression, which Ultralytics computes with its own ``conf`` and
        ``iou``. Those of a ``.onnx`` are what the file computes.

    Raises as ``openneutron.compile`` and ``write`` do, and InvalidModelError for a model that is compiled to a
    ``.tflite``.
    """
    if "loading" not in keywords and (not isinstance(model, (str, os.PathLike)) or form_of(Path(model)) is YOLO):
        keywords["loading"] = LoadingOptions(head=DECODED)
    if "name" not in keywords and isinstance(stem := getattr(model, "model_name", None), str):
        keywords["name"] = Path(stem).stem
    program = compile_model(model, **keywords)
    if isinstance(program, CompiledLiteRTModel):
        raise InvalidModelError(
            f"'{program.name}' is compiled to a .tflite, whose programs Ultralytics can't run. Give a .pt or .onnx."
        )
    return write(program, folder)


def write(program: CompiledModel | LoadedFile, folder: str | os.PathLike[str] | None = None) -> Path:
    """Write a compiled detector or classifier into a folder that Ultralytics predicts with, and return the folder's path.

    ``YOLO(folder)`` runs it in this process, and in others after ``simulate()``. On a device, a runtime of ExecuTorch with this project's
    delegate runs the same ``.pte``.

    Args:
        program: The program of a model of Ultralytics, compiled from the ``YOLO`` object, its ``.pt`` or its ``.onnx``, or loaded from a
            ``.pte``.
        folder: The folder's path, whose name ends with ``_executorch_model``; None: the program's name with this end. Files in it are
            replaced.

    Raises:
        InvalidModelError: The program has no metadata of Ultralytics, its results are raw heads, or it is no ``.pte``.
        InvalidOptionError: The folder has another name, or can't be written.
        MissingToolError: ExecuTorch is not installed, or the delegate of the simulated NPU can't be built.
    """
    name, metadata = program.name, program.metadata
    made = Path(f"{Path(name).stem}{SUFFIX}" if folder is None else folder)
    if not made.name.endswith(SUFFIX):
        raise InvalidOptionError(
            f"folder: '{made.name}' does not end with {SUFFIX}, by which Ultralytics knows a .pte. Call it '{made.name}{SUFFIX}'."
        )
    if "task" not in metadata:
        raise InvalidModelError(
            f"'{name}' has no metadata of Ultralytics. Compile the YOLO object, its .pt, or its export to ONNX."
        )
    if metadata.get("head") == RAW:
        raise InvalidModelError(
            f"'{name}' has raw heads as its results, which Ultralytics does not decode. Compile it without head='raw'."
        )
    if isinstance(program, LoadedFile) and program.is_litert:
        raise InvalidModelError(f"'{name}' is a .tflite, whose programs Ultralytics can't run. Compile to a .pte.")
    simulate()
    text = json.dumps(dict(metadata), indent=2)  # JSON is YAML
    files.write({made / "model.pte": program.buffer, made / "metadata.yaml": text.encode()}, made)
    return made


def simulate() -> None:
    """Register the simulated NPU with ExecuTorch's Python runtime in this process, so that ``YOLO(folder)`` can run the programs.

    Raises MissingToolError where ExecuTorch is not installed, or the delegate can't be built.
    """
    with needs_pytorch("Running a .pte takes"):
        import openneutron.pytorch.run.runner  # noqa: F401  (registers the operators of inputs and outputs)
        from openneutron.pytorch.run import delegate
    delegate.load()


__all__ = ["SUFFIX", "export", "simulate", "write"]
