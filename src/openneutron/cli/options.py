# SPDX-License-Identifier: BSD-3-Clause
"""The parameters of several commands: a model and its options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from openneutron import targets
from openneutron.api.compile import check_for_tflite
from openneutron.cache import opened
from openneutron.cli import model_source
from openneutron.cli.model_source import BuiltInModel, ExportedFile, LiteRTFile, ModelSource
from openneutron.errors import InvalidOptionError
from openneutron.flags import Flag, flags_of
from openneutron.options import FLOAT32, INT8, CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.targets import Target


class IoDtype(StrEnum):
    """The type of a ``.pte``'s inputs and outputs."""

    FLOAT32 = FLOAT32
    INT8 = INT8


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """MODEL and its parameters on the command line, beside the flags of CompileOptions."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, file.py:function, .pt2 or .tflite.")]
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR_OR_NPZ",
            help="Typical inputs, which determine the int8 scales: a folder of .npy files or a .npz file (PyTorch models); "
            "default: the example inputs.",
        ),
    ] = None
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A state_dict to load first: .pt or .pth (PyTorch models).")
    ] = None
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Load a .pt2 that can only be loaded by running its code, which you trust."),
    ] = False
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module to import before a .pt2 is loaded, which registers its classes or operators; repeat it.",
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
            help="Modules (classifier.*) and operators (aten.softmax.int) of PyTorch models not to quantize; repeat it, or "
            "separate names by commas.",
        ),
    ] = None
    io_dtype: Annotated[
        IoDtype | None, typer.Option(help="Type of the .pte's inputs and outputs (PyTorch models).")
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
            "--any-runtime",
            help="Write a .pte even if operators on the CPU have no kernel in the installed ExecuTorch runtime, for another "
            "runtime (PyTorch models).",
        ),
    ] = False
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep calibrated ranges and compiled partitions here, and take those of earlier compiles; at most 1 GiB.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model as a command gets it, with its options. ``quantization``, ``calibration`` and ``weights`` apply to PyTorch models only."""

    source: ModelSource
    options: CompileOptions
    delegation: DelegationOptions
    quantization: QuantizationOptions
    calibration: Path | None
    weights: Path | None
    cache: Path | None = None

    @property
    def target(self) -> Target:
        return targets.get(self.options.target)

    @property
    def on_examples(self) -> bool:
        """Return whether int8 scales come from the example inputs because no calibration data is given. Built-in models
        with random weights use random inputs of their own."""
        return self.calibration is None and (not isinstance(self.source, BuiltInModel) or self.weights is not None)


def given_model(given: ModelParameters, options: CompileOptions) -> GivenModel:
    """Return the model that the parameters describe.

    Raises InvalidModelError where MODEL names nothing, InvalidOptionError where a quantized file is given an option for
    PyTorch models, or the cache can't be used.
    """
    source = model_source.parse(given.model)
    if given.cache is not None:
        opened(given.cache)
    if isinstance(source, ExportedFile):
        source = replace(source, trust=given.trust, imports=names(given.imports))
    elif given.trust or given.imports:
        option = "--trust" if given.trust else "--import"
        raise InvalidOptionError(f"{option}: this option is for .pt2 files; '{source}' is not one. Leave it out.")
    delegation = DelegationOptions(
        operators_not_to_delegate=names(given.operators_not_to_delegate), any_runtime=given.any_runtime
    )
    quantization = QuantizationOptions(
        keep_float=names(given.keep_float),
        io_dtype=(given.io_dtype or IoDtype.FLOAT32).value,
        channels_last=given.channels_last,
    )
    if isinstance(source, LiteRTFile):
        files = {"calibration": given.calibration, "weights": given.weights}
        check_for_tflite(
            str(source), files, options, quantization, delegation, lambda name: f"--{name.replace('_', '-')}"
        )
    else:
        model_source.check_early(source, given.calibration, given.weights)
    return GivenModel(source, options, delegation, quantization, given.calibration, given.weights, given.cache)


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a command that opens one or more models itself, with the same options."""

    parameters: ModelParameters
    options: CompileOptions

    def given(self, model: str) -> GivenModel:
        """Return a model of this name. Raises as ``given_model`` does."""
        return given_model(replace(self.parameters, model=model), self.options)


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def takes_a_model(*, without: Collection[str] = ()) -> Decorator:
    """Return a decorator for a command with a parameter ``asked``, which gets the GivenModel.

    On the command line the ModelParameters and the flags of CompileOptions replace ``asked``; those in ``without`` are
    left out and keep their defaults.
    """
    return _with_parameters(given_model, without)


def takes_models(*, without: Collection[str] = ()) -> Decorator:
    """Return the decorator of ``takes_a_model`` for a command whose ``asked`` is an Asked."""
    return _with_parameters(Asked, without)


def _with_parameters(opens: Callable[[ModelParameters, CompileOptions], Any], without: Collection[str]) -> Decorator:
    model = _model_parameters()
    taken = {**{"model": model.pop("model")}, **parameters_of(CompileOptions), **model}
    assert set(without) < set(taken), without
    taken = {name: parameter for name, parameter in taken.items() if name not in without}

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters.values()

        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in taken}
            options = {name: values.pop(name) for name in flags_of(CompileOptions) if name in values}
            plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in options.items()}
            chosen = CompileOptions.from_dict({name: value for name, value in plain.items() if value is not None})
            command(asked=opens(ModelParameters(**values), chosen), **given)

        run.__doc__ = command.__doc__
        run.__signature__ = Signature(  # type: ignore[attr-defined]  # what typer reads
            [parameter for one in own for parameter in (taken.values() if one.name == "asked" else [one])]
        )
        return run

    return decorator


def _model_parameters() -> dict[str, Parameter]:
    hints = get_type_hints(ModelParameters, include_extras=True)
    return {
        item.name: Parameter(
            item.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(ModelParameters)
    }


def parameters_of(options: type) -> dict[str, Parameter]:
    """Return a typer parameter for each flag of an options class; the value of a flag that is not given is None, where
    the flag is read from a text."""
    return {name: _parameter(flag) for name, flag in flags_of(options).items()}


def _parameter(flag: Flag) -> Parameter:
    declared, default = flag.declared, flag.default
    kind: Any = bool if flag.is_switch else str
    made = typer.Option(flag.name, help=declared.help, metavar=declared.metavar or None)
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


def names(given: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names from options that were repeated, separated by commas, or both."""
    return tuple(name for item in given or () for name in (part.strip() for part in item.split(",")) if name)
