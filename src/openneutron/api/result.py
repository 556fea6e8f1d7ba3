# SPDX-License-Identifier: BSD-3-Clause
"""The base classes of compiled models: the file, the summary, the report, and copies and pickles."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from openneutron import targets
from openneutron.compiler.legalize.partition import reason_of, type_reason
from openneutron.device import files, pte
from openneutron.errors import InvalidOptionError
from openneutron.features.report.notebook import ShownModel
from openneutron.features.report.text import one_line
from openneutron.ir import Graph
from openneutron.ir.graph import OnCpu
from openneutron.isa import Program
from openneutron.litert.read import archive_entry
from openneutron.options import EIQ, CompileOptions

if TYPE_CHECKING:
    from openneutron.features.report import Summary
    from openneutron.features.report.advice import Advice
    from openneutron.features.report.page.data import Measured, ReportData


def check_partitions(
    name: str, before: CompileOptions, after: CompileOptions, graphs: Iterable[Graph], on_cpu: Iterable[OnCpu]
) -> None:
    """Raise InvalidOptionError where other operators of the model ``name`` would be in its programs with the options ``after``: because of
    the limits of NXP's converter, or of int16.

    ``graphs`` are those of the model's partitions, and ``on_cpu`` the operators outside, as they were with the options ``before``.
    """
    if EIQ in (before.converter, after.converter):
        for option in ("converter", "target", "converter_release"):
            old, new = getattr(before, option), getattr(after, option)
            if old != new:
                raise InvalidOptionError(
                    f"{option}: '{name}' is partitioned for '{old or DEFAULT}', and '{new or DEFAULT}' takes other operators. Compile the "
                    "model again."
                )
    if before.takes_int16 == after.takes_int16:
        return
    target = targets.get(before.target if after.takes_int16 else after.target)
    inside = any(type_reason(graph, node, target, host_calls=False) for graph in graphs for node in graph.nodes)
    if inside or any(item.reason == reason_of(target) for item in on_cpu):
        option = next(
            each for each in ("target", "converter", "host_calls") if getattr(before, each) != getattr(after, each)
        )
        raise InvalidOptionError(
            f"{option}: its operators of int16 are in the programs with {getattr(before if inside else after, option)!r}, and outside with "
            f"{getattr(after if inside else before, option)!r}. Compile the model again."
        )


def check_recompile(
    name: str,
    before: CompileOptions,
    after: CompileOptions,
    types: tuple[str, ...],
    computes_on_cpu: bool,
    has_islands: bool,
    is_cut: bool,
) -> None:
    """Raise InvalidOptionError where a compile with the options ``after`` quantizes the PyTorch model ``name`` otherwise than with the
    options ``before``, has other kernels for operators on the CPU, or may leave other partitions to the CPU because of their time.

    ``types`` has the NPU's types of activations if the quantization depends on them. The last three arguments state that operators on
    the CPU compute, that partitions are between operators on the CPU, and that such partitions were left to the CPU.
    """
    computed, there = (targets.get(options.target).npu.data_types for options in (before, after))
    if types and types != there.value:
        raise InvalidOptionError(
            f"target: '{name}' is quantized for an NPU that computes on {computed}; that of {after.target} computes on {there}. Compile "
            "the model again."
        )
    if before.cpu_kernels != after.cpu_kernels and computes_on_cpu:
        raise InvalidOptionError(
            f"cpu: the operators of '{name}' on the CPU have the kernels '{before.cpu_kernels}'; these options ask for "
            f"'{after.cpu_kernels}'. Compile the model again."
        )
    if (before.target, before.cuts_by_cost) == (after.target, after.cuts_by_cost):
        return
    if is_cut:
        raise InvalidOptionError(
            f"cut_by_cost: partitions of '{name}' are left to the CPU because of their time on {before.target}. Compile the model again "
            "for other options."
        )
    if has_islands and after.cuts_by_cost:
        raise InvalidOptionError(
            f"cut_by_cost: partitions of '{name}' are between operators on the CPU, and may take more time on {after.target} than on its "
            "CPU. Compile the model again for these options."
        )


def metadata_of(buffer: bytes, name: str) -> dict[str, Any]:
    """Return the metadata in a compiled file; empty where it has none.

    A ``.pte`` has them as the JSON text of its method ``metadata``, a ``.tflite`` in the entry ``metadata.json`` of the archive at its
    end, where Ultralytics writes it. Raises InvalidProgramError where a ``.pte`` is damaged.
    """
    is_pte = buffer[4:8] == b"ET12"
    text = pte.stated(pte.methods(buffer, name), pte.METADATA) if is_pte else archive_entry(buffer, "metadata.json")
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


DEFAULT = "the default"


class Copied:
    """The base of frozen dataclasses that can be copied and pickled. The model's state in a copy is that before the first run."""

    def as_fields(self) -> dict[str, Any]:
        """Return the fields for a pickle, by name."""
        assert dataclasses.is_dataclass(self)
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def __copy__(self) -> Self:
        assert dataclasses.is_dataclass(self)
        return dataclasses.replace(self)

    def __deepcopy__(self, _memo: object) -> Self:
        return self.__copy__()  # nothing changes the fields, so that copies can share them

    def __reduce__(self) -> tuple[Any, ...]:
        data = io.BytesIO()
        _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(self.as_fields())
        return _unpickled, (type(self), data.getvalue())


def _unpickled(kind: type[Any], data: bytes) -> Any:
    return kind(**pickle.loads(data))


def _read_only(found: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(found)  # a pickle can't name this class itself


class _Pickler(pickle.Pickler):
    """A pickler that accepts the read-only mappings of graphs and programs."""

    def reducer_override(self, item: object) -> Any:
        """Return the function and the arguments that recreate a read-only mapping; NotImplemented for any other object."""
        return (_read_only, (dict(item),)) if isinstance(item, MappingProxyType) else NotImplemented


class CompiledResult(Copied, ShownModel):
    """A compiled model. ``buffer`` holds the bytes of the compiled file."""

    buffer: bytes

    def __str__(self) -> str:
        """Return the main figures in one line. ``summary()`` returns all figures."""
        return one_line(self.report)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return what the model's own file stated about it, such as Ultralytics' ``names`` and ``task``; empty without."""
        return metadata_of(self.buffer, self.report.model)

    @property
    def graphs(self) -> list[Graph]:
        """Return the graphs of the partitions."""
        raise NotImplementedError

    @property
    def programs(self) -> tuple[Program, ...]:
        """Return the programs of the partitions that this project's compiler made."""
        raise NotImplementedError

    @property
    def compile_options(self) -> CompileOptions:
        """Return the options of the compiler."""
        raise NotImplementedError

    def can_recompile(self, options: CompileOptions) -> bool:
        """Return whether ``recompile`` accepts the options.

        Args:
            options: The options of a compile.

        Returns:
            Whether a compile with these options has the same operators in its programs, and the same kernels for the others.
        """
        try:
            self._check_same(options)
        except InvalidOptionError:
            return False
        return True

    def _check_same(self, options: CompileOptions) -> None:
        """Raise InvalidOptionError where only a new compile gives the model of these options."""
        raise NotImplementedError

    def figures(self, **changes: Any) -> Summary:
        """Return the figures of the same model, compiled with other options of the compiler. No file is written.

        Args:
            changes: Fields of CompileOptions, with their new values.

        Returns:
            The figures that ``recompile`` with these options reports, without the size of a file.

        Raises:
            InvalidOptionError: An option is unusable.
            BudgetError: The SRAM budget is too small.
            TypeError: A keyword is unknown.
        """
        return self._figures(changes)

    def _figures(self, changes: Mapping[str, Any]) -> Summary:
        raise NotImplementedError

    @cached_property
    def quick_advice(self) -> tuple[Advice, ...]:
        """Return the advice that needs no search: on conversions on the host, and on weights that do not fit the
        SRAM. The tuple is empty where most of the model is on the CPU."""
        from openneutron.features.report.advice import quick_advice

        return quick_advice(self)

    def save(self, path: str | os.PathLike[str], *, facts: bool = False) -> None:
        """Write the compiled file, completely or not at all.

        Args:
            path: The file's path; an existing file is replaced.
            facts: Append the figures of the compile, which ``openneutron report`` shows, behind the program. Runtimes do not
                read them.

        Raises:
            InvalidOptionError: The file can't be written.
        """
        files.write({Path(path): self.with_facts() if facts else self.buffer})

    def with_facts(self) -> bytes:
        """Return the compiled file with the figures of the compile appended to the program."""
        from openneutron.api.reporting import file_with_facts

        return file_with_facts(self)

    def report_data(self, *, pareto: bool = True, accuracy: Sequence[Measured] = ()) -> ReportData:
        """Return the data of the report, as ``openneutron report --json`` prints it.

        Args:
            pareto: Compute memory against latency too, which takes a search of its own.
            accuracy: The signal-to-quantization-noise ratios of layers, where they were measured.
        """
        from openneutron.api.reporting import data_of

        return data_of(self, pareto, accuracy)

    def write_report(
        self, path: str | os.PathLike[str], *, pareto: bool = True, accuracy: Sequence[Measured] = ()
    ) -> None:
        """Write a page with charts of the compile, as ``openneutron report`` does. The page opens offline.

        Args:
            path: The path of the ``.html`` file; an existing file is replaced.
            pareto: Show memory against latency too, which takes a search of its own.
            accuracy: The signal-to-quantization-noise ratios of layers, where they were measured.

        Raises:
            InvalidOptionError: The file can't be written.
            MissingToolError: The package vl-convert-python is not installed.
        """
        from openneutron.api.reporting import check_report, write_report

        target = check_report(Path(path))
        write_report(self.report_data(pareto=pareto, accuracy=accuracy), target)
