# SPDX-License-Identifier: BSD-3-Clause
"""Compare the partition of a model by this compile with the one by NXP's compiler, as far as NXP publishes its operators and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.compiler.legalize.partition import operator_title, partition
from openneutron.device.converter.releases import Release
from openneutron.features.report.table import NAME_WIDTH, Column, Table, plural, short_name
from openneutron.ir import Graph
from openneutron.ir.graph import OnCpu

NOT_LISTED = "not among the operators that NXP publishes"


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator with two reasons: why this compile leaves it on the CPU, and why NXP's compiler does. A reason is empty if the operator is on
    the NPU."""

    operator: str
    name: str
    here: str
    nxp: str


@dataclass(frozen=True, slots=True)
class AsNxp:
    """The operators of the compiled graphs, with their placement by this compile and by a release of NXP's compiler.

    ``partitions`` is the number of NeutronGraphs that NXP's compiler would make. ``others`` is the number of further
    operators of a PyTorch model that this compile leaves on the CPU. They compute, but are not among ``operators``,
    because their form in LiteRT is not known. ``others`` is 0 for a ``.tflite``.
    """

    release: Release
    target: str
    operators: tuple[Placed, ...]
    partitions: int
    others: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for ``--json``."""
        return {
            "release": self.release.name,
            "source": self.release.source,
            "partitions": self.partitions,
            "operators": [asdict(item) for item in self.operators],
            "others": self.others,
        }


def as_nxp(graphs: Sequence[Graph], on_cpu: Sequence[OnCpu], release: Release, target: str, others: int = 0) -> AsNxp:
    """Return the placement of each node of the graphs. ``on_cpu`` has the nodes that this compile leaves on the CPU."""
    here = {item.name: item.reason for item in on_cpu}
    placed, partitions = [], 0
    for graph in graphs:
        refused = {}
        for node in graph.nodes:
            reason = release.broken_limit(graph, node) if release.lists(node) else NOT_LISTED
            if reason is not None and node.outputs:
                refused[node.name] = reason
            if node.outputs:
                placed.append(Placed(operator_title(node), node.name, here.get(node.name, ""), reason or ""))
        partitions += len(partition(graph, host_calls=False, refused=refused).partitions)
    return AsNxp(release, target, tuple(placed), partitions, others)


def as_nxp_table(found: AsNxp) -> RenderableType:
    """Return the comparison as text: the counts, and a row for each operator that is on the CPU here or by NXP's flow."""
    count = len(found.operators)
    ours, theirs = (sum(not getattr(item, side) for item in found.operators) for side in ("here", "nxp"))
    lines = [
        f"{theirs} of {plural(count, 'operator')} on the NPU in {plural(found.partitions, 'NeutronGraph')}; "
        f"by this compiler {ours}.",
        f"Source: {found.release.source}",
    ]
    if found.target not in found.release.targets:
        lines.insert(
            1, f"NXP publishes these limits for {', '.join(found.release.targets)}, and none for {found.target}."
        )
    if found.others:
        lines.insert(1, f"Of {plural(found.others, 'other operator')} on the CPU here the form in LiteRT is not known.")
    rows = [item for item in found.operators if item.here or item.nxp]
    title = Text(f"As NXP's release {found.release.name} would", "bold")
    if not rows:
        return Group(title, *lines)
    columns = (
        Column("operator", [item.operator for item in rows], style="cyan"),
        Column("name", [short_name(item.name, NAME_WIDTH) for item in rows]),
        Column("here", ["CPU" if item.here else "NPU" for item in rows]),
        Column("NXP", ["CPU" if item.nxp else "NPU" for item in rows]),
        Column("published limit that decides", [item.nxp for item in rows], wraps=True),
    )
    return Group(title, *lines, Table(columns))
