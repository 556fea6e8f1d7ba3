# SPDX-License-Identifier: BSD-3-Clause
"""The result of a compile."""

from __future__ import annotations

from dataclasses import dataclass, field

from openneutron.compiler.emit.report import Report
from openneutron.compiler.place.layout import Layout
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.calls import Storages
from openneutron.ir import Graph, Tensor
from openneutron.isa import Program


@dataclass(frozen=True, slots=True)
class Details:
    """The intermediate results of a compile.

    ``legalized`` is the graph from which the calls were selected. ``schedule`` has the steps, and ``layout`` the
    address of each buffer.
    """

    legalized: Graph
    schedule: Schedule
    storages: Storages
    layout: Layout


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, the graph that it computes, and the report.

    The graph has the inputs and outputs with their quantization. ``details`` is None for a program that comes from a
    cache.
    """

    program: Program
    graph: Graph
    report: Report
    details: Details | None = field(default=None, repr=False)

    @property
    def legalized(self) -> Graph:
        return self._known.legalized

    @property
    def schedule(self) -> Schedule:
        return self._known.schedule

    @property
    def storages(self) -> Storages:
        return self._known.storages

    @property
    def layout(self) -> Layout:
        return self._known.layout

    @property
    def _known(self) -> Details:
        assert self.details is not None, "a program from a cache has no schedule"
        return self.details

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Return the graph's inputs, in the order in which a run takes them."""
        return tuple(self.graph[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Return the graph's outputs, in the order in which a run returns them."""
        return tuple(self.graph[name] for name in self.graph.outputs)

    def __str__(self) -> str:
        """Return the calls, the steps, the buffers, and the report's headline numbers as text."""
        shared = str(self.storages)
        return "\n".join([str(self.schedule), str(self.layout), *([shared] if shared else []), str(self.report)])
