# SPDX-License-Identifier: BSD-3-Clause
"""Group units into as few partitions as the execution order allows, and hand the partitions over to the backend.

A unit is a set of nodes that run on the NPU together or not at all (``lower.units``). A partition becomes one delegate call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.fx import Graph, Node

from openneutron.compiler.select.select import Refused, Trial
from openneutron.device.converter import owner_of
from openneutron.pytorch.backend.neutron_target_spec import DelegateOptions
from openneutron.pytorch.graph.program import (
    LEFT_FLOAT,
    NOT_DELEGATED,
    QUANTIZE_FIRST,
    Constants,
    Reject,
    is_compute,
    is_decomposed,
    is_dequantize,
    is_pointwise,
    is_quantize,
    model_name,
    op_name,
)
from openneutron.pytorch.lower.lower import (
    NO_STATES,
    QUANTIZER,
    RULE,
    Lowered,
    Lowering,
    PartitionTensor,
    Refusal,
    StateNodes,
    States,
    kept_float,
    left_float,
    no_rule,
    not_quantized,
)
from openneutron.pytorch.lower.units import Groups, Unit, find_units
from openneutron.pytorch.operators.families import LOWER_RULES
from openneutron.pytorch.partition.delegation import OPTION, UNITS, matching

NOTHING_TO_DO = Reject("nothing in its partition moves or computes a value", rule="no-op partitions")

MOST_TENSORS = 255
"""The maximum number of inputs, and of outputs, of a delegate payload. The payload stores each number in one byte."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Units that become one delegate call, in execution order."""

    units: tuple[Unit, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    lowered: Lowered | None = None
    trial: Trial | None = None
    states: tuple[StateNodes, ...] = ()

    @property
    def nodes(self) -> list[Node]:
        return [
            *(node for unit in self.units for node in unit.nodes),
            *(node for state in self.states for node in state.outside),
        ]

    def with_states(self, states: Iterable[StateNodes]) -> Partition:
        """Return the partition with those of the states that only its own nodes read and write. A state is a buffer
        that the model updates.

        ExecuTorch delegates the update of a buffer only together with another result. Without another result, the
        partition is returned unchanged.
        """
        inside = set(self.nodes)
        own = tuple(state for state in states if state.is_within(inside))
        reads = {read for state in own for read in state.reads}
        inside.update(state.write for state in own)
        outputs = tuple(node for node in self.outputs if any(user not in inside for user in node.users))
        if not own or not outputs:
            return self
        return replace(
            self, states=own, inputs=tuple(node for node in self.inputs if node not in reads), outputs=outputs
        )


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """The partitions of a graph, and the reason for each operator that is in no partition."""

    partitions: tuple[Partition, ...]
    rejected: Mapping[Node, Reject]
    states_on_cpu: Mapping[Node, Reject] = field(default_factory=dict)
    """The placeholders of buffers that the program updates and that no partition keeps, each with the reason."""
    has_islands: bool = False
    """Whether partitions are, or were before they were cut, between operators on the CPU."""


def levels(graph: Graph, units: Sequence[Unit]) -> dict[Unit, int]:
    """Return the level of each unit, in execution order. Units of one level can run in one delegate call; see ``Groups.levels``."""
    unit_of = {node: unit for unit in units for node in unit.nodes}
    groups = Groups(graph.nodes, lambda node: unit_of.get(node, node))
    level = groups.levels(unit_of.__contains__)
    return {unit_of[nodes[0]]: level[nodes[0]] for nodes, _ in groups.groups if nodes[0] in unit_of}


def gather(graph: Graph, units: Sequence[Unit], constants: Container[Node] = ()) -> list[Partition]:
    """Return the partitions that consist of the units, in execution order. Nodes in ``constants`` are not inputs of a partition."""
    by_level: dict[int, list[Unit]] = defaultdict(list)
    for unit, level in levels(graph, units).items():
        by_level[level].append(unit)
    return [part for level in sorted(by_level) for part in _countable(graph, by_level[level], constants)]


def _countable(graph: Graph, units: Sequence[Unit], constants: Container[Node]) -> list[Partition]:
    """Return the units of one level as one partition, or as several if one would have more than MOST_TENSORS inputs or outputs."""
    whole = _partition(graph, units, constants)
    if len(units) == 1 or max(len(whole.inputs), len(whole.outputs)) <= MOST_TENSORS:
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
    """Options of partitioning and of lowering, such as the operators that the user keeps on the CPU.

    compiles: a function that tries to compile a lowered partition. It returns its trial (``select.try_compile``) if
    that succeeds, the nodes that must leave the partition if it fails, and None if there is nothing to try. islands:
    a function that returns the partitions between operators on the CPU. Each comes with the reason to leave it on the
    CPU, or with None if it is to be delegated.
    """

    operators_not_to_delegate: tuple[str, ...] = ()
    transpose_on_npu: bool = True
    allow_no_op_partitions: bool = False
    compiles: Callable[[Lowered], Sequence[Refused] | Trial | None] | None = None
    islands: Callable[[Sequence[Partition]], Iterable[tuple[Partition, Reject | None]]] | None = None


def partition(
    graph: Graph, constants: Constants, options: PartitionOptions, states: States = NO_STATES
) -> Partitioning:
    """Return the partitions of an edge graph, and the reasons of all nodes that are in none. Each partition is
    already lowered, with the same options that the backend uses.

    states: the buffers that the graph updates. A buffer becomes the state of a partition if only that partition reads
    and writes it.
    """
    units, in_circles = find_units(graph, constants)
    rejected: dict[Node, Reject] = {}
    if not any(is_quantize(node) or is_dequantize(node) for node in graph.nodes):
        seen = any(LEFT_FLOAT in node.meta.get("custom", {}) for node in graph.nodes)
        return Partitioning((), {node: _not_quantized(node, seen) for node in graph.nodes if is_compute(node)})
    lowering, accepted = _supported(units, constants, options, rejected)
    has_islands = False
    while True:
        partitions, refused = [], set()
        for plain in gather(graph, accepted, constants):
            part = plain.with_states(states.found) if states.found else plain
            # The lowering of all units in their order exists already.
            whole = (
                lowering
                if list(part.units) == units and not part.states
                else Lowering.of(part.units, constants, options.transpose_on_npu, part.states)
            )
            tried = _tried(part, whole, options, rejected)
            if isinstance(tried, Partition):
                partitions.append(tried)
            else:
                refused |= tried
        if not refused and len(partitions) > 1 and options.islands is not None:
            for part, reject in options.islands(partitions):
                has_islands = True
                if reject is not None:
                    rejected |= {node: reject for unit in part.units for node in unit.compute}
                    refused.update(part.units)
        if not refused:
            break
        accepted = [unit for unit in accepted if unit not in refused]
    delegated = {node for part in partitions for node in part.nodes}
    if in_circles:
        _reject_circles(in_circles, constants, options, rejected)
    # NeutronQuantizer examined these nodes and left them float: the suggestion to quantize them does not help.
    for node, reject in rejected.items():
        if reject.hint == QUANTIZE_FIRST and left_float(node):
            rejected[node] = replace(reject, hint="")
    assert all(node in delegated or node in rejected for node in graph.nodes if is_compute(node))
    has_states = partitions and (states.found or states.refused)
    on_cpu = dict(_states_on_cpu(partitions, states)) if has_states else {}
    return Partitioning(tuple(partitions), rejected, on_cpu, has_islands)


def _states_on_cpu(partitions: Sequence[Partition], states: States) -> Iterator[tuple[Node, Reject]]:
    yield from states.refused
    kept = {state.target for part in partitions for state in part.states}
    for state in states.found:
        if state.target in kept:
            continue
        users = {user for read in state.reads for user in read.users} | {state.update}
        count = sum(not users.isdisjoint(part.nodes) for part in partitions)
        is_inside = any(users.issubset(part.nodes) for part in partitions)
        if is_inside:
            reason = "its new value is all that leaves its delegate call"
        elif count > 1:
            reason = f"{count} delegate calls share it; one alone can keep it"
        else:
            reason = "an operator on the CPU reads or writes it; a delegate call can keep it that alone does both"
        yield state.buffer, Reject(reason, rule=RULE)


def _reject_circles(
    units: Sequence[Unit], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> None:
    """Add a reason to ``rejected`` for each operator in ``units``, which depend on each other in a cycle.

    In a unit that can't be lowered, it is the reason of that unit. In the other units, it is that they exchange
    values with a unit that can't be lowered. If all units can be lowered, the reason is the cycle itself.
    """
    lowering = Lowering(constants, units, options.transpose_on_npu)
    for unit in units:
        refusal = _unwanted(unit, options.operators_not_to_delegate) or lowering.lower_unit(unit)
        if refusal is not None:
            _reject_unit(unit, refusal, lowering, rejected)
    culprit = next((model_name(node) for unit in units for node in unit.compute if node in rejected), None)
    for unit in units:
        other = next(model_name(node) for more in units if more is not unit for node in more.compute)
        reason = (
            f"it exchanges values with '{culprit}', which stays on the CPU"
            if culprit is not None
            else f"it reads what '{other}' computes, and '{other}' what is computed from it; a delegate call runs without a break"
        )
        for node in unit.compute:
            rejected.setdefault(node, Reject(reason, rule=UNITS))


def _not_quantized(node: Node, seen: bool) -> Reject:
    """Return the reason why a node stays on the CPU in a graph without any quantize node.

    seen: whether a NeutronQuantizer examined the graph and left all nodes float.
    """
    if (kept := kept_float(node)) is not None:
        return replace(kept, rule="keep_float")
    if op_name(node) not in LOWER_RULES and not is_pointwise(node):
        return no_rule(node)
    found = not_quantized(node)
    return (
        Reject("the model is not quantized", QUANTIZE_FIRST, QUANTIZER)
        if found.rule == QUANTIZER and not seen
        else found
    )


def _supported(
    units: Sequence[Unit], constants: Constants, options: PartitionOptions, rejected: dict[Node, Reject]
) -> tuple[Lowering, list[Unit]]:
    """Lower all units, except those with an operator that the user keeps on the CPU. Return the lowering, and the
    units that could be lowered.

    A reason for each operator of the other units is added to ``rejected``.
    """
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
    return lowering, accepted


def _unwanted(unit: Unit, patterns: Sequence[str]) -> Refusal | None:
    for node in unit.compute:
        reject = _unwanted_node(node, patterns)
        if reject is not None:
            return Refusal(node, reject)
    return None


def _unwanted_node(node: Node, patterns: Sequence[str]) -> Reject | None:
    if (kept := kept_float(node)) is not None:
        return replace(kept, rule="keep_float")
    found = node.meta.get("custom", {}).get(NOT_DELEGATED) or (matching(node, patterns) if patterns else None)
    return None if found is None else Reject(f"{OPTION} names it: '{found}'", rule=OPTION)


def _reject_unit(unit: Unit, refusal: Refusal, lowering: Lowering | None, rejected: dict[Node, Reject]) -> None:
    """Add a reason to ``rejected`` for each operator of a refused unit: the operator's own reason, or that it exchanges float values with
    the refused node."""
    culprit = refusal.node
    if culprit not in unit.compute and unit.compute:
        # A user knows the operator that a quantize or dequantize node belongs to, not the node.
        culprit = next((user for user in culprit.users if user in unit.compute), unit.compute[0])
    for node in unit.compute:
        if refusal.reject.hint == QUANTIZE_FIRST and is_decomposed(node):
            rejected[node] = not_quantized(node)
        elif node is culprit:
            rejected[node] = refusal.reject
        elif lowering is not None and (own := lowering.why_not(node)) is not None:
            rejected[node] = own
        else:
            rejected[node] = Reject(
                f"it exchanges float values with '{model_name(culprit)}', which stays on the CPU", rule=UNITS
            )


def _tried(
    part: Partition, lowering: Lowering | Refusal, options: PartitionOptions, rejected: dict[Node, Reject]
) -> Partition | set[Unit]:
    """Return the partition with its lowered graph and the compiler's trial. If some of its units must leave it,
    return these units, and add a reason for each of their operators to ``rejected``.

    Units leave if they can't be lowered or compiled. All units leave if the graph neither computes nor moves
    anything, unless the options allow such partitions.
    """
    result = lowering if isinstance(lowering, Refusal) else lowering.finished("partition", part.inputs, part.outputs)
    if isinstance(result, Lowered):
        if result.moves_nothing and not options.allow_no_op_partitions:
            rejected |= {node: NOTHING_TO_DO for unit in part.units for node in unit.compute}
            return set(part.units)
        tried = _compiled(part, result, options)
        if tried is None or isinstance(tried, Trial):
            return replace(part, lowered=result, trial=tried)
    else:
        tried = [result]
    left = set()
    for refusal in tried:
        unit = next(unit for unit in part.units if refusal.node in unit.nodes)
        if unit not in left:
            _reject_unit(unit, refusal, None, rejected)
            left.add(unit)
    return left


def _compiled(part: Partition, lowered: Lowered, options: PartitionOptions) -> Sequence[Refusal] | Trial | None:
    """Return the compiler's trial of a lowered partition, or None if there is nothing to try. Return refusals if the
    compiler can't compile some nodes, or if there are more inputs or outputs than a payload can have."""
    for tensors, what in ((lowered.inputs, "inputs"), (lowered.outputs, "outputs")):
        if len(tensors) > MOST_TENSORS:
            reason = f"it has {len(tensors)} {what}; a delegate call has at most {MOST_TENSORS}"
            return [Refusal(part.units[0].compute[0], Reject(reason, rule="payload"))]
    tried = options.compiles(lowered) if options.compiles is not None else None
    if tried is None or isinstance(tried, Trial):
        return tried
    inside = set(part.nodes)
    # The owner of an input is outside.
    known = {result: node for result, node in lowered.owners.items() if node in inside}
    owners = [known.get(owner_of(lowered.graph.nodes, item.result, known) or "", part.nodes[0]) for item in tried]
    return [Refusal(owner, Reject(item.reason, rule="compiler")) for owner, item in zip(owners, tried, strict=True)]


HANDOVER = "openneutron_handover"
"""The key of a ``Handover`` in the ``meta`` of a partition's first node. ExecuTorch copies ``meta`` to the delegated program."""


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
    """A lowered and tried partition, which the partitioner hands over to the backend so that the backend does not
    lower it again.

    key: all that lowering reads apart from the constants, as text (``key_of``). tensors: the constants by the names
    of their nodes.

    If the delegated program has another key or another constant, the backend lowers it again.
    """

    specs: Sequence[CompileSpec]
    delegate: DelegateOptions
    key: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]
    lowered: Lowered = field(repr=False)
    trial: Trial | None = field(repr=False)

    def __deepcopy__(self, memo: dict[int, object]) -> Handover:
        return self

    def taken(
        self,
        units: Iterable[Unit],
        constants: Constants,
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        states: Sequence[StateNodes],
    ) -> Lowered | None:
        """Return the lowered partition, with its nodes replaced by the same nodes of the delegated program. Return
        None if the delegated program differs from the partition.

        All arguments are those of the delegated program.
        """
        units = list(units)
        if self.key != key_of(units, inputs, outputs, states):
            return None
        tensors = tensors_of(units, constants)
        if tensors.keys() != self.tensors.keys():
            return None
        if not all(_same(tensor, self.tensors[name]) for name, tensor in tensors.items()):
            return None
        nodes = {node.name: node for node in (*inputs, *outputs, *(node for unit in units for node in unit.nodes))}

        def here(items: Iterable[PartitionTensor]) -> tuple[PartitionTensor, ...]:
            return tuple(replace(item, node=nodes[item.node.name]) for item in items)

        return replace(
            self.lowered,
            inputs=here(self.lowered.inputs),
            outputs=here(self.lowered.outputs),
            owners={result: nodes[node.name] for result, node in self.lowered.owners.items() if node.name in nodes},
        )


def key_of(
    units: Iterable[Unit], inputs: Iterable[Node], outputs: Iterable[Node], states: Iterable[StateNodes]
) -> tuple[str, ...]:
    """Return all that lowering reads of a partition as text, except the values of constants and the initial values of states."""
    nodes = [node for unit in units for node in unit.nodes]
    sources = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
    operators = [op_name(node) for node in nodes]
    return (
        *(
            f"{node.name} = {operator} {node.args} {node.kwargs} {_layout(node)}"
            for node, operator in zip(nodes, operators, strict=True)
        ),
        *(f"{node.name} {_layout(node)}" for node in sources),
        f"inputs {[node.name for node in inputs]}",
        f"outputs {[node.name for node in outputs]}",
        f"states {[(state.target, [node.name for node in (*state.reads, state.update)]) for state in states]}",
    )


def tensors_of(units: Iterable[Unit], constants: Constants) -> dict[str, torch.Tensor]:
    """Return the constants that the units read, by the names of their nodes."""
    sources = dict.fromkeys(source for unit in units for node in unit.nodes for source in node.all_input_nodes)
    return {node.name: constants.tensor(node) for node in sources if node in constants}


def _layout(node: Node) -> str:
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else (values,)
    return " ".join(
        f"{value.dtype}{list(value.shape)}{list(value.stride())}" if isinstance(value, torch.Tensor) else "-"
        for value in tensors
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))
