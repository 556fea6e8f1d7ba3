# SPDX-License-Identifier: BSD-3-Clause
"""The graph of a report: the calls of the compiled file, with the kernel calls inside the delegate calls."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from openneutron.features.report.page.data import INPUT, ON_CPU, ON_NPU, OUTPUT, GraphNode, Layer
from openneutron.features.report.page.flow import Call, Flow
from openneutron.features.report.summary import PartitionSummary, Summary
from openneutron.ir.graph import OnCpu

CONVERSIONS = {
    "dequantize": "integers from the NPU become floats",
    "quantize": "floats become integers for the NPU",
    "dim_order": "the values get another order in memory",
}
"""The reasons of operators in a file that are none of the model's, by a part of their names."""


def connected(summary: Summary, flow: Flow, layers: Sequence[Layer]) -> tuple[GraphNode, ...]:
    """Return the nodes of the graph: inputs, calls in the order of execution, outputs."""
    drawing = _Drawing()
    for number, value in enumerate(flow.inputs):
        drawing.add(GraphNode(INPUT, f"input {number}", "", ()), writes=(value,))
    reasons = _Reasons(summary.on_cpu)
    first_layer, partition = 0, 0
    for call in flow.calls:
        if call.program is None:
            item = reasons.of(call)
            own = call.name.removeprefix("quantized_decomposed.")
            name, operator = (own, call.operator) if item is None else (item.name, item.operator)
            reason = _reason(call) if item is None else item.reason
            node = GraphNode(ON_CPU, name, operator, drawing.sources(call.reads), reason=reason)
            drawing.add(node, writes=call.writes)
        elif partition < len(summary.partitions):
            part = summary.partitions[partition]
            drawing.add_partition(call, part, partition, layers, first_layer)
            first_layer += len(part.report.operators)
            partition += 1
        else:  # a program that another compiler made
            node = GraphNode(ON_NPU, call.name, call.operator, drawing.sources(call.reads), partition=partition)
            drawing.add(node, writes=call.writes)
    for number, value in enumerate(flow.outputs):
        drawing.add(GraphNode(OUTPUT, f"output {number}", "", drawing.sources((value,))), writes=())
    return tuple(drawing.nodes)


def _reason(call: Call) -> str:
    return next((reason for word, reason in CONVERSIONS.items() if word in call.operator), "")


@dataclass(slots=True)
class _Drawing:
    """Nodes, and for each value the nodes that have written it."""

    nodes: list[GraphNode] = field(default_factory=list)
    writers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, node: GraphNode, writes: Iterable[str]) -> None:
        for value in writes:
            self.writers[value].append(len(self.nodes))
        self.nodes.append(node)

    def sources(self, reads: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted({node for value in reads for node in self.writers.get(value, ())}))

    def add_partition(
        self, call: Call, part: PartitionSummary, partition: int, layers: Sequence[Layer], first_layer: int
    ) -> None:
        """Add the kernel calls of a delegate call.

        Its storages are values of their own; inputs and outputs are also values of the file.
        """
        prefix = f"partition {partition}:"
        for storage, value in zip(part.report.inputs, call.reads, strict=False):
            self.writers[prefix + storage] += self.writers.get(value, [])
        for index, operator in enumerate(part.report.operators):
            layer = layers[first_layer + index]
            reads = self.sources(prefix + storage for storage in operator.reads)
            node = GraphNode(ON_NPU, layer.name, layer.kernel, reads, partition=partition, layer=first_layer + index)
            for storage in set(operator.reads) & set(operator.writes):  # a result in place of its operand
                self.writers[prefix + storage] = []
            self.add(node, (prefix + storage for storage in operator.writes))
        for storage, value in zip(part.report.outputs, call.writes, strict=False):
            self.writers[value] += self.writers.get(prefix + storage, [])


class _Reasons:
    """The operators on the CPU by the names that a compiled file has for them."""

    def __init__(self, items: Iterable[OnCpu]) -> None:
        self._named = {(item.operator, item.name): item for item in items}
        self._queues: dict[str, deque[OnCpu]] = defaultdict(deque)
        for item in items:
            packet = ".".join(getattr(item, "overload", "").split(".")[:2])
            if packet:
                self._queues[packet].append(item)

    def of(self, call: Call) -> OnCpu | None:
        """Return the operator of a call. A ``.pte`` has no names: its calls of one operator come in the order of the model."""
        named = self._named.get((call.operator, call.name))
        if named is not None:
            return named
        queue = self._queues.get(call.operator)
        return queue.popleft() if queue else None
