# SPDX-License-Identifier: BSD-3-Clause
"""The conversion of a ``.tflite`` to a ``.tflite`` with NeutronGraphs, under the SDK's names."""

from __future__ import annotations

import logging
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from openneutron import litert, ops, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import unchanged_operand
from openneutron.compiler.legalize.partition import extract
from openneutron.compiler.select.calls import node_of
from openneutron.device import files
from openneutron.device.converter.kernel_selections import check_target, selection_of
from openneutron.device.mixed import compile_file, part_name
from openneutron.device.mixed.tables import folded
from openneutron.errors import InvalidModelError, InvalidOptionError, InvalidTargetError, OpenNeutronError
from openneutron.ir import Graph, Node
from openneutron.ir.graph import OnCpu
from openneutron.isa import Program, decode
from openneutron.isa.microcode import calls, facts_of, with_facts
from openneutron.litert import LiteRTModel
from openneutron.litert.neutron_graph import NeutronNode, splice
from openneutron.litert.write import copied, pack, prune
from openneutron.options import CALLER

KERNEL_SELECTION = "_kernel_selection.c"
"""The file in the working directory that is written with ``dumpKernelSelectionCode``."""

CONSOLE = "console"
"""The value of ``dumpAfterImport`` and ``dumpAfterGenerate`` that requests output on stdout."""

HARDWARE_VERSIONS = {"N1": 1, "N3": 2}
"""The numbers that ExecuTorch's NXP backend has for hardware versions."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NeutronNpu:
    """The hardware version and the numbers of units of an NPU."""

    subsystem: bool
    numUnits: int
    numPipes: int
    numMacs: int
    hwVersion: int


@dataclass(frozen=True, slots=True)
class NeutronTarget:
    """A chip with its NPU."""

    name: str
    npu: NeutronNpu


@dataclass(slots=True)
class CompilationOptions:
    """The options of a caller.

    ``fetchConstantsToSRAM``, ``dumpKernelSelectionCode`` and ``useProfiling`` have the effect documented at
    ``generate_neutron_compile_spec``. ``useProfiling`` with ``dumpAfterImport`` and ``dumpAfterGenerate`` set to
    ``console`` prints the log from which ExecuTorch's NXP backend makes its map of debug handles. ``minNumOpsPerGraph``
    and ``excludeGraphPasses`` control passes that this compiler does not have, and ``verbose`` controls the SDK's own
    log. These three options are accepted without effect.
    """

    minNumOpsPerGraph: int = 1
    excludeGraphPasses: str = ""
    fetchConstantsToSRAM: bool = False
    dumpKernelSelectionCode: bool = False
    useProfiling: bool = False
    dumpAfterImport: str = ""
    dumpAfterGenerate: str = ""
    verbose: bool = False


@dataclass(slots=True)
class CompilationContext:
    """The target (see ``getNeutronTarget``) and the options of a conversion."""

    targetOpts: NeutronTarget | None = None
    compilationOpts: CompilationOptions = field(default_factory=CompilationOptions)


def getNeutronTarget(name: str) -> NeutronTarget:
    """Return the target of this name. Raises InvalidTargetError where it is unknown."""
    if name not in targets.NPUS:
        raise InvalidTargetError(f"Target `{name}` is not a valid target. Must be one of `{list(targets.NPUS)}`.")
    chip = targets.described(name)
    version = HARDWARE_VERSIONS[chip.hw_version]
    return NeutronTarget(chip.name, NeutronNpu(chip.subsystem, chip.units, chip.pipelines, chip.macs, version))


class RefusedModelError(InvalidModelError, RuntimeError):
    """A partition that did not become exactly one NeutronGraph.

    ``args`` are the message and the number of remaining operators, as in the error that ExecuTorch's NXP backend raises
    for such a model.
    """

    def __init__(self, message: str, operators: int) -> None:
        super().__init__(message, operators)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Refusal:
    """The object that a child process returns in place of a model.

    ExecuTorch's NXP backend converts in a child process and discards the child's output. The parent calls ``bytes`` on
    the returned object; this class raises the error there.
    """

    message: str
    operators: int

    def __bytes__(self) -> bytes:
        raise RefusedModelError(self.message, self.operators)


def convertModel(model: bytes | Sequence[int], context: CompilationContext) -> bytes | Refusal:
    """Return the converted model as bytes (see ``converted``), or a Refusal in a child process that multiprocessing
    started.

    In such a process a Refusal is returned instead of an error, and instead of a model with operators on the CPU.
    ExecuTorch's NXP backend converts in a child process, and accepts neither of them.
    """
    in_child = multiprocessing.parent_process() is not None
    try:
        data, on_cpu, operators = converted(model, context)
    except OpenNeutronError as error:
        if not in_child:
            raise
        return Refusal(str(error), 0)
    if not in_child or not on_cpu:
        return data
    fact = f"has `{operators}` operators instead of `1`."
    if operators == 1:
        fact = "does not contain a NeutronGraph node."
    return Refusal(f"Model converted with neutron-converter {fact} {' '.join(map(str, on_cpu))}", operators)


def converted(model: bytes | Sequence[int], context: CompilationContext) -> tuple[bytes, tuple[OnCpu, ...], int]:
    """Return the model as a ``.tflite`` with a NeutronGraph for each partition, the CPU fallbacks with their reasons,
    and the number of operators in this file.

    ``model`` is a ``.tflite`` as bytes or as a list of byte values. With ``dumpKernelSelectionCode`` the kernels that
    the model calls are written to ``_kernel_selection.c`` in the working directory. The reason for each CPU fallback is
    logged as a warning.

    Raises InvalidOptionError without a target, InvalidTargetError for a target without a compiler, InvalidModelError
    for a damaged file, BudgetError where a partition needs more SRAM than the target has.
    """
    if context.targetOpts is None:
        raise InvalidOptionError("CompilationContext: targetOpts is not set. Set it to getNeutronTarget(name).")
    given = context.compilationOpts
    options = CompileOptions(
        target=context.targetOpts.name,
        io_place=CALLER,
        prefetch_constants=given.fetchConstantsToSRAM,
        profile=given.useProfiling,
    )
    loaded, chip = folded(litert.read(bytes(model))), targets.get(options.target)
    whole = _whole(loaded.graph)
    on_cpu: tuple[OnCpu, ...] = ()
    programs: list[Program] = []
    if all(unchanged_operand(loaded.graph, node) is not None for node in loaded.graph.nodes):
        data = _without_sums(loaded)
    elif whole is not None:
        program = compile_graph(whole, chip, options).program
        if facts_of(program):
            if given.dumpAfterImport == given.dumpAfterGenerate == CONSOLE:
                sys.stdout.write(conversion_log(litert.read(bytes(model)).graph, program))
                sys.stdout.flush()  # the backend reads the file descriptor
            # The backend knows the events of a profile by their numbers, and the delegate logs these without facts.
            program = with_facts(program, ())
        programs = [program]
        data = splice(loaded, [NeutronNode(part_name(0), whole.inputs, whole.outputs, program)])
    else:
        compiled = compile_file(loaded, "model", options, must_delegate=False)
        on_cpu = compiled.partitioning.on_cpu
        for item in on_cpu:
            _log.warning("%s", item)
        programs, data = [part.program for part in compiled.parts], compiled.to_bytes()
    if given.dumpKernelSelectionCode:
        check_target(chip.name)
        selection = replace(selection_of(programs), kinds=True)
        files.write({Path(KERNEL_SELECTION): selection.text().encode()})
    return data, on_cpu, len(programs) + len(on_cpu)


def _without_sums(loaded: LiteRTModel) -> bytes:
    """Return the file without operators. Every operator of the file must be an ADD or SUB of constant zeros whose
    result equals its other operand. NXP's converter also removes all operators of such a file."""
    graph, index = loaded.graph, loaded.tensor_index
    same: dict[str, str] = {}
    for node in graph.nodes:
        kept = unchanged_operand(graph, node)
        assert kept is not None
        same[node.name] = same.get(kept, kept)
    made = copied(loaded.model)
    made.subgraphs[0].operators = []
    made.subgraphs[0].outputs = np.array([index[same.get(name, name)] for name in graph.outputs], np.int32)
    return pack(prune(made))


def _whole(graph: Graph) -> Graph | None:
    """Return the graph without unread inputs if one program can compute all of it. Return None for a graph without
    nodes, for one that returns a value that no node computes, and for one with a node that the NPU rejects.

    The caller excludes graphs whose nodes all add or subtract zeros (``unchanged_operand``).
    """
    part = extract(graph, range(len(graph.nodes)))
    if not graph.nodes or set(part.outputs) != set(graph.outputs):
        return None
    return part if all(ops.reject(graph, node) is None for node in graph.nodes) else None


GRAPH = 0
"""The number of the NeutronGraph among the subgraphs in the log. Its kernel calls have the numbers after it."""


def conversion_log(graph: Graph, program: Program) -> str:
    """Return the log from which ExecuTorch's NXP backend maps events to operators. ``program`` computes all of
    ``graph``, and was compiled with profiling."""
    microcode = decode(program)
    computed = _computed(graph, [item.layer for item in facts_of(program)])
    events = [
        (microcode.operators[step.operator].row.name, [graph.nodes[place] for place in computed[step.operator]])
        for step in calls(microcode)
    ]
    lines = ["Graphs:", *_nodes(enumerate(graph.nodes)), "= Optimize Graph =", "= Extract Graphs ="]
    lines.append(f'NeutronGraph "subgraph_{GRAPH:03}":')
    for number, (kernel, nodes) in enumerate(events, GRAPH + 1):
        lines += [f'  NeutronOperator "subgraph_{number:03}":', "    Operators:"]
        lines += [f"      {node.op.upper()}" for node in nodes]
        lines += ["    Kernels:", f"      {kernel}"]
    lines += ["=", "Generate code for NeutronGraph", "Graphs:"]
    for number, (_, nodes) in enumerate(events, GRAPH + 1):
        lines += [f"Name: subgraph_{number:03}", *_tensors(_read(nodes), _written(nodes)), "  Tensors:"]
        lines += _nodes(enumerate(nodes))
    lines += [f"Name: subgraph_{GRAPH:03}", *_tensors(graph.inputs, graph.outputs), "  Tensors:"]
    lines.append(f'Statistics for NeutronGraph "subgraph_{GRAPH:03}":')
    return "\n".join(lines) + "\n"


def _computed(graph: Graph, layers: Sequence[str]) -> list[list[int]]:
    """Return for each operator of a program the indices of the graph's nodes that it computes. ``layers`` are the
    names of the operators.

    A node without an operator of its own was fused into another node. It is counted for the operators of the nearest
    node after it that has some, or of the nearest one before it if no later node has any.
    """
    named = {node.name.rsplit(";", 1)[-1]: place for place, node in enumerate(graph.nodes)}
    found = [named.get(node_of(layer, named)) for layer in layers]
    own = {place for place in found if place is not None}
    makers = {result: place for place, node in enumerate(graph.nodes) for result in node.outputs}
    readers = {operand: place for place, node in enumerate(graph.nodes) for operand in node.inputs if operand}

    def stands_for(place: int, onwards: bool, seen: frozenset[int] = frozenset()) -> int | None:
        if place in own or place in seen:
            return place if place in own else None
        node = graph.nodes[place]
        table: Mapping[str, int] = readers if onwards else makers
        near = (table[name] for name in (node.outputs if onwards else node.inputs) if name and name in table)
        results = (stands_for(other, onwards, seen | {place}) for other in near)
        return next((result for result in results if result is not None), None)

    together: dict[int, list[int]] = {place: [] for place in own}
    for place in range(len(graph.nodes)):
        here = stands_for(place, onwards=True)
        here = stands_for(place, onwards=False) if here is None else here
        if here is not None:
            together[here].append(place)
    return [[] if place is None else together[place] for place in found]


def _nodes(nodes: Iterable[tuple[int, Node]]) -> Iterator[str]:
    for place, node in nodes:
        yield f"  Type: {node.op.upper()}"
        yield from _tensors([name for name in node.inputs if name], node.outputs)
        yield f"    Location: {place}"


def _tensors(inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[str]:
    for title, names in (("Inputs", inputs), ("Outputs", outputs)):
        yield f"    {title}:"
        yield from (f"      [{index}]: {'_'.join(name.split())}" for index, name in enumerate(names))


def _read(nodes: Sequence[Node]) -> list[str]:
    made = {result for node in nodes for result in node.outputs}
    return list(dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in made))


def _written(nodes: Sequence[Node]) -> list[str]:
    read = {name for node in nodes for name in node.inputs}
    return [result for node in nodes for result in node.outputs if result not in read]
