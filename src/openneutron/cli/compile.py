# SPDX-License-Identifier: BSD-3-Clause
"""The command ``openneutron compile``, and the compile of MODEL that ``explain`` and ``pareto`` use too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType

from openneutron.api import compile as compiling
from openneutron.api.compile import LOADING, output_files
from openneutron.api.share_arena import check_names, share_arena
from openneutron.cli import output
from openneutron.cli.ending import told
from openneutron.cli.model_source import is_litert
from openneutron.cli.options import AskedModel, GivenModel, takes_a_model
from openneutron.device import files
from openneutron.device.converter import kernel_selections
from openneutron.device.forms import LITERT, Kind
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.device.timings import Timings, measured, step
from openneutron.errors import InvalidOptionError
from openneutron.features.report.shared_arena import shared_arena_table
from openneutron.features.report.text import summary_table, timings_table
from openneutron.options import OutputOptions, Request

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

UNTIL_CALIBRATED = (
    "alone: what runs where, memory and latency are as they will be, but the result's accuracy means nothing until it is calibrated on "
    "typical inputs. Give them with --calibration."
)
ON_EXAMPLES = f"Calibrated on the example inputs {UNTIL_CALIBRATED}"
ON_RANDOM = f"Calibrated on random inputs {UNTIL_CALIBRATED}"


def note_on_calibration(asked: GivenModel) -> str:
    """Return the note that a model was calibrated on example inputs or random ones; empty where it has calibration data."""
    if not asked.on_examples:
        return ""
    return ON_RANDOM if asked.is_float else ON_EXAMPLES


@takes_a_model(several=True)
def compile_model(
    *,
    result: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The result; MODEL's name with .pte or _neutron.tflite. Of several models their folder.",
        ),
    ] = None,
    asked: list[AskedModel],
    intermediates: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep each partition here, as a stock .tflite and as a listing of its program; of several models in a folder for "
            "each.",
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
    kernel_selection: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same, under this name (one model).")
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print the time of each step below the summary; --json has it always.")
    ] = False,
    facts: Annotated[
        bool,
        typer.Option(
            "--facts", help="Append the figures of the compile, which `openneutron report OUT` shows, to OUT."
        ),
    ] = False,
    shares_arena: Annotated[
        bool,
        typer.Option(
            "--share-arena",
            help="Plan the memory of several models whose runs use one arena, one after the other: --sram-budget is for all of them, with "
            "the states that each keeps. A model that does not fit is an error, and nothing is written.",
        ),
    ] = False,
    plot: output.Plot = None,
    as_json: output.AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, and JSON with --json.")] = False,
    verbose: output.Verbose = False,
) -> None:
    """Compile models to .pte or .tflite files.

    A PyTorch model becomes a .pte for ExecuTorch, a .tflite becomes a .tflite with NeutronGraph operators. A summary
    shows the operators on the NPU, the operators on the CPU with their reasons, latency and memory. With --json, "timings"
    has the wall_seconds and cpu_seconds of the whole and, in "steps", of each step, without those of the steps inside it.

    Of several models each is compiled, whatever happens to the others. The exit code is 0 if all are compiled. With
    --share-arena all models are compiled or none, and the memory of all follows the summaries.

    Calibration data are pictures (.png, .jpg, .jpeg, .bmp) or WAV files, flat or with a folder for each class, with the steps of
    --preprocess; or the model's inputs themselves: .npy files, each with one sample or several along the first axis (for a
    model of several inputs, NAME_0.npy, NAME_1.npy ... belong together), a .npz file with arrays input0, input1 ... in the
    same way, or what a loader in a Python file yields.
    """
    wanted = Wanted(result, intermediates, kernel_selection, dump_kernel_selection, facts, plot)
    shown = Shown(timings, as_json, quiet, verbose)
    if shares_arena:
        compile_sharing(asked, wanted, shown)
        return
    if len(asked) > 1:
        compile_several(asked, wanted, shown)
        return
    model = asked[0].given()
    table, data = _written(model, wanted, shown)
    if as_json or not quiet:
        output.show(table, "compile", data, as_json)
    if not quiet and (note := note_on_calibration(model)):
        output.note(note)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The files that a compile writes, as the command line names them."""

    result: Path | None = None
    intermediates: Path | None = None
    kernel_selection: Path | None = None
    dump_kernel_selection: bool = False
    facts: bool = False
    plot: Path | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """The amount of output of a compile."""

    timings: bool = False
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False


def compile_several(asked: Sequence[AskedModel], wanted: Wanted, shown: Shown) -> None:
    """Compile models into a folder, one after the other, and print the summary or the error of each.

    Raises InvalidOptionError for an option that names one file, and typer.Exit with the highest exit code of a model.
    """
    folder = _folder(len(asked), wanted)
    written: dict[Path, str] = {}
    results: list[dict[str, Any]] = []
    codes = []
    for model in asked:
        try:
            given = model.given()
            path = folder / default_path(given)
            if path in written:
                raise InvalidOptionError(
                    f"its result would replace that of '{written[path]}', '{path}'. Compile it alone, with --output."
                )
            table, data = _written(given, _of_one(given, wanted, path), shown)
            written[path] = model.name
        except Exception as error:  # whatever happens to one model, the others are compiled
            codes.append(told(error, model.name))
            results.append({"model": model.name, "error": str(error)})
            continue
        results.append(data)
        if not shown.as_json and not shown.quiet:
            output.show(Group(table, ""), "compile", {}, False)
        if not shown.quiet and (note := note_on_calibration(given)):
            output.note(f"{model.name}: {note}")
    if shown.as_json:
        output.show("", "compile", {"models": results}, True)
    if codes:
        raise typer.Exit(max(codes))


def _folder(count: int, wanted: Wanted) -> Path:
    """Return the folder of the results of several models, which is made where it is absent.

    Raises InvalidOptionError for an option that names one file.
    """
    if wanted.kernel_selection is not None:
        raise InvalidOptionError(
            f"--kernel-selection: it names one file for {count} models. Use --dump-kernel-selection."
        )
    if wanted.plot is not None:
        raise InvalidOptionError(f"--plot: it names one picture for {count} models. Compile each model alone.")
    folder = wanted.result or Path()
    files.make_folder(folder)
    return folder


def _of_one(given: GivenModel, wanted: Wanted, path: Path) -> Wanted:
    """Return the files of one of several models."""
    inside = None if wanted.intermediates is None else wanted.intermediates / given.source.name
    return dataclasses.replace(wanted, result=path, intermediates=inside)


def compile_sharing(asked: Sequence[AskedModel], wanted: Wanted, shown: Shown) -> None:
    """Compile models that share one arena into a folder, and print their summaries and the memory of all.

    Raises InvalidOptionError where there is one model or two have one name or one result, before any of them is compiled, BudgetError
    where one does not fit, and the errors of ``compiled``.
    """
    check_names([model.name for model in asked], "--share-arena")
    models = [model.given() for model in asked]
    folder = _folder(len(models), wanted)
    paths = [folder / default_path(given) for given in models]
    for path in paths:
        if paths.count(path) > 1:
            raise InvalidOptionError(f"--share-arena: the result of two models is '{path}'. Rename one of the files.")
    places = [_results(given, _of_one(given, wanted, path)) for given, path in zip(models, paths, strict=True)]
    with output.Steps(shown.quiet, shown.verbose) as steps:
        made, before = zip(*(compiled(given, steps) for given in models), strict=True)
        with measured(steps) as clock, step("Sharing"):
            shared = share_arena(made, sram_budget=models[0].request.options.sram_budget)
        results: dict[Path, bytes] = {}
        for model, (path, outputs) in zip(shared.models, places, strict=True):
            results |= {path: model.with_facts() if wanted.facts else model.buffer, **output_files(model, outputs)}
        files.write(results, wanted.intermediates)
    spent = [first + model.timings for first, model in zip(before, made, strict=True)]
    spent[-1] += clock.timings
    shows = [
        _shown(model, path, outputs, time, shown)
        for model, (path, outputs), time in zip(shared.models, places, spent, strict=True)
    ]
    tables: list[RenderableType] = [part for table, _ in shows for part in (table, "")]
    data = {"models": [data for _, data in shows], "shared_arena": shared.memory.to_dict()}
    if shown.as_json or not shown.quiet:
        output.show(Group(*tables, shared_arena_table(shared.memory)), "compile", data, shown.as_json)
    if not shown.quiet:
        for given, one in zip(models, asked, strict=True):
            if note := note_on_calibration(given):
                output.note(f"{one.name}: {note}")


def _written(asked: GivenModel, wanted: Wanted, shown: Shown) -> tuple[RenderableType, dict[str, Any]]:
    """Compile a model, write its files, and return its summary as a table and as data."""
    path, outputs = _results(asked, wanted)
    output.check_plot(wanted.plot)
    with output.Steps(shown.quiet, shown.verbose) as steps:
        made, before = compiled(asked, steps)
        with measured(steps) as clock, step("Saving"):
            file = made.with_facts() if wanted.facts else made.buffer
            results = {path: file, **output.plotted(wanted.plot, made), **output_files(made, outputs)}
            files.write(results, wanted.intermediates)
    return _shown(made, path, outputs, before + made.timings + clock.timings, shown)


def _shown(
    made: CompiledModel | CompiledLiteRTModel, path: Path, outputs: OutputOptions, spent: Timings, shown: Shown
) -> tuple[RenderableType, dict[str, Any]]:
    """Return the summary of a compiled model as a table and as data."""
    selection = None if outputs.kernel_selection is None else str(outputs.kernel_selection)
    summary = dataclasses.replace(made.report, file=str(path), kernel_selection=selection)
    table = summary_table(summary, advice=made.quick_advice)
    advice = [dataclasses.asdict(item) for item in made.quick_advice]
    data = {**summary.to_dict(), "advice": advice, "timings": spent.to_dict()}
    return Group(table, "", timings_table(spent)) if shown.timings else table, data


def default_path(asked: GivenModel) -> Path:
    """Return the name of the compiled file where none is given."""
    return Path(f"{asked.source.name}{_suffix(asked)}")


def _suffix(asked: GivenModel) -> str:
    return (LITERT.kind if is_litert(asked.source) else Kind.PYTORCH).result


def _results(asked: GivenModel, wanted: Wanted) -> tuple[Path, OutputOptions]:
    """Return the path of the compiled file, and the other results. Raises InvalidOptionError where a name has the
    wrong suffix, is that of the model itself, or can't be written."""
    source, suffix = asked.source, _suffix(asked)
    path = wanted.result if wanted.result is not None else default_path(asked)
    if path.suffix != suffix:
        what = "a .tflite" if is_litert(source) else "a PyTorch model"
        raise InvalidOptionError(f"--output: {what} compiles to a {suffix}; '{path}' is named otherwise.")
    files.check(path)
    if is_litert(source) and path.exists() and path.samefile(source.path):
        raise InvalidOptionError(f"--output: '{path}' is the model itself. Choose another name.")
    selection = wanted.kernel_selection
    if selection is None and wanted.dump_kernel_selection:
        selection = kernel_selections.default_path(path)
    if selection is not None:
        kernel_selections.check(selection, asked.request.options.converter, asked.request.options.target)
        files.check(selection)
    if wanted.intermediates is not None:
        files.check_folder(wanted.intermediates)
    return path, OutputOptions(intermediates_dir=wanted.intermediates, kernel_selection=selection)


def compiled(
    asked: GivenModel, steps: output.Steps, for_figures: bool = False
) -> tuple[CompiledModel | CompiledLiteRTModel, Timings]:
    """Return the compiled model, and the times of the steps before its compile. Raises as ``compiled_with_model`` does."""
    made, _, before = compiled_with_model(asked, steps, for_figures)
    return made, before


def compiled_with_model(
    asked: GivenModel, steps: output.Steps, for_figures: bool = False
) -> tuple[CompiledModel | CompiledLiteRTModel, nn.Module | ExportedProgram | None, Timings]:
    """Return the compiled model, the float model, and the times of the steps before the compile. The float model is
    None for a ``.tflite``.

    ``for_figures`` means that only modelled figures are wanted. The compile then does not fail where no operator runs
    on the NPU, or where this machine's ExecuTorch runtime lacks a kernel. A PyTorch model without calibration data is
    then calibrated with its example inputs, since the scales do not change the cost. Raises the errors of
    ``openneutron.compile``, and MissingToolError where a package of the PyTorch extra is not installed.
    """
    ready = prepared(asked, steps, for_figures)
    return ready.compiled(ready.request), ready.model, ready.timings


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A model of the command line, ready to be compiled. ``request`` has the loaded model with its calibration samples,
    or the path of a ``.tflite``. ``model`` is the float model; None for a ``.tflite``. ``timings`` are the times of the
    steps so far."""

    request: Request
    model: nn.Module | ExportedProgram | None = None
    timings: Timings = field(default_factory=Timings)

    def compiled(self, request: Request) -> CompiledModel | CompiledLiteRTModel:
        """Return the model compiled as ``request`` asks. Raises the errors of ``openneutron.compile``."""
        with suppressed():
            return compiling.compiled(request)


def prepared(asked: GivenModel, steps: output.Steps, for_figures: bool = False) -> Ready:
    """Return the model, loaded and ready to be compiled. Raises as ``compiled_with_model`` does."""
    source = asked.source
    request = dataclasses.replace(asked.request, progress=steps)
    if is_litert(source):
        delegation = dataclasses.replace(request.delegation, must_delegate=not for_figures)
        request = dataclasses.replace(request, model=source.path, delegation=delegation, loading=source.loading)
        if asked.is_float:
            from openneutron.api.float_litert import random_samples, source_of

            graph, given = source.form.read(source.path, source.loading).graph, asked.data.path
            data = random_samples(graph) if given is None else given
            found = source_of(data, graph, asked.data.options, "--calibration")
            request = dataclasses.replace(request, calibration=found)
        return Ready(request)
    if for_figures:
        request = request.for_figures()
    with suppressed(), measured(steps) as clock:
        with needs_pytorch("PyTorch models take"), step(LOADING):
            from openneutron.api import pytorch  # noqa: F401  (the imports of the compile, which take seconds)
            from openneutron.cli import pytorch_source
        with step("Loading the model"):
            loaded = pytorch_source.load(source, asked.weights, asked.request.inputs)
            if asked.data.path is not None or not for_figures:
                samples = pytorch_source.samples(source, loaded, asked.data, asked.weights)
            else:
                samples = pytorch_source.example_samples(loaded)
    return Ready(pytorch_source.requested(request, loaded, samples), loaded.model, clock.timings)
