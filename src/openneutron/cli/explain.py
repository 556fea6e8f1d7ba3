# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from openneutron import files
from openneutron.cli import output
from openneutron.cli.compile import compiled
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.report import Summary
from openneutron.report.text import calls_table, memory_table, on_cpu_table, summary_table


@takes_a_model(without=("io_dtype", "profile", "converter", "converter_flags", "any_runtime"))
def explain(
    *,
    asked: GivenModel,
    memory: Annotated[bool, typer.Option("--memory", help="Show each partition's memory map too.")] = False,
    plot: output.Plot = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Show the operators on the NPU and on the CPU, with costs and reasons.

    The output has every kernel call with its modelled cycles, and every operator on the CPU with its reason. No file is
    written, except with --plot.
    """
    output.check_plot(plot)
    with output.Steps(quiet) as steps:
        model, _ = compiled(asked, steps, for_figures=True)
        summary = dataclasses.replace(model.report, file_bytes=None)
        files.write(output.plotted(plot, model))
    output.show(explanation(summary, memory), summary.to_dict(details=True), as_json)


def explanation(summary: Summary, memory: bool) -> RenderableType:
    """Return the summary, each partition's kernel calls (and memory), and everything on the CPU."""
    parts: list[RenderableType] = [summary_table(summary, with_cpu=False)]
    for part in summary.partitions:
        parts += ["", calls_table(part)]
        if memory:
            parts += ["", memory_table(part)]
    if summary.on_cpu:
        parts += ["", on_cpu_table(summary.on_cpu)]
    return Group(*parts)
