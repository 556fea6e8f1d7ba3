# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron sweep``, with its results as a table and as a chart."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import openneutron
from openneutron.api.compile import check_for_tflite
from openneutron.api.evaluate import evaluated, outputs_digest
from openneutron.cli import output
from openneutron.cli.compile import Ready, note_on_calibration, prepared
from openneutron.cli.model_source import BuiltInModel, DataParameters, is_litert
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.device import converter, files
from openneutron.device.forms import SAVED_MODEL
from openneutron.features.evaluation.command import Metric, Scheduler, Workers, data_set
from openneutron.features.evaluation.metrics import check
from openneutron.features.report.latency import CPU_CALLS, modelled_text
from openneutron.features.report.page.charts import Spec, axis, spec, tip, values
from openneutron.features.report.table import Column, Table, plural, range_text, right, size_text
from openneutron.features.sweep import Compiling, Point, Row, grid, opened, run
from openneutron.features.sweep import Table as Results
from openneutron.options import CompileOptions, QuantizationOptions, Request
from openneutron.options.flags import flags_of


@takes_a_model(without=("any_runtime",), evaluates=True, varies=True)
def sweep(
    *,
    asked: GivenModel,
    texts: Mapping[str, str],
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The table of the results; default: MODEL_sweep.sqlite.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw memory against time: a .png or .svg.")] = None,
    metric: Metric = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Compile with every combination of options, and measure the accuracy of each where --data is given.

    An option takes several values with commas between them: --observer histogram,minmax. A size takes a range, with a step
    or without: 100..1500 or 100..1500..50. A switch takes yes and no: --prefetch-constants yes,no.

    The results are in a table, a SQLite file. An interrupt shows the points so far, and the same command goes on where it was;
    more values add points; several processes may work on one table at once. A budget that is too small is a row with the smallest
    sufficient one. Options of the compiler do not change what a program computes, so that programs with the same outputs share one
    evaluation.
    """
    output.check_plot(plot)
    points = grid(texts)
    check(metric)
    if is_litert(asked.source):
        given = {name: text for name, text in texts.items() if name in flags_of(QuantizationOptions)}
        plain = Request(model=None, name=asked.request.name)
        check_for_tflite(plain, given, lambda name: f"--{name}", asked.is_float)
    path = table or Path(f"{asked.source.name}_sweep.sqlite")
    interrupted: KeyboardInterrupt | None = None
    with (
        opened(path, identity(asked, metric)) as there,
        tempfile.TemporaryDirectory() as temporary,
        output.Steps(quiet) as steps,
    ):
        work = _Work(asked, there, Path(asked.request.cache or temporary), metric, workers, scheduler, steps)
        compiling = Compiling(work.compiled, work.figures, asked.request.quantization, _check)
        try:
            rows = run(points, there, compiling, steps)
        except KeyboardInterrupt as error:
            rows, interrupted = there.rows(), error
    found = [facts(point, rows[point.key]) for point in points if point.key in rows]
    title = f"{asked.source}: {plural(len(points), 'point')}, in {path}"
    if interrupted is not None:
        if not found:
            raise interrupted
        title = f"{asked.source}: {len(found)} of {plural(len(points), 'point')} until the interrupt, in {path}"
    if plot is not None:
        files.write({plot: _picture(str(asked.source), found, plot.suffix)})
    data = {"model": str(asked.source), "table": str(path), "points": found}
    output.show(sweep_table(title, found), "sweep", data, as_json)
    if not quiet and asked.evaluated.path is not None and (note := note_on_calibration(asked)):
        output.note(note)
    if interrupted is not None:
        raise interrupted


def _picture(title: str, points: Sequence[Facts], suffix: str) -> bytes:
    from openneutron.features.report.page.document import picture
    from openneutron.features.sweep.command import sweep_spec

    return picture([(title, sweep_spec(points))], suffix)


def facts(point: Point, row: Row) -> dict[str, Any]:
    """Return a point as values for JSON: its options, its state and its figures."""
    return {"options": point.values, "state": row.state, **row.result}


def identity(asked: GivenModel, metric: str | None) -> dict[str, str]:
    """Return the facts that all points of a table have in common, as texts by name. A table of other facts is another
    sweep's."""
    source = asked.source
    return {
        "model": str(source),
        "hash of the model": "" if isinstance(source, BuiltInModel) else _hash(source.path),
        "hash of the weights": "" if asked.weights is None else _hash(asked.weights),
        "calibration": _words(asked.data),
        "data": _words(asked.evaluated),
        "metric": (metric or "") if asked.evaluated.path is not None else "",
        "float layers": ", ".join(map(str, asked.request.quantization.keep_float)),
        "layout": str(asked.request.quantization.channels_last),
        "operators on the CPU": ", ".join(asked.request.delegation.operators_not_to_delegate),
        "version": openneutron.__version__,
    }


def _words(data: DataParameters) -> str:
    options = data.options
    parts = (data.path, options.preprocess, options.sample_rate, options.calibration_samples)
    return ", ".join(str(part) for part in parts if part is not None)


def _hash(path: Path) -> str:
    file = path / SAVED_MODEL.member if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


class _Work:
    """The compiles and evaluations of a sweep. The model is loaded when the first point is compiled."""

    def __init__(
        self,
        asked: GivenModel,
        table: Results,
        cache: Path,
        metric: str | None,
        workers: int | None,
        scheduler: str | None,
        steps: output.Steps,
    ) -> None:
        self._asked, self._table, self._cache = asked, table, cache
        self._metric, self._workers, self._scheduler, self._steps = metric, workers, scheduler, steps
        self._ready: Ready | None = None

    def compiled(self, options: CompileOptions, quantization: QuantizationOptions) -> Any:
        """Return the model compiled with these options."""
        if self._ready is None:
            self._ready = prepared(self._asked, self._steps, for_figures=self._asked.evaluated.path is None)
        request = dataclasses.replace(
            self._ready.request, options=options, quantization=quantization, cache=self._cache
        )
        return self._ready.compiled(request)

    def figures(self, program: Any, quantization: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures of a program as values for JSON. With a data set they include the metrics."""
        report = program.report
        found = {
            "sram_bytes": report.sram_bytes,
            "total_sram_bytes": report.total_sram_bytes,
            "modelled_cycles": report.cycles,
            "npu_cycles": report.npu_cycles,
            "cpu_call_cycles": report.cpu_call_cycles,
            "copy_cycles": report.copy_cycles,
            "host_cycles": report.host_cycles,
            "host_operators_not_modelled": report.host_operators_not_modelled,
            "modelled_ms": report.milliseconds,
            "expected_ms": list(report.band),
            "is_on_cpu": report.is_on_cpu,
            "weights_bytes": report.weights_bytes,
            "file_bytes": len(program.buffer),
            "operators": report.operators,
            "operators_on_npu": report.operators_on_npu,
        }
        return found if self._asked.evaluated.path is None else found | self._metrics(program, quantization)

    def _metrics(self, program: Any, quantization: Mapping[str, Any]) -> dict[str, Any]:
        data = data_set(self._asked, program)
        name = f"{sorted(quantization.items())} {outputs_digest(program, data)}"
        kept = self._table.evaluation(name)
        if kept is None:
            assert self._ready is not None
            made = evaluated(
                program, data, self._ready.model, self._metric, self._workers, self._scheduler, self._steps
            )
            kept = made.to_dict()
            self._table.keep_evaluation(name, kept)
        sides = {side["side"]: side["metric"] for side in kept["sides"] if side["metric"] is not None}
        return {"metric": kept["metric"], "metrics": sides, "pairs": kept["pairs"]}


def _check(options: CompileOptions) -> None:
    """Check the options of a point. Raises InvalidOptionError, for example, for a budget above the memory of the
    chip."""
    converter.get(options.converter).check(options)


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
            others = point["host_operators_not_modelled"]
            is_on_cpu = point.get("is_on_cpu", False) and others > 0
            text = modelled_text(point["modelled_ms"], others, point["expected_ms"])
            cells.append("not known" if is_on_cpu else text)
            cells += [_part_text(point, name) for name in parts]
            cells.append(size_text(point["file_bytes"]))
            cells += [metric_text(point, side) for side in sides]
            cells.append("too much of the model is on the CPU" if is_on_cpu else "")
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
