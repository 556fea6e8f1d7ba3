# SPDX-License-Identifier: BSD-3-Clause
"""Compile a LiteRT file with one call, without importing torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.api.compile import check_for_tflite
from openneutron.api.result import CompiledResult, check_partitions
from openneutron.device.converter import kernel_selections
from openneutron.device.converter.releases import Release
from openneutron.device.mixed import CompiledFile, compile_file
from openneutron.device.timings import Timings, measured, step
from openneutron.errors import InvalidOptionError
from openneutron.features.report import Summary, of_compiled_file
from openneutron.features.report.as_nxp import AsNxp, as_nxp
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.litert.write import pack
from openneutron.options import ARENA, CompileOptions, FrameFormat, Request, changed, with_changes
from openneutron.targets import Target

if TYPE_CHECKING:
    from openneutron.device.mixed import FileSimulator


@dataclass(frozen=True, eq=False)
class CompiledLiteRTModel(CompiledResult):
    """The result of ``openneutron.compile`` for a ``.tflite``, with the interface of ``CompiledModel``.

    ``buffer`` is the compiled file: a ``.tflite`` with NeutronGraph operators. ``compiled`` has the partitions, and the
    reasons of the CPU fallbacks; ``timings`` has the times of the compile's steps. ``real`` has the bytes of the
    float file before it was quantized here; None for a file that was given quantized.

    >>> import openneutron
    >>> program = openneutron.compile("net.tflite")  # doctest: +SKIP
    >>> program.run(image)  # doctest: +SKIP
    """

    compiled: CompiledFile = field(repr=False)
    buffer: bytes = field(repr=False)
    timings: Timings = field(default=Timings(), repr=False)
    real: bytes | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        return self.compiled.name

    @property
    def target(self) -> Target:
        """Return the chip that the model is compiled for."""
        return self.compiled.target

    @property
    def graphs(self) -> list[Graph]:
        """Return the graphs of the partitions that this project's compiler compiled; none with NXP's converter."""
        return [part.graph for part in self.compiled.parts]

    @property
    def programs(self) -> tuple[Program, ...]:
        """Return the programs of the partitions that this project's compiler made; none with NXP's converter."""
        return tuple(self.compiled.programs().values())

    @property
    def report(self) -> Summary:
        """Return the figures of the compile as data; ``report.to_dict()`` is the output of ``--json``."""
        return of_compiled_file(self.compiled, None, len(self.buffer))

    def as_nxp(self, release: Release) -> AsNxp:
        """Return which operators of the file NXP's flow would run on the NPU, by the limits that NXP publishes for
        ``release`` of its SDK."""
        compiled = self.compiled
        return as_nxp([compiled.graph], compiled.partitioning.on_cpu, release, self.target.name)

    @property
    def compile_options(self) -> CompileOptions:
        """Return the options of the compiler, with the place of inputs and outputs."""
        return self.compiled.options.placed(ARENA)

    def recompile(self, **changes: Any) -> CompiledLiteRTModel:
        """Return the same file compiled with other options of the compiler, without reading, folding and partitioning it again.

        The search for a schedule reuses the results of earlier calls, which stay in memory as long as a model of this file exists.

        Args:
            changes: Fields of CompileOptions, with their new values.

        Returns:
            The compiled model, with the bytes of an ``openneutron.compile`` with these options.

        Raises:
            InvalidOptionError: An option is unusable, or not for ``.tflite`` files.
            BudgetError: The SRAM budget is too small.
            TypeError: A keyword is unknown.
        """
        with measured() as clock:
            compiled = self._recompiled(with_changes(self.compiled.options, changes, "recompile"))
            with step("Writing"):
                made = CompiledLiteRTModel(compiled, compiled.to_bytes(), real=self.real)
        return dataclasses.replace(made, timings=clock.timings)

    def _figures(self, changes: Mapping[str, Any]) -> Summary:
        return of_compiled_file(self._recompiled(with_changes(self.compiled.options, changes, "figures")))

    def _recompiled(self, options: CompileOptions) -> CompiledFile:
        self._check_same(options)
        return self.compiled.recompiled(options)

    def _check_same(self, options: CompileOptions) -> None:
        check_for_tflite(Request(model=self.name, options=options), {})
        before, on_cpu = self.compiled.options, self.compiled.partitioning.on_cpu
        check_partitions(self.name, before, options, self.graphs, on_cpu)

    def run(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        """Run the model. Delegated operators run on the simulated NPU, the others in LiteRT's reference kernels.

        The state of the partitions on the NPU is kept from run to run, until ``reset``. Operators on the CPU start
        each run with a fresh state.

        Args:
            inputs: One array for each input of the file, in its order.

        Returns:
            The outputs, with the dtypes and shapes that the file states.

        Raises:
            InvalidOptionError: The arrays do not match the file's inputs.
            InvalidModelError: LiteRT can't run an operator on the CPU.
        """
        return tuple(self._simulator.run([np.asarray(item) for item in inputs]))

    def reset(self) -> None:
        """Set the states of the partitions on the simulated NPU to their values before the first run. Operators on
        the CPU keep no state here: each run starts with a fresh one."""
        self._simulator.reset()

    @cached_property
    def _simulator(self) -> FileSimulator:
        from openneutron.device.mixed import FileSimulator

        return FileSimulator(self.buffer)

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return each partition as a stock ``.tflite``, and as a listing of its program or, with NXP's converter, as
        the converted ``.tflite``.

        Args:
            folder: The folder of the returned paths.

        Returns:
            The contents of the files by path.
        """
        return {folder / name: data for name, data in self.compiled.intermediates().items()}

    def kernel_selections(self, path: Path) -> dict[Path, bytes]:
        """Return C files that register only the kernels that the model calls (docs/kernel-selection.md).

        Args:
            path: The path of the file for the application, which ends in ``.c``.

        Returns:
            The contents of this file, and of one file for each partition beside it, by path.

        Raises:
            InvalidOptionError: ``path`` can't be the path of such a file.
        """
        return kernel_selections.selection_files(path, self.compiled.programs())


def compile_litert(request: Request) -> CompiledLiteRTModel:
    """Return the compiled model of a request, whose model is a LiteRTModel. Raises as ``openneutron.compile`` does."""
    delegation, model, real = request.delegation, request.model, None
    inputs = {name: getattr(request, name) for name in ("example_inputs", "example_kwargs", "calibration")}
    inputs |= dict.fromkeys(changed(request.data), True)
    check_for_tflite(request, inputs, is_float=model.is_float)
    if model.is_float:
        from openneutron.api.float_litert import quantize

        real, model = pack(model.model), quantize(request)
    if request.inputs.format is not None:
        from openneutron.litert.write import with_frames

        format = FrameFormat.parse(request.inputs.format)
        if not format.is_last:
            raise InvalidOptionError(
                "input_format: nchw is for PyTorch models; a .tflite has its channels innermost. Write nhwc."
            )
        model = with_frames(model, request.name, format.color == "bgr")
    compiled = compile_file(
        model, request.name, request.options, delegation.operators_not_to_delegate, delegation.must_delegate
    )
    with step("Writing"):
        return CompiledLiteRTModel(compiled, compiled.to_bytes(), real=real)
