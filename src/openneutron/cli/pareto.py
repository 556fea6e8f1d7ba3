# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron pareto``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from openneutron.cli import output
from openneutron.cli.compile import compiled
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.device import files
from openneutron.device.cache import caching, opened
from openneutron.device.timings import measured
from openneutron.errors import InvalidModelError
from openneutron.features.report.pareto import BudgetPoint, pareto_table


@takes_a_model(without=("sram_budget", "check", "profile", "converter", "converter_flags", "any_runtime"))
def show_pareto(
    *,
    asked: GivenModel,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: a .png or .svg.")] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Show the modelled latency for each amount of SRAM.

    The lines go from the smallest memory of the NPU's part of the model to whole tensors. Each is a compile with the --sram-budget
    in it, with the figures that `openneutron compile` prints: the SRAM of a run, and the latency of an inference with its parts. A line
    less than 2% faster than the one above is omitted, except the fastest. With --prefetch-constants the memory includes the copied
    constants.
    """
    from openneutron.api.reporting import points_of

    output.check_plot(plot)
    source = asked.source
    with output.Steps(quiet, verbose) as steps:
        model, _ = compiled(asked, steps, for_figures=True)
        with caching(None if asked.cache is None else opened(asked.cache)), measured(steps):
            points = points_of(model)
    if not points:
        raise InvalidModelError(f"'{source}': none of it runs on the NPU. `openneutron explain` gives the reasons.")
    constants = ", constants from flash" if asked.options.prefetch_constants else ""
    title = f"{source}{constants}: SRAM against modelled latency on {asked.target.name}"
    if plot is not None:
        files.write({plot: _picture(title, points, plot.suffix)})
    rows = [
        {
            "sram_bytes": point.sram_bytes,
            "total_sram_bytes": point.total_sram_bytes,
            "sram_budget_kib": point.sram_budget_kib,
            "modelled_cycles": point.cycles,
            "npu_cycles": point.npu_cycles,
            "copy_cycles": point.copy_cycles,
            "host_cycles": point.host_cycles,
            "host_operators_not_modelled": point.host_operators_not_modelled,
            "modelled_ms": point.milliseconds,
        }
        for point in points
    ]
    facts = {
        "model": str(source),
        "target": asked.target.name,
        "prefetch_constants": asked.options.prefetch_constants,
        "io_place": model.compile_options.place,
    }
    output.show(pareto_table(title, points), "pareto", facts | {"points": rows}, as_json)


def _picture(title: str, points: Sequence[BudgetPoint], suffix: str) -> bytes:
    from openneutron.features.report.page.charts import pareto_spec
    from openneutron.features.report.page.draw import picture

    return picture([(title, pareto_spec(points))], suffix)
