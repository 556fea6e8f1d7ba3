# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from openneutron import litert, targets
from openneutron.cli import model_source, output
from openneutron.cli.model_source import LiteRTFile
from openneutron.cli.options import IoPlace, compile_options, names
from openneutron.cli.progress import Steps
from openneutron.mixed import analyse_file
from openneutron.report import Summary, of_compiled_file
from openneutron.report.memory import memory_table
from openneutron.report.text import calls_table, on_cpu_table, summary_table


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, file.py:function, .pt2 or .tflite.")],
    target: Annotated[str, typer.Option(metavar="NAME", help="See `openneutron targets`.")] = "imxrt700",
    calibration: Annotated[
        Path | None, typer.Option(metavar="DIR_OR_NPZ", help="As for `openneutron compile` (PyTorch models).")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="As for `openneutron compile` (PyTorch models).")
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
        list[str] | None, typer.Option(metavar="NAME", help="As for `openneutron compile` (PyTorch models).")
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Show each partition's memory map too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Say what would run on the NPU, at what cost.

    Every kernel call with its modelled cycles, and every operator that stays on the CPU with the reason. Writes no file.
    """
    source = model_source.parse(model)
    chip = targets.get(target)
    place = io_place or (IoPlace.ARENA if isinstance(source, LiteRTFile) else IoPlace.CALLER)
    options = compile_options(sram_budget, place, fetch_constants_to_sram)
    excluded = names(operators_not_to_delegate)
    with Steps(quiet) as steps:
        if isinstance(source, LiteRTFile):
            for option, value in (
                ("--calibration", calibration),
                ("--weights", weights),
                ("--keep-float", keep_float or None),
            ):
                model_source.only_for_pytorch(source, option, value)
            steps("Reading", 0, 1)
            compiled = analyse_file(litert.read(source.path), str(source), chip, options, excluded, steps)
            summary = of_compiled_file(compiled)
        else:
            from openneutron.cli.pytorch_model import explain_pytorch

            summary = explain_pytorch(source, chip, options, excluded, calibration, weights, names(keep_float), steps)
    if as_json:
        output.show_json(summary.to_dict(details=True))
    else:
        output.show(explanation(summary, memory))


def explanation(summary: Summary, memory: bool) -> RenderableType:
    """The summary, each partition's kernel calls (and memory), and everything on the CPU."""
    parts: list[RenderableType] = [summary_table(summary, with_cpu=False)]
    for part in summary.partitions:
        parts += ["", calls_table(part)]
        if memory:
            parts += ["", memory_table(part)]
    if summary.on_cpu:
        parts += ["", on_cpu_table(summary.on_cpu)]
    return Group(*parts)
