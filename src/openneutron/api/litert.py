# SPDX-License-Identifier: BSD-3-Clause
"""A LiteRT file compiled with one call, without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from openneutron import files, litert
from openneutron.converter import kernel_selections
from openneutron.mixed import CompiledFile, FileSimulator, analyse_file, compile_file
from openneutron.model_options import DelegationOptions, OutputOptions, Progress, silent
from openneutron.options import CompileOptions
from openneutron.report import Summary, of_compiled_file
from openneutron.report.text import plain, summary_table
from openneutron.targets import Target


@dataclass(frozen=True, eq=False)
class CompiledLiteRTModel:
    """A compiled ``.tflite``, with the interface of ``openneutron.api.pytorch.CompiledModel``.

    ``buffer`` is the compiled file: a ``.tflite`` with NeutronGraph operators. ``compiled`` has its partitions and reasons.
    """

    compiled: CompiledFile = field(repr=False)

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        return self.compiled.name

    @property
    def target(self) -> Target:
        return self.compiled.target

    @cached_property
    def buffer(self) -> bytes:
        """Return the bytes of the ``.tflite``."""
        return self.compiled.to_bytes()

    @property
    def report(self) -> Summary:
        """Return all figures as data; ``report.to_dict()`` is the output of ``--json``."""
        return of_compiled_file(self.compiled, None, len(self.buffer))

    def summary(self) -> str:
        """Return the figures as text."""
        return plain(summary_table(self.report))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.tflite``, completely or not at all. Raises InvalidOptionError where the file can't be
        written."""
        files.write({Path(path): self.buffer})

    def run(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        """Return the outputs for these arrays, with the dtypes and shapes that the file states.

        Delegated operators run on the simulated NPU, the others in LiteRT's reference kernels. Raises
        InvalidOptionError where the arrays do not match the file's inputs.
        """
        return tuple(self._simulator.run([np.asarray(item) for item in inputs]))

    @cached_property
    def _simulator(self) -> FileSimulator:
        return FileSimulator(self.buffer)

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return each partition as a stock ``.tflite`` and as a listing of its program, for ``folder``."""
        return {folder / name: data for name, data in self.compiled.intermediates().items()}

    def kernel_selections(self, path: Path) -> dict[Path, bytes]:
        """Return C files that register only the kernels that the model calls
        (``converter.kernel_selections.selection_files``)."""
        return kernel_selections.selection_files(path, self.compiled.programs())


def compile_litert(
    path: Path,
    name: str,
    options: CompileOptions = CompileOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    outputs: OutputOptions = OutputOptions(),
    progress: Progress = silent,
) -> CompiledLiteRTModel:
    """Return the compiled file. Raises the same errors as ``openneutron.compile``."""
    selection = None if outputs.kernel_selection is None else Path(outputs.kernel_selection)
    folder = None if outputs.intermediates_dir is None else Path(outputs.intermediates_dir)
    if selection is not None:
        kernel_selections.check(selection, options.converter)
    compiled = (compile_file if delegation.must_delegate else analyse_file)(
        litert.read(path), name, options, delegation.operators_not_to_delegate, progress
    )
    result = CompiledLiteRTModel(compiled)
    made = {} if folder is None else result.intermediates(folder)
    files.write(made if selection is None else made | result.kernel_selections(selection), folder)
    return result
