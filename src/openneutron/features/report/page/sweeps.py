# SPDX-License-Identifier: BSD-3-Clause
"""The chart of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.features.report.page.charts import Spec, axis, spec, tip, values
from openneutron.features.report.sweep import Facts, metric_text, value_text, varying


def sweep_spec(points: Sequence[Facts]) -> Spec:
    """Return the chart of SRAM against modelled time: a line for each combination of the options other than the budget, with
    the metric of the NPU in its name. Points without figures, and those of which most is on the CPU, are left out."""
    series = _series([point for point in points if point["state"] == "done"], varying(points))
    rows = [
        {"kib": round(size / 1024, 2), "ms": round(time, 4), "line": label}
        for label, items in series.items()
        for size, time in sorted(
            {(item["sram_bytes"], item["modelled_ms"]) for item in items if not item.get("is_on_cpu", False)}
        )
    ]
    tooltip = [tip("line", "options"), tip("kib", "SRAM, KiB", "quantitative"), tip("ms", "ms", "quantitative")]
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
    """Return the points of each line by its label."""
    names = [name for name in varied if name != "sram_budget"]
    found: dict[str, list[Facts]] = {}
    for point in done:
        found.setdefault(", ".join(value_text(name, point["options"][name]) for name in names), []).append(point)
    return {": ".join(filter(None, [label, _metrics(items)])): items for label, items in found.items()}


def _metrics(items: Sequence[Facts]) -> str:
    """Return the metric of the NPU on one line of the chart, or its range."""
    known = {item["metrics"]["npu"]: metric_text(item, "npu") for item in items if "npu" in item.get("metrics", {})}
    texts = [known[value] for value in sorted(known)]
    return " to ".join(texts[:: max(1, len(texts) - 1)])
