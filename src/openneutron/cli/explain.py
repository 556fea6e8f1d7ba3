# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from openneutron.cli import output
from openneutron.cli.compile import compiled
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.device import files
from openneutron.features.report.text import explanation


@takes_a_model(without=("io_dtype", "profile", "converter", "converter_flags", "any_runtime"))
def explain(
    *,
    asked: GivenModel,
    memory: Annotated[bool, typer.Option("--memory", help="Show each partition's memory map too.")] = False,
    plot: output.Plot = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Show the operators on the NPU and on the CPU, with costs and reasons.

    The output has every kernel call with its modelled cycles, and every operator on the CPU with its reason. No file is
    written, except with --plot.
    """
    output.check_plot(plot)
    with output.Steps(quiet, verbose) as steps:
        model, _ = compiled(asked, steps, for_figures=True)
        summary = dataclasses.replace(model.report, file_bytes=None)
        files.write(output.plotted(plot, model))
    output.show(explanation(summary, memory, model.quick_advice), "explain", summary.to_dict(details=True), as_json)
