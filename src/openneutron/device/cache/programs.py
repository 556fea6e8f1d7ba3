# SPDX-License-Identifier: BSD-3-Clause
"""Entries of a cache that depend on a graph: compiled partitions, and memory against time for ``pareto``."""

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
    """Return the program of a graph, from the cache of the compile that runs where that has it. Raises as
    ``compile_prepared`` does.

    ``first_stages`` returns the prepared graph. A program from the cache has no schedule.
    """
    return kept(
        KIND,
        lambda: key_of(graph, target, options),
        lambda: compile_prepared(first_stages(), target, options),
        written,
        lambda content: read(content, graph),
    )


def key_of(graph: Graph, target: Target, options: CompileOptions, kind: str = KIND) -> str:
    """Return the hash of all that an entry of a graph depends on."""
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
    """Return ``pareto`` of a graph, from the cache of the compile that runs where that has it."""
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
