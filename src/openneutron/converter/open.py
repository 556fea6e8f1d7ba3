# SPDX-License-Identifier: BSD-3-Clause
"""This project's compiler as a converter."""

from __future__ import annotations

from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.compiler.search.budget import budget_bytes
from openneutron.compiler.select.trial import Trial
from openneutron.converter.conversion import Conversion
from openneutron.converter.kernel_selections import selection_of
from openneutron.ir import Graph
from openneutron.isa.payload import VERSION
from openneutron.options import OPEN, CompileOptions


class OpenConverter:
    """``openneutron.compiler``."""

    name = OPEN

    def check(self, options: CompileOptions) -> None:
        """Raise InvalidOptionError for a budget above the target's SRAM."""
        budget_bytes(options.sram_budget, targets.get(options.target))

    def convert(
        self, graph: Graph, options: CompileOptions, kernel_selection: bool = False, trial: Trial | None = None
    ) -> Conversion:
        """Compile the graph. Raises as ``compile_graph`` does."""
        compiled = compile_graph(graph, targets.get(options.target), options, trial)
        return Conversion(
            compiled.program,
            graph.inputs,
            graph.outputs,
            VERSION,
            compiled,
            selection_of((compiled.program,)).text() if kernel_selection else None,
        )
