# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a compiled file as Model Explorer shows them. This module does not need Model Explorer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openneutron.api.load import LoadedFile, load
from openneutron.compiler.cost.cycles import cpu_rows
from openneutron.compiler.cost.estimate import estimate, work_of_kernel
from openneutron.features.report.page.data import (
    INPUT,
    ON_CPU,
    ON_NPU,
    OUTPUT,
    GraphNode,
    Layer,
    ReportData,
    facts_of,
    has_facts,
)
from openneutron.features.report.page.graph import CONVERSIONS, Call, flow_of
from openneutron.features.report.table import range_text, size_text
from openneutron.isa import Microcode, Program, Record, decode
from openneutron.isa.kernels.row import Field
from openneutron.isa.listing import profile
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.targets import Target

GRAPH = "main"
"""The id of the graph of a file; a file has one graph."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph. The id of a node is its index. ``group`` is the path of the groups that contain the node.
    ``inputs`` are the ids of the nodes that it reads.

    ``microseconds``, ``live_bytes`` and ``sqnr_db`` are the values of the overlays; None where they are not known.
    """

    kind: str
    label: str
    group: str
    inputs: tuple[int, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    microseconds: float | None = None
    live_bytes: int | None = None
    sqnr_db: float | None = None


def nodes_of(path: Path) -> tuple[Node, ...]:
    """Return the nodes of a compiled ``.pte`` or ``.tflite``. They are made from the report data in the file if it has
    any, and otherwise from its programs.

    Raises InvalidModelError or InvalidProgramError where the file is not compiled, or damaged.
    """
    loaded = load(path)
    if has_facts(loaded.buffer):
        return nodes_of_report(facts_of(loaded.buffer, loaded.name))
    return _of_programs(loaded)


def group_name(partition: int) -> str:
    """Return the name of the group of a partition."""
    return f"NPU partition {partition}"


# -- from the data of a report -------------------------------------------------------------------------------------------


def nodes_of_report(data: ReportData) -> tuple[Node, ...]:
    """Return the nodes of a report's graph."""
    live: dict[int, int] = defaultdict(int)
    for step in data.steps:
        for layer in step.layers:
            live[layer] = max(live[layer], step.live_bytes)
    ratios = {item.name: item.accumulated_db for item in data.accuracy if item.accumulated_db is not None}
    return tuple(_reported(node, data, live, ratios) for node in data.graph)


def _reported(node: GraphNode, data: ReportData, live: Mapping[int, int], ratios: Mapping[str, float]) -> Node:
    if node.layer is None:
        attributes = {"operator": node.operator, "why on the CPU": node.reason}
        group = "" if node.partition is None else group_name(node.partition)
        kept = {name: text for name, text in attributes.items() if text}
        return Node(node.kind, node.name, group, node.inputs, kept, sqnr_db=ratios.get(node.name))
    layer = data.layers[node.layer]
    path = "/".join(part for part in layer.module.split(".") if part)
    return Node(
        ON_NPU,
        layer.kernel,
        f"{group_name(layer.partition)}/{path}" if path else group_name(layer.partition),
        node.inputs,
        _attributes(layer),
        layer.output,
        round(1e3 * (layer.modelled_milliseconds + data.milliseconds(layer.copy_cycles)), 3),
        live.get(node.layer),
        ratios.get(layer.name),
    )


def _attributes(layer: Layer) -> dict[str, str]:
    attributes = {
        "name": layer.name,
        "cycles": f"{layer.cycles:,}",
        "time": range_text(layer.modelled_milliseconds, *layer.expected_milliseconds),
        "time hangs on": layer.hangs_on,
        "MACs": f"{layer.macs:,}",
        "multipliers used": f"{100 * layer.utilisation:.1f} %",
        "bound by": layer.bottleneck,
        "because": layer.idle,
        "why on the CPU": layer.on_cpu,
        "stripes": str(layer.stripes),
        "constants": size_text(layer.weights_bytes),
        "reads": size_text(layer.read_bytes),
        "writes": size_text(layer.written_bytes),
    }
    return {name: text for name, text in attributes.items() if text}


# -- from the programs of a file -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Nodes:
    """The nodes of a graph so far, and for each value of the file the nodes that wrote it."""

    nodes: list[Node] = field(default_factory=list)
    writers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def sources(self, values: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted({node for value in values for node in self.writers.get(value, ())}))

    def add(self, node: Node, writes: Iterable[str]) -> None:
        for value in writes:
            self.writers[value].add(len(self.nodes))
        self.nodes.append(node)

    def add_program(self, call: Call, partition: int, target: Target | None) -> None:
        """Add the kernel calls of a delegate call. Without ``target`` their times are unknown."""
        assert call.program is not None
        first = len(self.nodes)
        outside = [set(self.sources((value,))) for value in call.reads]

        def ids(writers: Iterable[int]) -> set[int]:
            found: set[int] = set()
            for writer in writers:
                found |= {first + writer} if writer > INPUT_BASE else outside[INPUT_BASE - writer]
            return found

        calls, outputs = program_calls(call.program)
        is_on_cpu = cpu_rows(target)
        for item in calls:
            attributes = {"name": item.name, "cycles": f"{item.cycles:,}", "calls": str(item.calls)}
            time = None
            if target is not None:
                spent = work_of_kernel(KERNEL_BY_NAME[item.kernel], item.calls, item.cycles, target)
                found = estimate(spent, target, is_layer=True)
                time = round(1e3 * found.milliseconds, 3)
                attributes |= {"time": range_text(found.milliseconds, *found.expected), "time hangs on": found.fact}
            attributes |= {"runs on": "CPU, in the program"} if is_on_cpu(KERNEL_BY_NAME[item.kernel]) else {}
            inputs = tuple(sorted(ids(item.reads)))
            self.nodes.append(Node(ON_NPU, item.kernel, group_name(partition), inputs, attributes, item.output, time))
        for value, writers in zip(call.writes, outputs, strict=False):
            self.writers[value] |= ids(writers)


def _of_programs(loaded: LoadedFile) -> tuple[Node, ...]:
    target = loaded.report.target
    flow = flow_of(loaded.buffer, loaded.name)
    found = _Nodes()
    for index, value in enumerate(flow.inputs):
        found.add(Node(INPUT, f"input {index}", "", ()), (value,))
    partition = 0
    for call in flow.calls:
        if call.program is not None:
            found.add_program(call, partition, target)
            partition += 1
            continue
        why = next((reason for word, reason in CONVERSIONS.items() if word in call.operator), "")
        attributes = {"operator": call.operator} | ({"why on the CPU": why} if why else {})
        found.add(Node(ON_CPU, call.operator, "", found.sources(call.reads), attributes), call.writes)
    for index, value in enumerate(flow.outputs):
        found.add(Node(OUTPUT, f"output {index}", "", found.sources((value,))), ())
    return tuple(found.nodes)


INPUT_BASE = -1
"""Writers of values are indices of kernel calls, or inputs of the program: ``INPUT_BASE - i`` is input ``i``."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A kernel call of a program. ``reads`` states where the values that it reads come from: the index of the call
    that wrote them, or ``INPUT_BASE - i`` for input i of the program."""

    name: str
    kernel: str
    cycles: int
    calls: int
    output: tuple[int, ...]
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """The addresses from ``start`` to before ``stop`` at a base. ``is_dense`` states that every one of them is
    accessed."""

    base: int
    start: int
    stop: int
    is_dense: bool

    def overlaps(self, other: _Span) -> bool:
        return self.base == other.base and self.start < other.stop and other.start < self.stop

    def covers(self, other: _Span) -> bool:
        return self.is_dense and self.base == other.base and self.start <= other.start and other.stop <= self.stop


def program_calls(program: Program) -> tuple[tuple[ProgramCall, ...], tuple[tuple[int, ...], ...]]:
    """Return the kernel calls of a program in order, and for each output of the program the indices of the calls that
    wrote it. If an input is returned, its index is ``INPUT_BASE - i`` for input i.

    Raises InvalidProgramError where the program is damaged.
    """
    microcode = decode(program)
    written = [(INPUT_BASE - index, _bound(binding)) for index, binding in enumerate(microcode.inputs)]
    calls = []
    for index, (operator, cost) in enumerate(zip(microcode.operators, profile(program), strict=True)):
        buffers = {column.name: microcode.buffers[operator[column.name]] for column in _buffer_fields(operator)}
        spans = {name: _span(buffer, operator.row.element_bytes(name)) for name, buffer in buffers.items()}
        reads = {source for name, span in spans.items() if name != "output" for source in _writers(written, span)}
        shape = tuple(buffers["output"][axis] for axis in ("batches", "rows", "cols", "channels"))
        calls.append(ProgramCall(cost.name, cost.kernel, cost.cycles, cost.calls, shape, tuple(sorted(reads))))
        written.append((index, spans["output"]))
    return tuple(calls), _outputs(microcode, written)


def _buffer_fields(operator: Record) -> list[Field]:
    return [column for column in operator.row.fields if column.refers == "buffer"]


def _outputs(microcode: Microcode, written: list[tuple[int, _Span]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(_writers(written, _bound(binding)))) for binding in microcode.outputs)


def _writers(written: list[tuple[int, _Span]], span: _Span) -> set[int]:
    """Return the writers whose values are at the addresses of a span: the last dense writer of all of it, and all later
    writers."""
    found = set()
    for writer, other in reversed(written):
        if other.overlaps(span):
            found.add(writer)
            if other.covers(span):
                break
    return found


def _bound(binding: Record) -> _Span:
    return _Span(binding["base"], binding["offset"], binding["offset"] + binding["size"], True)


def _span(buffer: Record, element_bytes: int) -> _Span:
    extents = (buffer["batches"], min(buffer["rows"], buffer["ring"]), buffer["cols"], buffer["channels"])
    pitches = tuple(buffer[f"{axis}_pitch"] for axis in ("batch", "row", "col", "channel"))
    reach = sum((extent - 1) * pitch for extent, pitch in zip(extents, pitches, strict=True)) + element_bytes
    touched = element_bytes
    for extent, pitch in zip(extents, pitches, strict=True):
        touched *= extent if pitch else 1
    return _Span(buffer["base"], buffer["offset"], buffer["offset"] + reach, touched >= reach)


COLD, HOT = "#fff7e6", "#d1495b"


@dataclass(frozen=True, slots=True)
class Overlay:
    """A value that each node may have, with the colours of the smallest and of the largest value in the graph."""

    key: str
    name: str
    value: Callable[[Node], float | None]
    smallest: str = COLD
    largest: str = HOT


OVERLAYS = (
    Overlay("latency", "Latency, microseconds", lambda node: node.microseconds),
    Overlay("memory", "Live bytes of the arena", lambda node: node.live_bytes),
    Overlay("sqnr", "Signal-to-quantization-noise ratio, dB", lambda node: node.sqnr_db, HOT, COLD),
)


def values_of(overlay: Overlay, nodes: Sequence[Node]) -> dict[str, float]:
    """Return the known values of an overlay by node id."""
    found = {str(index): overlay.value(node) for index, node in enumerate(nodes)}
    return {key: value for key, value in found.items() if value is not None}


def node_data(nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the contents of a node data file for each overlay that has values, by the overlay's key."""
    made = {}
    for overlay in OVERLAYS:
        values = values_of(overlay, nodes)
        if values:
            gradient = [{"stop": 0, "bgColor": overlay.smallest}, {"stop": 1, "bgColor": overlay.largest}]
            results = {key: {"value": value} for key, value in values.items()}
            made[overlay.key] = {GRAPH: {"results": results, "name": overlay.name, "gradient": gradient}}
    return made


def node_data_files(folder: Path, nodes: Sequence[Node]) -> dict[Path, bytes]:
    """Return the contents of a graph's node data files by their paths in ``folder``."""
    return {folder / f"{key}.json": json.dumps(content, indent=1).encode() for key, content in node_data(nodes).items()}
