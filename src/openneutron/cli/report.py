# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from openneutron.cli import output
from openneutron.cli.options import AskedModel, takes_a_model
from openneutron.device import files
from openneutron.errors import InvalidOptionError
from openneutron.features.report.units import size_text

if TYPE_CHECKING:
    from openneutron.features.report.page.data import ReportData

DEFAULT = Path("report.html")

STORED = (".pte", ".html", ".htm")
"""The suffixes of files that have the data of a report inside; a ``.tflite`` may have it."""


@takes_a_model(several=True, without=("check", "profile", "converter", "converter_flags", "any_runtime"))
def report_model(
    *,
    asked: list[AskedModel],
    result: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help=f"The page; default: {DEFAULT}.")
    ] = None,
    pareto: Annotated[bool, typer.Option(help="Show memory against latency, which takes a search of its own.")] = True,
    accuracy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Show the accuracy of the layers too: a file of `openneutron accuracy --json`."
        ),
    ] = None,
    node_data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write latency, memory and accuracy as node data files of Model Explorer too."
        ),
    ] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Write a page with charts of a compile.

    MODEL is compiled for its report; MODEL may also be a .pte or .tflite that was compiled with --facts, or a report that was
    written before. The page has the summary, advice with its results, the graph, latency by layer, memory over time, memory against
    latency, a roofline, the weights, and the operators on the CPU with their reasons. It opens without a network. Of two
    models the page shows both side by side. With --json and without --output, no page is written.
    """
    from openneutron.api.reporting import check_report, measured_accuracy, write_report
    from openneutron.features.report.page.collect import with_accuracy
    from openneutron.features.report.page.compare import compared

    if len(asked) > 2:
        raise InvalidOptionError(
            f"{len(asked)} models are given; a report shows one, or two side by side. Write several reports."
        )
    if accuracy is not None and len(asked) > 1:
        raise InvalidOptionError(
            "--accuracy: it is for the report of one model. Write a report of each model with its accuracy, and compare the reports."
        )
    path = result if result is not None else None if as_json else DEFAULT
    if path is not None:
        check_report(path)
    if node_data is not None:
        files.check_folder(node_data)
    measured = () if accuracy is None else measured_accuracy(accuracy)
    with output.Steps(quiet, verbose) as steps:
        data, *others = (_data(model, pareto, steps) for model in asked)
        data = with_accuracy(data, measured) if measured else data
        shown = compared(data, *others) if others else data
    if node_data is not None:
        from openneutron.features.explorer.nodes import nodes_of_report
        from openneutron.features.explorer.overlays import node_data_files

        files.write(node_data_files(node_data, nodes_of_report(data)), node_data)
    if path is not None:
        write_report(shown, path)
    said = "" if path is None else f"{path}, {size_text(path.stat().st_size)}"
    if as_json or not quiet:
        output.show(Text(said), "report", shown.to_dict(), as_json)


def _data(asked: AskedModel, with_pareto: bool, steps: output.Steps) -> ReportData:
    """Return the data of a model, compiled here, or of a file that has it inside."""
    from openneutron.api.reporting import data_of, stored_data
    from openneutron.cli.compile import compiled
    from openneutron.device.files import existing
    from openneutron.device.timings import measured
    from openneutron.features.report.page.stored import has_facts

    name = asked.name
    path = Path(name)
    if path.suffix in STORED or (path.suffix == ".tflite" and has_facts(existing(name).read_bytes())):
        return stored_data(existing(name))
    model, _ = compiled(asked.given(), steps, for_figures=True)
    with measured(steps):
        return data_of(model, with_pareto)
