# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.compile``: compile a model in any supported form to a file that runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from openneutron import targets
from openneutron.device import files, forms
from openneutron.device.cache import caching, opened
from openneutron.device.converter import kernel_selections
from openneutron.device.forms import Kind
from openneutron.device.third_party import needs_pytorch, older_objects_kept
from openneutron.device.timings import measured, step
from openneutron.errors import InvalidOptionError
from openneutron.options import (
    CompileOptions,
    DataOptions,
    DelegationOptions,
    InputOptions,
    LoadingOptions,
    OutputOptions,
    Progress,
    QuantizationOptions,
    Request,
    budget_bytes,
    changed,
    silent,
)

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

LOADING = "Loading PyTorch"
"""The name of the step that imports PyTorch, which takes seconds at the first compile of a process."""


class Others(TypedDict, total=False):
    """The keywords of ``compile`` that only a few compiles need."""

    example_kwargs: Mapping[str, Any] | None
    data: DataOptions
    inputs: InputOptions
    loading: LoadingOptions
    outputs: OutputOptions
    cache: str | os.PathLike[str] | None


class Arguments(Others, total=False):
    """All keywords of ``compile``, for type checkers."""

    calibration: Iterable[Any] | str | os.PathLike[str] | None
    options: CompileOptions
    quantization: QuantizationOptions
    delegation: DelegationOptions
    name: str | None
    progress: Progress


@overload
def compile(
    model: str | os.PathLike[str], example_inputs: Any = None, **arguments: Unpack[Arguments]
) -> CompiledModel | CompiledLiteRTModel: ...


@overload
def compile(
    model: nn.Module | ExportedProgram, example_inputs: Any = None, **arguments: Unpack[Arguments]
) -> CompiledModel: ...


def compile(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: Any = None,
    *,
    calibration: Iterable[Any] | str | os.PathLike[str] | None = None,
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    name: str | None = None,
    progress: Progress = silent,
    **others: Unpack[Others],
) -> CompiledModel | CompiledLiteRTModel:
    """Compile a model for the NPU.

    Args:
        model: A module with ``example_inputs``, an ExportedProgram, a model of Keras or Ultralytics, or the path of a
            ``.pt2`` that torch.export.save wrote, of a ``.onnx``, ``.keras``, ``.pt`` or ``.tflite``, or of a
            SavedModel folder. A float ``.tflite`` is quantized, with calibration. A ``.tflite`` is compiled without
            importing torch. An exported program that is quantized needs no calibration.
        example_inputs: A module's arguments in a tuple, or its only argument: tensors, and numbers, strings and None,
            which become part of the program, alone or in tuples, lists and dicts.
        calibration: Typical inputs of a model that is not quantized, each a tensor or a tuple as ``example_inputs``, or
            (tuple, dict) where there are keywords. Larger batches than the example's are split. Or data as it is stored: the path of
            a folder of pictures, WAV files or ``.npy`` files, of a ``.npy`` or ``.npz`` file, ``file.py:loader``, a PyTorch
            Dataset or DataLoader, whose labels are not used. The int8 scales come from these inputs.
        options: The target, the SRAM budget in bytes and the other options of the compiler.
        quantization: Layers that stay float, training, and type and layout of inputs and outputs (PyTorch models).
        delegation: Operators that stay on the CPU, and programs without operators for the NPU.
        name: The model's name in messages; None: the file's name, or "model".
        progress: A function that is called with the name of a step, the number of its finished parts, and the number of
            all, where a step begins, goes on and ends. A step may be inside another.
        others: Keywords that few compiles need:

            * ``example_kwargs``: the arguments that the module takes by keyword.
            * ``data``: a DataOptions with the preprocessing of pictures and sounds, and the number of samples.
            * ``inputs``: an InputOptions with the format of a camera's frames and their normalization, for a program that takes
              frames.
            * ``loading``: a LoadingOptions with the permission for code in a model's file, the modules that loading
              it needs, the shapes of inputs that a file leaves open, and the results of a detector of Ultralytics.
            * ``outputs``: an OutputOptions with files to write beside the result.
            * ``cache``: a folder that keeps calibrated ranges, models before their compile and compiled partitions
              for later compiles, up to 1 GiB of them; it is made where it is absent. A compile has the same result
              with and without a cache. Several processes may use it at once. Its entries are data: nothing in them is
              executed. With a cache, all calibration samples are in memory at once. A model that comes from the cache
              makes its quantized module when ``quantized`` is first read.

    Returns:
        The compiled model, with ``save``, ``run``, ``summary()``, ``report`` and ``timings``. ``buffer`` holds the bytes of the
        compiled file: a ``.pte`` for PyTorch models (CompiledModel), a ``.tflite`` for a ``.tflite``
        (CompiledLiteRTModel).

    Raises:
        InvalidModelError: The model or its file can't be compiled, nothing of it can run on the NPU (with
            ``must_delegate``), or a CPU fallback has no kernel (without ``any_runtime``).
        InvalidOptionError: An option or the calibration data is unusable.
        BudgetError: The SRAM budget is too small. The error has the smallest sufficient budget.
        MissingToolError: A PyTorch model is given and torch is not installed, or the converter of the options is not
            installed.
        ConverterError: The converter ``eiq`` failed.
        TypeError: A keyword is unknown.

    >>> import openneutron
    >>> options = openneutron.CompileOptions(sram_budget=64 * 1024)
    >>> openneutron.compile("net.tflite", options=options).save("net_npu.tflite")  # doctest: +SKIP
    >>> openneutron.compile("net.tflite", sram_budget=64 * 1024)
    Traceback (most recent call last):
        ...
    TypeError: compile() got an unexpected keyword argument 'sram_budget'. Pass options=CompileOptions(sram_budget=...).
    """
    return compiled(
        Request.of_call(
            "compile",
            others,
            model=model,
            example_inputs=example_inputs,
            calibration=calibration,
            options=options,
            quantization=quantization,
            delegation=delegation,
            name=name or "",
            progress=progress,
        )
    )


def compiled(request: Request) -> CompiledModel | CompiledLiteRTModel:
    """Return the compiled model of a request, and write its outputs. Raises as ``compile`` does."""
    options, outputs = request.options, request.outputs
    budget_bytes(options.sram_budget, targets.get(options.target))
    folder = None if outputs.intermediates_dir is None else Path(outputs.intermediates_dir)
    if folder is not None:
        files.check_folder(folder)
    if outputs.kernel_selection is not None:
        kernel_selections.check(Path(outputs.kernel_selection), options.converter, options.target)
    path = request.file
    form = None if path is None else model_form(path)
    for option in changed(request.loading):
        known = forms.of_object(request.model) if form is None else form
        if known is not None and option in known.loading:
            continue
        which = "the model is in memory" if path is None else f"'{path.name}' is not one"
        raise InvalidOptionError(
            f"{option}: this option is for {forms.for_forms(option)} files; {which}. Leave it out."
        )
    result: CompiledModel | CompiledLiteRTModel
    store = None if request.cache is None else opened(request.cache)
    with measured(request.progress) as clock, caching(store):
        if form is not None and form.kind is Kind.LITERT:
            from openneutron.api.litert import compile_litert

            result = compile_litert(loaded(request, form))
        else:
            with needs_pytorch("PyTorch models take"), step(LOADING):
                from openneutron.api.pytorch import compile_module
            request = request if form is None else loaded(request, form)
            with older_objects_kept():
                result = compile_module(request)
    result = dataclasses.replace(result, timings=clock.timings)
    if outputs != OutputOptions() and (written := output_files(result, outputs)):
        files.write(written, folder)
    return result


def output_files(model: CompiledModel | CompiledLiteRTModel, outputs: OutputOptions) -> dict[Path, bytes]:
    """Return the contents of the files to write beside the compiled model, by path."""
    made: dict[Path, bytes] = {}
    if outputs.intermediates_dir is not None:
        made |= model.intermediates(Path(outputs.intermediates_dir))
    if outputs.kernel_selection is not None:
        made |= model.kernel_selections(Path(outputs.kernel_selection))
    return made


def model_form(path: Path) -> forms.Form:
    """Return the form of a model's file. Raises InvalidModelError where the file does not exist or can't be compiled."""
    words = f"a torch.nn.Module, an ExportedProgram, or the path of a {forms.listed(forms.MODELS)} file"
    return forms.model_form(path, "a model", words)


def loaded(request: Request, form: forms.Form) -> Request:
    """Return the request with its model read from its file."""
    assert request.file is not None
    with step("Reading"):
        return dataclasses.replace(request, model=form.read(request.file, request.loading))


OF_FILES = ("operators_not_to_delegate", "must_delegate")
"""The delegation options that apply to a ``.tflite`` file too."""

OF_FLOAT_FILES = (
    "calibration",
    "activations",
    "io_dtype",
    "keep_float",
    *(item.name for item in dataclasses.fields(DataOptions)),
)
"""The options that apply to a float ``.tflite``, and not to a quantized one."""


def check_for_tflite(
    request: Request, arguments: Mapping[str, object], spelled: Callable[[str], str] = str, is_float: bool = False
) -> None:
    """Raise InvalidOptionError for an option that does not apply to a ``.tflite`` file.

    ``arguments`` are further options by name; an option with the value None is not given. ``spelled`` returns the name of an option
    for the message. ``is_float``: the file is float, and is quantized here.
    """
    given = [argument for argument, value in arguments.items() if value is not None]
    given += [
        *(["cpu"] if request.options.cpu is not None else []),
        *changed(request.quantization),
        *(option for option in changed(request.delegation) if option not in OF_FILES),
    ]
    if changed(request.inputs):
        given += [option for option in request.inputs.given if option != "input_format"]
    for option in given:
        if option not in OF_FLOAT_FILES:
            raise InvalidOptionError(
                f"{spelled(option)}: it is for PyTorch models; '{request.name}' is a .tflite. Leave it out."
            )
        if not is_float:
            raise InvalidOptionError(
                f"{spelled(option)}: it is for float models; '{request.name}' is quantized and has its own types. Leave it out."
            )
