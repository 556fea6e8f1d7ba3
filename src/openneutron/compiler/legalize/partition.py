# SPDX-License-Identifier: BSD-3-Clause
"""Partition a graph: choose the nodes that run on the NPU, in as few partitions as possible, and convert uint8 models to int8.

A uint8 tensor becomes an int8 tensor with the same real values: its stored values and its zero point are 128 lower. For the operators
that the operator table marks ``unsigned``, LiteRT's uint8 kernel then computes the same values as its int8 kernel, except for rounding.
If it rounds otherwise, the node's attribute ``unsigned`` selects the rounding of the uint8 kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from openneutron import ops, targets
from openneutron.compiler.legalize.legalize import rename_identities, take_apart
from openneutron.ir import DType, Graph, Node, QuantParams, State, Tensor
from openneutron.ir.graph import OnCpu
from openneutron.ops import BY_NAME
from openneutron.ops.elementwise import narrowing_reason
from openneutron.ops.recurrent import state_operands
from openneutron.ops.shape import VIEWS
from openneutron.targets import Target


def type_reason(graph: Graph, node: Node, target: Target | None, host_calls: bool) -> str | None:
    """Return the reason why a node can't be in a program for ``target``: the NPU does not compute on the type of its
    activations. Return None if the node can.

    With ``host_calls``, the chip's host core may make the kernel calls that the NPU can't, so that more nodes can be in
    the program. Only int16 can be missing, since all chips compute on int8. Without a target the result is None. The
    states of a recurrent layer are not activations: the cell state of an LSTM and the stored results of an SVDF are
    int16 in layers with int8 activations. Their products of 16 by 16 bits do not use the multipliers of any chip.
    """
    if target is None or targets.takes_int16(target, host_calls):
        return None
    states = set(state_operands(node))
    if states:
        states.update(node.outputs[1:])
    for name in (*node.inputs, *node.outputs):
        if name in states:
            continue
        tensor = graph.tensors.get(name) if name is not None else None
        if tensor is None or tensor.is_constant or tensor.quant is None:
            continue
        if tensor.dtype is DType.INT16:
            return reason_of(target)
    return None


def reason_of(target: Target) -> str:
    """Return the reason why the NPU of ``target``, which lacks int16, can't compute on int16 activations."""
    return f"its activations are int16; {target.name} computes on {target.npu.data_types} activations"


OFFSET = 128

NO_SUCH_KERNEL = "its tensors are uint8, and LiteRT has no uint8 kernel that computes what its int8 kernel does"
MIXED = "some of its tensors are uint8 and some int8"


def as_int8(graph: Graph) -> Graph:
    """Return the graph with each uint8 tensor replaced by an int8 tensor of the same name, whose stored values and zero
    point are 128 lower."""
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
    """Return the reason why a node with uint8 tensors can't run on int8. Return None if it can, if it has no uint8
    tensors, or if the operator table does not have its operator."""
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
    """Return the graph with uint8 inputs and outputs where the tensors of the same names in ``stored`` are uint8.

    A QUANTIZE operator converts each of them to or from an int8 tensor inside the graph, which gets a new name.
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
    """Return the quantization parameters of an int8 tensor. For a uint8 tensor, return those of the int8 tensor that
    ``as_int8`` puts in its place."""
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
"""LiteRT operators that read or write state in the interpreter: variables and hash tables."""

EFFECTFUL = SHARED_STATE | {"CALL", "IF", "MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "WHILE"}
"""LiteRT operators with side effects. They run in the order that they have in the file."""

NO_KERNEL = "See docs/supported-ops.md for those there are."
EXCLUDED = "operators_not_to_delegate names it"
ONLY_VIEWS = "it only gives values another shape, and no operator beside it runs on the NPU"


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A set of nodes that becomes one program. ``nodes`` are their indices in the whole graph, and ``graph`` is a graph
    of only these nodes."""

    nodes: tuple[int, ...]
    graph: Graph


@dataclass(frozen=True, slots=True)
class OnNpu:
    """A step of a partitioned graph that runs partition ``index`` on the NPU."""

    index: int


@dataclass(frozen=True, slots=True)
class OnHost:
    """A step of a partitioned graph that runs the node with index ``node`` on the CPU."""

    node: int


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """A graph divided between the NPU and the CPU.

    ``on_cpu`` has the reason for each node on the CPU. ``steps`` is an order of execution: it runs each node once, on the CPU or in
    its partition.
    """

    partitions: tuple[Partition, ...]
    on_cpu: tuple[OnCpu, ...]
    steps: tuple[OnNpu | OnHost, ...]

    def verify(self, graph: Graph) -> None:
        """Assert that the steps run every node of the graph once, and that the inputs of each step are computed before it."""
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


def partition(
    graph: Graph,
    excluded: Iterable[str] = (),
    target: Target | None = None,
    host_calls: bool = True,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Partitioning:
    """Return the partitioning of a graph with the fewest partitions that can run one after the other.

    Nodes that the operator table accepts run on the NPU. Nodes on the CPU are those that the table rejects, those
    with uint8 tensors that no int8 kernel can compute (``unsigned_reason``), those that can't be in a program for
    ``target`` (``type_reason``, which describes ``host_calls``), those that ``excluded`` names (by operator name,
    LiteRT name or output name), and those whose first result has a reason in ``refused``. Nodes that only change
    shapes are on the CPU too, unless they are connected to a node of their partition that computes. The graph of a
    partition computes on int8, also if the file has uint8.

    The accepted nodes of one level become one partition. A node has the highest level of the nodes that must run
    before it. A rejected node raises the level of the accepted nodes that wait for it by 1. No other partitioning has
    fewer partitions: before a node of level n, n other partitions must run, with a rejected node after each.
    """
    excluded = frozenset(excluded)
    reasons: dict[int, OnCpu] = {}
    computed = as_int8(graph)
    for index, node in enumerate(computed.nodes):
        diagnostic = _rejection(graph, computed, node, excluded, target, host_calls)
        if diagnostic is None and node.name in refused:
            diagnostic = OnCpu(operator_title(node), node.name, refused[node.name])
        if diagnostic is not None:
            reasons[index] = diagnostic
    predecessors = _predecessors(graph)
    while True:
        groups = _levels(predecessors, reasons)
        partitions = tuple(Partition(group, extract(computed, group)) for group in groups)
        idle = [index for part in partitions for index in _idle(part)]
        if not idle:
            break
        # Nodes on the CPU do not raise the level of others here, but a group may now be empty, or have no node that computes.
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
    """Return LiteRT's name of a node's operator, or the operator's own name if LiteRT has none."""
    row = ops.BY_NAME.get(node.op)
    return node.op if row is None or not row.litert else row.litert


def extract(graph: Graph, indices: Sequence[int]) -> Graph:
    """Return the graph that has only the nodes with these indices.

    Its inputs are the tensors that the nodes read and do not compute, apart from constants and states. Its outputs are the results
    that other nodes read or the whole graph returns. Inputs and outputs of the whole graph come first, in their order there, then
    the others in the order of the nodes. A state stays a state if only these nodes read and compute it. Otherwise its old value is
    an input, and its new value is an output.
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
    graph: Graph, computed: Graph, node: Node, excluded: frozenset[str], target: Target | None, host_calls: bool
) -> OnCpu | None:
    """Return the reason why a node stays on the CPU, or None. ``node`` is a node of ``computed``, which is ``graph`` on int8."""
    title = operator_title(node)
    if excluded & {node.op, title, node.op.upper(), *node.outputs}:
        return OnCpu(title, _name(node), EXCLUDED)
    border = _border(graph, node)
    if border is not None:
        return border
    reason = unsigned_reason(graph, node) or ops.reject(computed, node) or type_reason(graph, node, target, host_calls)
    if reason is None:
        return None
    return OnCpu(title, _name(node), reason, "" if node.op in ops.BY_NAME else NO_KERNEL)


def _border(graph: Graph, node: Node) -> OnCpu | None:
    """Return the diagnostic of a node that converts from or to float32 (QUANTIZE, DEQUANTIZE) and so stays on the CPU;
    None for any other node."""
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
    """Return the name of a node: its first output, or its source if the node has no output, only a side effect."""
    return node.outputs[0] if node.outputs else node.source


def _predecessors(graph: Graph) -> list[list[int]]:
    """Return for each node the indices of the nodes that must run before it, ascending.

    These are the nodes that it reads from. A node with side effects also waits for the previous node with side effects.
    """
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
    """Return the indices of the accepted nodes of each level, ascending; see ``partition`` for the levels."""
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
    """Return the indices, in the whole graph, of the partition's nodes that only change shapes and are not connected
    to a node that computes. Nodes are connected by tensors inside the partition, directly or through other nodes."""
    legal = rename_identities(part.graph)
    computes = [node.op not in VIEWS and _computes(legal, node) for node in legal.nodes]
    made_by = {name: place for place, node in enumerate(part.graph.nodes) for name in node.outputs}
    # Union-find: the root of a component is its smallest index.
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
    """Return whether a node computes or moves values, rather than only viewing its input in another shape. The node
    must not be one of ``VIEWS``. A composed operator computes if one of its parts does."""
    row = ops.BY_NAME[node.op]
    if not row.is_composed(graph, node):
        return True
    alone = rename_identities(take_apart(replace(graph, nodes=(node,))))
    return any(part.op not in VIEWS for part in alone.nodes)


def _order(predecessors: Sequence[Sequence[int]], partitions: Sequence[Partition]) -> tuple[OnNpu | OnHost, ...]:
    """Return the steps in the order of execution: of the steps that can run next, the one whose first node has the lowest index."""
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
