# SPDX-License-Identifier: BSD-3-Clause
"""The graph of a compiled file: its operators, the kernel calls of its partitions, and the HTML table that shows
them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from openneutron import litert
from openneutron.compiler.legalize.partition import operator_title
from openneutron.device import pte
from openneutron.features.report.page.charts import microseconds
from openneutron.features.report.page.data import INPUT, ON_CPU, ON_NPU, OUTPUT, GraphNode, Layer, ReportData, unit_name
from openneutron.features.report.summary import PartitionSummary, Summary
from openneutron.ir.graph import OnCpu
from openneutron.isa import Program
from openneutron.isa.payload import parse
from openneutron.litert.neutron_graph import find
from openneutron.litert.read import FILE_IDENTIFIER as TFLITE


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or delegate call in a compiled file. ``reads`` and ``writes`` are values, named by texts that are
    unique in the file.

    ``program`` is the program of a delegate call of the NPU; ``reads`` and ``writes`` are then in the order of the
    program's inputs and outputs. It is None for other calls.
    """

    operator: str
    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    program: Program | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Flow:
    """The calls of a file and its inputs and outputs."""

    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def programs(self) -> list[Program]:
        """Return the programs of the NPU in the order of their calls."""
        return [call.program for call in self.calls if call.program is not None]


def flow_of(data: bytes, name: str) -> Flow:
    """Return the calls, inputs and outputs of a compiled ``.pte`` or ``.tflite``. Raises InvalidProgramError or
    InvalidModelError for a file that is damaged, and InvalidProgramError for one with a program of another compiler."""
    return _of_tflite(data) if data[4:8] == TFLITE else _of_pte(data, name)


def _of_tflite(data: bytes) -> Flow:
    loaded = litert.read(data)
    graph = loaded.graph
    programs = {found.operator: found for found in find(loaded.model)}
    calls = []
    for place, node in enumerate(graph.nodes):
        found = programs.get(place)
        if found is not None:
            reads = tuple(item for item in node.inputs[: len(found.inputs)] if item is not None)
            calls.append(Call(found.name, found.name, reads, node.outputs[: len(found.outputs)], found.program))
        else:
            reads = tuple(item for item in node.inputs if item is not None and not graph[item].is_constant)
            calls.append(Call(operator_title(node), node.name, reads, node.outputs))
    return Flow(tuple(calls), graph.inputs, graph.outputs)


def _of_pte(data: bytes, name: str) -> Flow:
    calls: list[Call] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for method in pte.methods(data, name):
        if not method.instructions:  # it returns a constant, such as a scale or the preprocessing
            continue
        calls += _calls(method)
        inputs += (_value(method, index) for index in method.inputs)
        outputs += (_value(method, index) for index in method.outputs)
    return Flow(tuple(calls), tuple(inputs), tuple(outputs))


def _value(method: pte.Method, index: int) -> str:
    return f"{method.name}:{index}"


def _calls(method: pte.Method) -> Iterator[Call]:
    written = set(method.inputs)
    for instruction in method.instructions:
        if isinstance(instruction, pte.KernelCall):
            results = _results(method, instruction.arguments, written)
            reads = [index for index in instruction.arguments if index not in results and index in written]
            packet = instruction.operator.partition(".")[0].replace("::", ".")
            call = Call(packet, packet, _names(method, reads), _names(method, results))
        elif isinstance(instruction, pte.DelegateCall):
            call, results = _delegate_call(method, instruction)
        else:
            continue
        written.update(results)
        yield call


def _delegate_call(method: pte.Method, instruction: pte.DelegateCall) -> tuple[Call, tuple[int, ...]]:
    delegate, arguments = method.delegates[instruction.delegate], instruction.arguments
    if delegate.backend != pte.BACKEND_ID:
        call = Call(delegate.backend, delegate.backend, _names(method, arguments), ())
        return call, arguments
    payload = parse(delegate.payload)
    given, results = arguments[: payload.arguments], arguments[payload.arguments :]
    reads = _names(method, [given[place] for place in payload.input_map])
    writes = _names(method, [results[place] for place in payload.output_map])
    name = f"delegate {instruction.delegate}"
    return Call(delegate.backend, name, reads, writes, payload.program), results


def _names(method: pte.Method, indices: list[int] | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_value(method, index) for index in indices))


def _results(method: pte.Method, arguments: tuple[int, ...], written: set[int]) -> tuple[int, ...]:
    """Return the values that a kernel call writes: its last argument, and the tensors directly before it that no
    earlier call has written.

    ExecuTorch's emitter appends the result of an operator to the arguments. If an operator has one result, the
    argument before it is ``out``, which is the same value. If an operator has several results, the last argument is
    the list of them, and the arguments before it are the result tensors.
    """
    if not arguments:
        return ()
    last = arguments[-1]
    if arguments[-2:] == (last, last):
        return (last,)
    results = [last]
    for index in reversed(arguments[:-1]):
        if index in written or not isinstance(method.values[index], pte.TensorValue):
            break
        results.append(index)
    return tuple(results)


CONVERSIONS = {
    "dequantize": "integers from the NPU become floats",
    "quantize": "floats become integers for the NPU",
    "dim_order": "the values get another order in memory",
}
"""The reasons for operators that a file has in addition to those of the model, by a part of their names."""


def connected(summary: Summary, flow: Flow, layers: Sequence[Layer]) -> tuple[GraphNode, ...]:
    """Return the nodes of the graph: the inputs, the calls in the order of execution, and the outputs. A delegate
    call becomes the kernel calls of its partition."""
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
    """The nodes of a graph so far, and for each value the indices of the nodes that wrote it."""

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

        Each storage (memory block) of the partition becomes a value of the graph, with a name of its own. The
        partition's inputs and outputs are connected to values of the file.
        """
        prefix = f"partition {partition}:"
        for storage, value in zip(part.report.inputs, call.reads, strict=False):
            self.writers[prefix + storage] += self.writers.get(value, [])
        for index, operator in enumerate(part.report.operators):
            layer = layers[first_layer + index]
            reads = self.sources(prefix + storage for storage in operator.reads)
            node = GraphNode(
                ON_NPU, layer.name, layer.kernel, reads, partition, first_layer + index, reason=operator.on_cpu
            )
            for storage in set(operator.reads) & set(operator.writes):  # a result in place of its operand
                self.writers[prefix + storage] = []
            self.add(node, (prefix + storage for storage in operator.writes))
        for storage, value in zip(part.report.outputs, call.writes, strict=False):
            self.writers[value] += self.writers.get(prefix + storage, [])


class _Reasons:
    """An index of the operators on the CPU by the names that a compiled file has for them."""

    def __init__(self, items: Iterable[OnCpu]) -> None:
        self._named = {(item.operator, item.name): item for item in items}
        self._queues: dict[str, deque[OnCpu]] = defaultdict(deque)
        for item in items:
            packet = ".".join(getattr(item, "overload", "").split(".")[:2])
            if packet:
                self._queues[packet].append(item)

    def of(self, call: Call) -> OnCpu | None:
        """Return the CPU entry of a call; None if there is none. The entry with the call's operator and name is
        returned. If there is none (a ``.pte`` has no names), the next unused entry of the same operator is returned.
        Therefore the caller must ask for the calls in the model's order."""
        named = self._named.get((call.operator, call.name))
        if named is not None:
            return named
        queue = self._queues.get(call.operator)
        return queue.popleft() if queue else None


LANE, ROW, DOT = 12, 24, 4.5
"""The width of a lane, the height of a row and the radius of a node, in pixels."""

COLOURS = 6
"""The number of colours of partitions, which are used in turn."""

MOST_LANES = 14
"""The number of lanes that are drawn. Nodes in further lanes are drawn in the last one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One row of the drawn graph. A lane is a vertical line that carries a value from its node to its last reader.
    ``lane`` is the lane of the row's node. The values in the lanes ``passing`` continue below the row. The node reads
    the values in the lanes ``joining``, some of which may continue too. ``above`` and ``below`` state whether the
    node's own lane continues above and below the node."""

    lane: int
    passing: tuple[int, ...]
    joining: tuple[int, ...]
    above: bool
    below: bool


def slots(nodes: Sequence[GraphNode]) -> list[Slot]:
    """Return the lanes of each row. A value occupies a lane from its node to the last node that reads it."""
    last_reader = {source: index for index, node in enumerate(nodes) for source in node.inputs}
    lanes: list[int | None] = []  # the node whose value each lane holds
    found = []
    for index, node in enumerate(nodes):
        sources = set(node.inputs)
        ending = [lane for lane, held in enumerate(lanes) if held in sources and last_reader[held] == index]
        joining = [lane for lane, held in enumerate(lanes) if held in sources]
        for lane in ending:
            lanes[lane] = None
        own = ending[0] if ending else next((lane for lane, held in enumerate(lanes) if held is None), len(lanes))
        if own == len(lanes):
            lanes.append(None)
        passing = tuple(lane for lane, held in enumerate(lanes) if held is not None)
        goes_on = index in last_reader
        lanes[own] = index if goes_on else None
        while lanes and lanes[-1] is None:
            lanes.pop()
        above = own in ending
        found.append(Slot(own, passing, tuple(lane for lane in joining if lane != own), above, goes_on))
    return found


def graph_table(data: ReportData, label: str, notes: Mapping[int, str] | None = None) -> str:
    """Return the graph as an HTML table in a region called ``label``. The last column states why nodes are on the
    CPU.

    With ``notes``, which maps the index of a node to a text, the last column has these texts instead. The rows of
    nodes with a text are marked.
    """
    last = "why" if notes is None else "difference"
    columns = (("", ""), ("where", ""), ("name", ""), ("operator", ""), ("time", ' class="number"'), (last, ""))
    headings = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in columns)
    places = slots(data.graph)
    width = LANE * (1 + min(MOST_LANES, max((max((slot.lane, *slot.passing)) for slot in places), default=0) + 1))
    rows = "\n".join(
        _row(data, node, slot, width, None if notes is None else notes.get(index, ""))
        for index, (node, slot) in enumerate(zip(data.graph, places, strict=True))
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label, quote=True)}"><table class="graph">'
        f"<thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(data: ReportData, node: GraphNode, slot: Slot, width: int, note: str | None) -> str:
    layer = None if node.layer is None else data.layers[node.layer]
    colour = (
        "cpu"
        if node.kind == ON_CPU
        else "io"
        if node.kind in (INPUT, OUTPUT)
        else f"p{(node.partition or 0) % COLOURS}"
    )
    unit = unit_name(node.partition or 0)
    where = {ON_CPU: "CPU", INPUT: "", OUTPUT: ""}.get(node.kind, f"CPU, in {unit}" if node.reason else unit)
    hint, time = node.reason, ""
    if layer is not None:
        time = f"{microseconds(data, layer.cycles):,.0f} us"
        hint = f"{'x'.join(map(str, layer.output))}, {time}, bound by {layer.bottleneck}"
        hint += f"; {layer.idle}" if layer.idle else ""
    hint = "; ".join(filter(None, (note, hint)))
    said = note if note is not None else node.reason
    return (
        f'<tr class="{colour}{" changed" if note else ""}" title="{escape(hint, quote=True)}"><td class="lanes">{_drawing(slot, width, node)}</td>'
        f'<td class="where">{where}</td><th scope="row">{escape(node.name)}</th>'
        f'<td class="operator">{escape(node.operator)}</td><td class="number">{time}</td><td class="why">{escape(said)}</td></tr>'
    )


def _drawing(slot: Slot, width: int, node: GraphNode) -> str:
    """Return the edges and the node of a row as SVG. The node is a filled circle on the NPU, a square on the CPU, and
    an empty circle for an input or output."""

    def across(lane: int) -> float:
        return LANE * (min(lane, MOST_LANES) + 1)

    own, middle = across(slot.lane), ROW / 2
    paths = [f"M{across(lane):g} 0V{ROW}" for lane in slot.passing]
    paths += [f"M{across(lane):g} 0C{across(lane):g} {middle:g} {own:g} 0 {own:g} {middle:g}" for lane in slot.joining]
    paths += [f"M{own:g} 0V{middle:g}"] if slot.above else []
    paths += [f"M{own:g} {middle:g}V{ROW}"] if slot.below else []
    shape = f'<circle cx="{own:g}" cy="{middle:g}" r="{DOT}"/>'
    if node.kind == ON_CPU or node.reason:
        shape = f'<rect x="{own - DOT:g}" y="{middle - DOT:g}" width="{2 * DOT:g}" height="{2 * DOT:g}"/>'
    return f'<svg width="{width}" height="{ROW}" aria-hidden="true"><path d="{"".join(paths)}"/>{shape}</svg>'
