# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.compile``: compile a model in any supported form to a file that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from openneutron.api.keywords import (
    ExportedOptions,
    ModelOptions,
    check_file_options,
    check_module_options,
    without_loading,
)
from openneutron.errors import InvalidModelError
from openneutron.given_file import existing

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

FORMS = "a torch.nn.Module, an ExportedProgram, or the path of a .pt2 or .tflite file"

OTHER_SUFFIXES = {
    ".pte": "it is compiled already; openneutron.load opens it",
    ".pt": "PyTorch's own file has no program in it; make the module, load the weights into it, and pass it",
    ".pth": "PyTorch's own file has no program in it; make the module, load the weights into it, and pass it",
    ".onnx": "convert it to an int8 .tflite, or pass the PyTorch model it was made from",
}


@overload
def compile(
    model: str | os.PathLike[str], example_inputs: Any = None, **options: Unpack[ExportedOptions]
) -> CompiledModel | CompiledLiteRTModel: ...


@overload
def compile(
    model: nn.Module | ExportedProgram, example_inputs: Any = None, **options: Unpack[ModelOptions]
) -> CompiledModel: ...


def compile(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    **options: Unpack[ExportedOptions],
) -> CompiledModel | CompiledLiteRTModel:
    """Compile a model for the NPU.

    model: a module with ``example_inputs`` (a tuple of its arguments), an ExportedProgram, the path of a ``.pt2`` that
    torch.export.save wrote, or the path of an int8 ``.tflite``. A ``.tflite`` is compiled without importing torch.
    calibration: typical inputs of a model that is not quantized, each a tuple as ``example_inputs``; int8 scales come from them.
    target: the chip; "imxrt700" where it is not given. sram_budget: KiB that a delegate call may take.
    trust, imports: for a ``.pt2``, as ``openneutron.pytorch.source.exported_file.load_exported`` takes them: whether code in the file may
    run, and modules to import first.
    The other options are those of ``openneutron.api.pytorch.compile`` for PyTorch models and of ``FileOptions`` for
    a ``.tflite``.

    The result has ``save``, ``run``, ``summary()`` and ``report``. ``buffer`` holds the bytes of the compiled file: a
    ``.pte`` for PyTorch models (CompiledModel), a ``.tflite`` for a ``.tflite`` (CompiledLiteRTModel).

    Raises InvalidModelError where the model or its file can't be compiled, InvalidOptionError for unusable options,
    BudgetError where the budget is too small, MissingToolError where a PyTorch model is given and torch is not installed.
    """
    if not isinstance(model, (str, os.PathLike)):
        check_module_options(options)
        return _compile_module(model, example_inputs, **without_loading(options))
    path = _model_file(model)
    options.setdefault("name", path.name)
    if path.suffix == ".tflite":
        from openneutron.api.litert import compile_litert

        check_file_options(options["name"], example_inputs, options)
        return compile_litert(path, options)
    from openneutron.needs_pytorch import needs_pytorch

    with needs_pytorch("PyTorch models take"):
        from openneutron.pytorch.source.exported_file import load_exported
    program = load_exported(path, options.get("trust", False), options.get("imports", ()))
    return _compile_module(program, example_inputs, **without_loading(options))


def _compile_module(
    model: nn.Module | ExportedProgram, example_inputs: Any, **options: Unpack[ModelOptions]
) -> CompiledModel:
    from openneutron.needs_pytorch import needs_pytorch

    with needs_pytorch("PyTorch models take"):
        from openneutron.api.pytorch import compile as compile_module
    return compile_module(model, example_inputs, **options)


def _model_file(model: str | os.PathLike[str]) -> Path:
    """Return the model's file. Raises InvalidModelError where the file does not exist or has no form that can be
    compiled."""
    path = Path(model)
    if path.suffix in (".tflite", ".pt2"):
        return existing(os.fspath(path))
    if path.suffix in OTHER_SUFFIXES:
        raise InvalidModelError(f"'{path}': {OTHER_SUFFIXES[path.suffix]}. A model is {FORMS}.")
    raise InvalidModelError(f"'{path}' is no model: a model is {FORMS}.")
