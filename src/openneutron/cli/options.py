# SPDX-License-Identifier: BSD-3-Clause
"""Declare the parameters that several commands share: a model and its options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import typer

from openneutron import targets
from openneutron.api.compile import OF_FLOAT_FILES, check_for_tflite
from openneutron.cli import model_source, output
from openneutron.cli.model_source import (
    DASH,
    BuiltInModel,
    DataParameters,
    ModelFile,
    ModelSource,
    is_float_file,
    is_litert,
)
from openneutron.device.cache import opened
from openneutron.device.forms import MODELS, Kind, for_forms, kind_of
from openneutron.errors import InvalidOptionError
from openneutron.options import (
    BOXES,
    HEADS,
    CompileOptions,
    DataOptions,
    DelegationOptions,
    FrameFormat,
    InputOptions,
    LoadingOptions,
    QuantizationOptions,
    Request,
    budget_bytes,
    changed,
)
from openneutron.options.flags import Flag, flags_of
from openneutron.targets import Target


def _varied(flag: Flag) -> Parameter:
    """Return the parameter of a flag whose text may have several values, for a sweep."""
    declared = flag.declared
    values = [*declared.choices, *(("yes", "no") if flag.is_switch else ())]
    metavar = ",".join(values) or f"{declared.metavar}{',...' if declared.span is None else '..' + declared.metavar}"
    made = typer.Option(flag.name, help=declared.help, metavar=metavar)
    return Parameter(flag.field, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, made])


def of_fields(parameters: type) -> dict[str, Parameter]:
    """Return a parameter for each field of a class, with the annotation that the field has."""
    hints = get_type_hints(parameters, include_extras=True)
    return {
        item.name: Parameter(
            item.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(parameters)
    }


def of_flags(options: type, varies: bool = False) -> dict[str, Parameter]:
    """Return a typer parameter for each flag of an options class. Where a flag's value is read from text, the parameter
    is None if the flag is not given. With ``varies`` each parameter is a text with several values."""
    return {name: _varied(flag) if varies else _parameter(flag) for name, flag in flags_of(options).items()}


def _parameter(flag: Flag) -> Parameter:
    declared, default = flag.declared, flag.default
    kind: Any = bool if flag.is_switch else str
    spelled = "/".join(flag.values) or flag.name
    made = typer.Option(spelled, help=declared.help, metavar=declared.metavar or None, show_default=not flag.is_switch)
    if declared.choices:
        choices = StrEnum("Choice", {choice.upper(): choice for choice in declared.choices})  # type: ignore[misc]
        default = None if default is None else choices(default)
        kind = choices | None
    elif declared.read is not None:
        default = None
        made = typer.Option(flag.name, help=declared.help, metavar=declared.metavar, parser=_parser(flag))
    return Parameter(flag.field, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


def _parser(flag: Flag) -> Callable[[str], Any]:

    def parsed(text: str) -> Any:
        try:
            return flag.read(text)
        except InvalidOptionError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed


OF_PYTORCH = (
    "calibration", "preprocess", "sample_rate", "calibration_samples", "weights", "input_size", "normalize", "keep_float", "io_dtype", "activations",
    "observer", "channels_last", "any_runtime",
)  # fmt: skip
"""The options that do not apply to a quantized ``.tflite``."""


OF_CONVERTERS = ("converter", "converter_flags", "converter_release", "rescale", "converter_timeout")
"""The options of another converter than this project's compiler, for commands that use none of its results."""


FORMS_OF_MODEL = (
    "Built-in name, file.py:function, "
    f"{', '.join(dict.fromkeys(form.suffix for form in MODELS))}, or - for a .tflite on standard input"
)

Head = StrEnum("Head", {head.upper(): head for head in HEADS})  # type: ignore[misc]
DEFAULT_HEAD = Head(BOXES)

SEVERAL_MODELS = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help=f"{FORMS_OF_MODEL}; or several of these.",
    ),
]


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """MODEL and the parameters that are not flags of CompileOptions or QuantizationOptions."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{FORMS_OF_MODEL}.",
        ),
    ]
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Typical inputs, which determine the int8 scales: a folder of pictures, WAV files or .npy files, flat or with a "
            "folder for each class, a .npy or .npz file, or file.py:loader (float models); default: the example inputs, of a .tflite random ones.",
        ),
    ] = None
    preprocess: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS",
            help="From a picture or sound to the model's input: resize=256,crop=224,mean=0.485:0.456:0.406,"
            "std=0.229:0.224:0.225, or file.py:function.",
        ),
    ] = None
    sample_rate: Annotated[
        int | None, typer.Option(metavar="HZ", help="Resample WAV files to this rate; default: as they are.")
    ] = None
    calibration_samples: Annotated[
        int | None,
        typer.Option(metavar="N", help="Calibrate with N samples, evenly spread over the data; default: all."),
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A state_dict to load first: .pt, .pth or .safetensors (PyTorch models)."),
    ] = None
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Load a .pt2, .keras or .pt that can only be loaded by running its code, which you trust."
        ),
    ] = False
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module to import before a .pt2, .keras or .pt is loaded, which registers its classes or operators; repeat it.",
        ),
    ] = None
    input_shape: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shape",
            metavar="NAME=1x3x224x224",
            help="The shape of an input that a .onnx, .keras, .pt or .tflite does not fix; repeat it, or separate by commas.",
        ),
    ] = None
    head: Annotated[
        Head,
        typer.Option(
            help="Results of a detector of Ultralytics: boxes after suppression, decoded boxes and scores of all anchors, or raw heads."
        ),
    ] = DEFAULT_HEAD
    input_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="The program takes a camera's frames: uint8, nhwc or nchw, rgb or bgr, such as uint8,nhwc,bgr; default: the model's own "
            "input.",
        ),
    ] = None
    input_size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="The size of the camera's frames, such as 640x480: the program takes the centre and resizes it (PyTorch models); default: "
            "the model's.",
        ),
    ] = None
    normalize: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS",
            help="From the bytes of a frame to the values that the model takes: mean=0.485:0.456:0.406,std=0.229:0.224:0.225 after a "
            "division by 255, or scale=1/127.5,mean=1 (PyTorch models).",
        ),
    ] = None
    operators_not_to_delegate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Operators to leave on the CPU (of PyTorch models: aten.add, aten.add.Tensor, modules, nodes; with "
            "wildcards); repeat it, or separate names by commas.",
        ),
    ] = None
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Modules (classifier.*) and operators (aten.softmax.int) not to quantize, of a .tflite operators and output tensors; repeat it, or "
            "separate names by commas.",
        ),
    ] = None
    quantization: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A quantization file, which `openneutron accuracy --repair` writes: observers, measures and float layers "
            "(PyTorch models). --keep-float adds to it.",
        ),
    ] = None
    channels_last: Annotated[
        bool | None,
        typer.Option(
            help="Images of inputs and outputs have their channels innermost, without a transpose at each of them and in less "
            "SRAM (PyTorch models); default: as in the example inputs.",
            show_default=False,
        ),
    ] = None
    any_runtime: Annotated[
        bool,
        typer.Option(
            "--any-runtime/--no-any-runtime",
            help="Write a .pte even if operators on the CPU have no kernel in the installed ExecuTorch runtime, for another "
            "runtime (PyTorch models).",
        ),
    ] = False
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep what compiles have found here, and take that of earlier ones; at most 1 GiB.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class EvaluationParameters:
    """The data of an evaluation on the command line; its preprocessing is that of the calibration data."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Samples with labels: a folder with a folder of pictures, WAV files or .npy files for each class, a .npz file with "
            "an array labels, or file.py:loader.",
        ),
    ] = None
    data_samples: Annotated[
        int | None, typer.Option(metavar="N", help="Evaluate N samples, evenly spread over the data; default: all.")
    ] = None


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model and its options, as a command receives them.

    ``request`` has the options; the loaded model, its inputs and the calibration samples are added later. ``data`` applies only to float models,
    and ``weights`` only to PyTorch models. ``evaluated`` is the data of an evaluation. ``is_float`` is True for a ``.tflite`` that this project
    quantizes.
    """

    source: ModelSource
    request: Request
    data: DataParameters = field(default_factory=DataParameters)
    weights: Path | None = None
    evaluated: DataParameters = field(default_factory=DataParameters)
    is_float: bool = False

    @property
    def target(self) -> Target:
        return targets.get(self.request.options.target)

    @property
    def on_examples(self) -> bool:
        """Return whether int8 scales come from the example inputs, or of a ``.tflite`` from random ones, because no
        calibration data is given. Built-in models with random weights use random inputs of their own."""
        if is_litert(self.source):
            return self.is_float and self.data.path is None
        return self.data.path is None and (not isinstance(self.source, BuiltInModel) or self.weights is not None)


def given_model(
    given: ModelParameters,
    options: CompileOptions = CompileOptions(),
    quantized: Mapping[str, Any] = MappingProxyType({}),
    evaluation: EvaluationParameters = EvaluationParameters(),
    compiled: bool = False,
    compared: str | None = None,
) -> GivenModel:
    """Return the model that the parameters describe, which may be a compiled file where ``compiled`` is true.
    ``quantized``: flags of QuantizationOptions. ``compared``: data from which scales come where ``given`` has no calibration data.

    Raises InvalidModelError where MODEL names nothing, InvalidOptionError where the data, the weights or the cache
    can't be used, where a quantized file is given an option for PyTorch models, or a compiled file one of a compile,
    and MissingToolError where a package for the data is not installed.
    """
    source = model_source.parse(given.model, compiled)
    budget_bytes(options.sram_budget, targets.get(options.target))
    if given.cache is not None:
        opened(given.cache)
    source = _with_loading(source, given)
    delegation = DelegationOptions(
        operators_not_to_delegate=names(given.operators_not_to_delegate), any_runtime=given.any_runtime
    )
    flags = flags_of(QuantizationOptions)
    chosen = {name: value for name, value in quantized.items() if value != flags[name].default}
    file = QuantizationOptions() if given.quantization is None else QuantizationOptions.from_file(given.quantization)
    quantization = replace(
        file,
        keep_float=(*file.keep_float, *names(given.keep_float)),
        channels_last=given.channels_last,
        **chosen,
    )
    inputs = InputOptions(format=given.input_format, normalize=given.normalize, size=given.input_size)
    evaluated = DataParameters()
    if evaluation.data is not None:
        evaluated = _data(given, evaluation.data, evaluation.data_samples)
        model_source.check_data(evaluated, "--data")
        if given.calibration is None:
            given = replace(given, preprocess=None, sample_rate=None)
    data = _data(given, given.calibration, given.calibration_samples)
    request = Request(
        model=None,
        options=options,
        quantization=quantization,
        delegation=delegation,
        inputs=inputs,
        name=str(source),
        cache=given.cache,
    )
    if isinstance(source, ModelFile) and source.is_compiled:
        asked = {"calibration": given.calibration, "weights": given.weights, "quantization": given.quantization}
        for option in (
            *(name for name, value in asked.items() if value is not None),
            *(name for part in (options, quantization, delegation) for name in changed(part)),
            *inputs.given,
        ):
            raise _for_a_compile(f"--{option.replace('_', '-')}", source)
    elif is_litert(source):
        files = {
            "calibration": given.calibration,
            **asdict(data.options),
            "weights": given.weights,
            "quantization": given.quantization,
        }
        is_float = is_float_file(source)
        check_for_tflite(request, files, lambda name: f"--{name.replace('_', '-')}", is_float)
        if is_float:
            model_source.check_data(data)
        return GivenModel(source, request, data, evaluated=evaluated, is_float=is_float)
    else:
        model_source.check_early(source, data, given.weights, compared)
    return GivenModel(source, request, data, given.weights, evaluated)


def _data(given: ModelParameters, path: str | None, limit: int | None) -> DataParameters:
    preprocess = given.preprocess
    if path is not None and given.input_format is not None:
        from openneutron.device.data import in_colors

        preprocess = in_colors(path, preprocess, FrameFormat.parse(given.input_format).color)
    return DataParameters(
        path, DataOptions(preprocess=preprocess, sample_rate=given.sample_rate, calibration_samples=limit)
    )


OPTIONS = (CompileOptions, QuantizationOptions)
"""The classes whose flags are parameters of commands that take a model."""


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A MODEL of the command line that has not been examined yet. ``given`` returns the model with its options, and raises as ``given_model``
    does."""

    name: str
    given: Callable[[], GivenModel] = field(repr=False)


def takes_a_model(
    *,
    without: Collection[str] = (),
    evaluates: bool = False,
    varies: bool = False,
    several: bool = False,
    later: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command with a parameter ``asked``: a GivenModel, with ``later`` an AskedModel, or with ``several`` a list of
    AskedModel.

    On the command line the ModelParameters and the flags of CompileOptions and QuantizationOptions replace ``asked``.
    Those in ``without`` are left out and keep their defaults. With ``evaluates`` the EvaluationParameters are added.
    With ``varies`` each flag is a text with several values; the command gets the texts as ``texts``, by the names of
    the fields.
    """
    model = of_fields(ModelParameters)
    compiler, quantizer = (of_flags(options, varies) for options in OPTIONS)
    evaluation = of_fields(EvaluationParameters) if evaluates else {}
    taken = {"model": model.pop("model"), **evaluation, **compiler, **model, **quantizer}
    if several:
        taken["model"] = taken["model"].replace(annotation=SEVERAL_MODELS)
    assert set(without) < set(taken), without
    taken = {name: parameter for name, parameter in taken.items() if name not in without}

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters.values()

        def run(context: typer.Context, **given: Any) -> None:
            values = {name: given.pop(name) for name in taken}
            model = values.pop("model")
            data = EvaluationParameters(**{name: values.pop(name) for name in evaluation})
            if varies:
                texts = _plain(values, (*compiler, *quantizer))
                command(asked=given_model(ModelParameters(model, **values), evaluation=data), texts=texts, **given)
                return

            def one(name: str) -> GivenModel:
                own = {**values, **_without_those_of_pytorch(context, name, taken)}
                chosen, quantized = _plain(own, compiler), _plain(own, quantizer)
                return given_model(
                    ModelParameters(name, **own),
                    CompileOptions.from_dict(chosen),
                    quantized,
                    data,
                    evaluates,
                    given.get("data"),
                )

            if context.obj is not None and given.get("verbose"):
                output.detail(f"options of {context.obj.path}: {', '.join(context.obj.values)}")
            names = model if several else [model]
            models = [AskedModel(name, partial(one, name)) for name in names]
            command(asked=models if several else models[0] if later else one(model), **given)

        run.__doc__ = command.__doc__
        run.__signature__ = Signature(  # type: ignore[attr-defined]  # what typer reads
            [
                Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
                *(
                    parameter
                    for one in own
                    if one.name != "texts"
                    for parameter in (taken.values() if one.name == "asked" else [one])
                ),
            ]
        )
        return run

    return decorator


def _plain(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Remove the flags of these names from ``values``, and return those that are not None, as plain types."""
    taken = {name: values.pop(name) for name in names if name in values}
    plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in taken.items()}
    return {name: value for name, value in plain.items() if value is not None}


FROM_FILE = "DEFAULT_MAP"
"""click's name of the source of a value that the configuration file has set."""


def _without_those_of_pytorch(
    context: typer.Context, model: str, parameters: Mapping[str, Parameter]
) -> dict[str, Any]:
    """Return the default of each option that the configuration file sets and that does not apply to MODEL, if MODEL is a
    ``.tflite``; otherwise an empty dict. Such an option on the command line is an error."""
    if model != DASH and kind_of(Path(model)) is not Kind.LITERT:
        return {}
    others = [name for name in OF_PYTORCH if name in parameters]
    if any(_is_from_file(context, name) for name in OF_FLOAT_FILES if name in others) and is_float_file(
        model_source.parse(model)
    ):
        others = [name for name in others if name not in OF_FLOAT_FILES]
    return {name: parameters[name].default for name in others if _is_from_file(context, name)}


def _is_from_file(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == FROM_FILE


def configurable() -> dict[str, Parameter]:
    """Return the parameters that a configuration file may set, and those on the command line alone, by name."""
    return {**of_flags(CompileOptions), **of_fields(ModelParameters), **of_flags(QuantizationOptions)}


def _for_a_compile(flag: str, source: ModelSource) -> InvalidOptionError:
    return InvalidOptionError(f"{flag}: it is for a compile; '{source}' is compiled already. Leave it out.")


def _with_loading(source: ModelSource, given: ModelParameters) -> ModelSource:
    """Return the source with those options that its form takes. Raises InvalidOptionError for an option that only other forms take."""
    loading = LoadingOptions(
        trust=given.trust,
        imports=names(given.imports),
        input_shapes=shapes(names(given.input_shape)) or None,
        head=str(given.head),
    )
    used = source.form.loading if isinstance(source, ModelFile) and not source.is_compiled else ()
    for option in changed(loading):
        if option not in used:
            flag = {"imports": "--import", "input_shapes": "--input-shape"}.get(option, f"--{option}")
            if isinstance(source, ModelFile) and source.is_compiled:
                raise _for_a_compile(flag, source)
            raise InvalidOptionError(
                f"{flag}: this option is for {for_forms(option)} files; '{source}' is not one. Leave it out."
            )
    return replace(source, loading=loading) if isinstance(source, ModelFile) else source


def shapes(given: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``--input-shape``, by the names of inputs. Raises InvalidOptionError for a text of another
    form.

    >>> shapes(["image=1x3x224x224"])
    {'image': (1, 3, 224, 224)}
    """
    made = {}
    for text in given:
        name, sign, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not sign or not name or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise InvalidOptionError(f"--input-shape: '{text}' is no input's name and shape. Write NAME=1x3x224x224.")
        made[name] = tuple(map(int, parts))
    return made


def names(given: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names from options that were repeated, separated by commas, or both."""
    return tuple(name for item in given or () for name in (part.strip() for part in item.split(",")) if name)
