# SPDX-License-Identifier: BSD-3-Clause
"""Compiled partitions: their payloads, the origins of their calls in the model, and their compiles with other options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from torch.export import ExportedProgram
from torch.fx import Node

from openneutron import litert, targets
from openneutron.compiler import Compiled, Prepared, prepared
from openneutron.compiler.search.fitted import over_budget
from openneutron.compiler.select.calls import in_words, node_of
from openneutron.compiler.select.select import Trial
from openneutron.device import converter as converters
from openneutron.device.converter import Conversion
from openneutron.device.timings import advance, step
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa import Program, decode
from openneutron.isa.microcode import OperatorFacts, calls, event_name, facts_of, with_facts
from openneutron.isa.payload import Format, pack
from openneutron.litert.neutron_graph import NeutronNode, splice
from openneutron.options import budget_bytes
from openneutron.pytorch.backend.compile_spec import DelegateOptions
from openneutron.pytorch.graph.program import is_compute, is_getitem, model_name, module_path, source_line, title
from openneutron.pytorch.lower.lower import Lowered
from openneutron.pytorch.lower.units import Unit


@dataclass(frozen=True, slots=True)
class Origin:
    """The operators of the model that one node of a partition's graph computes.

    name: the name of the first operator in messages. module: the path of its module. operators: the kinds of all operators.
    lines: their source lines. handles: their debug handles in the Edge program.
    """

    name: str
    module: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    handles: tuple[int, ...]

    @classmethod
    def of(cls, owner: Node, others: Sequence[Node]) -> Origin:
        """Return the origin of the operator ``owner`` and of the operators that are computed with it."""
        nodes = (owner, *others)
        return cls(
            model_name(owner),
            module_path(owner),
            tuple(dict.fromkeys(title(node) for node in nodes if is_compute(node))),
            tuple(dict.fromkeys(filter(None, map(source_line, nodes)))),
            tuple(dict.fromkeys(handle for node in nodes for handle in _handles(node))),
        )


Origins = Callable[[], Mapping[str, Origin]]
"""A function that computes the origin of each node of a graph, by the node's result."""


def _handles(node: Node) -> tuple[int, ...]:
    handle = node.meta.get("debug_handle", ())
    return (handle,) if isinstance(handle, int) else tuple(handle)


def origins_of(units: Iterable[Unit], lowered: Lowered) -> dict[str, Origin]:
    """Return the origin of each node of the graph, by the node's result.

    An operator without a node of its own, such as a ReLU, is computed with the last node of its unit.
    """
    owners = {result: _computed(node) for result, node in lowered.owners.items()}
    owned: dict[Node, list[str]] = {}
    for result, node in owners.items():
        owned.setdefault(node, []).append(result)
    with_it: dict[str, list[Node]] = {}
    for unit in units:
        compute = [node for node in unit.nodes if is_compute(node)]
        last = next((owned[node][-1] for node in reversed(compute) if node in owned), None)
        if last is not None:
            with_it[last] = [node for node in compute if node not in owned]
    return {result: Origin.of(node, with_it.get(result, ())) for result, node in owners.items()}


def _computed(node: Node) -> Node:
    """Return the operator whose result a node quantizes, dequantizes or takes out of a tuple.

    Return the node itself if it computes, or if its values come from outside of the partition.
    """
    source = node
    while not is_compute(source) or is_getitem(source):
        before = source.args[0] if source.args else None
        if not isinstance(before, Node) or before.op != "call_function":
            return node
        source = before
    return source


def with_origins(conversion: Conversion, origins: Mapping[str, Origin]) -> Conversion:
    """Return a conversion of this project's compiler with the origins added to the facts of its program."""
    assert conversion.compiled is not None
    program = with_facts(conversion.program, [_traced(item, origins) for item in facts_of(conversion.program)])
    return replace(conversion, program=program, compiled=replace(conversion.compiled, program=program))


def _traced(facts: OperatorFacts, origins: Mapping[str, Origin]) -> OperatorFacts:
    node = node_of(facts.layer, origins)
    if not node:
        return facts
    origin = origins[node]
    layer = in_words(facts.layer, node, origin.name)
    return replace(facts, layer=layer, module=origin.module, operators=origin.operators, lines=origin.lines)


def debug_handle_map(program: Program, origins: Mapping[str, Origin]) -> dict[int | str, tuple[int, ...]]:
    """Return the debug handles of each event that a delegate logs for a run of the compiler's program; empty without
    profiling.

    ExecuTorch's NXP delegate logs the numbers of events, and this project's delegate their names: both are keys. NXP's delegate ends a
    run with one more event, whose entry is empty.
    """
    facts = facts_of(program)
    if not facts:
        return {}
    nodes = [node_of(item.layer, origins) for item in facts]
    handles = [origins[node].handles if node else () for node in nodes]
    titles = [_traced(item, origins).layer for item in facts]
    events = [step.operator for step in calls(decode(program))]
    numbered: dict[int | str, tuple[int, ...]] = {index: handles[call] for index, call in enumerate(events)}
    named: dict[int | str, tuple[int, ...]] = {
        event_name(index, titles[call]): handles[call] for index, call in enumerate(events)
    }
    return {**numbered, len(events): (), **named}


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a delegate call.

    sources: the position of each input among the arguments, by tensor. results: the position of each output among the results, by
    tensor. formats: the memory format of each of these tensors. arguments: the number of arguments.
    """

    sources: Mapping[str, int]
    results: Mapping[str, int]
    formats: Mapping[str, Format]
    arguments: int

    @classmethod
    def of(cls, program: ExportedProgram, lowered: Lowered) -> Interface:
        """Return the interface of a delegated program."""
        arguments = {node: place for place, node in enumerate(user_inputs(program))}
        return cls(
            {item.tensor: arguments[item.node] for item in lowered.inputs},
            {item.tensor: place for place, item in enumerate(lowered.outputs)},
            {
                item.tensor: Format.CHANNELS_LAST if item.channels_last else Format.CONTIGUOUS
                for item in (*lowered.inputs, *lowered.outputs)
            },
            len(arguments),
        )

    def payload(self, conversion: Conversion) -> bytes:
        """Return the payload of a compiled partition. Raises InvalidProgramError if the partition has more inputs or outputs than a
        payload holds."""
        if conversion.compiled is not None:
            conversion.program.verify()
        return pack(
            conversion.program,
            [self.formats[tensor] for tensor in conversion.inputs],
            [self.formats[tensor] for tensor in conversion.outputs],
            [self.sources[tensor] for tensor in conversion.inputs],
            [self.results[tensor] for tensor in conversion.outputs],
            self.arguments,
            conversion.payload_version,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LoweredPartition:
    """A partition that is not compiled yet. layers: the name in messages of each node of the graph."""

    name: str
    graph: Graph = field(repr=False)
    interface: Interface = field(repr=False)
    layers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def recompiled(self, delegate: DelegateOptions) -> CompiledPartition:
        """Return the partition compiled with these options. Raises as ``Converter.convert`` does."""
        graph = replace(self.graph, name=graph_name(delegate, self.name))
        with in_modules(lambda: self.layers):
            conversion = converters.get(delegate.options.converter).convert(graph, delegate.options)
        return CompiledPartition(self.name, graph, conversion, self.interface, None, known_layers=self.layers)


def graph_name(delegate: DelegateOptions, partition: str) -> str:
    """Return the name of a partition's graph in messages."""
    return " ".join(filter(None, (delegate.name, partition)))


@dataclass(frozen=True, eq=False)
class CompiledPartition:
    """A compiled partition, which the lowered module carries as ``_delegate_info_meta``.

    Only ``conversion`` depends on the options of the compiler. origins: returns the origins of the graph's nodes in the model.
    lowered: the program's nodes for the tensors of the graph. known_layers: the names of the graph's nodes in messages, for a model from
    a cache, which has neither origins nor ``lowered``.
    """

    name: str
    graph: Graph = field(repr=False)
    conversion: Conversion = field(repr=False)
    interface: Interface = field(repr=False)
    first_stages: Trial | Prepared | None = field(repr=False)
    origins: Origins = field(default=dict, repr=False)
    lowered: Lowered | None = field(default=None, repr=False)
    known_layers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledPartition:
        # ExecuTorch copies the lowered module several times, and a compiled partition never changes.
        return self

    @property
    def payload(self) -> bytes:
        """Return the payload of the delegate call."""
        return self.interface.payload(self.conversion)

    @property
    def compiled(self) -> Compiled:
        """Return the details of the compile. A partition that NXP's converter compiled has no details."""
        assert self.conversion.compiled is not None
        return self.conversion.compiled

    @cached_property
    def _origins(self) -> Mapping[str, Origin]:
        return self.origins()

    @property
    def layers(self) -> dict[str, str]:
        """Return the name of each node of the graph in messages; see ``layers_of``."""
        return layers_of(self._origins) or dict(self.known_layers)

    def profiled(self) -> tuple[CompiledPartition, dict[int | str, tuple[int, ...]]]:
        """Return the partition with the origins of its kernel calls in the program, and the debug handles of the events that a run logs.

        A partition that was compiled without profiling is returned unchanged, without debug handles.
        """
        if self.conversion.compiled is None or not facts_of(self.conversion.program):
            return self, {}
        conversion = with_origins(self.conversion, self._origins)
        return replace(self, conversion=conversion), debug_handle_map(self.conversion.program, self._origins)

    @cached_property
    def _prepared(self) -> Prepared:
        """Return the first stages of the compile, which keep the result of each search for the next compile."""
        known = self.first_stages
        return known if isinstance(known, Prepared) else prepared(self.graph, known, kept=True)

    def recompiled(self, delegate: DelegateOptions) -> CompiledPartition:
        """Return the partition compiled with other options of the compiler. Raises as ``Converter.convert`` does."""
        converter = converters.get(delegate.options.converter)
        with in_modules(lambda: self.layers):
            conversion = converter.convert(self.graph, delegate.options, trial=self._prepared)
        return replace(self, conversion=conversion, first_stages=self._prepared).profiled()[0]

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return the partition's files for ``folder``: its ``.tflite`` before and after compiling."""
        pure, made = litert.write(self.graph), self.conversion.file
        if made is None:
            node = NeutronNode(self.name, self.graph.inputs, self.graph.outputs, self.compiled.program)
            model = litert.read(pure)
            main = model.model.subgraphs[0]
            # A stock file has the old and new values of states after the other tensors; a program keeps states itself.
            main.inputs, main.outputs = main.inputs[: len(node.inputs)], main.outputs[: len(node.outputs)]
            made = splice(model, [node])
        return {folder / f"{self.name}_pure.et.tflite": pure, folder / f"{self.name}_neutron.et.tflite": made}


def recompiled(
    parts: Sequence[LoweredPartition | CompiledPartition], delegate: DelegateOptions
) -> list[CompiledPartition]:
    """Compile the partitions of a model with these options. Raises as ``all_compiled`` does."""
    return all_compiled([(partial(part.recompiled, delegate), lambda: delegate) for part in parts])


@contextmanager
def in_modules(layers: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Return a context that raises a BudgetError of its block with the names in messages, which ``layers`` returns."""
    try:
        yield
    except BudgetError as error:
        known = layers()
        named = tuple(dict.fromkeys(known.get(name) or name for name in error.layers))
        raise BudgetError(str(error), error.least_bytes, error.suggestions, named) from error


def layers_of(origins: Mapping[str, Origin]) -> dict[str, str]:
    """Return the name of each node of a graph, and of each input, in messages."""
    return {name: origin.name for name, origin in origins.items()}


Made = TypeVar("Made")


def all_compiled(compiles: Sequence[tuple[Callable[[], Made], Callable[[], DelegateOptions]]]) -> list[Made]:
    """Compile all partitions of a model, given for each a function that compiles it and one that returns its options.

    If partitions need more SRAM than the budget, one BudgetError for all of them is raised after the last compile.
    """
    made: list[Made] = []
    over: list[BudgetError] = []
    delegate: DelegateOptions | None = None
    with step("Compiling", len(compiles)):
        for done, (compiles_one, options) in enumerate(compiles, 1):
            try:
                made.append(compiles_one())
            except BudgetError as error:
                over.append(error)
                delegate = delegate or options()
            advance(done, len(compiles))
    if delegate is not None:
        target = targets.get(delegate.options.target)
        budget = budget_bytes(delegate.options.sram_budget, target)
        raise over_budget(delegate.name or "model", over, len(compiles), budget, target)
    return made


def user_inputs(program: ExportedProgram) -> list[Node]:
    """Return the inputs of a program that its user passes."""
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph_module.graph.nodes if node.op == "placeholder" and node.name in names]
