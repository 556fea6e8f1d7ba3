# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain``, ``openneutron report`` and ``openneutron pareto``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from openneutron import targets
from openneutron.cli import output
from openneutron.cli.compile import compiled
from openneutron.cli.model_source import ModelFile, is_compiled
from openneutron.cli.options import OF_CONVERTERS, AskedModel, GivenModel, takes_a_model
from openneutron.compiler.rewrite.passes import explained
from openneutron.device import files
from openneutron.device.cache import caching, opened
from openneutron.device.converter import releases
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.device.timings import measured
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.report.advice import BudgetPoint, pareto_table
from openneutron.features.report.as_nxp import as_nxp_table
from openneutron.features.report.inspection import Inspection, inspected, inspection_text
from openneutron.features.report.table import facts, size_text
from openneutron.features.report.text import explanation, passes_table

if TYPE_CHECKING:
    from openneutron.features.report.page.data import ReportData


@takes_a_model(without=("io_dtype", "profile", *OF_CONVERTERS, "any_runtime"), later=True)
def explain(
    *,
    asked: AskedModel,
    memory: Annotated[bool, typer.Option("--memory", help="Show each partition's memory map too.")] = False,
    passes: Annotated[
        bool,
        typer.Option("--passes", help="Show the compiler's passes too: the calls they made, or why they made none."),
    ] = False,
    by_release: Annotated[
        str | None,
        typer.Option(
            "--as-nxp",
            metavar="RELEASE",
            help="Show what NXP's flow would take with this release of its SDK too, such as 3.1, by the limits that NXP publishes.",
        ),
    ] = None,
    plot: output.Plot = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Show the operators on the NPU and on the CPU, with costs and reasons.

    The output has every kernel call with its modelled cycles, and every operator on the CPU with its reason. No file is
    written, except with --plot. Of a .tflite of NXP's converter, which may be MODEL too, it has the NeutronGraphs with their sizes and
    the drivers that read them, and the operators on the CPU. Of a language model in a .pte it has the time of each phase by part, and the memory.
    """
    from openneutron.features.report.page.collect import report_data
    from openneutron.features.report.page.page import texts_of

    if form_of(Path(asked.name)) is PTE and _explain_language_model(asked.name, as_json):
        return
    output.check_plot(plot)
    release = None if by_release is None else releases.get(by_release)
    given = asked.given()
    foreign = inspected_model(given)
    if foreign is not None:
        output.show(inspection_text(foreign), "explain", foreign.to_dict(), as_json)
        return
    with output.Steps(quiet, verbose) as steps:
        model, _ = compiled(given, steps, for_figures=True)
        summary = dataclasses.replace(model.report, file_bytes=None)
        files.write(output.plotted(plot, model))
    shown = Group(
        explanation(summary, memory, model.quick_advice), *texts_of(lambda: report_data(summary, model.buffer))
    )
    data = summary.to_dict(details=True)
    if release is not None:
        compared = model.as_nxp(release)
        shown = Group(shown, "", as_nxp_table(compared))
        data |= {"as_nxp": compared.to_dict()}
    if passes:
        target = targets.get(model.compile_options.target)
        found = [explained(graph, target, model.compile_options) for graph in model.graphs]
        shown = Group(shown, *(item for each in found for item in ("", passes_table(each))))
        data |= {"passes": [[row.to_dict() for row in each] for each in found]}
    output.show(shown, "explain", data, as_json)


def _explain_language_model(name: str, as_json: bool) -> bool:
    """Show the facts of a language model in a ``.pte``, and return True; return False for any other file."""
    from openneutron.features.report.page.collect import report_of_language_model
    from openneutron.features.report.page.page import texts
    from openneutron.language.model import is_language_model

    path = Path(name)
    if not path.is_file() or not is_language_model(content := files.content(path), path.name):
        return False
    data = report_of_language_model(content, path.name)
    title = Text.assemble((data.model, "bold"), f"  for {data.target.name} ({data.target.title})")
    rows = facts((row.label, row.text) for row in data.summary)
    output.show(Group(title, rows, *texts(data)), "explain", data.to_dict(), as_json)
    return True


DEFAULT = Path("report.html")

PAGES = (".html", ".htm")
"""The suffixes of reports. A report contains its data, as a ``.pte`` does; a ``.tflite`` may contain data too."""


@takes_a_model(several=True, without=("check", "profile", *OF_CONVERTERS, "any_runtime"))
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
    foreign = inspected_report(asked[0]) if len(asked) == 1 else None
    if foreign is not None:
        if result is not None:
            raise InvalidOptionError(
                f"--output: another compiler made '{asked[0].name}', and the costs that a page shows are not known here. Leave it out."
            )
        output.show(inspection_text(foreign), "report", foreign.to_dict(), as_json)
        return
    path = result if result is not None else None if as_json else DEFAULT
    if path is not None:
        check_report(path)
    if node_data is not None:
        files.check_folder(node_data)
    ratios = () if accuracy is None else measured_accuracy(accuracy)
    with output.Steps(quiet, verbose) as steps:
        data, *others = (_data(model, pareto, steps) for model in asked)
        data = with_accuracy(data, ratios) if ratios else data
        shown = compared(data, *others) if others else data
    if node_data is not None:
        from openneutron.features.explorer.nodes import node_data_files, nodes_of_report

        files.write(node_data_files(node_data, nodes_of_report(data)), node_data)
    if path is not None:
        write_report(shown, path)
    said = "" if path is None else f"{path}, {size_text(path.stat().st_size)}"
    if as_json or not quiet:
        output.show(Text(said), "report", shown.to_dict(), as_json)


def inspected_model(asked: GivenModel) -> Inspection | None:
    """Return the contents of the model's file if another compiler made it; None for any other model."""
    source = asked.source
    return inspected(source.path) if isinstance(source, ModelFile) and source.form is LITERT else None


def inspected_report(asked: AskedModel) -> Inspection | None:
    """Return the contents of the file that the argument names, if it is a ``.tflite`` of another compiler; None for
    any other argument."""
    path = Path(asked.name)
    return inspected(path) if form_of(path) is LITERT else None


def _data(asked: AskedModel, with_pareto: bool, steps: output.Steps) -> ReportData:
    """Return the report data of one argument. A report, a ``.pte`` and a ``.tflite`` with facts have the data inside.
    Any other model is compiled here; ``with_pareto`` then adds the search for memory against latency."""
    from openneutron.api.reporting import data_of, stored_data

    name = asked.name
    path = Path(name)
    form = form_of(path)
    if path.suffix in PAGES or (form is not None and is_compiled(form, path)):
        return stored_data(files.existing(name))
    model, _ = compiled(asked.given(), steps, for_figures=True)
    with measured(steps):
        return data_of(model, with_pareto)


@takes_a_model(without=("sram_budget", "check", "profile", *OF_CONVERTERS, "any_runtime"))
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
        with caching(None if asked.request.cache is None else opened(asked.request.cache)), measured(steps):
            points = points_of(model)
    if not points:
        raise InvalidModelError(f"'{source}': none of it runs on the NPU. `openneutron explain` gives the reasons.")
    constants = ", constants from flash" if asked.request.options.prefetch_constants else ""
    title = f"{source}{constants}: SRAM against modelled latency on {asked.target.name}"
    if plot is not None:
        files.write({plot: _picture(title, points, plot.suffix)})
    table = pareto_table(points)
    facts = {
        "model": str(source),
        "target": asked.target.name,
        "prefetch_constants": asked.request.options.prefetch_constants,
        "io_place": model.compile_options.place,
    }
    output.show(Group(Text(title, "bold"), table), "pareto", facts | {"points": table.to_json()}, as_json)


def _picture(title: str, points: Sequence[BudgetPoint], suffix: str) -> bytes:
    from openneutron.features.report.page.charts import pareto_spec
    from openneutron.features.report.page.document import picture

    return picture([(title, pareto_spec(points))], suffix)
