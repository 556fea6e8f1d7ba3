# SPDX-License-Identifier: BSD-3-Clause
"""What several commands are told of a model: their arguments and options, and what these become."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from fractions import Fraction
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from openneutron import targets
from openneutron.cli import checked_early, model_source
from openneutron.cli.model_source import BuiltInModel, ExportedFile, LiteRTFile, ModelSource
from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.options import ARENA, CALLER, DEFAULT_EFFORT, HIGH_EFFORT
from openneutron.targets import Target


class IoPlace(StrEnum):
    """Where inputs and outputs lie."""

    ARENA = ARENA
    CALLER = CALLER


class EffortName(StrEnum):
    """How far the compiler looks."""

    DEFAULT = DEFAULT_EFFORT
    HIGH = HIGH_EFFORT


class IoType(StrEnum):
    """Type of a ``.pte``'s inputs and outputs."""

    FLOAT32 = "float32"
    INT8 = "int8"


class ConverterName(StrEnum):
    """Who compiles a partition."""

    OPEN = "open"
    EIQ = "eiq"


LARGEST_KIB = 2**22 - 1
"""The largest size is below 4 GiB: an address in microcode has 32 bits (docs/microcode.md)."""


def kib(text: str) -> int:
    """Return a size in whole KiB, from ``287``, ``287KiB`` or ``1.5MiB``. Raises typer.BadParameter for any other
    text."""
    found = re.fullmatch(r"0*(\d{1,12}(?:\.\d{1,12})?) ?(KiB|MiB)?", text.strip(), re.IGNORECASE)
    size = Fraction(0) if found is None else Fraction(found[1]) * (1024 if (found[2] or "").lower() == "mib" else 1)
    if size < 1 or size > LARGEST_KIB or size.denominator != 1:
        shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        raise typer.BadParameter(
            f"'{shown}' is no size above 0 and up to {LARGEST_KIB} in whole KiB. Write 287, 287KiB or 1.5MiB."
        )
    return int(size)


SHOWN_CHARACTERS = 24
"""Characters shown of a value that is no size."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """MODEL and the options that say how it is compiled, as the command line has them; the budget is KiB."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, file.py:function, .pt2 or .tflite.")]
    target: Annotated[str, typer.Option(metavar="NAME", help="See `openneutron targets`.")] = "imxrt700"
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR_OR_NPZ",
            help="Typical inputs, to choose the int8 scales from: a folder of .npy files or a .npz file (PyTorch models); without "
            "it, the example inputs.",
        ),
    ] = None
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A state_dict to load first: .pt or .pth (PyTorch models).")
    ] = None
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Load a .pt2 that can only be loaded by running code in it: you know who made it."
        ),
    ] = False
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module to import before a .pt2 is loaded: the one that registers its classes or operators; repeat it.",
        ),
    ] = None
    sram_budget: Annotated[
        int | None,
        typer.Option(
            metavar="KIB",
            parser=kib,
            help="SRAM that a run may take, such as 287 or 1.5MiB; the target's where not given.",
        ),
    ] = None
    io_place: Annotated[
        IoPlace | None,
        typer.Option(help="Inputs and outputs inside the arena (default for a .tflite), or the caller's (for a .pte)."),
    ] = None
    fetch_constants_to_sram: Annotated[
        bool, typer.Option("--fetch-constants-to-sram", help="Copy constants from flash to SRAM before each use.")
    ] = False
    check: Annotated[
        bool,
        typer.Option("--check", help="Go through each compiled program byte by byte: whatever is read must be there."),
    ] = False
    effort: Annotated[
        EffortName,
        typer.Option(
            help="How far to look for a faster schedule in little memory; high takes longer and says what it gained."
        ),
    ] = EffortName.DEFAULT
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
    io: Annotated[IoType | None, typer.Option(help="Type of the .pte's inputs and outputs (PyTorch models).")] = None
    channels_last: Annotated[
        bool | None,
        typer.Option(
            help="Whether the .pte takes and gives images channels innermost, without a transpose at each border and in less "
            "SRAM (PyTorch models); not said: as the example inputs lie.",
            show_default=False,
        ),
    ] = None
    any_runtime: Annotated[
        bool,
        typer.Option(
            "--any-runtime",
            help="Write a .pte whose operators on the CPU have no kernel in ExecuTorch's runtime here, for one that has them "
            "(PyTorch models).",
        ),
    ] = False
    converter: Annotated[
        ConverterName | None,
        typer.Option(
            help="Who compiles the partitions of a PyTorch model: this project's compiler, or NXP's eiq_neutron_sdk."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Request:
    """A model and its compile options. The last seven apply to PyTorch models only."""

    source: ModelSource
    target: Target
    options: CompileOptions
    not_delegated: tuple[str, ...]
    calibration: Path | None
    weights: Path | None
    keep_float: tuple[str, ...]
    io: IoType | None
    channels_last: bool | None
    converter: ConverterName | None
    any_runtime: bool

    @property
    def on_examples(self) -> bool:
        """True where int8 scales come from the example inputs because no calibration data is given. Built-in models
        with random weights use random inputs of their own."""
        return self.calibration is None and (not isinstance(self.source, BuiltInModel) or self.weights is not None)


@dataclass(frozen=True, slots=True)
class Results:
    """Where a compile writes: the compiled file, and where asked for a folder of its partitions and its kernel selection."""

    path: Path
    intermediates: Path | None = None
    kernel_selection: Path | None = None


def request(given: ModelOptions) -> Request:
    """What the options come to.

    Raises InvalidModelError where MODEL names nothing, InvalidTargetError for an unknown target, InvalidOptionError where a
    quantized file is given an option that is for PyTorch models.
    """
    source = model_source.parse(given.model)
    if isinstance(source, ExportedFile):
        source = replace(source, trust=given.trust, imports=names(given.imports))
    elif given.trust or given.imports:
        option = "--trust" if given.trust else "--import"
        raise InvalidOptionError(f"{option}: this option is for .pt2 files, which '{source}' is not. Leave it out.")
    chip = targets.get(given.target)
    floating = names(given.keep_float)
    if isinstance(source, LiteRTFile):
        for option, value in (
            ("--calibration", given.calibration),
            ("--weights", given.weights),
            ("--io", given.io),
            ("--keep-float", floating or None),
            ("--channels-last", given.channels_last),
            ("--converter", given.converter),
            ("--any-runtime", given.any_runtime or None),
        ):
            model_source.only_for_pytorch(source, option, value)
    else:
        checked_early.check(source, given.calibration, given.weights)
    if given.effort is not EffortName.DEFAULT and given.converter is ConverterName.EIQ:
        raise InvalidOptionError("--effort: it is this project's compiler's. Leave it out, or take --converter open.")
    if given.check and given.converter is ConverterName.EIQ:
        raise InvalidOptionError(
            "--check: NXP's microcode can't be checked here. Leave it out, or take --converter open."
        )
    place = given.io_place or (IoPlace.ARENA if isinstance(source, LiteRTFile) else IoPlace.CALLER)
    options = CompileOptions(
        sram_budget=None if given.sram_budget is None else given.sram_budget * 1024,
        io=place.value,
        fetch_constants_to_sram=given.fetch_constants_to_sram,
        check=given.check,
        effort=given.effort.value,
    )
    excluded = names(given.operators_not_to_delegate)
    return Request(source, chip, options, excluded, given.calibration, given.weights, floating, given.io,
                   given.channels_last, given.converter, given.any_runtime)  # fmt: skip


def takes_a_model(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command that takes ModelOptions of one with a parameter ``asked``, which gets the Request they come to.

    On the command line the options stand where ``asked`` does; those ``without`` it does not have, and keep their defaults.
    """
    hints = get_type_hints(ModelOptions, include_extras=True)
    assert set(without) < set(hints), without
    taken = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(ModelOptions)
        if field.name not in without
    ]

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters.values()

        def run(**given: Any) -> None:
            of_model = {option.name: given.pop(option.name) for option in taken}
            command(asked=request(ModelOptions(**of_model)), **given)

        run.__doc__ = command.__doc__
        run.__signature__ = Signature(  # type: ignore[attr-defined]  # what typer reads
            [parameter for one in own for parameter in (taken if one.name == "asked" else [one])]
        )
        return run

    return decorator


def names(given: Iterable[str] | None) -> tuple[str, ...]:
    """Names from options that were repeated, separated by commas, or both."""
    return tuple(name for item in given or () for name in (part.strip() for part in item.split(",")) if name)
