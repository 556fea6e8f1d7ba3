# SPDX-License-Identifier: BSD-3-Clause
"""Cache entries for graphs: compiled partitions, and the points of memory and cycles that ``pareto`` finds."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from dataclasses import asdict

from openneutron.compiler import Compiled, CompileOptions, Prepared, Report, compile_prepared
from openneutron.compiler.search.pareto import Point, pareto
from openneutron.device.cache import LIBRARIES, UNREADABLE, Digest, add_graph, code, kept, packed, record, unpacked
from openneutron.errors import InvalidProgramError
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.targets import Target

KIND = "program"


def compiled(graph: Graph, first_stages: Callable[[], Prepared], target: Target, options: CompileOptions) -> Compiled:
    """Return a compiled graph, from the cache of the running compile if the entry is there. Raises as
    ``compile_prepared`` does.

    ``first_stages`` returns the prepared graph, and is called only if there is no entry. A result from the cache has no
    schedule.
    """
    return kept(
        KIND,
        lambda: key_of(graph, target, options),
        lambda: compile_prepared(first_stages(), target, options),
        written,
        lambda content: read(content, graph),
    )


def key_of(graph: Graph, target: Target, options: CompileOptions, kind: str = KIND) -> str:
    """Return the key of a graph's entry: a hash of the entry's kind, this package's code, the target, the options and
    the graph."""
    values = json.dumps(options.to_dict(), sort_keys=True, default=operator.index)
    digest = Digest(kind, code(*LIBRARIES), repr(target), values)
    add_graph(digest, graph)
    return digest.hex()


def written(made: Compiled) -> bytes:
    """Return the entry of a compiled graph."""
    program = made.program
    return packed({"report": asdict(made.report)}, (program.microcode, program.weights, program.kernels))


def read(content: bytes, graph: Graph) -> Compiled | None:
    """Return the compiled graph of an entry; None where the entry cannot be read by this version."""
    try:
        facts, blobs = unpacked(content)
        program = Program(*blobs)
        program.verify()
        header = program.header
        if (header["input_count"], header["output_count"]) != (len(graph.inputs), len(graph.outputs)):
            return None
        return Compiled(program, graph, record(Report, facts["report"]))
    except (*UNREADABLE, InvalidProgramError):
        return None


FRONT = "front"


def front(graph: Graph, target: Target, options: CompileOptions) -> tuple[Point, ...]:
    """Return the result of ``pareto`` for a graph, from the cache of the running compile if the entry is there."""
    return kept(
        FRONT,
        lambda: key_of(graph, target, options, FRONT),
        lambda: pareto(graph, target, options),
        written_front,
        read_front,
    )


def written_front(points: tuple[Point, ...]) -> bytes:
    """Return the entry of a graph's points."""
    return json.dumps([(int(point.sram_bytes), int(point.cycles)) for point in points]).encode()


def read_front(data: bytes) -> tuple[Point, ...] | None:
    """Return the points of an entry; None where the entry cannot be read by this version."""
    try:
        points = tuple(Point(*map(int, item)) for item in json.loads(data))
        return points or None
    except UNREADABLE:
        return None
