# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.load``: open a compiled file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from openneutron import litert
from openneutron.api.result import Copied, metadata_of
from openneutron.compiler.cost.host import HostOperator
from openneutron.compiler.legalize.partition import operator_title
from openneutron.device import pte
from openneutron.device.files import content, existing
from openneutron.device.forms import Kind, of_content
from openneutron.device.mixed import FileSimulator
from openneutron.device.pte import DelegateCall, KernelCall, Method, methods
from openneutron.errors import InvalidModelError
from openneutron.features.profile.timeline import run_cycles
from openneutron.features.report.latency import host_operators, host_operators_of_graph
from openneutron.features.report.loaded import CallProfile, LoadedSummary, ProgramFigures, target_of
from openneutron.features.report.notebook import loaded_html, loaded_text
from openneutron.isa import Program, decode
from openneutron.isa.listing import profile
from openneutron.litert.neutron_graph import OPERATOR_NAME, find
from openneutron.litert.read import FILE_IDENTIFIER as TFLITE


@dataclass(frozen=True, eq=False)
class LoadedFile(Copied):
    """The result of ``openneutron.load``: a compiled ``.pte`` or ``.tflite``.

    ``buffer`` has the file's bytes. ``programs`` has the title and the program of each delegate call. ``on_cpu``
    counts the operators that run on the CPU, and the delegate calls of other backends, which compute there too.
    ``host`` has the kind and the number of values of each operator on the CPU. It leaves out delegate calls, and
    operators of a ``.tflite`` that only change the shape. ``preprocessing`` states the steps that made the
    calibration inputs from pictures or sounds. It is empty where the file has none. The file does not store the
    reasons why operators run on the CPU. A file that was compiled with ``profile`` stores the model's operator for
    each kernel call, which ``openneutron profile`` shows.

    >>> import openneutron
    >>> for call in openneutron.load("net.pte").profile():  # doctest: +SKIP
    ...     print(call.kernel, call.cycles)
    """

    name: str
    buffer: bytes = field(repr=False)
    programs: tuple[tuple[str, Program], ...] = field(repr=False)
    on_cpu: Counter[str] = field(repr=False)
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    preprocessing: str = ""

    @property
    def is_litert(self) -> bool:
        """Return whether the file is a ``.tflite``."""
        return self.buffer[4:8] == TFLITE

    @property
    def has_state(self) -> bool:
        """Return whether the model keeps state from run to run, in a delegate's program or, in a ``.pte``, in buffers
        that the CPU writes."""
        kept = any(program.state_size for _, program in self.programs)
        return kept or any(operator.startswith("aten::copy_") for operator in self.on_cpu)

    @property
    def report(self) -> LoadedSummary:
        """Return the figures of the file as data."""
        target = target_of(program.header for _, program in self.programs)
        programs = []
        for title, program in self.programs:
            microcode = decode(program)
            cycles = None if target is None or not target.copies_in_background else run_cycles(microcode, target)
            programs.append(ProgramFigures.of(title, program, microcode, cycles))
        return LoadedSummary(
            self.name,
            len(self.buffer),
            tuple(programs),
            tuple(self.on_cpu.items()),
            self.profile(),
            self.host,
            self.preprocessing,
        )

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata that the model's original file contained, such as Ultralytics' ``names`` and ``task``; an empty mapping if it had
        none."""
        return metadata_of(self.buffer, self.name)

    def summary(self) -> str:
        """Return the figures as text; a notebook shows them as a table."""
        return loaded_text(self.report)

    def _repr_html_(self) -> str:
        return loaded_html(self.report)

    def profile(self) -> tuple[CallProfile, ...]:
        """Return each operator on the NPU with its kernel, its kernel calls and its modelled cycles, in program order."""
        return tuple(
            CallProfile(**asdict(cost), program=title) for title, program in self.programs for cost in profile(program)
        )

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write a page with charts of the compile, as ``openneutron report`` does.

        Args:
            path: The path of the ``.html`` file; an existing file is replaced.

        Raises:
            InvalidModelError: The file was saved without the facts of its compile.
            InvalidOptionError: The page can't be written.
            MissingToolError: The package vl-convert-python is not installed.
        """
        from openneutron.api.reporting import check_report, write_report
        from openneutron.features.report.page.data import facts_of

        data = facts_of(self.buffer, self.name)
        write_report(data, check_report(Path(path)))

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the file, with the delegates on the simulated NPU. State is kept from run to run, until ``reset``. The
        operators of a ``.tflite`` on the CPU start each run with a fresh state.

        Args:
            inputs: Torch tensors or NumPy arrays for a ``.pte``, NumPy arrays for a ``.tflite``.

        Returns:
            The outputs: tensors of a ``.pte``, NumPy arrays of a ``.tflite``.

        Raises:
            InvalidOptionError: The inputs do not match those of the file.
            InvalidModelError: An operator on the CPU can't run.
            MissingToolError: A ``.pte`` is run without ExecuTorch or a C++ compiler.
        """
        if isinstance(self._runnable, FileSimulator):
            return tuple(self._runnable.run([np.asarray(item) for item in inputs]))
        outputs: tuple[Any, ...] = self._runnable.run(inputs)
        return outputs

    def reset(self) -> None:
        """Set the model's state, on the NPU and on the CPU, to its value before the first run. The operators of a
        ``.tflite`` on the CPU keep no state here: each run starts with a fresh one."""
        self.__dict__.pop("_runnable", None)  # loading the file again restores the initial state

    @cached_property
    def _runnable(self) -> Any:
        if self.is_litert:
            return FileSimulator(self.buffer)
        from openneutron.device.third_party import needs_pytorch

        with needs_pytorch("Running a .pte takes"):
            from openneutron.pytorch.run.runner import Runner
        return Runner(self.name, self.buffer)


def load(file: str | os.PathLike[str]) -> LoadedFile:
    """Open a compiled ``.pte`` or ``.tflite``.

    Args:
        file: The file's path. The contents decide between the two formats, not the name.

    Returns:
        The file, with ``run``, ``summary()``, ``report`` and ``profile()``.

    Raises:
        InvalidModelError: The file does not exist or is not compiled, or ``file`` is no path.
        InvalidProgramError: The file is damaged, or another compiler made its program.

    >>> import openneutron
    >>> openneutron.load("net.pte").summary()  # doctest: +SKIP
    >>> openneutron.load("no_such_file.pte")
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidModelError: 'no_such_file.pte' does not exist.
    """
    if not isinstance(file, (str, os.PathLike)):
        raise InvalidModelError(
            f"load: the path of a compiled file is needed; {type(file).__name__} is no path. Write bytes to a file first."
        )
    path = existing(os.fspath(file))
    data = content(path)
    form = of_content(path)
    if form is not None and form.kind is Kind.LITERT:
        return _tflite(path, data)
    if form is not None and form.kind is Kind.COMPILED:
        return _pte(path, data)
    if data[:2] == b"PK":
        raise InvalidModelError(
            f"'{path}' is a file that PyTorch wrote; compile it first: openneutron.compile('{path}')."
        )
    raise InvalidModelError(
        f"'{path}' is neither a .pte nor a .tflite: bytes 4 to 7 are {data[4:8]!r}. openneutron.compile makes these files."
    )


def _tflite(path: Path, data: bytes) -> LoadedFile:
    loaded = litert.read(path)
    nodes = find(loaded.model)
    if not nodes:
        raise InvalidModelError(
            f"'{path}' has no NeutronGraph in it: it is not compiled. Compile it first: openneutron.compile('{path}')."
        )
    outside = [node for node in loaded.graph.nodes if node.op != OPERATOR_NAME]
    on_cpu = Counter(operator_title(node) for node in outside)
    host = host_operators_of_graph(loaded.graph, outside)
    return LoadedFile(path.name, data, tuple((node.name, node.program) for node in nodes), on_cpu, host)


def _outside(method: Method) -> Iterator[str]:
    """Yield the operator of each kernel call, and the backend's name for each delegate call of another backend, which
    computes on the CPU."""
    for item in method.instructions:
        if isinstance(item, KernelCall):
            yield item.operator
        elif isinstance(item, DelegateCall) and method.delegates[item.delegate].backend != pte.BACKEND_ID:
            yield method.delegates[item.delegate].backend


def _pte(path: Path, data: bytes) -> LoadedFile:
    programs = tuple((title, item.program) for title, item in pte.own_payloads(data, path.name))
    found = methods(data, path.name)
    on_cpu = Counter(name for method in found for name in _outside(method))
    return LoadedFile(path.name, data, programs, on_cpu, host_operators(data), pte.stated(found, pte.PREPROCESSING))
