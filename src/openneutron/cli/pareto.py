# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron pareto``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from openneutron import files
from openneutron.cache import caching, opened
from openneutron.cache.fronts import front
from openneutron.cli import output
from openneutron.cli.compile import compiled
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.compiler.search.pareto import Point, one_after_the_other
from openneutron.errors import InvalidModelError
from openneutron.report.pareto import budget_kib, pareto_table
from openneutron.targets import Target


@takes_a_model(without=("sram_budget", "check", "profile", "io_dtype", "converter", "converter_flags", "any_runtime"))
def show_pareto(
    *,
    asked: GivenModel,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: a .png or .svg.")] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Show the modelled time for each amount of SRAM.

    The lines go from the smallest memory of the NPU's part of the model to whole tensors. A compile with the --sram-budget of a
    line takes at most its time. Budgets are whole KiB, so that a compile may use the memory up to the next KiB and be faster;
    where several lines have the same budget, it is as fast as the last of them. A line less than 2% faster than the one above is
    omitted, except the fastest. With --prefetch-constants the memory
    includes the copied constants, and the time is that of a port that copies in the background.
    """
    output.check_plot(plot)
    source = asked.source
    with output.Steps(quiet, verbose) as steps:
        model, _ = compiled(asked, steps, for_figures=True)
        graphs = model.graphs
        fronts = []
        with caching(None if asked.cache is None else opened(asked.cache)):
            for index, graph in enumerate(graphs):
                steps("Searching", index, len(graphs))
                fronts.append(front(graph, asked.target, asked.options))
    if not fronts:
        raise InvalidModelError(f"'{source}': none of it runs on the NPU. `openneutron explain` gives the reasons.")
    host = model.report.host_cycles
    points = [replace(point, cycles=point.cycles + host) for point in one_after_the_other(fronts)]
    title = str(source) + (", constants from flash" if asked.options.prefetch_constants else "")
    if plot is not None:
        files.write({plot: _picture(f"{title} on {asked.target.name}", points, asked.target, plot.suffix)})
    rows = [
        {
            "sram_bytes": p.sram_bytes,
            "sram_budget_kib": budget_kib(p),
            "modelled_cycles": p.cycles,
            "modelled_ms": asked.target.milliseconds(p.cycles),
        }
        for p in points
    ]
    facts = {"model": str(source), "target": asked.target.name, "prefetch_constants": asked.options.prefetch_constants}
    output.show(pareto_table(title, points, asked.target), "pareto", facts | {"points": rows}, as_json)


def _picture(title: str, points: Sequence[Point], target: Target, suffix: str) -> bytes:
    from openneutron.report.page.charts import pareto_spec
    from openneutron.report.page.data import ParetoPoint
    from openneutron.report.page.draw import picture

    placed = [ParetoPoint(point.sram_bytes, point.cycles, target.milliseconds(point.cycles)) for point in points]
    return picture([(title, pareto_spec(placed))], suffix)
