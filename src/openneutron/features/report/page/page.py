# SPDX-License-Identifier: BSD-3-Clause
"""A report as one HTML file that loads nothing: its data, its charts and the script that draws them are inside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from openneutron.errors import InvalidModelError
from openneutron.features.report.latency import modelled_text
from openneutron.features.report.page import charts
from openneutron.features.report.page.charts import Chart, memory, roofline
from openneutron.features.report.page.data import ReportData, from_dict
from openneutron.features.report.page.draw import picture, script, theme
from openneutron.features.report.page.graph import graph_table
from openneutron.features.report.table import Table
from openneutron.features.report.units import count_text, duration_text, plural, size_text

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
"""Browsers load nothing for a page with this policy. Vega compiles its expressions, which takes ``unsafe-eval``."""


def charts_of(data: ReportData) -> list[Chart]:
    """Return the charts of a report, those that its data has."""
    made = []
    if data.layers:
        made += [charts.latency(data), memory(data)]
    if data.pareto:
        made.append(charts.pareto(data))
    if data.layers:
        made += [roofline(data), charts.weights(data)]
    if data.accuracy:
        made.append(charts.accuracy(data))
    return made


def pictures(data: ReportData, suffix: str) -> bytes:
    """Return latency by layer and memory over time as one picture, ``.png`` or ``.svg``. Raises InvalidModelError where nothing
    runs on the NPU."""
    if not data.layers:
        raise InvalidModelError(f"'{data.model}': none of it runs on the NPU, so there is nothing to draw.")
    drawn = (charts.latency(data), memory(data))
    return picture([(f"{data.model}: {chart.title}", chart.views[0][1]) for chart in drawn], suffix)


def page(data: ReportData) -> str:
    """Return the page of a report. Raises MissingToolError without vl-convert-python."""
    drawn = charts_of(data)
    parts = [("summary", "Summary", _facts(data)), ("graph", "Graph", _graph(data))]
    parts += [(chart.key, chart.title, figure(chart)) for chart in drawn]
    if data.fallbacks:
        parts.append(("fallbacks", "On the CPU", _fallbacks(data)))
    if data.findings:
        parts.insert(1, ("findings", "What takes time", _findings(data)))
    if data.advice:
        parts.insert(1, ("next", "What to try next", _advice(data)))
    subtitle = f"for {data.target.name} ({data.target.title}), modelled at {data.target.clock_mhz:g} MHz"
    return document(data.model, subtitle, _tiles(data), parts, drawn, data.to_dict())


def data_of(html: str, subject: str) -> ReportData:
    """Return the data inside a page. Raises InvalidModelError, which names ``subject``, for any other text."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    if found is None:
        raise InvalidModelError(f"'{subject}': it is no report of one model. `openneutron report` writes these files.")
    return from_dict(json.loads(found[1]), subject)


def document(
    title: str,
    subtitle: str,
    head: str,
    parts: Sequence[tuple[str, str, str]],
    drawn: Iterable[Chart],
    data: Any,
) -> str:
    """Return a whole page: its head, sections of (id, title, content), the charts and the data."""
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in parts)
    sections = "\n".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{escape(name)}</h2>{content}</section>'
        for key, name, content in parts
    )
    specs = {chart.key: [spec for _, spec in chart.views] for chart in drawn}
    themes = {"light": theme(False), "dark": theme(True)}
    themes["light"]["background"] = "transparent"
    library = script().replace("</script", "<\\/script")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)} - OpenNeutron report</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p><nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="main">
{head}
{sections}
</main>
<footer>Made by OpenNeutron. Sizes and times are modelled; this file loads nothing from elsewhere.</footer>
{_json("data", data)}
{_json("charts", specs)}
{_json("themes", themes)}
<script>{library}</script>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files("openneutron.features.report.page").joinpath(name).read_text("utf-8")


def _json(key: str, data: Any) -> str:
    """Return data for scripts; no text inside can end the element."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{key}">{text}</script>'


def tiles(items: Iterable[tuple[str, str, str]]) -> str:
    """Return headline figures: a label, a value and a note each."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in items
    )
    return f'<dl class="tiles">{inside}</dl>'


def _tiles(data: ReportData) -> str:
    figures = data.figures
    low, high = figures.expected_milliseconds
    whole = modelled_text(figures.modelled_milliseconds, figures.host_operators_not_modelled)
    parts = _parts_of_time(data)
    if not figures.host_operators_not_modelled:
        parts += f"; {duration_text(low)} to {duration_text(high)} expected on the chip"
    latency = ("Latency", whole, parts)
    if not data.partitions:
        latency = ("Latency", "not known", "nothing runs on the NPU")
    elif figures.is_on_cpu:
        latency = ("Latency", "not known", "most of the model is on the CPU, whose time is not modelled")
    sram = f"{size_text(figures.peak_sram_bytes)} of {size_text(figures.sram_budget_bytes)} in a run"
    if figures.total_sram_bytes != figures.peak_sram_bytes:
        sram = f"{sram}, weights {size_text(figures.weights_bytes)}"
    return tiles(
        (
            latency,
            ("SRAM", size_text(figures.total_sram_bytes), sram),
            (
                "On the NPU",
                f"{figures.operators_on_npu} of {figures.operators}",
                f"operators, in {plural(len(data.partitions), 'partition')}",
            ),
            (
                "Weights",
                size_text(figures.weights_bytes),
                "beside the budget" if figures.weights_fit_sram else "copied from flash in each run",
            ),
            ("Multipliers used", f"{100 * figures.utilisation:.1f} %", f"{count_text(figures.macs)} MACs on the NPU"),
        )
    )


def _parts_of_time(data: ReportData) -> str:
    figures = data.figures
    parts = (("NPU", figures.npu_cycles), ("copies", figures.copy_cycles), ("host", figures.host_cycles))
    return ", ".join(f"{name} {duration_text(data.milliseconds(cycles))}" for name, cycles in parts if cycles)


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


def _findings(data: ReportData) -> str:
    items = "".join(f"<li><strong>{escape(item.label)}</strong>{escape(item.text)}</li>" for item in data.findings)
    return f'<ul class="advice">{items}</ul>'


def _graph(data: ReportData) -> str:
    cpu = sum(node.kind == "cpu" for node in data.graph)
    about = (
        "Operators in the order of execution; the lines beside them are values, from the operator that computes one to those that "
        "read it. Circles run on the NPU, in the colour of their partition; "
        f"{'squares run on the CPU, with the reason' if cpu else 'none runs on the CPU'}."
    )
    return f'<p class="about">{about}</p>{graph_table(data, "Graph")}'


def figure(chart: Chart) -> str:
    """Return a chart with its views, its description, and the table behind it."""
    place = f"{chart.key}-chart"
    notes = "".join(f'<p class="about">{escape(note)}</p>' for note in chart.notes)
    return (
        f'<p class="about">{escape(chart.description)}</p>{_views(chart, place)}'
        f'<div class="chart" id="{place}" data-chart="{chart.key}"></div>{notes}'
        f"<details><summary>Table of these figures</summary>{table(chart.table, chart.title)}</details>"
    )


def _views(chart: Chart, place: str) -> str:
    if len(chart.views) < 2:
        return ""
    choices = "".join(
        f'<label><input type="radio" name="{chart.key}" value="{index}"{" checked" if not index else ""}>{escape(name)}</label>'
        for index, (name, _) in enumerate(chart.views)
    )
    return f'<fieldset class="views" data-of="{place}" aria-label="Views of {escape(chart.title)}">{choices}</fieldset>'


def table(content: Table, title: str) -> str:
    """Return a table in a region that scrolls on a narrow screen."""
    label = escape(title, quote=True)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}, table">{content.html(title)}</div>'


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
