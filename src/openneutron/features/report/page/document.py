# SPDX-License-Identifier: BSD-3-Clause
"""The HTML document of a page, which loads nothing from elsewhere, and charts as pictures."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.features.report.page.charts import Chart, Spec
from openneutron.features.report.table import Table

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
"""The content security policy of a page: browsers load nothing for it. Vega compiles its expressions, which requires
``unsafe-eval``."""


def document(
    title: str,
    subtitle: str,
    head: str,
    parts: Sequence[tuple[str, str, str]],
    drawn: Iterable[Chart],
    data: Any,
) -> str:
    """Return the HTML of a page from its head, its sections of (id, title, content), its charts and its data. Raises
    MissingToolError without vl-convert-python."""
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
    """Return an HTML element with data for scripts, escaped so that no text in the data can end the element."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{key}">{text}</script>'


def tiles(items: Iterable[tuple[str, str, str]]) -> str:
    """Return the headline figures as HTML. Each has a label, a value and a note."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in items
    )
    return f'<dl class="tiles">{inside}</dl>'


def figure(chart: Chart) -> str:
    """Return the HTML of a chart with its views, its description and the table of its figures."""
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
    """Return the HTML of a table in a region that scrolls on a narrow screen."""
    label = escape(title, quote=True)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}, table">{content.html(title)}</div>'


WIDTH = 760
"""The width of a picture, in pixels."""

PNG_SCALE = 2.0
"""The number of pixels of a PNG for each pixel of the chart."""

VEGA_LITE = "6.4"
"""The version of Vega-Lite that draws pictures and pages."""

FORMATS = (".png", ".svg")

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def theme(is_dark: bool) -> Spec:
    """Return the Vega-Lite configuration with the colours and fonts of the charts."""
    text, line, grid = ("#d5d8df", "#5b6272", "#363c49") if is_dark else ("#2b303b", "#aab0bd", "#e3e6ec")
    words = {
        "labelColor": text,
        "titleColor": text,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "background": "transparent" if is_dark else "white",
        "font": FONT,
        "view": {"stroke": "transparent"},
        "axis": {**words, "gridColor": grid, "domainColor": line, "tickColor": line},
        "legend": {**words, "symbolType": "square"},
        "title": {"color": text, "fontSize": 13, "anchor": "start"},
        "text": {"color": text},
    }


def check_format(path: Path, option: str) -> None:
    """Check that a picture can be written to ``path``. Raises InvalidOptionError, which names ``option``, if the suffix
    is not that of a picture, and MissingToolError without vl-convert-python."""
    if path.suffix not in FORMATS:
        raise InvalidOptionError(f"{option}: '{path}' is no {' or '.join(FORMATS)}; nothing else is drawn.")
    converter()


def picture(charts: list[tuple[str, Spec]], suffix: str) -> bytes:
    """Return titled charts, one below the other, as PNG or SVG. Raises MissingToolError without vl-convert-python."""
    drawn: Spec = {
        "$schema": charts[0][1]["$schema"],
        "vconcat": [{**_fixed(spec), "title": title} for title, spec in charts],
        "resolve": {"scale": {"color": "independent", "size": "independent"}},
    }
    if len(charts) == 1:
        drawn = {**_fixed(charts[0][1]), "title": charts[0][0]}
    arguments: dict[str, Any] = {"vl_version": VEGA_LITE, "config": theme(False)}
    if suffix == ".png":
        return bytes(converter().vegalite_to_png(drawn, scale=PNG_SCALE, **arguments))
    return str(converter().vegalite_to_svg(drawn, **arguments)).encode()


def _fixed(spec: Spec) -> Spec:
    made = copy.copy(spec)
    made.pop("autosize", None)
    made.pop("$schema", None)
    return {**made, "width": WIDTH}


@cache
def script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``. Raises MissingToolError where
    vl-convert is not installed."""
    return str(converter().javascript_bundle(vl_version=VEGA_LITE))


@cache
def converter() -> Any:
    """Return the module ``vl_convert``, which draws charts. Raises MissingToolError where it is not installed."""
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Reports and pictures take the package vl-convert-python; it is not installed: pip install vl-convert-python. "
            "`openneutron explain` prints the same figures without."
        ) from error
    return vl_convert
