# SPDX-License-Identifier: BSD-3-Clause
"""The results of a sweep as a table and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.features.report.latency import CPU_CALLS, modelled_text
from openneutron.features.report.page.charts import Spec, axis, spec, tip, values
from openneutron.features.report.table import Column, Table, right
from openneutron.features.report.units import range_text, size_text

SHARES = ("top1", "top5")
"""The metrics that are shown in per cent."""

PARTS = {"NPU": "npu_cycles", CPU_CALLS: "cpu_call_cycles", "copies": "copy_cycles", "host": "host_cycles"}
"""The parts of the latency, with the keys of their cycles in a point's data."""

Facts = Mapping[str, Any]
"""A point as values for JSON: ``options``, ``state`` and its figures."""


def sweep_table(title: str, points: Sequence[Facts]) -> RenderableType:
    """Return a table with a row for each point: the options that vary, memory, latency with its parts, and the metric
    of each side. For a point without figures, the row has its state."""
    varied = varying(points)
    sides = list(dict.fromkeys(side for point in points for side in point.get("metrics", ())))
    columns = [right(f"--{name.replace('_', '-')}", style="cyan") for name in varied]
    done = [point for point in points if point["state"] == "done"]
    with_weights = any(point["total_sram_bytes"] != point["sram_bytes"] for point in done)
    parts = [name for name in PARTS if any(point.get(PARTS[name]) for point in done)]
    parts = parts if len(parts) > 1 else []
    headings = ["SRAM", *(["with weights"] if with_weights else []), "time", *parts, "file", *sides]
    columns += [*map(right, headings), Column(wraps=True)]
    rows = []
    for point in points:
        cells = [value_text(name, point["options"][name]) for name in varied]
        if point["state"] == "done":
            cells.append(size_text(point["sram_bytes"]))
            cells += [size_text(point["total_sram_bytes"])] if with_weights else []
            is_on_cpu = point.get("is_on_cpu", False)
            others = point["host_operators_not_modelled"]
            text = modelled_text(point["modelled_ms"], others, point["expected_ms"])
            cells.append("not known" if is_on_cpu else text)
            cells += [_part_text(point, name) for name in parts]
            cells.append(size_text(point["file_bytes"]))
            cells += [metric_text(point, side) for side in sides]
            cells.append("most of the model is on the CPU" if is_on_cpu else "")
        else:
            cells += [""] * len(headings) + [_reason(point)]
        rows.append(cells)
    return Group(Text(title, "bold"), Table.of_rows(columns, rows))


def _part_text(point: Facts, name: str) -> str:
    """Return the share of a part in the latency as text; an empty string if the part has no cycles."""
    cycles = point.get(PARTS[name])
    return f"{100 * cycles / point['modelled_cycles']:.0f} %" if cycles else ""


def metric_text(point: Facts, side: str) -> str:
    """Return the metric of a side as text, in per cent for a share; an empty string without a metric."""
    value = point.get("metrics", {}).get(side)
    if value is None:
        return ""
    return f"{100 * value:.2f} %" if point["metric"] in SHARES else f"{value:.6g}"


def _reason(point: Facts) -> str:
    if point["state"] == "infeasible":
        return f"infeasible: {-(-point['least_sram_bytes'] // 1024)} KiB are enough"
    if point["state"] == "running":
        return "another process computes it"
    return str(point["error"])


def varying(points: Sequence[Facts]) -> list[str]:
    """Return the names of the options that differ between points."""
    names = list(points[0]["options"])
    return [name for name in names if len({repr(point["options"][name]) for point in points}) > 1]


def value_text(name: str, value: Any) -> str:
    """Return the value of an option in the form of the command line."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "sram_budget":
        return str(value // 1024)
    return " ".join(value) if isinstance(value, (list, tuple)) else str(value)


def sweep_spec(points: Sequence[Facts]) -> Spec:
    """Return the chart of SRAM against modelled latency. It has a line for each combination of the options other than
    the budget; the line's label has the metric of the NPU. Points without figures, and points with most of the model
    on the CPU, are left out."""
    series = _series([point for point in points if point["state"] == "done"], varying(points))
    rows = [
        {"kib": round(size / 1024, 2), "ms": round(time, 4), "range": range_text(time, *expected), "line": label}
        for label, items in series.items()
        for size, time, expected in sorted(
            {
                (item["sram_bytes"], item["modelled_ms"], tuple(item["expected_ms"]))
                for item in items
                if not item.get("is_on_cpu", False)
            }
        )
    ]
    tooltip = [tip("line", "options"), tip("kib", "SRAM, KiB", "quantitative"), tip("range", "time")]
    encoding: Spec = {
        "x": axis("kib", "SRAM, KiB", scale={"zero": True}),
        "y": axis("ms", "modelled time, ms", scale={"zero": True}),
        "tooltip": tooltip,
    }
    if any(series):
        legend = {"orient": "bottom", "columns": 1, "labelLimit": 700}
        encoding["color"] = {
            "field": "line", "type": "nominal", "title": None, "sort": list(series), "legend": legend
        }  # fmt: skip
    return spec(
        "Modelled time in milliseconds of each point of a sweep, against its SRAM in KiB",
        height=280,
        data=values(rows),
        encoding=encoding,
        layer=[
            {"mark": {"type": "line", "interpolate": "step-after"}},
            {"mark": {"type": "point", "filled": True, "size": 45}},
        ],
    )


def _series(done: Sequence[Facts], varied: Sequence[str]) -> dict[str, list[Facts]]:
    """Return the points of each line of the chart by the line's label."""
    names = [name for name in varied if name != "sram_budget"]
    found: dict[str, list[Facts]] = {}
    for point in done:
        found.setdefault(", ".join(value_text(name, point["options"][name]) for name in names), []).append(point)
    return {": ".join(filter(None, [label, _metrics(items)])): items for label, items in found.items()}


def _metrics(items: Sequence[Facts]) -> str:
    """Return the metric of the NPU over the points of one line as text: one value, or the range."""
    known = {item["metrics"]["npu"]: metric_text(item, "npu") for item in items if "npu" in item.get("metrics", {})}
    texts = [known[value] for value in sorted(known)]
    return " to ".join(texts[:: max(1, len(texts) - 1)])
