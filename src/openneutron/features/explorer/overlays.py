# SPDX-License-Identifier: BSD-3-Clause
"""Values of nodes in Model Explorer's node data files: latency, memory and accuracy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openneutron.features.explorer.nodes import GRAPH, Node

COLD, HOT = "#fff7e6", "#d1495b"


@dataclass(frozen=True, slots=True)
class Overlay:
    """A value of nodes, with the colours of its smallest and its largest value."""

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
    """Return the known values by node id."""
    found = {str(index): overlay.value(node) for index, node in enumerate(nodes)}
    return {key: value for key, value in found.items() if value is not None}


def node_data(nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the contents of a node data file for each overlay that has values, by its key."""
    made = {}
    for overlay in OVERLAYS:
        values = values_of(overlay, nodes)
        if values:
            gradient = [{"stop": 0, "bgColor": overlay.smallest}, {"stop": 1, "bgColor": overlay.largest}]
            results = {key: {"value": value} for key, value in values.items()}
            made[overlay.key] = {GRAPH: {"results": results, "name": overlay.name, "gradient": gradient}}
    return made


def node_data_files(folder: Path, nodes: Sequence[Node]) -> dict[Path, bytes]:
    """Return the node data files of a graph, to be written to a folder."""
    return {folder / f"{key}.json": json.dumps(content, indent=1).encode() for key, content in node_data(nodes).items()}
