# SPDX-License-Identifier: BSD-3-Clause
"""The command ``quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openneutron.cli import output
from openneutron.cli.compile import note_on_calibration, prepared
from openneutron.cli.options import OF_CONVERTERS, GivenModel, takes_a_model
from openneutron.device import files
from openneutron.device.third_party import suppressed
from openneutron.device.timings import measured, step
from openneutron.features.quantize import check_suffix, quantized
from openneutron.features.report.table import size_text

WITHOUT = (
    *("sram_budget", "io_place", "prefetch_constants", "threads", "effort", "check", "without_passes", "profile"),
    *(*OF_CONVERTERS, "operators_not_to_delegate", "any_runtime", "cache"),
    *("cpu", "cut_by_cost", "fold_quantize", "input_format", "normalize", "input_size"),
)
"""The options of a compile that do not change the quantized model."""


@takes_a_model(without=WITHOUT)
def quantize(
    *,
    asked: GivenModel,
    result: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The result: q.pt2, q.tflite or q.onnx, by its suffix."),
    ],
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Quantize a model as compile does, and write it for other runtimes.

    A .pt2 has the quantize and dequantize operators of PyTorch, a .onnx those of ONNX, a .tflite the model in integers, with int8
    inputs and outputs if --io-dtype int8 is given. The values are those that compile has. A float .tflite becomes a .tflite.
    """
    check_suffix(result.suffix, "--output")
    files.check(result)
    with output.Steps(quiet) as steps, measured(steps), suppressed():
        made = quantized(prepared(asked, steps).request)
        with step("Writing"):
            content = made.to_bytes(result.suffix)
            files.write({result: content})
    data = {"model": str(asked.source), "file": str(result), "file_bytes": len(content)}
    output.show(f"{asked.source}: quantized, {result}, {size_text(len(content))}", "quantize", data, as_json)
    if not quiet and (note := note_on_calibration(asked)):
        output.note(note)
