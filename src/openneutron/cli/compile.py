# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from openneutron import files, litert, targets
from openneutron.cli import model_source, output
from openneutron.cli.model_source import LiteRTFile
from openneutron.cli.options import Border, ConverterName, IoPlace, compile_options, names
from openneutron.cli.progress import Steps
from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.isa import decode, listing
from openneutron.mixed import CompiledFile, compile_file
from openneutron.report import Summary, of_compiled_file
from openneutron.report.text import summary_table
from openneutron.targets import Target


def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, file.py:function, .pt2 or .tflite.")],
    result: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="The result; MODEL's name with .pte or _neutron.tflite."),
    ] = None,
    target: Annotated[str, typer.Option(metavar="NAME", help="See `openneutron targets`.")] = "imxrt700",
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR_OR_NPZ",
            help="Typical inputs, to choose the int8 scales from: a folder of .npy files or a .npz file (PyTorch models).",
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A state_dict to load first: .pt or .pth (PyTorch models).")
    ] = None,
    sram_budget: Annotated[
        int | None, typer.Option(metavar="KIB", min=1, help="SRAM that a run may take; the target's where not given.")
    ] = None,
    io_place: Annotated[
        IoPlace | None,
        typer.Option(help="Inputs and outputs inside the arena (default for a .tflite), or the caller's (for a .pte)."),
    ] = None,
    fetch_constants_to_sram: Annotated[
        bool, typer.Option("--fetch-constants-to-sram", help="Copy constants from flash to SRAM before each use.")
    ] = False,
    operators_not_to_delegate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Operators to leave on the CPU (of PyTorch models: aten.add, aten.add.Tensor, modules, nodes; with wildcards); "
            "repeat it, or separate names by commas.",
        ),
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Modules (classifier.*) and operators (aten.softmax.int) of PyTorch models not to quantize; repeat it, or "
            "separate names by commas.",
        ),
    ] = None,
    io: Annotated[Border | None, typer.Option(help="Type of the .pte's inputs and outputs (PyTorch models).")] = None,
    converter: Annotated[
        ConverterName | None,
        typer.Option(
            help="Who compiles the partitions of a PyTorch model: this project's compiler, or NXP's eiq_neutron_sdk."
        ),
    ] = None,
    intermediates: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep each partition here, as a stock .tflite and as a listing of its program."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and JSON if asked for.")
    ] = False,
) -> None:
    """Compile a model to a .pte or .tflite.

    A PyTorch model becomes a .pte for ExecuTorch, an int8 .tflite becomes a .tflite with NeutronGraph operators. Ends with
    what runs on the NPU, what stays on the CPU and why, and what it takes.

    A calibration folder holds .npy files, each with one sample or several along the first axis; for a model of several
    inputs NAME_0.npy, NAME_1.npy ... belong together. A .npz file holds arrays input0, input1 ... alike.
    """
    source = model_source.parse(model)
    chip = targets.get(target)
    place = io_place or (IoPlace.ARENA if isinstance(source, LiteRTFile) else IoPlace.CALLER)
    options = compile_options(sram_budget, place, fetch_constants_to_sram)
    excluded = names(operators_not_to_delegate)
    with Steps(quiet) as steps:
        if isinstance(source, LiteRTFile):
            only_pytorch = {
                "--calibration": calibration,
                "--weights": weights,
                "--io": io,
                "--keep-float": keep_float or None,
                "--converter": converter,
            }
            summary = _compile_litert(source, result, chip, options, excluded, intermediates, only_pytorch, steps)
        else:
            from openneutron.cli.pytorch_model import compile_pytorch

            summary = compile_pytorch(
                source,
                result,
                chip,
                options,
                excluded,
                intermediates,
                calibration,
                weights,
                io,
                names(keep_float),
                converter or ConverterName.OPEN,
                steps,
            )
    if as_json:
        output.show_json(summary.to_dict())
    elif not quiet:
        output.show(summary_table(summary))


def _compile_litert(
    source: LiteRTFile,
    result: Path | None,
    target: Target,
    options: CompileOptions,
    excluded: list[str],
    intermediates: Path | None,
    only_pytorch: Mapping[str, object],
    steps: Steps,
) -> Summary:
    for option, value in only_pytorch.items():
        model_source.only_for_pytorch(source, option, value)
    path = result if result is not None else Path(f"{source.stem}.tflite")
    if path.suffix != ".tflite":
        raise InvalidOptionError(f"--output: a .tflite compiles to a .tflite; '{path}' is named otherwise.")
    if path.exists() and path.samefile(source.path):
        raise InvalidOptionError(f"--output: '{path}' is the model itself. Choose another name.")
    steps("Reading", 0, 1)
    model = litert.read(source.path)
    compiled = compile_file(model, str(source), target, options, excluded, steps)
    steps("Writing", 0, 1)
    data = compiled.to_bytes()
    parts = {} if intermediates is None else {intermediates / name: text for name, text in _parts(compiled).items()}
    files.write({path: data, **parts}, intermediates)
    return of_compiled_file(compiled, str(path), len(data))


def _parts(compiled: CompiledFile) -> dict[str, bytes]:
    """Each partition as a stock ``.tflite`` and as a listing, by file name."""
    made = {}
    for index, part in enumerate(compiled.parts):
        name = compiled.part_name(index)
        made[f"{name}.tflite"] = litert.write(part.graph)
        made[f"{name}.txt"] = listing(decode(part.program)).encode()
    return made
