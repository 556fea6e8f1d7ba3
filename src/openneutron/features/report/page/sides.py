# SPDX-License-Identifier: BSD-3-Clause
"""The graphs of two compiles side by side, with the operators that differ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from html import escape

from openneutron.features.report.page.data import ON_CPU, ON_NPU, Layer, ReportData
from openneutron.features.report.page.lanes import graph_table

PIECE = re.compile(r"(/(\d+|left|middle|right))+$")
"""The ends of names by which the compiler tells pieces and patches of one operator apart."""

NOTABLE = 0.01
"""The change of a layer's time that is noted, in parts of the other side's time."""


def layer_key(layer: Layer) -> str:
    """Return the name of a layer that the kernel calls of one module, and the pieces of one operator, have in common."""
    return layer.module or PIECE.sub("", layer.name)


def cycles_by_key(data: ReportData) -> dict[str, int]:
    """Return the cycles of each layer, with the copies of its constants."""
    spent: dict[str, int] = defaultdict(int)
    for layer in data.layers:
        spent[layer_key(layer)] += layer.cycles + layer.copy_cycles
    return spent


def notes(data: ReportData, other: ReportData) -> dict[int, str]:
    """Return what is different in the other compile, by the positions of nodes: a note for the first node of each layer."""
    here, there = cycles_by_key(data), cycles_by_key(other)
    on_cpu = {node.name for node in other.graph if node.kind == ON_CPU}
    found: dict[int, str] = {}
    seen: set[str] = set()
    for index, node in enumerate(data.graph):
        if node.kind == ON_CPU:
            if node.name in there:
                found[index] = "on the NPU in the other"
            elif node.name not in on_cpu:
                found[index] = "only here"
        elif node.kind == ON_NPU and node.layer is not None:
            key = layer_key(data.layers[node.layer])
            said = "" if key in seen else _note(here[key], there.get(key), key in on_cpu)
            seen.add(key)
            if said:
                found[index] = said
    return found


def _note(here: int, there: int | None, on_cpu: bool) -> str:
    if there is None:
        return "on the CPU in the other" if on_cpu else "only here"
    if not there or abs(here - there) < NOTABLE * there:
        return ""
    return f"{100 * (here / there - 1):+.0f} %"


def graphs(data: Sequence[ReportData], names: Sequence[str]) -> str:
    """Return both graphs as HTML, each with its differences from the other."""
    about = (
        "Both graphs in the order of execution. A shaded row is different in the other: its layer takes more or less time here, "
        "runs elsewhere there, or exists here alone. Of a layer in several kernel calls, the first one has the difference of all."
    )
    sides = "".join(
        f"<div><h3>{escape(name)}</h3>{graph_table(one, f'Graph of {name}', notes(one, other))}</div>"
        for name, one, other in zip(names, data, reversed(data), strict=True)
    )
    return f'<p class="about">{about}</p><div class="sides">{sides}</div>'
