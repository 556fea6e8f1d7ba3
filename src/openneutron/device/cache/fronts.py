# SPDX-License-Identifier: BSD-3-Clause
"""Memory against modelled time as entries of a cache: the points of a graph as JSON."""

from __future__ import annotations

import json
import operator

from openneutron.compiler.search.pareto import Point, pareto
from openneutron.device.cache.digests import LIBRARIES, Digest, add_graph, code
from openneutron.device.cache.records import UNREADABLE
from openneutron.device.cache.store import current
from openneutron.ir import Graph
from openneutron.options import CompileOptions
from openneutron.targets import Target

KIND = "front"


def front(graph: Graph, target: Target, options: CompileOptions) -> tuple[Point, ...]:
    """Return ``pareto`` of a graph, from the cache of the compile that runs where that has it."""
    store = current()
    if store is None:
        return pareto(graph, target, options)
    values = json.dumps(options.to_dict(), sort_keys=True, default=operator.index)
    digest = Digest(KIND, code(*LIBRARIES), repr(target), values)
    add_graph(digest, graph)
    key = digest.hex()
    data = store.get(KIND, key)
    found = None if data is None else read(data)
    if found is None:
        found = pareto(graph, target, options)
        store.put(KIND, key, written(found))
    return found


def written(points: tuple[Point, ...]) -> bytes:
    """Return the entry of a graph's points."""
    return json.dumps([(int(point.sram_bytes), int(point.cycles)) for point in points]).encode()


def read(data: bytes) -> tuple[Point, ...] | None:
    """Return the points of an entry; None where the entry cannot be read by this version."""
    try:
        points = tuple(Point(*map(int, item)) for item in json.loads(data))
        return points or None
    except UNREADABLE:
        return None
