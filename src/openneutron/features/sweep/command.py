# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron sweep``."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

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
from openneutron.features.report.units import plural
from openneutron.features.sweep import Compiling, Point, Row, Table, grid, opened, run
from openneutron.features.sweep.shown import Facts, sweep_table
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
    from openneutron.features.sweep.shown import sweep_spec

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
        table: Table,
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
