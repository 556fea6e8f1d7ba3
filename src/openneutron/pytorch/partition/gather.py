# SPDX-License-Identifier: BSD-3-Clause
"""Units to partitions: as few delegate calls as any order of execution allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from torch.fx import Graph, Node

from openneutron.compiler.select.trial import Refused
from openneutron.pytorch.graph.origin import is_decomposed
from openneutron.pytorch.graph.pointwise import is_pointwise
from openneutron.pytorch.graph.program import is_compute, is_dequantize, is_quantize, op_name
from openneutron.pytorch.lower import (
    LOWER_RULES,
    Constants,
    Lowered,
    Lowering,
    Refusal,
    Reject,
    Unit,
    find_units,
    lower_units,
)
from openneutron.pytorch.lower.absent import QUANTIZER, left_float, no_rule, not_quantized
from openneutron.pytorch.lower.lower import kept_float
from openneutron.pytorch.operators.lowering.rules import QUANTIZE
from openneutron.pytorch.partition.names import OPTION, matching
from openneutron.pytorch.quantizer.overrides import LEFT_FLOAT

NOTHING_TO_DO = Reject("nothing in its partition moves or computes a value", rule="no-op partitions")

NOT_DELEGATED = "not_delegated"
"""The key of ``node.meta["custom"]`` for the name in operators_not_to_delegate that a node goes by before it is taken apart."""

MOST_BORDERS = 255
"""Inputs, and outputs, that a delegate payload can count."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Units that become one delegate call, in an order in which they can run."""

    units: tuple[Unit, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def nodes(self) -> list[Node]:
        return [node for unit in self.units for node in unit.nodes]


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """The partitions of a graph, and a reason for every operator in none of them."""

    partitions: tuple[Partition, ...]
    rejected: Mapping[Node, Reject]


def levels(graph: Graph, units: Sequence[Unit]) -> dict[Unit, int]:
    """For each unit how often execution must have changed from NPU to CPU and back before it can run.

    Units of one level can run together: a way from one of them to another over the CPU would have raised the level. The
    number of levels is the least number of delegate calls there can be.
    """
    unit_of = {node: unit for unit in units for node in unit.nodes}
    level: dict[Node, int] = {}
    found: dict[Unit, int] = {}
    for members in _in_order(graph, unit_of):
        unit = unit_of.get(members[0])
        sources = {source for node in members for source in node.all_input_nodes} - set(members)
        here = 0
        for source in sources:
            other = unit_of.get(source)
            # From the NPU to the CPU one level ends; what then comes to the NPU belongs to the next.
            here = max(here, level[source] + (1 if other is not None and unit is None else 0))
        for node in members:
            level[node] = here
        if unit is not None:
            found[unit] = here
    return found


def _in_order(graph: Graph, unit_of: Mapping[Node, Unit]) -> list[tuple[Node, ...]]:
    """The graph's nodes in an order in which they can run, the members of a unit together."""
    groups: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        groups[node] = unit_of[node].nodes if node in unit_of else (node,)
    waiting: dict[tuple[Node, ...], int] = {}
    readers: dict[tuple[Node, ...], list[tuple[Node, ...]]] = defaultdict(list)
    for group in dict.fromkeys(groups.values()):
        sources = {groups[source] for node in group for source in node.all_input_nodes} - {group}
        waiting[group] = len(sources)
        for source in sources:
            readers[source].append(group)
    order = [group for group, count in waiting.items() if not count]
    for group in order:
        for reader in readers[group]:
            waiting[reader] -= 1
            if not waiting[reader]:
                order.append(reader)
    assert len(order) == len(waiting), "units in a circle"
    return order


def gather(graph: Graph, units: Sequence[Unit], constants: Container[Node] = ()) -> list[Partition]:
    """The units as partitions, in execution order. What is in ``constants`` is no input."""
    by_level: dict[int, list[Unit]] = defaultdict(list)
    for unit, level in levels(graph, units).items():
        by_level[level].append(unit)
    return [part for level in sorted(by_level) for part in _countable(graph, by_level[level], constants)]


def _countable(graph: Graph, units: Sequence[Unit], constants: Container[Node]) -> list[Partition]:
    """Units of one level, in an order in which they can run, in one partition, or in as many as keep to MOST_BORDERS."""
    whole = _partition(graph, units, constants)
    if len(units) == 1 or max(len(whole.inputs), len(whole.outputs)) <= MOST_BORDERS:
        return [whole]
    half = len(units) // 2
    return [*_countable(graph, units[:half], constants), *_countable(graph, units[half:], constants)]


def _partition(graph: Graph, units: Sequence[Unit], constants: Container[Node]) -> Partition:
    inside = {node for unit in units for node in unit.nodes}
    outputs = [node for unit in units for node in unit.nodes if any(user not in inside for user in node.users)]
    reads = {source for node in inside for source in node.all_input_nodes} - inside
    inputs = tuple(node for node in graph.nodes if node in reads and node not in constants)
    return Partition(tuple(units), inputs, tuple(outputs))


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What to leave on the CPU, and how partitions are lowered. ``compiles``: what the compiler says of a lowered partition."""

    operators_not_to_delegate: tuple[str, ...] = ()
    transpose_on_npu: bool = True
    allow_no_op_partitions: bool = False
    compiles: Callable[[Lowered], Refused | None] | None = None


def partition(graph: Graph, constants: Constants, options: PartitionOptions) -> Partitioning:
    """The partitions of an edge graph. Every one has been lowered as the backend will lower it."""
    units, in_circles = find_units(graph, constants)
    rejected: dict[Node, Reject] = {}
    if not any(is_quantize(node) or is_dequantize(node) for node in graph.nodes):
        seen = any(LEFT_FLOAT in node.meta.get("custom", {}) for node in graph.nodes)
        return Partitioning((), {node: _not_quantized(node, seen) for node in graph.nodes if is_compute(node)})
    accepted = _supported(units, constants, options, rejected)
    while True:
        partitions = gather(graph, accepted, constants)
        refused = _refused(partitions, constants, options, rejected)
        if not refused:
            break
        accepted = [unit for unit in accepted if unit not in refused]
    delegated = {node for part in partitions for node in part.nodes}
    _reject_circles(in_circles, constants, options, rejected)
    rejected = {node: _without_advice(node, reject) for node, reject in rejected.items()}
    assert all(node in delegated or node in rejected for node in graph.nodes if is_compute(node))
    return Partitioning(tuple(partitions), rejected)


def _without_advice(node: Node, reject: Reject) -> Reject:
    """Return the reason without the hint to quantize where NeutronQuantizer left the node float."""
    return replace(reject, hint="") if reject.hint == QUANTIZE and left_float(node) else reject


def _reject_circles(
    units: Sequence[Unit], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> None:
    """Note why units on cycles stay on the CPU: because one of them can't be lowered, or because of the cycle."""
    lowering = Lowering(constants, units, options.transpose_on_npu)
    for unit in units:
        refusal = _unwanted(unit, options.operators_not_to_delegate) or lowering.lower_unit(unit)
        if refusal is not None:
            _reject_unit(unit, refusal, lowering, rejected)
    culprit = next((node.name for unit in units for node in unit.compute if node in rejected), None)
    for unit in units:
        other = next(node.name for more in units if more is not unit for node in more.compute)
        reason = (
            f"it exchanges values with '{culprit}', which stays on the CPU"
            if culprit is not None
            else f"it reads what '{other}' computes, and '{other}' what is computed from it; a delegate call runs without a break"
        )
        for node in unit.compute:
            rejected.setdefault(node, Reject(reason, rule="units"))


def _not_quantized(node: Node, seen: bool) -> Reject:
    """Return why a node of a graph without a quantize node stays on the CPU; ``seen``: a NeutronQuantizer left all of
    it float."""
    if (kept := kept_float(node)) is not None:
        return replace(kept, rule="keep_float")
    if op_name(node) not in LOWER_RULES and not is_pointwise(node):
        return no_rule(node)
    found = not_quantized(node)
    return Reject("the model is not quantized", QUANTIZE, QUANTIZER) if found.rule == QUANTIZER and not seen else found


def _supported(
    units: Sequence[Unit], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> list[Unit]:
    """The units that can be lowered; the others' nodes get their reasons."""
    lowering = Lowering(constants, units, options.transpose_on_npu)
    accepted = []
    for unit in units:
        refusal = _unwanted(unit, options.operators_not_to_delegate) or lowering.lower_unit(unit)
        if refusal is None:
            accepted.append(unit)
        else:
            _reject_unit(unit, refusal, lowering, rejected)
            for node in unit.compute:
                if (unwanted := _unwanted_node(node, options.operators_not_to_delegate)) is not None:
                    rejected[node] = unwanted
    return accepted


def _unwanted(unit: Unit, patterns: Sequence[str]) -> Refusal | None:
    """The first node of the unit that the user keeps from the NPU, if there is one."""
    for node in unit.compute:
        reject = _unwanted_node(node, patterns)
        if reject is not None:
            return Refusal(node, reject)
    return None


def _unwanted_node(node: Node, patterns: Sequence[str]) -> Reject | None:
    if (kept := kept_float(node)) is not None:
        return replace(kept, rule="keep_float")
    found = node.meta.get("custom", {}).get(NOT_DELEGATED) or matching(node, patterns)
    return None if found is None else Reject(f"{OPTION} names it: '{found}'", rule=OPTION)


def _reject_unit(unit: Unit, refusal: Refusal, lowering: Lowering | None, rejected: dict[Node, Reject]) -> None:
    """The refused node's own reason; for the others of its unit their own if they have one, else that they go with it."""
    culprit = refusal.node
    if culprit not in unit.compute and unit.compute:
        # A quantize or dequantize node is no operator to the user: the operator it belongs to is.
        culprit = next((user for user in culprit.users if user in unit.compute), unit.compute[0])
    for node in unit.compute:
        if refusal.reject.hint == QUANTIZE and is_decomposed(node):
            rejected[node] = not_quantized(node)
        elif node is culprit:
            rejected[node] = refusal.reject
        elif lowering is not None and (own := lowering.why_not(node)) is not None:
            rejected[node] = own
        else:
            rejected[node] = Reject(
                f"it exchanges float values with '{culprit.name}', which stays on the CPU", rule="units"
            )


def _refused(
    partitions: Sequence[Partition], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> set[Unit]:
    """The units that can't stay in their partitions, with their reasons noted."""
    refused: set[Unit] = set()
    for part in partitions:
        result = lower_units(part.units, constants, options.transpose_on_npu, "partition", part.inputs, part.outputs)
        if isinstance(result, Lowered) and result.moves_nothing and not options.allow_no_op_partitions:
            rejected |= {node: NOTHING_TO_DO for unit in part.units for node in unit.compute}
            refused.update(part.units)
            continue
        refusal = result if isinstance(result, Refusal) else _not_compiled(part, result, options)
        if refusal is not None:
            unit = next(unit for unit in part.units if refusal.node in unit.nodes)
            _reject_unit(unit, refusal, None, rejected)
            refused.add(unit)
    return refused


def _not_compiled(part: Partition, lowered: Lowered, options: PartitionOptions) -> Refusal | None:
    """What keeps a partition that can be lowered from being a payload."""
    for borders, what in ((lowered.inputs, "inputs"), (lowered.outputs, "outputs")):
        if len(borders) > MOST_BORDERS:
            reason = f"it has {len(borders)} {what}; a delegate call has at most {MOST_BORDERS}"
            return Refusal(part.units[0].compute[0], Reject(reason, rule="payload"))
    said = options.compiles(lowered) if options.compiles is not None else None
    if said is None:
        return None
    owner = lowered.owners.get(said.result, part.nodes[0])
    return Refusal(owner, Reject(said.reason, rule="compiler"))
