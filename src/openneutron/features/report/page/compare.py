# SPDX-License-Identifier: BSD-3-Clause
"""A comparison of two reports: figures, layers, graphs and operators on the CPU that differ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from openneutron.features.report.advice import BudgetPoint
from openneutron.features.report.latency import modelled_text
from openneutron.features.report.page import charts
from openneutron.features.report.page.charts import (
    BAR_STEP,
    LABEL_WIDTH,
    PART_COLOURS,
    SHOWN,
    Chart,
    Spec,
    axis,
    tip,
    values,
)
from openneutron.features.report.page.data import ON_CPU, ON_NPU, Figures, Layer, ReportData
from openneutron.features.report.page.document import document, figure, table, tiles
from openneutron.features.report.page.graph import graph_table
from openneutron.features.report.table import Table, range_text, short_name, size_text

PIECE = re.compile(r"(/(\d+|left|middle|right))+$")
"""The suffix of a name that distinguishes pieces and patches of one operator."""

NOTABLE = 0.01
"""A change of a layer's time is noted from this share of the time in the other compile."""


def layer_key(layer: Layer) -> str:
    """Return the name that a layer is compared by: its module, or its name without the suffix for pieces. Kernel calls
    of one module have the same name."""
    return layer.module or PIECE.sub("", layer.name)


def cycles_by_key(data: ReportData) -> dict[str, int]:
    """Return the cycles by ``layer_key``, with the cycles of copies of constants."""
    spent: dict[str, int] = defaultdict(int)
    for layer in data.layers:
        spent[layer_key(layer)] += layer.cycles + layer.copy_cycles
    return spent


def notes(data: ReportData, other: ReportData) -> dict[int, str]:
    """Return notes on how ``data`` differs from ``other``, another compile, by the positions of nodes in
    ``data.graph``.

    A note says that the other compile runs the node on the other processor, that it does not have the node, or by how
    many percent its layer takes more or less time in ``data``. Nodes without a notable difference have no note.
    Kernel calls with one ``layer_key`` count as one layer, which is noted at its first node.
    """
    here, there = cycles_by_key(data), cycles_by_key(other)
    on_cpu = {node.name for node in other.graph if node.kind == ON_CPU}
    found: dict[int, str] = {}
    seen: set[str] = set()
    for index, node in enumerate(data.graph):
        if node.kind == ON_CPU:
            if node.name in there:
                found[index] = "on the NPU in the other"
            elif node.name not in on_cpu:
                found[index] = "only here"
        elif node.kind == ON_NPU and node.layer is not None:
            key = layer_key(data.layers[node.layer])
            said = "" if key in seen else _note(here[key], there.get(key), key in on_cpu)
            seen.add(key)
            if said:
                found[index] = said
    return found


def _note(here: int, there: int | None, on_cpu: bool) -> str:
    if there is None:
        return "on the CPU in the other" if on_cpu else "only here"
    if not there or abs(here - there) < NOTABLE * there:
        return ""
    return f"{100 * (here / there - 1):+.0f} %"


def graphs(data: Sequence[ReportData], names: Sequence[str]) -> str:
    """Return both graphs as HTML. Each graph has notes on its differences from the other one."""
    about = (
        "Both graphs in the order of execution. A shaded row is different in the other: its layer takes more or less time here, "
        "runs elsewhere there, or exists here alone. Of a layer in several kernel calls, the first one has the difference of all."
    )
    sides = "".join(
        f"<div><h3>{escape(name)}</h3>{graph_table(one, f'Graph of {name}', notes(one, other))}</div>"
        for name, one, other in zip(names, data, reversed(data), strict=True)
    )
    return f'<p class="about">{about}</p><div class="sides">{sides}</div>'


COLOURS = (PART_COLOURS[0], PART_COLOURS[1])


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of two compiles, A and B. ``change`` is the relative change ``(b - a) / a``; None where ``a`` is 0."""

    name: str
    a: float
    b: float
    change: float | None


@dataclass(frozen=True, slots=True)
class LayerChange:
    """The cycles of a layer in two compiles, with those of copies of its constants. ``a_cycles`` or ``b_cycles`` is
    None for a compile that does not have the layer. ``cycles`` is ``b_cycles - a_cycles``, where None counts as 0.

    ``name`` is the layer's module or its name. Kernel calls of one layer, such as pieces and patches, are added up.
    """

    name: str
    a_cycles: int | None
    b_cycles: int | None
    cycles: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two compiles, A and B, and their differences. ``layers`` are sorted by the size of the change, the largest first.
    ``only_a`` and ``only_b`` are the CPU fallbacks that only A or only B has."""

    a: ReportData
    b: ReportData
    figures: tuple[Change, ...]
    layers: tuple[LayerChange, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def names(self) -> tuple[str, str]:
        """Return a name for each compile. The names are the first of these that differ: models, chips, SRAM budgets. If
        all are equal, the names are "first" and "second"."""
        both = (self.a, self.b)
        budgets = [size_text(data.figures.sram_budget_bytes) for data in both]
        for one, other in (
            (self.a.model, self.b.model),
            (self.a.target.name, self.b.target.name),
            (f"budget {budgets[0]}", f"budget {budgets[1]}"),
        ):
            if one != other:
                return one, other
        return "first", "second"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison and both reports as values for JSON."""
        return {
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "figures": [asdict(item) for item in self.figures],
            "layers": [asdict(item) for item in self.layers],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }


def _count(name: str) -> Callable[[Figures], str]:
    return lambda figures: f"{getattr(figures, name):,.0f}"


def _bytes(name: str) -> Callable[[Figures], str]:
    return lambda figures: size_text(getattr(figures, name))


def _latency(figures: Figures) -> str:
    others, expected = figures.host_operators_not_modelled, figures.expected_milliseconds
    return modelled_text(figures.modelled_milliseconds, others, expected)


COMPARED: dict[str, tuple[str, Callable[[Figures], str]]] = {
    "modelled_milliseconds": ("latency", _latency),
    "npu_cycles": ("cycles of the NPU", _count("npu_cycles")),
    "copy_cycles": ("cycles of copies", _count("copy_cycles")),
    "host_cycles": ("cycles of the host", _count("host_cycles")),
    "total_sram_bytes": ("SRAM with weights", _bytes("total_sram_bytes")),
    "peak_sram_bytes": ("SRAM of a run", _bytes("peak_sram_bytes")),
    "weights_bytes": ("weights", _bytes("weights_bytes")),
    "microcode_bytes": ("microcode", _bytes("microcode_bytes")),
    "operators_on_npu": ("operators on the NPU", _count("operators_on_npu")),
    "operators": ("operators", _count("operators")),
    "macs": ("MACs on the NPU", _count("macs")),
    "utilisation": ("multipliers used", lambda figures: f"{100 * figures.utilisation:.1f} %"),
}
"""The figures that are compared. Each has a label and a function that returns the figure as text."""


def compared(a: ReportData, b: ReportData) -> Comparison:
    """Return the comparison of two compiles."""
    figures = []
    for name in COMPARED:
        one, other = float(getattr(a.figures, name)), float(getattr(b.figures, name))
        figures.append(Change(name, one, other, (other - one) / one if one else None))
    spent = [cycles_by_key(data) for data in (a, b)]
    layers = []
    for name in dict.fromkeys((*spent[0], *spent[1])):
        before, after = (each.get(name) for each in spent)
        layers.append(LayerChange(name, before, after, (after or 0) - (before or 0)))
    layers.sort(key=lambda item: -abs(item.cycles))
    left = [[f"{item.operator} '{item.name}': {item.reason}" for item in data.fallbacks] for data in (a, b)]
    only_a, only_b = (tuple(item for item in one if item not in other) for one, other in (left, left[::-1]))
    return Comparison(a, b, tuple(figures), tuple(layers), only_a, only_b)


def comparison_page(both: Comparison) -> str:
    """Return the HTML page of a comparison. Raises MissingToolError without vl-convert-python."""
    one, other = both.names
    parts = [("figures", "Figures", _figures(both)), ("graph", "Graphs", graphs((both.a, both.b), both.names))]
    drawn = []
    if both.layers:
        drawn.append(_layers(both))
    if both.a.pareto and both.b.pareto:
        drawn.append(_pareto(both))
    parts += [(chart.key, chart.title, figure(chart)) for chart in drawn]
    rows = [(name, item) for name, items in ((one, both.only_a), (other, both.only_b)) for item in items]
    if rows:
        parts.append(
            (
                "cpu",
                "On the CPU in one of the two",
                table(Table.of_rows(("only in", "operator"), tuple(rows)), "Operators on the CPU in one of the two"),
            )
        )
    subtitle = "; ".join(dict.fromkeys(f"{data.target.name} ({data.target.title})" for data in (both.a, both.b)))
    head = tiles(
        (
            _tile("Latency", both, "modelled_milliseconds"),
            _tile("SRAM of a run", both, "peak_sram_bytes"),
            _tile("Weights", both, "weights_bytes"),
            _tile("On the NPU", both, "operators_on_npu"),
        )
    )
    title = f"{one} and {other}" if both.a.model != both.b.model else f"{both.a.model}: {one} and {other}"
    return document(title, subtitle, head, parts, drawn, both.to_dict())


NEGLIGIBLE = 0.0005
"""A relative change smaller than this is shown as no change."""


def _change(item: Change) -> str:
    return (
        "" if item.change is None else "no change" if abs(item.change) < NEGLIGIBLE else f"{100 * item.change:+.1f} %"
    )


def _tile(label: str, both: Comparison, name: str) -> tuple[str, str, str]:
    _, said = COMPARED[name]
    item = next(item for item in both.figures if item.name == name)
    one, other = both.names
    note = f"{other}; {one}: {said(both.a.figures)}, {_change(item)}" if item.a != item.b else "in both"
    return label, said(both.b.figures), note


def _figures(both: Comparison) -> str:
    rows = [
        (words, said(both.a.figures), said(both.b.figures), _change(item))
        for item, (words, said) in zip(both.figures, COMPARED.values(), strict=True)
    ]
    return table(Table.of_rows(("figure", *both.names, "change"), rows), f"{both.names[0]} and {both.names[1]}")


def _layers(both: Comparison) -> Chart:
    shown = [item for item in both.layers if item.cycles][:SHOWN] or list(both.layers[:SHOWN])
    sides = ((both.names[0], both.a, "a_cycles"), (both.names[1], both.b, "b_cycles"))
    rows: list[Spec] = [
        {
            "label": short_name(item.name, LABEL_WIDTH),
            "layer": item.name,
            "which": name,
            "us": _us(data, getattr(item, side)),
        }
        for item in shown
        for name, data, side in sides
    ]
    order = list(dict.fromkeys(row["label"] for row in rows))
    drawn = charts.spec(
        "Time of the layers that differ most, in microseconds",
        height={"step": 2 * BAR_STEP, "for": "position"},
        data=values(rows),
        mark={"type": "bar", "cornerRadiusEnd": 2},
        encoding={
            "y": charts.names_axis(order),
            "yOffset": {"field": "which", "sort": list(both.names)},
            "x": axis("us", "microseconds"),
            "color": _colour(both.names),
            "tooltip": [tip("layer", "layer"), tip("which", "in"), tip("us", "us", "quantitative", format=",.1f")],
        },
    )
    cells = tuple(
        (
            item.name,
            "" if item.a_cycles is None else item.a_cycles,
            "" if item.b_cycles is None else item.b_cycles,
            item.cycles,
        )
        for item in both.layers
    )
    text = "The layers whose time differs most. A layer that only one of the two has, has one bar."
    headings = ("layer", *(f"{name}, cycles" for name in both.names), "difference")
    return Chart("layers", "Latency by layer", text, (("largest", drawn),), Table.of_rows(headings, cells))


def _us(data: ReportData, cycles: int | None) -> float:
    return 0.0 if cycles is None else charts.microseconds(data, cycles)


def _colour(names: Sequence[str]) -> Spec:
    scale = {"domain": list(names), "range": list(COLOURS)}
    return {"field": "which", "type": "nominal", "title": None, "scale": scale, "legend": {"orient": "top"}}


def _points(name: str, points: Iterable[BudgetPoint]) -> list[Spec]:
    return [
        {
            "which": name,
            "kib": round(p.sram_bytes / 1024, 2),
            "ms": round(p.milliseconds, 4),
            "range": range_text(p.milliseconds, *p.expected_milliseconds),
        }
        for p in points
    ]


def _pareto(both: Comparison) -> Chart:
    rows = [row for name, data in zip(both.names, (both.a, both.b), strict=True) for row in _points(name, data.pareto)]
    drawn = charts.spec(
        "Modelled time of both for each amount of SRAM",
        height=280,
        data=values(rows),
        mark={"type": "line", "interpolate": "step-after", "point": True},
        encoding={
            "x": axis("kib", "SRAM, KiB", scale={"zero": True}),
            "y": axis("ms", "milliseconds", scale={"zero": True}),
            "color": _colour(both.names),
            "tooltip": [tip("which", "of"), tip("kib", "SRAM, KiB", "quantitative"), tip("range", "latency")],
        },
    )
    cells = tuple((row["which"], row["kib"], row["range"]) for row in rows)
    text = "The fastest schedule of both for each SRAM budget."
    return Chart(
        "pareto", "Memory against latency", text, (("curve", drawn),), Table.of_rows(("of", "KiB", "latency"), cells)
    )
