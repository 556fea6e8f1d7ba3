# SPDX-License-Identifier: BSD-3-Clause
"""Write the reports of compiled models as pages that open offline. A compile does not import this module."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from openneutron.api.result import CompiledResult
from openneutron.compiler.search.pareto import one_after_the_other
from openneutron.device import files
from openneutron.device.cache import front
from openneutron.device.forms import PTE, form_of
from openneutron.device.timings import advance, step
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError
from openneutron.features.report import Summary
from openneutron.features.report.advice import BudgetPoint, advice, quick_advice, worthwhile
from openneutron.features.report.page.collect import report_data, report_of_language_model
from openneutron.features.report.page.compare import Comparison, comparison_page
from openneutron.features.report.page.data import LayerAccuracy, Measured, ReportData, facts_of, with_facts
from openneutron.features.report.page.document import converter
from openneutron.features.report.page.page import data_of as data_of_page
from openneutron.features.report.page.page import page
from openneutron.language.model import is_language_model

SUFFIXES = (".html", ".htm")


def check_report(path: Path) -> Path:
    """Return ``path`` if a report can be written there, before the work for the report begins.

    Raises InvalidOptionError where the path can't be that of a report, and MissingToolError without vl-convert-python.
    """
    if path.is_dir():
        raise InvalidOptionError(
            f"'{path}' is a folder; a report is one file. Name it, such as {path / 'report.html'}."
        )
    if path.suffix not in SUFFIXES:
        raise InvalidOptionError(f"'{path}': a report is a .html file; this name ends otherwise. Rename it.")
    files.check(path)
    converter()
    return path


def data_of(model: CompiledResult, with_pareto: bool = True, accuracy: Sequence[Measured] = ()) -> ReportData:
    """Return the data of a model's report.

    With ``with_pareto``, the data include memory against latency, which takes a search of its own, and all advice.
    Without it, they include only the advice that needs no search (``quick_advice``).
    """
    points = points_of(model) if with_pareto else ()
    with step("Trying advice"):
        found = advice(model, points) if with_pareto else quick_advice(model)
    return report_data(model.report, model.buffer, points, accuracy, found)


def points_of(model: CompiledResult) -> tuple[BudgetPoint, ...]:
    """Return the figures of compiles with increasing SRAM budgets. Each compile is faster than all with less memory.
    A compile that is less than 2% faster than the one before is left out, unless it is the fastest.

    A search finds the budgets, from the least memory up to that of a schedule with whole tensors. No budget is larger
    than the chip's SRAM, even where whole tensors need more. The model is compiled for each budget. The result is
    empty if nothing of the model runs on the NPU.
    """
    graphs, target, options = model.graphs, model.report.target, model.compile_options
    if not graphs:
        return ()
    fronts = []
    with step("Searching", len(graphs)):
        for done, graph in enumerate(graphs, 1):
            fronts.append(front(graph, target, options))
            advance(done, len(graphs))
    found, most = one_after_the_other(fronts), int(target.sram.value)
    budgets = dict.fromkeys(min(-(-point.sram_bytes // 1024), most) for point in found)
    points = []
    with step("Compiling each budget", len(budgets)):
        for done, kib in enumerate(budgets, 1):
            points += [BudgetPoint.of(kib, made) for made in _feasible(model, kib)]
            advance(done, len(budgets))
    return worthwhile(points)


def _feasible(model: CompiledResult, kib: int) -> Iterator[Summary]:
    """Yield the figures of a compile with a budget of ``kib`` KiB; nothing where the budget is too small."""
    with contextlib.suppress(BudgetError):
        yield model.figures(sram_budget=kib * 1024)


def file_with_facts(model: CompiledResult) -> bytes:
    """Return the compiled file with the data of its report appended. The data do not include memory against latency."""
    return with_facts(model.buffer, data_of(model, with_pareto=False))


def measured_accuracy(path: Path) -> tuple[LayerAccuracy, ...]:
    """Return the layers in a file with the output of ``openneutron accuracy --json``. Raises InvalidModelError for any other file."""
    try:
        layers = json.loads(path.read_bytes())["layers"]
        return tuple(LayerAccuracy(*(layer[item.name] for item in fields(LayerAccuracy))) for layer in layers)
    except OSError as error:
        raise InvalidModelError(f"'{path}' can't be read: {error.strerror}.") from error
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidModelError(
            f"'{path}': it has no accuracy of layers. `openneutron accuracy --json` prints such a file."
        ) from error


def write_report(data: ReportData | Comparison, path: Path) -> None:
    """Write the page of a report, or of a comparison of two models. Raises InvalidOptionError where it can't be written."""
    text = page(data) if isinstance(data, ReportData) else comparison_page(data)
    files.write({path: text.encode(errors="replace")})  # a file's name in the text may not be valid Unicode


def stored_data(path: Path) -> ReportData:
    """Return the report's data that a compiled file or a report contains. For the file of a language model, return
    data that are computed from its program.

    Raises InvalidModelError for a file without such data.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"'{path}' can't be read: {error.strerror}.") from error
    if path.suffix in SUFFIXES:
        return data_of_page(content.decode("utf-8", "replace"), path.name)
    if form_of(path) is PTE and is_language_model(content, path.name):
        return report_of_language_model(content, path.name)
    return facts_of(content, path.name)
