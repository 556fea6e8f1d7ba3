# SPDX-License-Identifier: BSD-3-Clause
"""The frame of a page: one HTML file that loads nothing, with its data, its charts and the script that draws them inside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from openneutron.features.report.page.charts import Chart
from openneutron.features.report.page.draw import script, theme
from openneutron.features.report.table import Table

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
"""Browsers load nothing for a page with this policy. Vega compiles its expressions, which takes ``unsafe-eval``."""


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
