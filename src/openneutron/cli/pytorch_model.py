# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models through ``openneutron.api.pytorch``: what ``compile`` and ``explain`` do with them."""

from __future__ import annotations

import dataclasses
from typing import Any

from openneutron import files
from openneutron.cli.model_source import PyTorchModel
from openneutron.cli.options import GivenModel, Results
from openneutron.cli.progress import Steps
from openneutron.hushed import hushed
from openneutron.ir import Graph
from openneutron.needs_pytorch import needs_pytorch
from openneutron.report import Summary


def compile_pytorch(source: PyTorchModel, asked: GivenModel, results: Results, steps: Steps) -> Summary:
    """Compile the model, write the ``.pte`` and the other results, and return the figures."""
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


def explain_pytorch(source: PyTorchModel, asked: GivenModel, steps: Steps) -> Summary:
    """Return the figures that compiling the model would have. The example inputs calibrate it, since scales have no
    cost."""
    with hushed():
        report: Summary = _compiled(source, asked, steps, must_delegate=False).report
    return dataclasses.replace(report, file_bytes=None)


def graphs_of_pytorch(source: PyTorchModel, asked: GivenModel, steps: Steps) -> list[Graph]:
    """Return the graphs of the model's parts for the NPU, as ``explain_pytorch`` finds them."""
    with hushed():
        made = _compiled(source, asked, steps, must_delegate=False)
        return [part.compiled.graph for part in made.partitions]


def _compiled(source: PyTorchModel, asked: GivenModel, steps: Steps, must_delegate: bool) -> Any:
    """Return the CompiledModel. Where only its figures matter, its example inputs calibrate it."""
    front_end = _front_end(steps)
    loaded = front_end.source.load(source, asked.weights)
    samples = [loaded.sample(loaded.call)]
    if must_delegate or asked.calibration is not None:
        samples = front_end.source.samples(source, loaded, asked.calibration, asked.weights)
    delegation = asked.delegation
    if not must_delegate:
        delegation = dataclasses.replace(delegation, must_delegate=False, any_runtime=True)
    return front_end.compile.compile(
        loaded.model,
        loaded.example_inputs,
        example_kwargs=loaded.example_kwargs,
        calibration=samples,
        options=asked.options,
        quantization=asked.quantization,
        delegation=delegation,
        progress=steps,
        name=str(source),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _FrontEnd:
    """The modules that need PyTorch."""

    compile: Any
    source: Any


def _front_end(steps: Steps) -> _FrontEnd:
    """Import the modules that need PyTorch. Raises MissingToolError where a package of it is not installed."""
    steps("Loading PyTorch", 0, 1)
    with needs_pytorch("PyTorch models take"):
        import openneutron.api.pytorch as compile
        import openneutron.cli.pytorch_source as source
    return _FrontEnd(compile, source)
