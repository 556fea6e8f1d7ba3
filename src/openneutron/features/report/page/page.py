# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a report, the HTML page that contains them, and the findings: where latency or accuracy is lost, and how much."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from openneutron.compiler.cost.estimate import DISPATCH, Cause
from openneutron.errors import InvalidModelError
from openneutron.features.report.latency import CPU_CALLS, modelled_text
from openneutron.features.report.page import charts, language
from openneutron.features.report.page.charts import Chart
from openneutron.features.report.page.data import Layer, ReportData, Row, from_dict
from openneutron.features.report.page.document import document, figure, picture, table, tiles
from openneutron.features.report.page.graph import graph_table
from openneutron.features.report.table import Table, count_text, plural, short_name, size_text

MOST = 10
"""The largest number of findings about time in a report."""

WORTH_CYCLES = 0.02
"""Lost time is a finding from this share of the latency."""

LOW_DB = 20.0
"""The accuracy of a layer is a finding if its signal-to-quantization-noise ratio is lower than this, in dB."""

NAMED = 3
"""The number of layers that a finding names."""


def findings(data: ReportData) -> tuple[Row, ...]:
    """Return at most MOST findings about time, the largest loss first, and after them at most NAMED findings about
    accuracy, the lowest ratio first."""
    found = [*_idle(data), *_dispatch(data), *_stripes(data), *_cpu_calls(data)]
    found.sort(key=lambda item: -item[0])
    return tuple(Row(title, text) for _, title, text in found[:MOST]) + tuple(_accuracy(data))


def _findings(data: ReportData) -> str:
    """Return the findings as HTML."""
    rows = data.section("findings")
    items = "".join(f"<li><strong>{escape(item.label)}</strong>{escape(item.text)}</li>" for item in rows)
    return f'<ul class="advice">{items}</ul>'


Finding = tuple[int, str, str]
"""A finding about time: the lost cycles, a title and a text."""


def _share(data: ReportData, cycles: float) -> str:
    return f"{100 * cycles / data.figures.modelled_cycles:.0f}%"


def _is_worth(data: ReportData, cycles: float) -> bool:
    return cycles >= WORTH_CYCLES * max(data.figures.modelled_cycles, 1)


def _names(layers: list[Layer]) -> str:
    """Return the names of the slowest layers and the number of the remaining ones. Kernel calls of one module have one
    name, which is listed once with their number."""
    calls = Counter(layer.name for layer in sorted(layers, key=lambda layer: -layer.cycles))
    first = list(calls.items())[:NAMED]
    names = ", ".join(f"'{short_name(name)}'" + (f" {count} times" if count > 1 else "") for name, count in first)
    more = len(layers) - sum(count for _, count in first)
    return names + (f" and {more} more" if more else "")


def _idle(data: ReportData) -> Iterator[Finding]:
    groups: dict[tuple[Cause, str], list[Layer]] = defaultdict(list)
    for layer in data.layers:
        for loss in layer.losses[:1]:
            groups[loss.cause, loss.text].append(layer)
    for (cause, reason), layers in groups.items():
        lost = int(sum(layer.compute_cycles * (1 - layer.utilisation) for layer in layers))
        taken = sum(layer.cycles for layer in layers)
        if cause is Cause.DISPATCH or not _is_worth(data, lost):
            continue
        yield (
            lost,
            f"{reason[0].upper()}{reason[1:]}",
            f"{plural(len(layers), 'layer')} ({_names(layers)}) {'takes' if len(layers) == 1 else 'take'} "
            f"{_share(data, taken)} of the latency and {'uses' if len(layers) == 1 else 'use'} less than half of the multipliers.",
        )


def _dispatch(data: ReportData) -> Iterator[Finding]:
    small = [layer for layer in data.layers if layer.stripes == 1 and layer.bottleneck == DISPATCH and not layer.on_cpu]
    taken = sum(layer.dispatch_cycles for layer in small)
    if _is_worth(data, taken):
        yield (
            taken,
            "Small layers",
            f"The dispatch of {plural(len(small), 'layer')} takes longer than the work of {'it' if len(small) == 1 else 'each'} "
            f"({_names(small)}): {_share(data, taken)} of the latency.",
        )


def _stripes(data: ReportData) -> Iterator[Finding]:
    striped = [layer for layer in data.layers if layer.stripes > 1]
    more = sum(layer.dispatch_cycles - layer.dispatch_cycles // layer.stripes for layer in striped)
    if striped and _is_worth(data, more):
        runs = sum(layer.stripes for layer in striped)
        yield (
            more,
            "Stripes",
            f"{plural(len(striped), 'layer')} in {runs:,} stripes save memory and take {_share(data, more)} of the latency for more dispatch.",
        )


def _cpu_calls(data: ReportData) -> Iterator[Finding]:
    beside: dict[str, list[Layer]] = defaultdict(list)
    for layer in data.layers:
        if layer.on_cpu:
            beside[layer.on_cpu].append(layer)
    for reason, layers in beside.items():
        taken = sum(layer.cycles for layer in layers)
        if _is_worth(data, taken):
            yield (
                taken,
                "Kernel calls on the host core",
                f"{plural(len(layers), 'layer')} ({_names(layers)}) {'takes' if len(layers) == 1 else 'take'} "
                f"{_share(data, taken)} of the latency on the CPU, in the program: {reason}.",
            )


def _accuracy(data: ReportData) -> Iterator[Row]:
    known = [item for item in data.accuracy if item.local_db is not None and item.local_db < LOW_DB]
    for item in sorted(known, key=lambda item: item.local_db or 0.0)[:NAMED]:
        yield Row(
            f"Accuracy of '{short_name(item.name)}'",
            f"Quantized alone, it has a signal-to-quantization-noise ratio of {item.local_db:.1f} dB.",
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a report. It is in the page if ``is_there`` returns a true value for the report's data.

    ``page`` returns the content as HTML, or ``chart`` returns the section's chart. ``text`` returns lines that
    `openneutron explain` prints after its own.

    A section with data of its own has ``item``, the class of an item, and ``collect``, which returns the items for a
    report's data. The items are in ``ReportData.sections`` and in JSON under ``key``. ``head`` returns headline figures
    as HTML in place of the usual ones. A section ``of_decoder`` is in the report of a language model alone.
    """

    key: str
    title: str
    is_there: Callable[[ReportData], Any]
    page: Callable[[ReportData], str] | None = None
    chart: Callable[[ReportData], Chart] | None = None
    item: type | None = None
    collect: Callable[[ReportData], Iterable[Any]] | None = None
    text: Callable[[ReportData], RenderableType] | None = None
    head: Callable[[ReportData], str] | None = None
    of_decoder: bool = False


def with_sections(data: ReportData) -> ReportData:
    """Return the data of a report with the items of all sections computed again."""
    made = {each.key: tuple(each.collect(data)) for each in SECTIONS if each.collect is not None}
    return replace(data, sections=made)


def texts_of(made: Callable[[], ReportData]) -> list[RenderableType]:
    """Return the text of each section that has one, below the section's title. ``made`` returns the report's data.
    Since it takes time, it is called only if a section other than those of language models (``of_decoder``) has a
    text; otherwise the result is empty."""
    if all(each.text is None or each.of_decoder for each in SECTIONS):
        return []
    return texts(made())


def texts(data: ReportData) -> list[RenderableType]:
    """Return the text of each section of this data that has one, below the section's title."""
    shown = [(each.title, each.text(data)) for each in SECTIONS if each.text is not None and each.is_there(data)]
    return [part for title, text in shown for part in ("", Text(title, "bold"), text)]


def charts_of(data: ReportData) -> list[Chart]:
    """Return the charts of the sections that are in the page of this data."""
    return [each.chart(data) for each in SECTIONS if each.chart is not None and each.is_there(data)]


def pictures(data: ReportData, suffix: str) -> bytes:
    """Return two charts as one picture: latency by layer, and memory over time. Of a chart with several views, the
    picture has the first. ``suffix`` is ``.png`` or ``.svg``. Raises InvalidModelError where nothing runs on the NPU,
    and MissingToolError without vl-convert-python."""
    if not data.layers:
        raise InvalidModelError(f"'{data.model}': none of it runs on the NPU, so there is nothing to draw.")
    drawn = (charts.latency(data), charts.memory(data))
    return picture([(f"{data.model}: {chart.title}", chart.views[0][1]) for chart in drawn], suffix)


def page(data: ReportData) -> str:
    """Return the HTML page of a report. Raises MissingToolError without vl-convert-python."""
    drawn = {chart.key: chart for chart in charts_of(data)}
    parts = []
    for each in SECTIONS:
        if each.key in drawn:
            parts.append((each.key, each.title, figure(drawn[each.key])))
        elif each.page is not None and each.is_there(data):
            parts.append((each.key, each.title, each.page(data)))
    subtitle = f"for {data.target.name} ({data.target.title}), modelled at {data.target.clock_mhz:g} MHz"
    heads = [each.head(data) for each in SECTIONS if each.head is not None and each.is_there(data)]
    return document(data.model, subtitle, "".join(heads) or _tiles(data), parts, drawn.values(), data.to_dict())


def data_of(html: str, subject: str) -> ReportData:
    """Return the report data inside an HTML page. Raises InvalidModelError, which names ``subject``, if the text is
    no page of a report of one model, or if its data is damaged or of another version."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    if found is None:
        raise InvalidModelError(f"'{subject}': it is no report of one model. `openneutron report` writes these files.")
    return from_dict(json.loads(found[1]), subject)


def _tiles(data: ReportData) -> str:
    figures, place = data.figures, data.target.place
    others, expected = figures.host_operators_not_modelled, figures.expected_milliseconds
    whole = modelled_text(figures.modelled_milliseconds, others, expected)
    parts = f"{_parts_of_time(data)}; the range hangs most on {figures.hangs_on}"
    latency = ("Latency", whole, parts)
    if not data.partitions:
        latency = ("Latency", "not known", "nothing runs on the NPU")
    elif figures.is_on_cpu and others:
        latency = ("Latency", "not known", "too much of the model is on the CPU, whose time is not modelled")
    sram = f"{size_text(figures.peak_sram_bytes)} of {size_text(figures.sram_budget_bytes)} in a run"
    if figures.total_sram_bytes != figures.peak_sram_bytes:
        sram = f"{sram}, weights {size_text(figures.weights_bytes)}"
    return tiles(
        (
            latency,
            ("SRAM", size_text(figures.total_sram_bytes), sram),
            (
                "In the program" if figures.cpu_calls else place[0].upper() + place[1:],
                f"{figures.operators_on_npu} of {figures.operators}",
                f"operators, in {plural(len(data.partitions), 'partition')}"
                + (f", {plural(figures.cpu_calls, 'kernel call')} on the CPU" if figures.cpu_calls else ""),
            ),
            (
                "Weights",
                size_text(figures.weights_bytes),
                "beside the budget" if figures.weights_fit_sram else "copied from flash in each run",
            ),
            (
                "Multipliers used",
                f"{100 * figures.utilisation:.1f} %",
                f"{count_text(figures.macs - figures.cpu_call_macs)} MACs {place}",
            ),
        )
    )


def _parts_of_time(data: ReportData) -> str:
    figures = data.figures
    parts = (
        (data.target.place.split()[-1], figures.npu_cycles),
        (CPU_CALLS, figures.cpu_call_cycles),
        ("copies", figures.copy_cycles),
        ("host", figures.host_cycles),
    )
    return ", ".join(f"{name} {100 * cycles / figures.modelled_cycles:.0f} %" for name, cycles in parts if cycles)


def _facts(data: ReportData) -> str:
    rows = "".join(f"<dt>{escape(row.label)}</dt><dd>{escape(row.text)}</dd>" for row in data.summary)
    return f'<dl class="facts">{rows}</dl>'


def _advice(data: ReportData) -> str:
    items = "".join(
        f"<li><strong>{escape(item.title)}: <code>{escape(item.options)}</code></strong>{escape(item.text)}.</li>"
        for item in data.advice
    )
    return (
        f'<p class="about">Each change was compiled, alone; these are its results.</p><ol class="advice">{items}</ol>'
    )


def _graph(data: ReportData) -> str:
    cpu = sum(node.kind == "cpu" or bool(node.reason) for node in data.graph)
    about = (
        "Operators in the order of execution; the lines beside them are values, from the operator that computes one to those that "
        f"read it. Circles run {data.target.place}, in the colour of their partition; "
        f"{'squares run on the CPU, with the reason' if cpu else 'none runs on the CPU'}."
    )
    return f'<p class="about">{about}</p>{graph_table(data, "Graph")}'


def _fallbacks(data: ReportData) -> str:
    rows = tuple(
        (
            item.operator,
            f"{item.name} ({item.line})" if item.line else item.name,
            f"{item.reason}. {item.suggestion}".strip(),
            item.macs,
            "" if item.border_bytes is None else item.border_bytes,
            _parts(item.calls, item.calls_without),
        )
        for item in data.fallbacks
    )
    headings = ("operator", "name", "why", "MACs", "bytes between NPU and CPU", "delegate calls")
    about = "Operators that stay on the CPU, with the reason and the cost. Of these the latency includes conversions and SOFTMAX alone."
    return f'<p class="about">{about}</p>{table(Table.of_rows(headings, rows), "Operators on the CPU")}'


def _parts(calls: int | None, without: int | None) -> str:
    if calls is None or without is None:
        return ""
    return f"{calls} instead of {without}" if calls > without > 0 else str(calls)


def _layers(data: ReportData) -> object:
    return data.layers


def _decoder(data: ReportData) -> object:
    return data.section("language")


SECTIONS = (
    Section("summary", "Summary", lambda data: True, _facts),
    Section("next", "What to try next", lambda data: data.advice, _advice),
    Section(
        "findings",
        "What takes time",
        lambda data: data.section("findings"),
        _findings,
        item=Row,
        collect=findings,
    ),
    Section(
        "language",
        "Language model",
        _decoder,
        language.view,
        item=language.LanguageFacts,
        collect=language.collected,
        text=language.shown,
        head=language.head,
        of_decoder=True,
    ),
    Section(
        "tokens",
        "Tokens per second by position",
        lambda data: _decoder(data) and language.facts_of(data).speeds,
        chart=language.chart,
        of_decoder=True,
    ),
    Section("graph", "Graph", lambda data: data.graph, _graph),
    Section("latency", "Latency by layer", _layers, chart=charts.latency),
    Section("memory", "Memory over time", _layers, chart=charts.memory),
    Section("pareto", "Memory against latency", lambda data: data.pareto, chart=charts.pareto),
    Section("roofline", "Roofline", _layers, chart=charts.roofline),
    Section("weights", "Weights by layer", _layers, chart=charts.weights),
    Section("accuracy", "Accuracy by layer", lambda data: data.accuracy, chart=charts.accuracy),
    Section("fallbacks", "On the CPU", lambda data: data.fallbacks, _fallbacks),
)
"""The sections of a report, in the order of the page."""
