# SPDX-License-Identifier: BSD-3-Clause
"""A LiteRT file compiled with one call, without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from openneutron import files, litert, targets
from openneutron.api.keywords import FileOptions
from openneutron.compiler import CompileOptions
from openneutron.converter import OPEN, kernel_selections
from openneutron.flags import split_flags, with_flags
from openneutron.mixed import CompiledFile, FileSimulator, analyse_file, compile_file
from openneutron.mixed.compiled_file import silent
from openneutron.options import ARENA, kib_in_bytes
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


def compile_litert(path: Path, options: FileOptions) -> CompiledLiteRTModel:
    """Return the compiled file. Raises the same errors as ``openneutron.compile``."""
    target = targets.get(options.get("target", targets.DEFAULT))
    wanted = CompileOptions(
        sram_budget=kib_in_bytes(options.get("sram_budget")),
        io=options.get("io_place", ARENA),
        fetch_constants_to_sram=options.get("fetch_constants_to_sram", False),
    )
    wanted = with_flags(wanted, split_flags(options.get("extra_flags")))
    selection, folder = options.get("kernel_selection"), options.get("intermediates_dir")
    if selection is not None:
        kernel_selections.check(Path(selection), OPEN)
    compiled = (compile_file if options.get("must_delegate", True) else analyse_file)(
        litert.read(path),
        options.get("name", path.name),
        target,
        wanted,
        options.get("operators_not_to_delegate", ()),
        options.get("progress") or silent,
    )
    result = CompiledLiteRTModel(compiled)
    made = {} if folder is None else result.intermediates(Path(folder))
    files.write(
        made if selection is None else made | result.kernel_selections(Path(selection)),
        None if folder is None else Path(folder),
    )
    return result
