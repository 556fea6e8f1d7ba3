# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron accuracy``."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from openneutron.api.accuracy import found_repair, measured_accuracy
from openneutron.api.compile import LOADING
from openneutron.cli import output
from openneutron.cli.model_source import is_litert
from openneutron.cli.options import OF_CONVERTERS, GivenModel, takes_a_model
from openneutron.device import files
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.device.timings import measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.accuracy.report import SHOWN, accuracy_table, repair_table
from openneutron.features.evaluation.command import Metric
from openneutron.features.evaluation.metrics import check
from openneutron.options import Request, changed

ON_EXAMPLES = (
    "Calibrated and compared on the example inputs alone: the figures mean little until they are those of typical inputs. Give them "
    "with --data."
)

WITHOUT = ("check", "profile", *OF_CONVERTERS, "io_dtype", "any_runtime", "cache")
"""The options of a compile that do not change the figures of this command."""


@takes_a_model(without=WITHOUT)
def show_accuracy(
    *,
    asked: GivenModel,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The inputs to compare with, in the forms of --calibration; default: the calibration data. Without "
            "--calibration, the int8 scales come from them too.",
        ),
    ] = None,
    metric: Metric = None,
    repair: Annotated[
        float | None,
        typer.Option(
            metavar="TARGET_DB",
            help="Search the cheapest measures with which the model's results reach this ratio, and write them to --output. The exit "
            "code is 2 where they don't reach it, and without a measure no file is written.",
        ),
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The quantization file of --repair, for `openneutron compile --quantization`; default: MODEL's name with "
            "_quantization.json. A search that was interrupted goes on with FILE.journal.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help=f"Show all layers, not only {SHOWN}.")] = False,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Show the accuracy that each layer of a PyTorch model loses to int8.

    Every tensor of the simulated NPU is compared with the float model's, inside delegate calls too. Layers that cost most come
    first: "noise" is a layer's share of the noise at the model's results, "result dB" the ratio of signal to noise there with this
    layer alone quantized, "local dB" that of the layer's own result, "all dB" that with all layers before it quantized too.
    "saturated" is the share of values outside of the layer's range; "seen" is the range of the data. With labels, the metric of
    the float model and of the NPU is shown too. An interrupt shows the figures of the samples before it.
    """
    if repair is None and result is not None:
        raise InvalidOptionError(
            "--output: it is for the quantization file of --repair. Leave it out; --json prints the figures."
        )
    if repair is not None and metric is not None:
        raise InvalidOptionError(
            "--metric: --repair reaches a ratio of signal to noise, which is no metric. Leave one of them out."
        )
    check(metric)
    if repair is not None:
        _repair(asked, data, repair, result, as_json, quiet)
        return
    with output.Steps(quiet) as steps:
        report = measured_accuracy(*requested(asked, data, steps), metric)
    output.show(accuracy_table(report, None if everything else SHOWN), "accuracy", report.to_dict(), as_json)
    if not quiet and data is None and asked.on_examples:
        output.note(ON_EXAMPLES)
    if not report.complete:
        raise KeyboardInterrupt


def _repair(
    asked: GivenModel, data: str | None, target_db: float, result: Path | None, as_json: bool, quiet: bool
) -> None:
    """Search measures, write the quantization file, and show the gains and costs. Without a measure, the file is
    written only if the target is reached.

    Raises InvalidOptionError where the measures do not reach ``target_db``, and KeyboardInterrupt after an interrupt.
    """
    path = result or Path(f"{asked.source.name}_quantization.json")
    journal = path.with_name(f"{path.name}.journal")
    files.check(path)
    with output.Steps(quiet) as steps:
        report = found_repair(*requested(asked, data, steps), target_db, journal)
    has_file = bool(report.chosen) or report.is_reached
    if has_file:
        files.write({path: (json.dumps(report.quantization, indent=2) + "\n").encode()})
    written = str(path) if has_file else None
    output.show(repair_table(report), "accuracy", {**report.to_dict(), "file": written}, as_json)
    if not quiet and has_file:
        held = "has the measures" if report.chosen else "holds no measure, as none is needed"
        output.note(f"{path} {held}: {_compile_command(asked, data, path)}")
    if not report.complete:
        raise KeyboardInterrupt
    if report.shortfall is not None:
        raise InvalidOptionError(f"--repair: {report.shortfall}")


def _compile_command(asked: GivenModel, data: str | None, path: Path) -> str:
    """Return the command that compiles with the measures. They are computed anew from the same calibration data."""
    given = {"--weights": asked.weights, "--calibration": asked.data.path or data, "--quantization": path}
    if given["--calibration"] is not None:
        given |= {
            f"--{name.replace('_', '-')}": getattr(asked.data.options, name) for name in changed(asked.data.options)
        }
    words = [f"{option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None]
    return f"openneutron compile {asked.source} {' '.join(words)}"


def requested(asked: GivenModel, data: str | None, steps: output.Steps) -> tuple[Request, Any]:
    """Return the compile request of a model on the command line, and the data to compare with. The data is None if it
    is the calibration data. Raises InvalidModelError for a ``.tflite``."""
    source = asked.source
    if is_litert(source):
        raise InvalidModelError(
            f"'{source}' is a .tflite, and the layers of PyTorch models are compared here. Pass the PyTorch model; `openneutron evaluate` compares a float .tflite."
        )
    with suppressed(), measured(steps):
        with needs_pytorch("PyTorch models take"), step(LOADING):
            from openneutron.cli import pytorch_source
            from openneutron.pytorch.source.calibration_data import CalibrationData
        with step("Loading the model"):
            loaded = pytorch_source.load(source, asked.weights, asked.request.inputs)
            compared = None
            if data is not None:
                compared = CalibrationData.of(data, loaded.call, asked.data.options, "--data")
            calibration: Any = compared
            if asked.data.path is not None or data is None:
                calibration = pytorch_source.samples(source, loaded, asked.data, asked.weights)
    request = dataclasses.replace(asked.request, progress=steps)
    return pytorch_source.requested(request, loaded, calibration), compared
