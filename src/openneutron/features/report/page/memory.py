# SPDX-License-Identifier: BSD-3-Clause
"""Memory over time, and the roofline, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openneutron.features.report.fitted import short_name
from openneutron.features.report.page.charts import (
    ACCENT,
    PART_COLOURS,
    Chart,
    Spec,
    Table,
    axis,
    label,
    microseconds,
    spec,
    tip,
    values,
)
from openneutron.features.report.page.data import CONSTANTS, ROLLING, TENSOR, Buffer, Peak, ReportData, Step, unit_name
from openneutron.features.report.units import size_text

MOST_PARTITIONS = 6
"""The partitions, those of most memory, whose memory is drawn; the table has all."""

KINDS = (TENSOR, ROLLING, CONSTANTS)
KIND_COLOURS = (PART_COLOURS[0], "#2a9d8f", PART_COLOURS[3])

STEP = "step"
"""The title of an axis of steps."""

LABELLED_HEIGHT, LABELLED_WIDTH = 0.055, 0.12
"""The shares of the chart from which a buffer is large enough for its name."""

LABEL_CHARACTERS = 90
"""Characters of a name across the whole chart."""


def memory(data: ReportData) -> Chart:
    """Return each buffer as a rectangle of addresses and live range, for each partition by step and by time."""
    largest = sorted(range(len(data.partitions)), key=lambda part: (-data.partitions[part].sram_bytes, part))
    views = []
    for part in largest[:MOST_PARTITIONS]:
        steps = [step for step in data.steps if step.partition == part]
        if steps:
            name = "" if len(data.partitions) == 1 else f"{unit_name(part)}, "
            views.append((f"{name}by step", _memory(data, part, steps, by_time=False)))
            views.append((f"{name}by time", _memory(data, part, steps, by_time=True)))
    rows = tuple(
        (
            unit_name(item.partition),
            item.name,
            item.kind,
            f"0x{item.offset:06x}",
            item.size_bytes,
            item.first,
            item.last,
            f"{item.rows_held} of {item.rows}" if item.rows else "",
        )
        for item in data.buffers
    )
    headings = ("partition", "buffer", "kind", "address", "bytes", "first step", "last step", "rows held")
    text = (
        "Each rectangle is a buffer: upwards its addresses in the arena, across the steps in which it holds a value. A rolling "
        "buffer holds some rows of its tensor; shaded columns are steps that compute several layers in stripes. Where two overlap, "
        "a result is written over bytes that are not needed any more. The outlined step has the most live bytes."
    )
    notes = tuple(_peak_text(data, peak) for peak in data.peaks)
    return Chart("memory", "Memory over time", text, tuple(views), Table(headings, rows), notes)


def _peak_text(data: ReportData, peak: Peak) -> str:
    shown = [data.buffers[index] for index in peak.buffers[:6]]
    parts = ", ".join(f"{short_name(item.name)} {size_text(item.size_bytes)} ({item.kind})" for item in shown)
    more = f" and {len(peak.buffers) - len(shown)} smaller ones" if len(peak.buffers) > len(shown) else ""
    name = unit_name(peak.partition)
    # Buffers of one address in one step are a result and the operand that it replaces.
    shared = sum(data.buffers[index].size_bytes for index in peak.buffers) - peak.live_bytes
    less = f", less {size_text(shared)} where a result is written over its operand" if shared else ""
    return f"{name}: the peak is step {peak.step}, with {size_text(peak.live_bytes)} live: {parts}{more}{less}."


def _memory(data: ReportData, part: int, steps: Sequence[Step], by_time: bool) -> Spec:
    def left(step: int) -> float:
        return microseconds(data, steps[step].start_cycle) if by_time else step

    def right(step: int) -> float:
        done = steps[step].start_cycle + steps[step].cycles
        return microseconds(data, done) if by_time else step + 1

    buffers = [item for item in data.buffers if item.partition == part]
    height = max((item.offset + item.size_bytes for item in buffers), default=1) / 1024
    width = right(len(steps) - 1) or 1
    last = len(steps) - 1
    rows = [_rectangle(item, left(min(item.first, last)), right(min(item.last, last))) for item in buffers]
    named = [
        {
            **row,
            "x": (row["from"] + row["to"]) / 2,
            "y": (row["bottom"] + row["top"]) / 2,
            "said": short_name(row["name"], max(int(LABEL_CHARACTERS * (row["to"] - row["from"]) / width), 6)),
        }
        for row in rows
        if row["top"] - row["bottom"] >= LABELLED_HEIGHT * height and row["to"] - row["from"] >= LABELLED_WIDTH * width
    ]
    loops = [
        {
            "from": left(index),
            "to": right(index),
            "bottom": 0,
            "top": height,
            "said": f"{len(step.layers)} layers in {step.times} iterations",
        }
        for index, step in enumerate(steps)
        if step.kind == "loop"
    ]
    peaks = [
        {
            "from": left(peak.step),
            "to": right(peak.step),
            "bottom": 0,
            "top": height,
            "said": f"peak: {size_text(peak.live_bytes)}",
        }
        for peak in data.peaks
        if peak.partition == part
    ]
    x_title = "microseconds" if by_time else STEP
    return spec(
        f"Addresses and live ranges of the buffers of {unit_name(part)}",
        height=380,
        layer=_layers(rows, named, loops, peaks, x_title, width, height),
    )


def _rectangle(item: Buffer, left: float, right: float) -> Spec:
    return {
        "name": item.name,
        "kind": item.kind,
        "size": size_text(item.size_bytes),
        "address": f"0x{item.offset:06x} to 0x{item.offset + item.size_bytes:06x}",
        "steps": f"{item.first} to {item.last}",
        "rows": f"{item.rows_held} of {item.rows}" if item.rows else "all",
        "from": left,
        "to": right,
        "bottom": item.offset / 1024,
        "top": (item.offset + item.size_bytes) / 1024,
    }


_SIDE = "datum.from > {} / 2 ? 'right' : 'left'"
"""The side of the outlined step that its text is on, so that the text stays inside the chart."""


_ROOM = "scale('x', datum.to) - scale('x', datum.from) - 6"
"""The pixels that a name has inside its buffer."""


def _layers(
    rows: list[Spec], named: list[Spec], loops: list[Spec], peaks: list[Spec], x_title: str, width: float, height: float
) -> list[Spec]:
    ticks = {"grid": False} if x_title != STEP else {"grid": False, "tickMinStep": 1, "format": "d"}
    place: dict[str, Any] = {
        "x": axis("from", x_title, scale={"domain": [0, width], "nice": False}, axis=ticks),
        "x2": {"field": "to"},
        "y": axis("bottom", "address, KiB", scale={"domain": [0, height], "nice": False}),
        "y2": {"field": "top"},
    }
    tooltip = [tip("name", "buffer"), tip("kind", "kind"), tip("size", "size"), tip("address", "address")]
    tooltip += [tip("steps", "live in steps"), tip("rows", "rows held")]
    there = [index for index, kind in enumerate(KINDS) if any(row["kind"] == kind for row in rows)]
    colour = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": [KINDS[index] for index in there], "range": [KIND_COLOURS[index] for index in there]},
        "legend": {"orient": "top"},
    }
    middle = {"x": {**place["x"], "field": "x"}, "y": {**place["y"], "field": "y"}, "text": {"field": "said"}}
    peak = {"type": "rect", "fill": None, "stroke": ACCENT, "strokeWidth": 2, "strokeDash": [4, 3], "clip": True}
    return [
        {
            "data": values(loops),
            "mark": {"type": "rect", "color": "#888", "opacity": 0.16},
            "encoding": {**place, "tooltip": [tip("said", "stripes")]},
        },
        {
            "data": values(rows),
            "mark": {"type": "rect", "opacity": 0.82, "stroke": "white", "strokeWidth": 0.6, "clip": True},
            "encoding": {**place, "color": colour, "tooltip": tooltip},
        },
        {
            "data": values(named),
            "mark": {
                "type": "text",
                "fontSize": 10,
                "color": "white",
                "limit": {"expr": _ROOM},
                "tooltip": None,
                "aria": False,
            },
            "encoding": middle,
        },
        {"data": values(peaks), "mark": peak, "encoding": {**place, "tooltip": [tip("said", "peak")]}},
        {
            "data": values(peaks),
            "mark": {"type": "text", "align": {"expr": _SIDE.format(width)}, "dy": -8, "color": ACCENT, "aria": False},
            "encoding": {**middle, "x": place["x"], "y": {**place["y"], "field": "top"}},
        },
    ]


# -- roofline ------------------------------------------------------------------------------------------------------------


def _points(data: ReportData) -> tuple[list[Spec], list[tuple[str | int | float, ...]]]:
    """Return the layers that multiply as marks of the roofline, and as rows of its table."""
    rows: list[Spec] = []
    table: list[tuple[str | int | float, ...]] = []
    for index, layer in enumerate(data.layers):
        moved = layer.read_bytes + layer.written_bytes + layer.weights_bytes
        if not layer.macs or not moved or not layer.cycles:
            continue
        per_byte, per_cycle = (float(f"{layer.macs / amount:.4g}") for amount in (moved, layer.cycles))
        table.append((label(data, index), layer.macs, moved, per_byte, per_cycle, layer.bottleneck))
        rows.append(
            {
                "layer": layer.name,
                "kernel": layer.kernel,
                "intensity": per_byte,
                "rate": per_cycle,
                "us": microseconds(data, layer.cycles),
                "bound": layer.bottleneck,
                "why": layer.idle,
            }
        )
    return rows, table


def roofline(data: ReportData) -> Chart:
    """Return multiply-accumulates per cycle against those per byte, for layers that multiply, below the limits of the chip."""
    rows, table = _points(data)
    most, ridge = data.target.macs_per_cycle, data.target.macs_per_cycle / (data.target.moved_bytes_per_cycle or 1)
    low = min([0.1, *(row["intensity"] for row in rows)])
    high = max([10 * ridge, *(2 * row["intensity"] for row in rows)])
    slow = min([0.5, *(row["rate"] / 2 for row in rows)])
    roof = [{"intensity": x, "rate": min(most, x * data.target.moved_bytes_per_cycle)} for x in (low, ridge, high)]
    log = {"type": "log", "nice": False}
    ticks = {"labelOverlap": "greedy", "labelSeparation": 8}
    x = axis("intensity", "multiply-accumulates per byte moved", scale={**log, "domain": [low, high]}, axis=ticks)
    y = axis("rate", "multiply-accumulates per cycle", scale={**log, "domain": [slow, 2 * most]}, axis=ticks)
    tooltip = [tip("layer", "layer"), tip("kernel", "kernel"), tip("intensity", "MACs per byte", "quantitative")]
    tooltip += [tip("rate", "MACs per cycle", "quantitative"), tip("us", "us", "quantitative", format=",.1f")]
    tooltip += [tip("bound", "bound by"), tip("why", "because")]
    colours = {"domain": ["compute", "memory", "dispatch"], "range": list(PART_COLOURS[:3])}
    drawn = spec(
        "Roofline: multiply-accumulates per cycle against multiply-accumulates per byte",
        height=320,
        layer=[
            {"data": values(roof), "mark": {"type": "line", "color": ACCENT}, "encoding": {"x": x, "y": y}},
            {
                "data": values(rows),
                "mark": {"type": "point", "filled": True, "opacity": 0.75},
                "encoding": {
                    "x": x,
                    "y": y,
                    "size": axis("us", "us", scale={"range": [20, 500]}, legend=None),
                    "color": {
                        "field": "bound",
                        "type": "nominal",
                        "title": "bound by",
                        "scale": colours,
                        "legend": {"orient": "top"},
                    },
                    "tooltip": tooltip,
                },
            },
        ],
    )
    text = (
        f"The line is the limit of the chip: {most} multiply-accumulates per cycle, and {data.target.moved_bytes_per_cycle:g} "
        "bytes per cycle between SRAM and pipelines (`openneutron targets` has the source). Each circle is a layer, as large as its "
        "time. A layer far below the line waits for its dispatch or leaves multipliers idle."
    )
    if any(row["rate"] > 1.01 * min(most, row["intensity"] * data.target.moved_bytes_per_cycle) for row in rows):
        text += " A layer above the line reads bytes more often than the cost model counts, or weights through a port of their own."
    headings = ("layer", "MACs", "bytes moved", "MACs per byte", "MACs per cycle", "bound by")
    return Chart("roofline", "Roofline", text, (("roofline", drawn),), Table(headings, tuple(table)))
