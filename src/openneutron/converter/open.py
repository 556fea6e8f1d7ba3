# SPDX-License-Identifier: BSD-3-Clause
"""This project's compiler as a converter."""

from __future__ import annotations

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.select.trial import Trial
from openneutron.converter.conversion import Conversion, ConverterOptions
from openneutron.converter.kernel_selections import selection_of
from openneutron.flags import with_flags
from openneutron.ir import Graph
from openneutron.isa.payload import VERSION


class OpenConverter:
    """``openneutron.compiler``. Its flags are those of ``compiler.flags``."""

    name = "open"

    def check(self, options: ConverterOptions) -> None:
        targets.get(options.target)
        _compile_options(options)

    def convert(self, graph: Graph, options: ConverterOptions, trial: Trial | None = None) -> Conversion:
        compiled = compile_graph(graph, targets.get(options.target), _compile_options(options), trial)
        return Conversion(
            compiled.program,
            graph.inputs,
            graph.outputs,
            VERSION,
            compiled,
            selection_of((compiled.program,)).text() if options.kernel_selection else None,
        )


def _compile_options(options: ConverterOptions) -> CompileOptions:
    given = CompileOptions(options.sram_budget, options.io, options.fetch_constants_to_sram, options.profile)
    return with_flags(given, options.flags)
