# SPDX-License-Identifier: BSD-3-Clause
"""Compiled partitions as entries of a cache: the report as JSON, then the blobs of the program.

The file is ``length of the JSON in 8 bytes, JSON, microcode, weights, kernels``.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from dataclasses import asdict

from openneutron.compiler import Compiled, CompileOptions, Prepared, Report, compile_prepared
from openneutron.compiler.search.pareto import Point, pareto
from openneutron.device.cache import LIBRARIES, UNREADABLE, Digest, add_graph, code, current, record
from openneutron.errors import InvalidProgramError
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.targets import Target

KIND = "program"
LENGTH_BYTES = 8


def compiled(graph: Graph, first_stages: Callable[[], Prepared], target: Target, options: CompileOptions) -> Compiled:
    """Return the program of a graph, from the cache of the compile that runs where that has it. Raises as
    ``compile_prepared`` does.

    ``first_stages`` returns the prepared graph. A program from the cache has no schedule.
    """
    store = current()
    if store is None:
        return compile_prepared(first_stages(), target, options)
    key = key_of(graph, target, options)
    data = store.get(KIND, key)
    found = None if data is None else read(data, graph)
    if found is None:
        found = compile_prepared(first_stages(), target, options)
        store.put(KIND, key, written(found))
    return found


def key_of(graph: Graph, target: Target, options: CompileOptions) -> str:
    """Return the hash of all that the program and the report of a graph depend on."""
    values = json.dumps(options.to_dict(), sort_keys=True, default=operator.index)
    digest = Digest(KIND, code(*LIBRARIES), repr(target), values)
    add_graph(digest, graph)
    return digest.hex()


def written(made: Compiled) -> bytes:
    """Return the entry of a compiled graph."""
    blobs = (made.program.microcode, made.program.weights, made.program.kernels)
    facts = {"report": asdict(made.report), "sizes": [len(blob) for blob in blobs]}
    header = json.dumps(facts, default=operator.index).encode()
    return b"".join((len(header).to_bytes(LENGTH_BYTES, "little"), header, *blobs))


def read(data: bytes, graph: Graph) -> Compiled | None:
    """Return the compiled graph of an entry; None where the entry cannot be read by this version."""
    start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    try:
        facts = json.loads(data[LENGTH_BYTES:start])
        blobs = []
        for size in facts["sizes"]:
            blobs.append(data[start : start + size])
            start += size
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
    store = current()
    if store is None:
        return pareto(graph, target, options)
    values = json.dumps(options.to_dict(), sort_keys=True, default=operator.index)
    digest = Digest(FRONT, code(*LIBRARIES), repr(target), values)
    add_graph(digest, graph)
    key = digest.hex()
    data = store.get(FRONT, key)
    found = None if data is None else read_front(data)
    if found is None:
        found = pareto(graph, target, options)
        store.put(FRONT, key, written_front(found))
    return found


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
