# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a graph that go to the NPU, in as few pieces as possible; of uint8 models as int8 models.

uint8 tensors become int8 tensors: every stored value and zero point 128 lower, with the same real values. For the operators that the
operator table marks, LiteRT's uint8 kernels compute the same as its int8 kernels on such values. Where a uint8 kernel rounds
otherwise, the node's attribute ``unsigned`` selects its rounding.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from openneutron import ops
from openneutron.compiler.legalize.data_types import type_reason
from openneutron.compiler.legalize.legalize import rename_identities, take_apart
from openneutron.ir import DType, Graph, Node, QuantParams, State, Tensor
from openneutron.ir.graph import OnCpu
from openneutron.ops import BY_NAME
from openneutron.ops.elementwise import narrowing_reason
from openneutron.ops.shape import VIEWS
from openneutron.targets import Target

OFFSET = 128

NO_SUCH_KERNEL = "its tensors are uint8, and LiteRT has no uint8 kernel that computes what its int8 kernel does"
MIXED = "some of its tensors are uint8 and some int8"


def as_int8(graph: Graph) -> Graph:
    """Return the graph with int8 tensors of the same names in place of uint8 ones."""
    if not any(tensor.dtype is DType.UINT8 for tensor in graph.tensors.values()):
        return graph
    nodes = (node.with_attrs(unsigned=True) if _is_unsigned(graph, node) else node for node in graph.nodes)
    tensors = {name: _as_int8(tensor) for name, tensor in graph.tensors.items()}
    states = tuple(_state_as_int8(graph, state) for state in graph.states)
    return replace(graph, tensors=tensors, nodes=tuple(nodes), states=states)


def _state_as_int8(graph: Graph, state: State) -> State:
    tensor = graph[state.tensor]
    if tensor.dtype is not DType.UINT8:
        return state
    initial = np.zeros(tensor.shape, np.uint8) if state.initial is None else state.initial
    return replace(state, initial=(initial ^ 0x80).view(np.int8))


def unsigned_reason(graph: Graph, node: Node) -> str | None:
    """Return the reason why a node of a graph with uint8 tensors can't run on int8, or None."""
    row = BY_NAME.get(node.op)
    if row is None or not _is_unsigned(graph, node) or node.op == "lookup":  # of bytes to bytes, whatever these are
        return None
    if not row.unsigned:
        return NO_SUCH_KERNEL
    if node.op == "quantize":
        return narrowing_reason(graph, node)
    others = any(tensor.dtype is DType.INT8 for tensor in _tensors(graph, node))
    return MIXED if others else None


def with_uint8_io(graph: Graph, stored: Graph) -> Graph:
    """Return the graph with the input and output types of ``stored``; QUANTIZE converts between uint8 and int8.

    Inputs and outputs are matched by name; the names stay.
    """
    moved = [name for name in (*graph.inputs, *graph.outputs) if stored[name].dtype is DType.UINT8]
    if not moved:
        return graph
    inside = {name: graph.free_name(f"{name}/int8") for name in moved}
    tensors = {**graph.tensors}
    for name, other in inside.items():
        tensors[other] = replace(graph[name], name=other)
        tensors[name] = stored[name]
    nodes = [Node("quantize", (name,), (inside[name],)) for name in graph.inputs if name in inside]
    for node in graph.nodes:
        inputs = tuple(None if name is None else inside.get(name, name) for name in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=tuple(inside.get(name, name) for name in node.outputs)))
    outputs = [name for name in dict.fromkeys(graph.outputs) if name in inside and name not in graph.inputs]
    nodes += [Node("quantize", (inside[name],), (name,)) for name in outputs]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def signed_quant(tensor: Tensor) -> QuantParams:
    """Return the parameters of an int8 tensor, or of the int8 tensor that replaces a uint8 one."""
    assert tensor.quant is not None
    return _lower(tensor.quant) if tensor.dtype is DType.UINT8 else tensor.quant


def _tensors(graph: Graph, node: Node) -> list[Tensor]:
    return [graph[name] for name in (*node.inputs, *node.outputs) if name is not None]


def _is_unsigned(graph: Graph, node: Node) -> bool:
    return any(tensor.dtype is DType.UINT8 for tensor in _tensors(graph, node))


def _lower(quant: QuantParams) -> QuantParams:
    return QuantParams(quant.scales, tuple(zero - OFFSET for zero in quant.zero_points), quant.axis)


def _as_int8(tensor: Tensor) -> Tensor:
    if tensor.dtype is not DType.UINT8:
        return tensor
    quant = None if tensor.quant is None else _lower(tensor.quant)
    data = None if tensor.data is None else (np.asarray(tensor.data) ^ 0x80).view(np.int8)
    return replace(tensor, dtype=DType.INT8, quant=quant, data=data)


SHARED_STATE = frozenset(
    (
        *("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE"),
        *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
    )
)
"""LiteRT operators whose state is in the interpreter: variables and tables, which others of them read there."""

EFFECTFUL = SHARED_STATE | {"CALL", "IF", "MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "WHILE"}
"""LiteRT operators that may do more than compute their outputs: they keep the order they have in the file."""

NO_KERNEL = "See docs/supported-ops.md for those there are."
EXCLUDED = "operators_not_to_delegate names it"
ONLY_VIEWS = "it only gives values another shape, and no operator beside it runs on the NPU"


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Nodes that become one program. ``nodes`` are their places in the whole graph; ``graph`` is those nodes alone."""

    nodes: tuple[int, ...]
    graph: Graph


@dataclass(frozen=True, slots=True)
class OnNpu:
    """A step of a partitioned graph: partition ``index`` as a whole."""

    index: int


@dataclass(frozen=True, slots=True)
class OnHost:
    """A step of a partitioned graph: the node at this place, on the CPU."""

    node: int


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """``steps`` is an order of execution in which every node is run once, alone or within its partition."""

    partitions: tuple[Partition, ...]
    on_cpu: tuple[OnCpu, ...]
    steps: tuple[OnNpu | OnHost, ...]

    def verify(self, graph: Graph) -> None:
        """Assert that every node has one place and every step finds its inputs computed."""
        known = {*graph.given_tensors, *(name for name, tensor in graph.tensors.items() if tensor.is_constant)}
        run: list[int] = []
        for step in self.steps:
            nodes = self.partitions[step.index].nodes if isinstance(step, OnNpu) else (step.node,)
            inside = {name for index in nodes for name in graph.nodes[index].outputs}
            for index in nodes:
                needed = {name for name in graph.nodes[index].inputs if name is not None}
                assert needed <= known | inside, f"{step} runs before {sorted(needed - known - inside)}"
            known |= inside
            run += nodes
        assert sorted(run) == list(range(len(graph.nodes)))

    def __str__(self) -> str:
        """Return the steps, and the reason for each operator on the CPU."""
        lines = []
        for step in self.steps:
            if isinstance(step, OnNpu):
                nodes = self.partitions[step.index].graph.nodes
                lines.append(f"NPU {step.index}: {', '.join(f'{node.op} %{node.name}' for node in nodes)}")
            else:
                lines.append(f"CPU: node {step.node}")
        return "\n".join([*lines, *(str(item) for item in self.on_cpu)])


def partition(graph: Graph, excluded: Iterable[str] = (), target: Target | None = None) -> Partitioning:
    """Return the nodes that the operator table accepts, in the fewest partitions that can run one after the other.

    A partition never waits for a node that waits for it. ``excluded`` are operators or single nodes to leave on the CPU,
    by operator name, LiteRT name or output name. Nodes that would only rename values on the NPU stay on the CPU too.
    The graph of a partition computes on int8, also where the file has uint8. Nodes on types that ``target`` lacks stay on the CPU.

    The partitions are levels: an accepted node is one above the rejected nodes it reads from, and level with the
    accepted ones. Any other solution has as many: a node of level n is behind n pairs of a partition and a rejected node.
    """
    excluded = frozenset(excluded)
    reasons: dict[int, OnCpu] = {}
    computed = as_int8(graph)
    for index, node in enumerate(computed.nodes):
        diagnostic = _rejection(graph, computed, node, excluded, target)
        if diagnostic is not None:
            reasons[index] = diagnostic
    predecessors = _predecessors(graph)
    while True:
        groups = _levels(predecessors, reasons)
        partitions = tuple(Partition(group, extract(computed, group)) for group in groups)
        idle = [index for part in partitions for index in _idle(part)]
        if not idle:
            break
        # Left to the CPU these raise nobody's level, but a group may be gone, or idle itself now.
        for index in idle:
            node = graph.nodes[index]
            reasons[index] = OnCpu(operator_title(node), _name(node), ONLY_VIEWS)
    partitions = tuple(Partition(part.nodes, with_uint8_io(part.graph, graph)) for part in partitions)
    result = Partitioning(
        partitions, tuple(reasons[index] for index in sorted(reasons)), _order(predecessors, partitions)
    )
    result.verify(graph)
    return result


def operator_title(node: Node) -> str:
    """Return LiteRT's name of a node's operator."""
    row = ops.BY_NAME.get(node.op)
    return node.op if row is None or not row.litert else row.litert


def extract(graph: Graph, indices: Sequence[int]) -> Graph:
    """Return the graph of these nodes alone.

    Its inputs are what they read and do not compute, constants aside; its outputs what others read of them and what the
    whole graph returns. Both keep the whole graph's order, then the nodes'. A state of the whole graph that these nodes alone
    read and compute is a state; the old value of another one is an input, and its new value an output.
    """
    nodes = [graph.nodes[index] for index in indices]
    chosen = set(indices)
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name is not None)
    readers = graph.consumers()
    states = tuple(
        state
        for state in graph.states
        if state.update in made
        and state.tensor not in graph.outputs
        and all(node.outputs[0] in made for node in readers.get(state.tensor, ()))
    )
    own = {state.tensor for state in states}
    inputs = [name for name in read if name not in made | own and not graph[name].is_constant]
    used = {state.update for state in graph.states if state not in states}
    used |= {
        name
        for index, node in enumerate(graph.nodes)
        if index not in chosen
        for name in node.inputs
        if name is not None
    }
    first = [name for name in dict.fromkeys(graph.inputs) if name in inputs]
    returned = [name for name in dict.fromkeys(graph.outputs) if name in made]
    others = [name for node in nodes for name in node.outputs if name in used and name not in returned]
    whole = Graph(
        graph.name,
        graph.tensors,
        tuple(nodes),
        (*first, *(name for name in inputs if name not in first)),
        (*returned, *others),
        states,
    )
    return whole.rebuilt(nodes)


def _rejection(
    graph: Graph, computed: Graph, node: Node, excluded: frozenset[str], target: Target | None
) -> OnCpu | None:
    """Return the reason why a node of ``computed``, which is the graph on int8, stays on the CPU, or None."""
    title = operator_title(node)
    if excluded & {node.op, title, node.op.upper(), *node.outputs}:
        return OnCpu(title, _name(node), EXCLUDED)
    border = _border(graph, node)
    if border is not None:
        return border
    reason = unsigned_reason(graph, node) or ops.reject(computed, node) or type_reason(graph, node, target)
    if reason is None:
        return None
    return OnCpu(title, _name(node), reason, "" if node.op in ops.BY_NAME else NO_KERNEL)


def _border(graph: Graph, node: Node) -> OnCpu | None:
    """Return the diagnostic of a node that only leads from float to int8 or int16, or back: that is nothing to mend."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.inputs[0] is None:
        return None
    before, after = graph[node.inputs[0]].dtype, graph[node.outputs[0]].dtype
    for op, outside, side in (("quantize", before, "inputs"), ("DEQUANTIZE", after, "outputs")):
        if node.op == op and outside is DType.FLOAT32:
            inside = DType.INT16 if DType.INT16 in (before, after) else DType.INT8
            words, hint = f"it turns {before} into {after}", f"A model with {inside} {side} has none."
            return OnCpu(op.upper(), node.name, words, hint, converts=True)
    return None


def _name(node: Node) -> str:
    """Return the name of a node; an operator that only has an effect has no output to be named after."""
    return node.outputs[0] if node.outputs else node.source


def _predecessors(graph: Graph) -> list[list[int]]:
    """Return for each node the nodes it waits for: those it reads from, and the last one with an effect if it has one itself."""
    made_by = {name: index for index, node in enumerate(graph.nodes) for name in node.outputs}
    result = []
    last_effect = None
    for index, node in enumerate(graph.nodes):
        before = {made_by[name] for name in node.inputs if name is not None and name in made_by}
        if node.op in EFFECTFUL or node.op.startswith("CUSTOM"):
            if last_effect is not None:
                before.add(last_effect)
            last_effect = index
        result.append(sorted(before))
    return result


def _levels(predecessors: Sequence[Sequence[int]], rejected: Mapping[int, OnCpu]) -> list[tuple[int, ...]]:
    """Return the accepted nodes by level, each level in the graph's order."""
    levels: list[int] = []
    groups: dict[int, list[int]] = {}
    for index, before in enumerate(predecessors):
        if index in rejected:
            levels.append(max((levels[other] for other in before), default=-1))
            continue
        level = max((levels[other] + (other in rejected) for other in before), default=0)
        levels.append(level)
        groups.setdefault(level, []).append(index)
    return [tuple(groups[level]) for level in sorted(groups)]


def _idle(part: Partition) -> list[int]:
    """Return the nodes of a partition that are connected to none that computes."""
    legal = rename_identities(part.graph)
    computes = [node.op not in VIEWS and _computes(legal, node) for node in legal.nodes]
    made_by = {name: place for place, node in enumerate(part.graph.nodes) for name in node.outputs}
    # Union by relabelling: a node's component is the smallest place in it.
    component = list(range(len(computes)))

    def root(place: int) -> int:
        while component[place] != place:
            place = component[place]
        return place

    for place, node in enumerate(part.graph.nodes):
        for name in node.inputs:
            if name is not None and name in made_by:
                one, other = root(place), root(made_by[name])
                component[max(one, other)] = min(one, other)
    busy = {root(place) for place, computing in enumerate(computes) if computing}
    return [part.nodes[place] for place in range(len(computes)) if root(place) not in busy]


def _computes(graph: Graph, node: Node) -> bool:
    """Return whether the node computes more than a view; a composition does where one of its parts does."""
    row = ops.BY_NAME[node.op]
    if not row.is_composed(graph, node):
        return True
    alone = rename_identities(take_apart(replace(graph, nodes=(node,))))
    return any(part.op not in VIEWS for part in alone.nodes)


def _order(predecessors: Sequence[Sequence[int]], partitions: Sequence[Partition]) -> tuple[OnNpu | OnHost, ...]:
    """Return steps as near to the graph's order as their dependencies allow: the one whose first node comes first goes first."""
    first = list(range(len(predecessors)))
    step_at: dict[int, OnNpu | OnHost] = {index: OnHost(index) for index in first}
    for number, part in enumerate(partitions):
        step_at[part.nodes[0]] = OnNpu(number)
        for index in part.nodes:
            first[index] = part.nodes[0]
    waits: dict[int, set[int]] = {}
    followers: dict[int, set[int]] = {}
    for index, before in enumerate(predecessors):
        others = {first[other] for other in before} - {first[index]}
        waits.setdefault(first[index], set()).update(others)
        for other in others:
            followers.setdefault(other, set()).add(first[index])
    ready = [place for place, others in waits.items() if not others]
    heapq.heapify(ready)
    steps = []
    while ready:
        place = heapq.heappop(ready)
        steps.append(step_at[place])
        for follower in followers.get(place, ()):
            waits[follower].discard(place)
            if not waits[follower]:
                heapq.heappush(ready, follower)
    assert len(steps) == len(waits), "the partitions wait for each other"
    return tuple(steps)
