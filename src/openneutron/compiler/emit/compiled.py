# SPDX-License-Identifier: BSD-3-Clause
"""The compiler's result."""

from __future__ import annotations

from dataclasses import dataclass, field

from openneutron.compiler.emit.report import Report
from openneutron.compiler.memory.layout import Layout
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.storage import Storages
from openneutron.ir import Graph, Tensor
from openneutron.isa import Program


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, the graph it computes (its inputs and outputs and their quantization), and the report.

    ``schedule`` and ``layout`` give each tensor its steps and its address; ``legalized`` is the graph the calls were selected
    from.
    """

    program: Program
    graph: Graph
    report: Report
    legalized: Graph = field(repr=False)
    schedule: Schedule = field(repr=False)
    storages: Storages = field(repr=False)
    layout: Layout = field(repr=False)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The graph's inputs, in the order of a run's."""
        return tuple(self.graph[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The graph's outputs, in the order of a run's."""
        return tuple(self.graph[name] for name in self.graph.outputs)

    def __str__(self) -> str:
        """Return calls, steps, buffers and the report's headline numbers."""
        shared = str(self.storages)
        return "\n".join([str(self.schedule), str(self.layout), *([shared] if shared else []), str(self.report)])
