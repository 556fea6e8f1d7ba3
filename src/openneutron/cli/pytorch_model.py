# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models through ``openneutron.api.pytorch``: what ``compile`` and ``explain`` do with them."""

from __future__ import annotations

import dataclasses
from typing import Any

from openneutron import files
from openneutron.cli.model_source import PyTorchModel
from openneutron.cli.options import ConverterName, EffortName, IoType, Request, Results
from openneutron.cli.progress import Steps
from openneutron.compiler import CompileOptions
from openneutron.hushed import hushed
from openneutron.ir import Graph
from openneutron.needs_pytorch import needs_pytorch
from openneutron.report import Summary


def compile_pytorch(source: PyTorchModel, asked: Request, results: Results, steps: Steps) -> Summary:
    """Compiles the model and writes the ``.pte``, and what else is asked for; its figures."""
    with hushed():
        compiled = _compiled(source, asked, steps, must_delegate=True)
        made = {results.path: compiled.buffer}
        if results.intermediates is not None:
            made |= compiled.intermediates(results.intermediates)
        if results.kernel_selection is not None:
            made |= compiled.kernel_selections(results.kernel_selection)
    files.write(made, results.intermediates)
    report: Summary = compiled.report
    return dataclasses.replace(report, file=str(results.path))


def explain_pytorch(source: PyTorchModel, asked: Request, steps: Steps) -> Summary:
    """What compiling the model would come to. Scales cost nothing, so that its example inputs do for calibration."""
    with hushed():
        report: Summary = _compiled(source, asked, steps, must_delegate=False).report
    return dataclasses.replace(report, file_bytes=None)


def graphs_of_pytorch(source: PyTorchModel, asked: Request, steps: Steps) -> list[Graph]:
    """The graphs of what the NPU would run of it, as ``explain_pytorch`` finds them."""
    with hushed():
        made = _compiled(source, asked, steps, must_delegate=False)
        return [part.compiled.graph for part in made.partitions]


def _compiled(source: PyTorchModel, asked: Request, steps: Steps, must_delegate: bool) -> Any:
    """The CompiledModel. Where it need not be good for anything but its figures, its example inputs calibrate it."""
    front_end = _front_end(steps)
    loaded = front_end.source.load(source, asked.weights)
    samples = [loaded.sample(loaded.call)]
    if must_delegate or asked.calibration is not None:
        samples = front_end.source.samples(source, loaded, asked.calibration, asked.weights)
    options = asked.options
    return front_end.compile.compile(
        loaded.model,
        loaded.example_inputs,
        example_kwargs=loaded.example_kwargs,
        calibration=samples,
        target=asked.target.name,
        sram_budget=None if options.sram_budget is None else options.sram_budget // 1024,
        io=(asked.io or IoType.FLOAT32).value,
        io_place=options.io,
        fetch_constants_to_sram=options.fetch_constants_to_sram,
        operators_not_to_delegate=asked.not_delegated,
        keep_float=asked.keep_float,
        channels_last=asked.channels_last,
        converter=(asked.converter or ConverterName.OPEN).value,
        extra_flags=_flags(options),
        must_delegate=must_delegate,
        any_runtime=asked.any_runtime or not must_delegate,
        progress=steps,
        name=str(source),
    )


def _flags(options: CompileOptions) -> tuple[str, ...]:
    """The compiler's options that have no parameter of their own on this way."""
    effort = () if options.effort == EffortName.DEFAULT else (f"--effort={options.effort}",)
    return (*(("--check",) if options.check else ()), *effort)


@dataclasses.dataclass(frozen=True, slots=True)
class _FrontEnd:
    """The modules that need PyTorch."""

    compile: Any
    source: Any


def _front_end(steps: Steps) -> _FrontEnd:
    """Imports everything PyTorch. Raises MissingToolError where a package of it is not installed."""
    steps("Loading PyTorch", 0, 1)
    with needs_pytorch("PyTorch models take"):
        import openneutron.api.pytorch as compile
        import openneutron.cli.pytorch_source as source
    return _FrontEnd(compile, source)
