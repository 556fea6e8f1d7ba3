# SPDX-License-Identifier: BSD-3-Clause
"""Units to partitions: as few delegate calls as any order of execution allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Graph, Node

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
from openneutron.pytorch.lower.lower import kept_float
from openneutron.pytorch.lower.program import is_compute, is_dequantize, is_quantize, op_name, short_name

EXCLUDED = "operators_not_to_delegate names it"
NOTHING_TO_DO = "nothing in its partition moves or computes a value"


NOT_QUANTIZED = Reject(
    "the model is not quantized", "Quantize it with NeutronQuantizer, or let openneutron.compile do so."
)


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


def gather(graph: Graph, units: Sequence[Unit]) -> list[Partition]:
    """The units as partitions, in execution order."""
    by_level: dict[int, list[Unit]] = defaultdict(list)
    for unit, level in levels(graph, units).items():
        by_level[level].append(unit)
    return [_partition(graph, by_level[level]) for level in sorted(by_level)]


def _partition(graph: Graph, units: Sequence[Unit]) -> Partition:
    inside = {node for unit in units for node in unit.nodes}
    outputs = [node for unit in units for node in unit.nodes if any(user not in inside for user in node.users)]
    reads = {source for node in inside for source in node.all_input_nodes} - inside
    return Partition(tuple(units), tuple(node for node in graph.nodes if node in reads), tuple(outputs))


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What to leave on the CPU, and how partitions are lowered."""

    operators_not_to_delegate: tuple[str, ...] = ()
    transpose_on_npu: bool = True
    allow_no_op_partitions: bool = False


def partition(graph: Graph, constants: Constants, options: PartitionOptions) -> Partitioning:
    """The partitions of an edge graph. Every one has been lowered as the backend will lower it."""
    units = find_units(graph, constants)
    rejected: dict[Node, Reject] = {}
    if not any(is_quantize(node) or is_dequantize(node) for node in graph.nodes):
        return Partitioning(
            (), {node: _without_kernel(node) or NOT_QUANTIZED for node in graph.nodes if is_compute(node)}
        )
    accepted = _supported(units, constants, options, rejected)
    while True:
        partitions = gather(graph, accepted)
        refused = _refused(partitions, constants, options, rejected)
        if not refused:
            break
        accepted = [unit for unit in accepted if unit not in refused]
    delegated = {node for part in partitions for node in part.nodes}
    for node in graph.nodes:
        if is_compute(node) and node not in delegated and node not in rejected:
            rejected[node] = Reject("the operators it is quantized together with need each other in a circle")
    return Partitioning(tuple(partitions), rejected)


def _without_kernel(node: Node) -> Reject | None:
    known = op_name(node) in LOWER_RULES
    return None if known else Reject(f"there is no kernel for {short_name(node)}")


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
    return accepted


def _unwanted(unit: Unit, patterns: Sequence[str]) -> Refusal | None:
    """The first node of the unit that the user keeps from the NPU, if there is one."""
    for node in unit.compute:
        if (kept := kept_float(node)) is not None:
            return Refusal(node, kept)
        found = next((pattern for pattern in patterns if pattern in node.name), None)
        if found is not None:
            return Refusal(node, Reject(f"{EXCLUDED}: '{found}' is in '{node.name}'"))
    return None


def _reject_unit(unit: Unit, refusal: Refusal, lowering: Lowering | None, rejected: dict[Node, Reject]) -> None:
    """The refused node's own reason; for the others of its unit their own if they have one, else that they go with it."""
    culprit = refusal.node
    if culprit not in unit.compute and unit.compute:
        # A quantize or dequantize node is no operator to the user: the operator it belongs to is.
        culprit = next((user for user in culprit.users if user in unit.compute), unit.compute[0])
    for node in unit.compute:
        if node is culprit:
            rejected[node] = refusal.reject
        elif lowering is not None and (own := lowering.why_not(node)) is not None:
            rejected[node] = own
        else:
            rejected[node] = Reject(f"it exchanges float values with '{culprit.name}', which stays on the CPU")


def _refused(
    partitions: Sequence[Partition], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> set[Unit]:
    """The units that can't stay in their partitions, with their reasons noted."""
    refused: set[Unit] = set()
    for part in partitions:
        result = lower_units(part.units, constants, options.transpose_on_npu, "partition", part.inputs, part.outputs)
        if isinstance(result, Refusal):
            unit = next(unit for unit in part.units if result.node in unit.nodes)
            _reject_unit(unit, result, None, rejected)
            refused.add(unit)
        elif isinstance(result, Lowered) and result.moves_nothing and not options.allow_no_op_partitions:
            for unit in part.units:
                for node in unit.compute:
                    rejected[node] = Reject(NOTHING_TO_DO)
            refused.update(part.units)
    return refused
