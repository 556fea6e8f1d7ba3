# SPDX-License-Identifier: BSD-3-Clause
"""The charts of a report as Vega-Lite specifications. Each chart has a table of its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openneutron.features.report.advice import BudgetPoint
from openneutron.features.report.page.data import (
    CONSTANTS,
    ROLLING,
    TENSOR,
    Buffer,
    Layer,
    Peak,
    ReportData,
    Step,
    unit_name,
)
from openneutron.features.report.table import Cell, Table, range_text, short_name, size_text

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The identifier of the Vega-Lite language in a specification. Nothing is loaded from this address."""

SHOWN = 25
"""The number of bars of a chart that shows the largest layers."""

LABEL_WIDTH = 34
"""The number of characters of a layer's name beside its bar."""

BAR_STEP = 17
"""The height of a bar with its gap, in pixels."""

COMPUTE, MEMORY, DISPATCH, COPIES = "compute", "memory", "dispatch", "copies of constants"
PARTS = (COMPUTE, MEMORY, DISPATCH, COPIES)
PART_COLOURS = ("#3f7fd1", "#d9831f", "#8d93a1", "#b4559f")
ACCENT = "#d1495b"

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a section. ``views`` has a label and a Vega-Lite specification for each view that the reader can
    select."""

    key: str
    title: str
    description: str
    views: tuple[tuple[str, Spec], ...]
    table: Table
    notes: tuple[str, ...] = field(default=())


def spec(description: str, **parts: Any) -> Spec:
    """Return a Vega-Lite specification. The chart is as wide as the HTML element that contains it."""
    autosize = {"type": "fit-x", "contains": "padding"}
    return {"$schema": SCHEMA, "description": description, "width": "container", "autosize": autosize, **parts}


def values(rows: Iterable[Spec]) -> Spec:
    """Return rows as the inline data of a specification."""
    return {"values": list(rows)}


def axis(name: str, title: str | None, **more: Any) -> Spec:
    """Return a quantitative encoding channel of field ``name``."""
    return {"field": name, "type": "quantitative", "title": title, **more}


def tip(name: str, title: str, kind: str = "nominal", **more: Any) -> Spec:
    """Return an encoding of field ``name`` as a line of a tooltip."""
    return {"field": name, "type": kind, "title": title, **more}


def label(data: ReportData, index: int) -> str:
    """Return the text beside a layer's bar: the layer's number and short name. The labels of different layers
    differ."""
    return f"{index} {short_name(data.layers[index].name, LABEL_WIDTH)}"


def names_axis(order: Sequence[str], name: str = "label") -> Spec:
    """Return the vertical encoding channel of a bar chart. Its values are those of field ``name``, from top to bottom
    in the order of ``order``."""
    return {
        "field": name,
        "type": "nominal",
        "title": None,
        "sort": list(order),
        "axis": {"labelLimit": 230, "ticks": False, "domain": False},
    }


def microseconds(data: ReportData, cycles: float) -> float:
    """Return the estimated time of ``cycles`` in microseconds, rounded to nanoseconds."""
    return round(1e3 * data.milliseconds(cycles), 3)


# -- latency -------------------------------------------------------------------------------------------------------------


def latency(data: ReportData) -> Chart:
    """Return a chart of each layer's time, divided into compute, memory, dispatch and copies. It has three views: the
    SHOWN slowest layers, all layers in order, and the sums by kernel."""
    order = range(len(data.layers))
    slowest = sorted(order, key=lambda index: (-_all_cycles(data.layers[index]), index))[:SHOWN]
    views = [(f"{len(slowest)} slowest" if len(slowest) < len(order) else "slowest first", _latency(data, slowest))]
    views += [("in order", _latency(data, order)), ("by kernel", _by_kernel(data))]
    headings = (
        *("layer", "kernel", "output", "MACs", "cycles", "time", "hangs on", "compute", "memory", "dispatch", "copies"),
        *("stripes", "used, %", "bound by"),
    )
    rows = tuple(
        (
            label(data, index),
            layer.kernel,
            "x".join(map(str, layer.output)),
            layer.macs,
            layer.cycles,
            range_text(layer.modelled_milliseconds, *layer.expected_milliseconds),
            layer.hangs_on,
            layer.compute_cycles,
            layer.memory_cycles,
            layer.dispatch_cycles,
            layer.copy_cycles,
            layer.stripes,
            round(100 * layer.utilisation, 1),
            layer.bottleneck,
        )
        for index, layer in enumerate(data.layers)
    )
    beside = ", which run beside the kernels of earlier layers" if data.target.copies_beside else ""
    text = (
        "The modelled time of each kernel call: computing, moving values, the host's dispatch, and copies of its constants "
        f"from {data.target.constants_from}{beside}. The share behind a bar is that of the multipliers at work."
    )
    return Chart("latency", "Latency by layer", text, tuple(views), Table.of_rows(headings, rows))


def _all_cycles(layer: Layer) -> int:
    return layer.cycles + layer.copy_cycles


def parts_of(layer: Layer) -> dict[str, int]:
    """Return the cycles of a layer by ``PARTS``."""
    return {
        COMPUTE: layer.compute_cycles,
        MEMORY: layer.memory_cycles,
        DISPATCH: layer.dispatch_cycles,
        COPIES: layer.copy_cycles,
    }


def _latency(data: ReportData, shown: Iterable[int]) -> Spec:
    bars, totals, order = [], [], []
    for index in shown:
        layer, name = data.layers[index], label(data, index)
        order.append(name)
        facts = {
            "label": name,
            "layer": layer.name,
            "kernel": layer.kernel,
            "output": "x".join(map(str, layer.output)),
            "stripes": layer.stripes,
            "used": f"{100 * layer.utilisation:.1f} %" if layer.macs else "no products",
            "why": layer.idle,
        }
        for rank, (part, cycles) in enumerate(parts_of(layer).items()):
            if cycles:
                bars.append({**facts, "part": part, "rank": rank, "us": microseconds(data, cycles), "cycles": cycles})
        used = f"{100 * layer.utilisation:.0f}%" if layer.macs else ""
        totals.append({"label": name, "us": microseconds(data, _all_cycles(layer)), "said": used})
    tooltip = [tip("layer", "layer"), tip("kernel", "kernel"), tip("output", "output"), tip("part", "part")]
    tooltip += [tip("us", "us", "quantitative", format=",.1f"), tip("cycles", "cycles", "quantitative", format=",")]
    tooltip += [tip("stripes", "stripes"), tip("used", "multipliers used"), tip("why", "because")]
    bar = {
        "data": values(bars),
        "mark": {"type": "bar", "cornerRadiusEnd": 2},
        "encoding": {
            "x": axis("us", "microseconds", stack="zero"),
            "color": _part_colour(bars),
            "order": {"field": "rank", "type": "quantitative"},
            "tooltip": tooltip,
        },
    }
    said = {
        "data": values(totals),
        "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10, "aria": False},
        "encoding": {"x": axis("us", "microseconds"), "text": {"field": "said"}},
    }
    return spec(
        "Time of each layer in microseconds, split into compute, memory, dispatch and copies",
        height={"step": BAR_STEP},
        encoding={"y": names_axis(order)},
        layer=[bar, said],
    )


def _part_colour(rows: Iterable[Spec]) -> Spec:
    """Return the colour channel for the parts that occur in ``rows``."""
    there = {row["part"] for row in rows}
    known = [(part, colour) for part, colour in zip(PARTS, PART_COLOURS, strict=True) if part in there]
    scale = {"domain": [part for part, _ in known], "range": [colour for _, colour in known]}
    return {"field": "part", "type": "nominal", "title": None, "scale": scale, "legend": {"orient": "top"}}


def _by_kernel(data: ReportData) -> Spec:
    spent: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(PARTS, 0))
    for layer in data.layers:
        for part, cycles in parts_of(layer).items():
            spent[layer.kernel][part] += cycles
    order = sorted(spent, key=lambda kernel: -sum(spent[kernel].values()))
    rows = [
        {"label": kernel, "part": part, "rank": rank, "us": microseconds(data, cycles), "cycles": cycles}
        for kernel in order
        for rank, (part, cycles) in enumerate(spent[kernel].items())
        if cycles
    ]
    return spec(
        "Time of each kernel in microseconds",
        height={"step": BAR_STEP},
        data=values(rows),
        mark={"type": "bar", "cornerRadiusEnd": 2},
        encoding={
            "y": names_axis(order),
            "x": axis("us", "microseconds", stack="zero"),
            "color": _part_colour(rows),
            "order": {"field": "rank", "type": "quantitative"},
            "tooltip": [tip("label", "kernel"), tip("part", "part"), tip("us", "us", "quantitative", format=",.1f")],
        },
    )


# -- weights -------------------------------------------------------------------------------------------------------------


def weights(data: ReportData) -> Chart:
    """Return a chart of the sizes of the layers' constants, the largest first. The chart has at most SHOWN layers,
    and its table has all. Layers without constants are omitted."""
    order = sorted(range(len(data.layers)), key=lambda index: (-data.layers[index].weights_bytes, index))
    order = [index for index in order if data.layers[index].weights_bytes]
    rows: list[Spec] = [
        {
            "label": label(data, index),
            "layer": data.layers[index].name,
            "kib": round(data.layers[index].weights_bytes / 1024, 3),
            "size": size_text(data.layers[index].weights_bytes),
        }
        for index in order[:SHOWN]
    ]
    drawn = spec(
        "Constants of the layers in KiB, the largest first",
        height={"step": BAR_STEP},
        data=values(rows),
        mark={"type": "bar", "cornerRadiusEnd": 2, "color": PART_COLOURS[0]},
        encoding={
            "y": names_axis([row["label"] for row in rows]),
            "x": axis("kib", "KiB"),
            "tooltip": [tip("layer", "layer"), tip("size", "constants")],
        },
    )
    table = tuple((label(data, index), data.layers[index].weights_bytes) for index in order)
    text = (
        "Weights, requantization tables and other constants of each layer, as packed for the NPU. Equal constants of several "
        "layers are stored once."
    )
    return Chart("weights", "Weights by layer", text, (("largest", drawn),), Table.of_rows(("layer", "bytes"), table))


# -- memory against latency ----------------------------------------------------------------------------------------------


def pareto(data: ReportData) -> Chart:
    """Return a chart of SRAM against latency, with a mark for this compile."""
    figures = data.figures
    here = figures.peak_sram_bytes, figures.modelled_milliseconds, figures.expected_milliseconds
    rows = tuple(
        (p.sram_bytes, f"{p.sram_budget_kib} KiB", p.cycles, range_text(p.milliseconds, *p.expected_milliseconds))
        for p in data.pareto
    )
    text = (
        "Compiles with other SRAM budgets: the memory of a run, and the latency of an inference. A budget between two points takes the "
        "left one. The diamond is this compile."
    )
    headings = ("SRAM, bytes", "--sram-budget", "cycles", "latency")
    drawn = pareto_spec(data.pareto, here)
    return Chart("pareto", "Memory against latency", text, (("curve", drawn),), Table.of_rows(headings, rows))


def pareto_spec(points: Sequence[BudgetPoint], here: tuple[int, float, Sequence[float]] | None = None) -> Spec:
    """Return a chart of SRAM against latency. ``here`` is a point to mark: bytes, milliseconds and their range."""

    def place(sram_bytes: int, milliseconds: float, expected: Sequence[float], said: str) -> Spec:
        shown = {"said": said, "range": range_text(milliseconds, *expected)}
        return {"kib": round(sram_bytes / 1024, 2), "ms": round(milliseconds, 4), **shown}

    rows = [
        place(point.sram_bytes, point.milliseconds, point.expected_milliseconds, f"{point.sram_budget_kib} KiB")
        for point in points
    ]
    now = [] if here is None else [place(*here, "this compile")]
    x, y = axis("kib", "SRAM, KiB", scale={"zero": True}), axis("ms", "milliseconds", scale={"zero": True})
    tooltip = [tip("said", "budget"), tip("kib", "SRAM, KiB", "quantitative"), tip("range", "latency")]
    line = {"type": "line", "interpolate": "step-after", "color": PART_COLOURS[0]}
    dot = {"type": "point", "filled": True, "size": 45, "color": PART_COLOURS[0]}
    diamond = {"type": "point", "shape": "diamond", "size": 160, "filled": True, "color": ACCENT}
    text = {"type": "text", "dy": -14, "color": ACCENT, "fontWeight": "bold"}
    return spec(
        "Modelled latency in milliseconds for each SRAM of a run in KiB",
        height=280,
        encoding={"x": x, "y": y},
        layer=[
            {"data": values(rows), "mark": line},
            {"data": values(rows), "mark": dot, "encoding": {"tooltip": tooltip}},
            {"data": values(now), "mark": diamond, "encoding": {"tooltip": tooltip[1:]}},
            {"data": values(now), "mark": text, "encoding": {"text": {"field": "said"}}},
        ],
    )


# -- accuracy ------------------------------------------------------------------------------------------------------------

LOCAL, ACCUMULATED = "alone", "with all before it"


def accuracy(data: ReportData) -> Chart:
    """Return a chart of the layers' signal-to-quantization-noise ratios: that of each layer alone, and that with all
    layers before it. The layer with the lowest ratio of either kind is first. The chart has at most 2 * SHOWN layers,
    and its table has all."""

    def lowest(item: Any) -> float:
        known = [value for value in (item.local_db, item.accumulated_db) if value is not None]
        return min(known, default=float("inf"))

    ordered = sorted(data.accuracy, key=lowest)
    shown = ordered[: 2 * SHOWN]
    rows: list[Spec] = [
        {"label": short_name(item.name, LABEL_WIDTH), "way": way, "db": round(value, 2)}
        for item in shown
        for way, value in ((LOCAL, item.local_db), (ACCUMULATED, item.accumulated_db))
        if value is not None
    ]
    colours = {"domain": [LOCAL, ACCUMULATED], "range": [PART_COLOURS[0], PART_COLOURS[1]]}
    # Colour and shape have one legend as long as their domains are the same.
    shapes = {"domain": [LOCAL, ACCUMULATED], "range": ["circle", "diamond"]}
    drawn = spec(
        "Signal-to-quantization-noise ratio of each layer in dB, the lowest first",
        height={"step": BAR_STEP},
        data=values(rows),
        mark={"type": "point", "filled": True, "size": 60},
        encoding={
            "y": {
                **names_axis(list(dict.fromkeys(row["label"] for row in rows))),
                "axis": {"grid": True, "labelLimit": 230},
            },
            "x": axis("db", "dB", scale={"zero": True}),
            "color": {"field": "way", "type": "nominal", "title": None, "scale": colours, "legend": {"orient": "top"}},
            "shape": {"field": "way", "type": "nominal", "title": None, "scale": shapes, "legend": {"orient": "top"}},
            "tooltip": [tip("label", "layer"), tip("way", "quantized"), tip("db", "dB", "quantitative")],
        },
    )
    table = tuple(
        (item.name, *("" if value is None else value for value in (item.local_db, item.accumulated_db, item.saturated)))
        for item in ordered
    )
    text = (
        "The signal-to-quantization-noise ratio of each layer's result against the float model, with this layer alone quantized, and "
        "with all layers before it quantized too: a low value loses accuracy."
    )
    headings = ("layer", "local, dB", "accumulated, dB", "saturated, share")
    return Chart("accuracy", "Accuracy by layer", text, (("lowest first", drawn),), Table.of_rows(headings, table))


MOST_PARTITIONS = 6
"""The number of partitions whose memory is drawn, the largest first. The table has all partitions."""

KINDS = (TENSOR, ROLLING, CONSTANTS)
KIND_COLOURS = (PART_COLOURS[0], "#2a9d8f", PART_COLOURS[3])

STEP = "step"
"""The title of an axis of steps."""

LABELLED_HEIGHT, LABELLED_WIDTH = 0.055, 0.12
"""The least height and width of a buffer that is labelled with its name, as shares of the chart's height and width."""

LABEL_CHARACTERS = 90
"""The number of characters of a name that fit across the whole chart."""


def memory(data: ReportData) -> Chart:
    """Return a chart of each buffer as a rectangle: upwards its addresses, and across the steps or the time in which
    it holds values. Each of the largest partitions has a view by step and a view by time."""
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
    return Chart("memory", "Memory over time", text, tuple(views), Table.of_rows(headings, rows), notes)


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
"""The Vega expression for the alignment of the text at the outlined step, which keeps the text inside the chart."""


_ROOM = "scale('x', datum.to) - scale('x', datum.from) - 6"
"""The Vega expression for the width of a name inside its buffer, in pixels."""


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


def _points(data: ReportData) -> tuple[list[Spec], list[tuple[Cell, ...]]]:
    """Return the points of the roofline chart, and the rows of its table. There is one for each layer with
    multiply-accumulates that moves bytes and takes cycles."""
    rows: list[Spec] = []
    table: list[tuple[Cell, ...]] = []
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
    """Return the roofline chart: multiply-accumulates per cycle against multiply-accumulates per byte moved, with the
    limits of the chip. Layers without multiply-accumulates are omitted."""
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
    return Chart("roofline", "Roofline", text, (("roofline", drawn),), Table.of_rows(headings, tuple(table)))
