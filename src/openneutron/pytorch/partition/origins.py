# SPDX-License-Identifier: BSD-3-Clause
"""The origin of each kernel call of a partition in the PyTorch model, for profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch.fx import Node

from openneutron.compiler.select.names import in_words, node_of
from openneutron.device.converter import Conversion
from openneutron.isa import Program, decode
from openneutron.isa.facts import OperatorFacts, event_name, facts_of, with_facts
from openneutron.isa.steps import calls
from openneutron.pytorch.graph.program import is_compute, is_getitem, model_name, module_path, source_line, title
from openneutron.pytorch.lower.lower import Lowered
from openneutron.pytorch.lower.units import Unit


@dataclass(frozen=True, slots=True)
class Origin:
    """The operators of the model that one node of a partition's graph computes: their name for people, the path of their module, their
    kinds, their source lines, and their debug handles in the Edge program."""

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
"""The origin of each node of a graph, by the node's result, made when it is asked for."""


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
    """Return the operator whose values a node quantizes, dequantizes or takes out of a tuple; the node itself where it
    computes, or where its values come from outside of the partition."""
    source = node
    while not is_compute(source) or is_getitem(source):
        before = source.args[0] if source.args else None
        if not isinstance(before, Node) or before.op != "call_function":
            return node
        source = before
    return source


def with_origins(conversion: Conversion, origins: Mapping[str, Origin]) -> Conversion:
    """Return a conversion of this project's compiler with the origins among the facts of its program."""
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

    The keys are the events' numbers, which ExecuTorch's NXP delegate logs, and then their names, which this project's
    delegate logs. The entry behind the last event is the one with which NXP's delegate ends a run.
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
