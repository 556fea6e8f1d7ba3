# SPDX-License-Identifier: BSD-3-Clause
"""What several commands are told of a model: their arguments and options, and what these become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from openneutron import targets
from openneutron.cli import model_source
from openneutron.cli.model_source import LiteRTFile, ModelSource
from openneutron.compiler import CompileOptions
from openneutron.compiler.effort import DEFAULT, HIGH
from openneutron.compiler.layout import ARENA, CALLER
from openneutron.errors import InvalidOptionError
from openneutron.targets import Target


class IoPlace(StrEnum):
    """Where inputs and outputs lie."""

    ARENA = ARENA
    CALLER = CALLER


class EffortName(StrEnum):
    """How far the compiler looks."""

    DEFAULT = DEFAULT.name
    HIGH = HIGH.name


class Border(StrEnum):
    """Type of a ``.pte``'s inputs and outputs."""

    FLOAT32 = "float32"
    INT8 = "int8"


class ConverterName(StrEnum):
    """Who compiles a partition."""

    OPEN = "open"
    EIQ = "eiq"


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Built-in name, file.py:function, .pt2 or .tflite.")
]
TargetOption = Annotated[str, typer.Option(metavar="NAME", help="See `openneutron targets`.")]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR_OR_NPZ",
        help="Typical inputs, to choose the int8 scales from: a folder of .npy files or a .npz file (PyTorch models).",
    ),
]
WeightsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A state_dict to load first: .pt or .pth (PyTorch models).")
]
SramBudgetOption = Annotated[
    int | None, typer.Option(metavar="KIB", min=1, help="SRAM that a run may take; the target's where not given.")
]
IoPlaceOption = Annotated[
    IoPlace | None,
    typer.Option(help="Inputs and outputs inside the arena (default for a .tflite), or the caller's (for a .pte)."),
]
FetchOption = Annotated[
    bool, typer.Option("--fetch-constants-to-sram", help="Copy constants from flash to SRAM before each use.")
]
EffortOption = Annotated[
    EffortName,
    typer.Option(
        help="How far to look for a faster schedule in little memory; high takes longer and says what it gained."
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Go through each compiled program byte by byte: whatever is read must be there."),
]
NotDelegatedOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Operators to leave on the CPU (of PyTorch models: aten.add, aten.add.Tensor, modules, nodes; with wildcards); "
        "repeat it, or separate names by commas.",
    ),
]
KeepFloatOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Modules (classifier.*) and operators (aten.softmax.int) of PyTorch models not to quantize; repeat it, or "
        "separate names by commas.",
    ),
]


@dataclass(frozen=True, slots=True)
class Request:
    """A model, and how it is to be compiled. The last five are for PyTorch models alone."""

    source: ModelSource
    target: Target
    options: CompileOptions
    not_delegated: tuple[str, ...]
    calibration: Path | None
    weights: Path | None
    keep_float: tuple[str, ...]
    io: Border | None
    converter: ConverterName | None


@dataclass(frozen=True, slots=True)
class Results:
    """Where a compile writes: the compiled file, and where asked for a folder of its partitions and its kernel selection."""

    path: Path
    intermediates: Path | None = None
    kernel_selection: Path | None = None


def request(
    model: str,
    target: str,
    *,
    calibration: Path | None,
    weights: Path | None,
    sram_budget: int | None,
    io_place: IoPlace | None,
    fetch_constants_to_sram: bool,
    check: bool,
    effort: EffortName,
    operators_not_to_delegate: Iterable[str] | None,
    keep_float: Iterable[str] | None,
    io: Border | None = None,
    converter: ConverterName | None = None,
) -> Request:
    """What the options come to; ``sram_budget`` is KiB.

    Raises InvalidModelError where MODEL names nothing, InvalidTargetError for an unknown target, InvalidOptionError where a
    quantized file is given an option that is for PyTorch models.
    """
    source = model_source.parse(model)
    chip = targets.get(target)
    floating = names(keep_float)
    if isinstance(source, LiteRTFile):
        for option, value in (
            ("--calibration", calibration),
            ("--weights", weights),
            ("--io", io),
            ("--keep-float", floating or None),
            ("--converter", converter),
        ):
            model_source.only_for_pytorch(source, option, value)
    if effort is not EffortName.DEFAULT and converter is ConverterName.EIQ:
        raise InvalidOptionError("--effort: it is this project's compiler's. Leave it out, or take --converter open.")
    if check and converter is ConverterName.EIQ:
        raise InvalidOptionError(
            "--check: NXP's microcode can't be checked here. Leave it out, or take --converter open."
        )
    place = io_place or (IoPlace.ARENA if isinstance(source, LiteRTFile) else IoPlace.CALLER)
    options = CompileOptions(
        sram_budget=None if sram_budget is None else sram_budget * 1024,
        io=place.value,
        fetch_constants_to_sram=fetch_constants_to_sram,
        check=check,
        effort=effort.value,
    )
    excluded = names(operators_not_to_delegate)
    return Request(source, chip, options, excluded, calibration, weights, floating, io, converter)


def names(given: Iterable[str] | None) -> tuple[str, ...]:
    """Names from options that were repeated, separated by commas, or both."""
    return tuple(name for item in given or () for name in (part.strip() for part in item.split(",")) if name)
