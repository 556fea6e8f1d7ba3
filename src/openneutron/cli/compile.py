# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile``, and MODEL compiled, for ``explain`` and ``pareto`` too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

import openneutron
from openneutron import files
from openneutron.api.compile import LOADING, output_files
from openneutron.cli import output
from openneutron.cli.model_source import LiteRTFile
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.converter import kernel_selections
from openneutron.errors import InvalidOptionError
from openneutron.options import OutputOptions
from openneutron.report.text import summary_table, timings_table
from openneutron.third_party import needs_pytorch, suppressed
from openneutron.timings import Timings, measured, step

if TYPE_CHECKING:
    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

ON_EXAMPLES = (
    "Calibrated on the example inputs alone: what runs where, memory and latency are as they will be, but the result's accuracy "
    "means nothing until it is calibrated on typical inputs. Give them with --calibration."
)


@takes_a_model()
def compile_model(
    *,
    result: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="The result; MODEL's name with .pte or _neutron.tflite."),
    ] = None,
    asked: GivenModel,
    intermediates: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep each partition here, as a stock .tflite and as a listing of its program."
        ),
    ] = None,
    dump_kernel_selection: Annotated[
        bool,
        typer.Option(
            "--dump-kernel-selection",
            help="Write a C file that registers only the kernels of the model, for the linker to drop the others: OUT's "
            "name with _kernel_selection.c; and one for each partition, OUT_<partition>_kernel_selection.c.",
        ),
    ] = False,
    kernel_selection: Annotated[Path | None, typer.Option(metavar="FILE", help="The same, under this name.")] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print the time of each step below the summary; --json has it always.")
    ] = False,
    facts: Annotated[
        bool,
        typer.Option(
            "--facts", help="Append the figures of the compile, which `openneutron report OUT` shows, to OUT."
        ),
    ] = False,
    plot: output.Plot = None,
    as_json: output.AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, and JSON with --json.")] = False,
) -> None:
    """Compile a model to a .pte or .tflite.

    A PyTorch model becomes a .pte for ExecuTorch, an int8 .tflite becomes a .tflite with NeutronGraph operators. A summary
    shows the operators on the NPU, the operators on the CPU with their reasons, latency and memory. With --json, "timings"
    has the wall_seconds and cpu_seconds of the whole and, in "steps", of each step, without those of the steps inside it.

    A calibration folder has .npy files, each with one sample or several along the first axis; for a model of several
    inputs, NAME_0.npy, NAME_1.npy ... belong together. A .npz file has arrays input0, input1 ... in the same way.
    """
    path, outputs = _results(asked, result, intermediates, kernel_selection, dump_kernel_selection)
    output.check_plot(plot)
    with output.Steps(quiet) as steps:
        made, before = compiled(asked, steps)
        with measured(steps) as clock, step("Saving"):
            file = made.with_facts() if facts else made.buffer
            files.write({path: file, **output.plotted(plot, made), **output_files(made, outputs)}, intermediates)
    spent = before + made.timings + clock.timings
    selection = None if outputs.kernel_selection is None else str(outputs.kernel_selection)
    summary = dataclasses.replace(made.report, file=str(path), kernel_selection=selection)
    if as_json or not quiet:
        table = summary_table(summary)
        shown = Group(table, "", timings_table(spent)) if timings else table
        output.show(shown, {**summary.to_dict(), "timings": spent.to_dict()}, as_json)
    if not quiet and not isinstance(asked.source, LiteRTFile) and asked.on_examples:
        output.note(ON_EXAMPLES)


def _results(
    asked: GivenModel, result: Path | None, intermediates: Path | None, selection: Path | None, dump_selection: bool
) -> tuple[Path, OutputOptions]:
    """Return the path of the compiled file, and the other results. Raises InvalidOptionError where a name has the wrong
    suffix or can't be written."""
    source = asked.source
    suffix = ".tflite" if isinstance(source, LiteRTFile) else ".pte"
    path = result if result is not None else Path(f"{source.name}{suffix}")
    if path.suffix != suffix:
        what = "a .tflite" if isinstance(source, LiteRTFile) else "a PyTorch model"
        raise InvalidOptionError(f"--output: {what} compiles to a {suffix}; '{path}' is named otherwise.")
    files.check(path)
    if isinstance(source, LiteRTFile) and path.exists() and path.samefile(source.path):
        raise InvalidOptionError(f"--output: '{path}' is the model itself. Choose another name.")
    if selection is None and dump_selection:
        selection = kernel_selections.default_path(path)
    if selection is not None:
        kernel_selections.check(selection, asked.options.converter)
        files.check(selection)
    if intermediates is not None:
        files.check_folder(intermediates)
    return path, OutputOptions(intermediates_dir=intermediates, kernel_selection=selection)


def compiled(
    asked: GivenModel, steps: output.Steps, for_figures: bool = False
) -> tuple[CompiledModel | CompiledLiteRTModel, Timings]:
    """Return the compiled model, and the times of the steps before its compile.

    ``for_figures``: nothing of the model need run on the NPU, nor in ExecuTorch's runtime here, and without calibration
    data the example inputs calibrate it, since scales have no cost. Raises the errors of ``openneutron.compile``, and
    MissingToolError where a package of the PyTorch extra is not installed.
    """
    source, delegation = asked.source, asked.delegation
    if isinstance(source, LiteRTFile):
        delegation = dataclasses.replace(delegation, must_delegate=not for_figures)
        made = openneutron.compile(
            source.path, options=asked.options, delegation=delegation, cache=asked.cache, progress=steps
        )
        return made, Timings()
    with suppressed():
        with measured(steps) as clock:
            with needs_pytorch("PyTorch models take"), step(LOADING):
                from openneutron.api.pytorch import analyse
                from openneutron.cli import pytorch_source
            with step("Loading the model"):
                loaded = pytorch_source.load(source, asked.weights)
                samples = [pytorch_source.as_sample(loaded.call)]
                if asked.calibration is not None or not for_figures:
                    samples = pytorch_source.samples(source, loaded, asked.calibration, asked.weights)
        result: CompiledModel = (analyse if for_figures else openneutron.compile)(
            loaded.model,
            loaded.call.args,
            example_kwargs=loaded.call.kwargs,
            calibration=samples,
            options=asked.options,
            quantization=asked.quantization,
            delegation=delegation,
            cache=asked.cache,
            progress=steps,
            name=str(source),
        )
        return result, clock.timings
