# SPDX-License-Identifier: BSD-3-Clause
"""Describe a ``.tflite`` of NXP's converter: its NeutronGraphs with their sizes and the version of their format, and the operators on the CPU."""

from __future__ import annotations

import zipfile
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron import litert
from openneutron.compiler.legalize.partition import operator_title
from openneutron.device.files import content, existing
from openneutron.features.report.table import Column, Table, facts, plural, right, size_text
from openneutron.litert.neutron_graph import (
    COUNT_WORDS,
    CUSTOM_CODE,
    OPERATOR_NAME,
    SIZE_WORDS,
    WORK,
    ConvertedGraph,
    StoredGraph,
    stored_graphs,
)

READERS = {
    0: "the driver of SDKs before 2.2.1",
    1: "the driver of SDK 2.2.1 and later",
}
"""The drivers that read each version of the public form. ExecuTorch's runtime reads both since commit d318b3b1bd of 2025-10-24
(backends/nxp/runtime/NeutronBackend.cpp), which dates version 1 to 2.2.1."""

OWN = "OpenNeutron's driver"


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A NeutronGraph of a file. Sizes are in bytes; ``work_bytes`` has the sizes of the scratch, profile and debug
    buffers by name.

    ``version`` is the version of the published format, and ``read_by`` states which drivers read it. If no driver
    reads it, ``read_by`` is empty, and ``fault`` states the reason.
    """

    operator: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    microcode_bytes: int
    weights_bytes: int
    kernels_bytes: int
    work_bytes: dict[str, int]
    version: int
    read_by: str
    fault: str

    @classmethod
    def of(cls, stored: StoredGraph) -> GraphRow:
        """Return the row of a NeutronGraph."""
        graph, program = stored.graph, stored.graph.program
        return cls(
            stored.operator,
            graph.inputs,
            graph.outputs,
            len(program.microcode),
            len(program.weights),
            len(program.kernels),
            dict(zip(WORK, graph.work_bytes, strict=False)),
            graph.payload_version,
            "" if stored.fault else READERS[graph.payload_version] if stored.is_foreign else OWN,
            stored.fault or "",
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of a ``.tflite`` whose NeutronGraphs another compiler made. ``on_cpu`` has the number of operators on the CPU by name.

    ``appended`` has the names of the files in an archive after the flatbuffer, and ``appended_bytes`` is the archive's size.
    """

    file: str
    file_bytes: int
    graphs: tuple[GraphRow, ...]
    on_cpu: Counter[str]
    appended: tuple[str, ...] = ()
    appended_bytes: int = 0
    stored: tuple[StoredGraph, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents for ``--json``."""
        return {
            "file": self.file,
            "file_bytes": self.file_bytes,
            "neutron_graphs": [
                {name: getattr(row, name) for name in GraphRow.__dataclass_fields__} for row in self.graphs
            ],
            "on_cpu": dict(self.on_cpu),
            "appended": list(self.appended),
            "appended_bytes": self.appended_bytes,
        }


def inspected(path: Path) -> Inspection | None:
    """Return the contents of a ``.tflite`` that has a NeutronGraph of another compiler; None for any other one. Raises
    InvalidModelError and InvalidProgramError for a damaged file."""
    if CUSTOM_CODE not in content(existing(str(path))):
        return None
    model = litert.read(path)
    stored = stored_graphs(model.model)
    if not any(item.is_foreign for item in stored):
        return None
    on_cpu = Counter(operator_title(node) for node in model.graph.nodes if node.op != OPERATOR_NAME)
    names: tuple[str, ...] = ()
    if model.appended:
        with zipfile.ZipFile(BytesIO(model.appended)) as archive:
            names = tuple(archive.namelist())
    rows = tuple(map(GraphRow.of, stored))
    return Inspection(path.name, path.stat().st_size, rows, on_cpu, names, len(model.appended), stored)


def inspection_text(found: Inspection) -> RenderableType:
    """Return the contents of a file as text."""
    rows = found.graphs
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.on_cpu.most_common())
    lines = [
        (
            "On the NPU",
            f"{plural(len(rows), 'NeutronGraph')}, made by another compiler; their costs are not known here",
        ),
        ("On the CPU", f"{plural(sum(found.on_cpu.values()), 'operator')}: {kinds}" if kinds else "no operator"),
        ("File", f"{size_text(found.file_bytes)}, {size_text(sum(_bytes(row) for row in rows))} of it for the NPU"),
    ]
    if found.appended:
        lines.append(
            ("Metadata", f"{', '.join(found.appended)}, {size_text(found.appended_bytes)} behind the flatbuffer")
        )
    columns = (
        right("operator", [str(row.operator) for row in rows]),
        right("microcode", [size_text(row.microcode_bytes) for row in rows]),
        right("weights", [size_text(row.weights_bytes) for row in rows]),
        right("kernels", [size_text(row.kernels_bytes) for row in rows]),
        right("scratch", [size_text(row.work_bytes["scratch"]) for row in rows]),
        Column("version", [str(row.version) for row in rows]),
        Column("read by", [row.read_by or f"no published driver: {row.fault}" for row in rows], wraps=True),
    )
    ends = [f"{row.operator}: {', '.join(row.inputs)} -> {', '.join(row.outputs)}" for row in rows]
    return Group(Text(found.file, "bold"), facts(lines), "", Table(columns), *ends)


def _bytes(row: GraphRow) -> int:
    return row.microcode_bytes + row.weights_bytes + row.kernels_bytes


def header_listing(graph: ConvertedGraph) -> str:
    """Return the published words of a NeutronGraph's header as text. The rest of the microcode has no published meaning."""
    microcode = graph.program.microcode
    known = {0: "magic", **{place: f"{name} bytes" for name, place in SIZE_WORDS.items()}, 9: "scratch bytes"}
    first = COUNT_WORDS[graph.payload_version][0]
    known |= {first: "inputs", first + 1: "outputs"}
    if graph.payload_version:
        known |= {10: "profile bytes", 11: "debug bytes"}
    lines = ["; another compiler made this microcode; the words of its header whose meaning is published:"]
    for place, name in sorted(known.items()):
        word = int.from_bytes(microcode[4 * place : 4 * place + 4], "little")
        lines.append(f"word {place:2}  0x{word:08x}  {name}" + ("" if name == "magic" else f" {word & 0x7FFFFFFF}"))
    return "\n".join(lines)


__all__ = ["Inspection", "header_listing", "inspected", "inspection_text"]
