# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models through ``openneutron.pytorch.compile``: what ``compile`` and ``explain`` do with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openneutron import files
from openneutron.cli.model_source import PyTorchModel
from openneutron.cli.needs_pytorch import needs_pytorch
from openneutron.cli.options import Border, ConverterName
from openneutron.cli.progress import Steps
from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.hushed import hushed
from openneutron.report import Summary
from openneutron.targets import Target


def compile_pytorch(
    source: PyTorchModel,
    result: Path | None,
    target: Target,
    options: CompileOptions,
    excluded: Sequence[str],
    intermediates: Path | None,
    calibration: Path | None,
    weights: Path | None,
    io: Border | None,
    keep_float: Sequence[str],
    converter: ConverterName,
    steps: Steps,
) -> Summary:
    """Compiles the model and writes the ``.pte``; its figures."""
    path = result if result is not None else Path(f"{source.stem}.pte")
    if path.suffix != ".pte":
        raise InvalidOptionError(f"--output: a PyTorch model compiles to a .pte; '{path}' is named otherwise.")
    with hushed():
        front_end = _front_end(steps)
        loaded = front_end.source.load(source, weights)
        compiled = front_end.compile.compile(
            loaded.model,
            loaded.example_inputs,
            example_kwargs=loaded.example_kwargs,
            calibration=front_end.source.samples(source, loaded, calibration, weights),
            keep_float=keep_float,
            converter=converter.value,
            **_arguments(source, target, options, excluded, io, steps),
        )
        results = {path: compiled.buffer}
        if intermediates is not None:
            for part in (*compiled.partitions, *compiled.converted):
                results |= part.intermediates(intermediates)
    files.write(results, intermediates)
    report: Summary = compiled.report
    return dataclasses.replace(report, file=str(path))


def explain_pytorch(
    source: PyTorchModel,
    target: Target,
    options: CompileOptions,
    excluded: Sequence[str],
    calibration: Path | None,
    weights: Path | None,
    keep_float: Sequence[str],
    steps: Steps,
) -> Summary:
    """What compiling the model would come to. Scales cost nothing, so that its example inputs do for calibration."""
    with hushed():
        front_end = _front_end(steps)
        loaded = front_end.source.load(source, weights)
        samples = [loaded.sample(loaded.call)]
        if calibration is not None:
            samples = front_end.source.samples(source, loaded, calibration, weights)
        analysed = front_end.compile.analyse(
            loaded.model,
            loaded.example_inputs,
            example_kwargs=loaded.example_kwargs,
            calibration=samples,
            keep_float=keep_float,
            **_arguments(source, target, options, excluded, None, steps),
        )
    report: Summary = analysed.report
    return dataclasses.replace(report, file_bytes=None)


def _arguments(
    source: PyTorchModel,
    target: Target,
    options: CompileOptions,
    excluded: Sequence[str],
    io: Border | None,
    steps: Steps,
) -> dict[str, Any]:
    return {
        "target": target.name,
        "sram_budget": None if options.sram_budget is None else options.sram_budget // 1024,
        "io": (io or Border.FLOAT32).value,
        "io_place": options.io,
        "fetch_constants_to_sram": options.fetch_constants_to_sram,
        "operators_not_to_delegate": list(excluded),
        "progress": steps,
        "name": str(source),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _FrontEnd:
    """The modules that need PyTorch."""

    compile: Any
    source: Any


def _front_end(steps: Steps) -> _FrontEnd:
    """Imports everything PyTorch. Raises MissingToolError where a package of it is not installed."""
    steps("Loading PyTorch", 0, 1)
    with needs_pytorch("PyTorch models take"):
        import openneutron.cli.pytorch_source as source
        import openneutron.pytorch.compile as compile
    return _FrontEnd(compile, source)
