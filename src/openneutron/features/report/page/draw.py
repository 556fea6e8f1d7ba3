# SPDX-License-Identifier: BSD-3-Clause
"""Charts as PNG and SVG, and the script that draws them in a page. All of it works offline."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.features.report.page.charts import Spec

WIDTH = 760
"""The width of a picture, in pixels."""

PNG_SCALE = 2.0
"""Pixels of a PNG for each of the chart's."""

VEGA_LITE = "6.4"
"""The version of Vega-Lite that draws pictures and pages."""

FORMATS = (".png", ".svg")

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def theme(is_dark: bool) -> Spec:
    """Return the colours and fonts of the charts."""
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
    """Raise InvalidOptionError where the suffix is not that of a picture, MissingToolError where no picture can be drawn."""
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
    """Return the package that draws. Raises MissingToolError where it is not installed."""
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Reports and pictures take the package vl-convert-python; it is not installed: pip install vl-convert-python. "
            "`openneutron explain` prints the same figures without."
        ) from error
    return vl_convert
