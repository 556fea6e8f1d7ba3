# SPDX-License-Identifier: BSD-3-Clause
"""Compile LiteRT files that run partly on the NPU."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, Prepared, prepared
from openneutron.compiler.cost.cycles import cpu_rows
from openneutron.compiler.legalize.partition import OnNpu, Partitioning, operator_title
from openneutron.compiler.legalize.quantize import as_asked
from openneutron.compiler.search.fitted import over_budget
from openneutron.device import cache
from openneutron.device import converter as converters
from openneutron.device.converter import Conversion, owner_of
from openneutron.device.mixed.tables import folded, partitioned, with_tables
from openneutron.device.timings import advance, step
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError
from openneutron.ir import DType, Graph
from openneutron.isa import Program, decode, listing
from openneutron.litert import LiteRTModel, write
from openneutron.litert.neutron_graph import OPERATOR_NAME, NeutronNode, splice
from openneutron.litert.read import with_archive
from openneutron.options import EIQ, budget_bytes
from openneutron.targets import Target

if TYPE_CHECKING:
    from openneutron.device.mixed.run import FileSimulator, Times


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFile:
    """A compiled LiteRT file.

    ``parts`` has the compiled partitions in order, and is empty if no operator runs on the NPU. ``converted`` replaces ``parts`` if NXP's
    converter compiled the partitions. ``partitioning`` also has the operators on the CPU. ``model`` is the file as it was partitioned, and
    ``name`` its name in messages.
    """

    name: str
    model: LiteRTModel = field(repr=False)
    options: CompileOptions
    partitioning: Partitioning = field(repr=False)
    parts: tuple[Compiled, ...] = field(repr=False)
    converted: tuple[Conversion, ...] = field(default=(), repr=False)
    _prepared: list[Prepared] = field(default_factory=list, repr=False)
    """The results of the compiler's first stages for each partition; empty until the first call of ``recompiled``."""

    @property
    def target(self) -> Target:
        return targets.get(self.options.target)

    @property
    def budget_bytes(self) -> int:
        """Return the SRAM budget of each partition, in bytes."""
        return budget_bytes(self.options.sram_budget, self.target)

    def recompiled(self, options: CompileOptions) -> CompiledFile:
        """Return the file compiled with other options. All calls share the results of the compiler's first stages.

        A search begins with the results of earlier searches. Raises the errors of ``compile_file``.
        """
        if options.converter == EIQ:
            return replace(self, options=options, converted=_converted(self.partitioning, options))
        if not self._prepared:
            self._prepared.extend(prepared(part.graph, kept=True) for part in self.partitioning.partitions)
        ready = [(each.graph, partial(_itself, each)) for each in self._prepared]
        return replace(self, options=options, parts=_compiled(self.name, ready, options))

    @property
    def graph(self) -> Graph:
        return self.model.graph

    def to_bytes(self) -> bytes:
        """Return the ``.tflite`` as bytes, with the archive that the original file has behind its flatbuffer. Equal compiles give equal
        bytes."""
        steps: list[int | NeutronNode] = []
        for item in self.partitioning.steps:
            if isinstance(item, OnNpu):
                name = part_name(item.index)
                if self.converted:
                    made = self.converted[item.index]
                    steps.append(NeutronNode(name, made.inputs, made.outputs, made.program, made.work_bytes))
                    continue
                graph = self.partitioning.partitions[item.index].graph
                steps.append(NeutronNode(name, graph.inputs, graph.outputs, self.parts[item.index].program))
            else:
                steps.append(item.node)
        data, archive = splice(self.model, steps), self.model.appended
        return with_archive(data, archive) if archive else data

    def programs(self) -> dict[str, Program]:
        """Return the programs of ``parts`` by name."""
        return {part_name(index): part.program for index, part in enumerate(self.parts)}

    def intermediates(self) -> dict[str, bytes]:
        """Return two files for each partition, by file name. One is the partition as a stock ``.tflite``. The other
        is a listing of its program, or the converted ``.tflite`` if another converter compiled it. With
        ``fold_quantize`` the stock ``.tflite`` is the folded one, whose results the program computes byte for byte."""
        made = {}
        if self.converted:
            for index, (partition, conversion) in enumerate(
                zip(self.partitioning.partitions, self.converted, strict=True)
            ):
                made[f"{part_name(index)}.tflite"] = write(partition.graph)
                made[f"{part_name(index)}_neutron.tflite"] = conversion.file or b""
        for index, part in enumerate(self.parts):
            made[f"{part_name(index)}.tflite"] = write(as_asked(part.graph, self.options).graph)
            made[f"{part_name(index)}.txt"] = listing(decode(part.program), cpu_rows(self.target)).encode()
        return made


def part_name(index: int) -> str:
    """Return the name of a partition's NeutronGraph. The names of the tensors of that operator begin with it."""
    return f"neutron_graph_{index}"


def compile_file(
    model: LiteRTModel,
    name: str,
    options: CompileOptions = CompileOptions(),
    operators_not_to_delegate: Sequence[str] = (),
    must_delegate: bool = True,
) -> CompiledFile:
    """Return the compiled file. ``name`` is the file's name in messages.

    In the model of the result, known shapes and the results of constant operators are constants. The SRAM budget holds
    for each partition: the partitions run one after the other, in the same memory.

    Raises InvalidModelError where the file is compiled already, or, with ``must_delegate``, where no operator of it can
    run on the NPU. Raises InvalidOptionError for unknown names in ``operators_not_to_delegate``, and BudgetError with
    the smallest budget that suffices for every partition.
    """
    graph = model.graph
    for place, node in enumerate(graph.nodes):
        if node.op == OPERATOR_NAME:
            raise InvalidModelError(
                f"'{name}': it is compiled already: operator {place} is a NeutronGraph. Compile the file it was made from."
            )
    check_names(graph, name, operators_not_to_delegate)
    target = targets.get(options.target)
    if options.converter == EIQ:
        return _by_converter(model, name, options, operators_not_to_delegate, must_delegate)
    appended = model.appended
    with step("Partitioning"):
        model = folded(model)
        model, partitioning = partitioned(
            with_tables(model, operators_not_to_delegate), operators_not_to_delegate, target, options.makes_host_calls
        )
    graphs = [part.graph for part in partitioning.partitions]
    parts = _compiled(name, [(graph, partial(prepared, graph)) for graph in graphs], options)
    result = CompiledFile(name, replace(model, appended=appended), options, partitioning, parts)
    if must_delegate and not parts:
        raise InvalidModelError(_nothing_to_do(result))
    return result


def _by_converter(
    model: LiteRTModel,
    name: str,
    options: CompileOptions,
    operators_not_to_delegate: Sequence[str],
    must_delegate: bool,
) -> CompiledFile:
    """Return the file compiled by another converter than this project's compiler.

    A node that the converter refuses leaves its partition, until the converter accepts all remaining nodes. Raises
    InvalidModelError as ``compile_file`` does, and the errors of the converter's methods.
    """
    converter, target = converters.get(options.converter), targets.get(options.target)
    converter.check(options)
    refused: dict[str, str] = {}
    appended = model.appended
    with step("Partitioning"):
        model = folded(model)
        while True:
            model, partitioning = partitioned(model, operators_not_to_delegate, target, False, refused)
            before, known = len(refused), {node.name for node in model.graph.nodes if node.outputs}
            for part in partitioning.partitions:
                for item in converter.tried(part.graph, options):
                    owner = owner_of(part.graph.nodes, item.result, known)
                    assert owner is not None, f"'{item.result}' belongs to no operator"
                    refused[owner] = item.reason
            if len(refused) == before:
                break
    model = replace(model, appended=appended)
    result = CompiledFile(name, model, options, partitioning, (), _converted(partitioning, options))
    if must_delegate and not result.converted:
        raise InvalidModelError(_nothing_to_do(result))
    return result


def _converted(partitioning: Partitioning, options: CompileOptions) -> tuple[Conversion, ...]:
    converter = converters.get(options.converter)
    with step("Compiling", len(partitioning.partitions)):
        return tuple(converter.convert(part.graph, options) for part in partitioning.partitions)


def _compiled(
    name: str, graphs: Sequence[tuple[Graph, Callable[[], Prepared]]], options: CompileOptions
) -> tuple[Compiled, ...]:
    """Compile each partition and return the programs, in the order of ``graphs``.

    An item of ``graphs`` is the graph of a partition and a function that returns this graph legalized, with its kernel
    calls (``Prepared``). Raises BudgetError where a partition exceeds the budget. The error has the smallest budget
    that suffices for all partitions.
    """
    target = targets.get(options.target)
    parts: list[Compiled] = []
    too_large: list[BudgetError] = []
    with step("Compiling", len(graphs)):
        for done, (graph, first_stages) in enumerate(graphs, 1):
            try:
                parts.append(cache.compiled(graph, first_stages, target, options))
            except BudgetError as error:
                too_large.append(error)
            advance(done, len(graphs))
    if too_large:
        raise over_budget(name, too_large, len(graphs), budget_bytes(options.sram_budget, target), target)
    return tuple(parts)


def _itself(given: Prepared) -> Prepared:
    return given


def check_names(graph: Graph, name: str, operators: Sequence[str]) -> None:
    """Raise InvalidOptionError for a name in ``operators`` that is neither an operator nor an output of one in the
    graph. ``name`` is the file's name in the message."""
    titles = dict.fromkeys(operator_title(node) for node in graph.nodes)
    known = {*titles}
    for node in graph.nodes:
        known |= {node.op, node.op.upper(), *node.outputs}
    for given in operators:
        if given in known:
            continue
        near = difflib.get_close_matches(given, sorted(known), 3) or difflib.get_close_matches(
            given.upper(), sorted(titles), 3
        )
        hint = f"Did you mean {' or '.join(repr(other) for other in near)}?" if near else f"It has {', '.join(titles)}."
        raise InvalidOptionError(
            f"operators_not_to_delegate: '{given}' is neither an operator nor an output of one in '{name}'. {hint}"
        )


def _nothing_to_do(result: CompiledFile) -> str:
    graph, on_cpu = result.graph, result.partitioning.on_cpu
    if not on_cpu:
        return f"'{result.name}': it has no operators."
    computed = {graph[name].dtype for node in graph.nodes for name in node.outputs}
    count = f"none of its {len(on_cpu)} operators" if len(on_cpu) > 1 else "its one operator does not"
    verb = " runs" if len(on_cpu) > 1 else " run"
    if not computed & {DType.INT8, DType.UINT8, DType.INT16}:
        kinds = " and ".join(sorted(str(dtype) for dtype in computed - {DType.OPAQUE})) or "other types"
        return (
            f"'{result.name}': {count}{verb} on the NPU: it computes in {kinds}; the NPU computes in int8 and int16. Quantize the model to int8, "
            "or compile the PyTorch model it was made from, which quantizes it."
        )
    first = on_cpu[0]
    return (
        f"'{result.name}': {count}{verb} on the NPU; {first.operator} '{first.name}': {first.reason}. "
        "`openneutron explain` gives the reason for each."
    )


__all__ = ["CompiledFile", "FileSimulator", "Times", "compile_file", "part_name"]


def __getattr__(name: str) -> Any:
    if name not in ("FileSimulator", "Times"):
        raise AttributeError(f"module 'openneutron.device.mixed' has no attribute '{name}'")
    # Imported on first use: a compile runs nothing, and the simulator loads the driver.
    from openneutron.device.mixed import run

    return getattr(run, name)
