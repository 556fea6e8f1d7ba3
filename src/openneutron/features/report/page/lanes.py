# SPDX-License-Identifier: BSD-3-Clause
"""The graph of a report as rows in the order of execution, with its edges in lanes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from openneutron.features.report.page.charts import microseconds
from openneutron.features.report.page.data import INPUT, ON_CPU, OUTPUT, GraphNode, ReportData, unit_name

LANE, ROW, DOT = 12, 24, 4.5
"""The width of a lane, the height of a row and the radius of a node, in pixels."""

COLOURS = 6
"""The colours of partitions, in turn."""

MOST_LANES = 14
"""Lanes that are drawn; nodes further out are drawn in the last one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The lanes of one row: that of its node, those that pass by, those that end in the node, and whether the node's own lane
    goes on above and below."""

    lane: int
    passing: tuple[int, ...]
    joining: tuple[int, ...]
    above: bool
    below: bool


def slots(nodes: Sequence[GraphNode]) -> list[Slot]:
    """Return the lanes of each row. A value has a lane from its node to the last node that reads it."""
    last_reader = {source: index for index, node in enumerate(nodes) for source in node.inputs}
    lanes: list[int | None] = []  # the node whose value each lane holds
    found = []
    for index, node in enumerate(nodes):
        sources = set(node.inputs)
        ending = [lane for lane, held in enumerate(lanes) if held in sources and last_reader[held] == index]
        joining = [lane for lane, held in enumerate(lanes) if held in sources]
        for lane in ending:
            lanes[lane] = None
        own = ending[0] if ending else next((lane for lane, held in enumerate(lanes) if held is None), len(lanes))
        if own == len(lanes):
            lanes.append(None)
        passing = tuple(lane for lane, held in enumerate(lanes) if held is not None)
        goes_on = index in last_reader
        lanes[own] = index if goes_on else None
        while lanes and lanes[-1] is None:
            lanes.pop()
        above = own in ending
        found.append(Slot(own, passing, tuple(lane for lane in joining if lane != own), above, goes_on))
    return found


def graph_table(data: ReportData, label: str, notes: Mapping[int, str] | None = None) -> str:
    """Return the graph as a table in a region called ``label``. The last column has the reasons of nodes on the CPU, or with ``notes``
    a note about some nodes, by their positions, whose rows are marked."""
    last = "why" if notes is None else "difference"
    columns = (("", ""), ("where", ""), ("name", ""), ("operator", ""), ("time", ' class="number"'), (last, ""))
    headings = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in columns)
    places = slots(data.graph)
    width = LANE * (1 + min(MOST_LANES, max((max((slot.lane, *slot.passing)) for slot in places), default=0) + 1))
    rows = "\n".join(
        _row(data, node, slot, width, None if notes is None else notes.get(index, ""))
        for index, (node, slot) in enumerate(zip(data.graph, places, strict=True))
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label, quote=True)}"><table class="graph">'
        f"<thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(data: ReportData, node: GraphNode, slot: Slot, width: int, note: str | None) -> str:
    layer = None if node.layer is None else data.layers[node.layer]
    colour = (
        "cpu"
        if node.kind == ON_CPU
        else "io"
        if node.kind in (INPUT, OUTPUT)
        else f"p{(node.partition or 0) % COLOURS}"
    )
    where = {ON_CPU: "CPU", INPUT: "", OUTPUT: ""}.get(node.kind, unit_name(node.partition or 0))
    hint, time = node.reason, ""
    if layer is not None:
        time = f"{microseconds(data, layer.cycles):,.0f} us"
        hint = f"{'x'.join(map(str, layer.output))}, {time}, bound by {layer.bottleneck}"
        hint += f"; {layer.idle}" if layer.idle else ""
    hint = "; ".join(filter(None, (note, hint)))
    said = note if note is not None else node.reason if node.kind == ON_CPU else ""
    return (
        f'<tr class="{colour}{" changed" if note else ""}" title="{escape(hint, quote=True)}"><td class="lanes">{_drawing(slot, width, node.kind)}</td>'
        f'<td class="where">{where}</td><th scope="row">{escape(node.name)}</th>'
        f'<td class="operator">{escape(node.operator)}</td><td class="number">{time}</td><td class="why">{escape(said)}</td></tr>'
    )


def _drawing(slot: Slot, width: int, kind: str) -> str:
    """Return the row's part of the edges, and its node: a circle on the NPU, a square on the CPU, a ring for inputs and outputs."""

    def across(lane: int) -> float:
        return LANE * (min(lane, MOST_LANES) + 1)

    own, middle = across(slot.lane), ROW / 2
    paths = [f"M{across(lane):g} 0V{ROW}" for lane in slot.passing]
    paths += [f"M{across(lane):g} 0C{across(lane):g} {middle:g} {own:g} 0 {own:g} {middle:g}" for lane in slot.joining]
    paths += [f"M{own:g} 0V{middle:g}"] if slot.above else []
    paths += [f"M{own:g} {middle:g}V{ROW}"] if slot.below else []
    shape = f'<circle cx="{own:g}" cy="{middle:g}" r="{DOT}"/>'
    if kind == ON_CPU:
        shape = f'<rect x="{own - DOT:g}" y="{middle - DOT:g}" width="{2 * DOT:g}" height="{2 * DOT:g}"/>'
    return f'<svg width="{width}" height="{ROW}" aria-hidden="true"><path d="{"".join(paths)}"/>{shape}</svg>'
