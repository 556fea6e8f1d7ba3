# SPDX-License-Identifier: BSD-3-Clause
"""The converters of a partition to a NeutronGraph: this project's compiler (``open``), or NXP's SDK (``eiq``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from openneutron import targets
from openneutron.compiler import Compiled, Prepared, prepared
from openneutron.compiler.select.select import Trial
from openneutron.device.cache import programs
from openneutron.device.converter.kernel_selections import check_target, selection_of
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.isa.payload import VERSION
from openneutron.options import CONVERTERS, OPEN, CompileOptions, budget_bytes
from openneutron.options.flags import check_choice


@dataclass(frozen=True, slots=True)
class Conversion:
    """A NeutronGraph: its three blobs, and the graph's tensors it takes and gives, in its own order.

    ``program`` is ours to read only where ``compiled`` is there; NXP's microcode is passed on as it is.
    ``payload_version`` is 0 or 1, by the form of the NeutronGraph's outputs. ``file`` is the converted ``.tflite`` where the
    converter made one.
    """

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload_version: int
    compiled: Compiled | None = None
    kernel_selection: str | None = None
    file: bytes | None = field(default=None, repr=False)


class Converter(Protocol):
    """A converter takes a graph of LiteRT's int8 operators and gives exactly one NeutronGraph for it."""

    name: str

    def check(self, options: CompileOptions) -> None:
        """Raise the errors that need no model: InvalidOptionError for an option that the converter does not take,
        MissingToolError where the converter is not installed."""

    def convert(
        self,
        graph: Graph,
        options: CompileOptions,
        kernel_selection: bool = False,
        trial: Trial | Prepared | None = None,
    ) -> Conversion:
        """Return the graph's NeutronGraph; with ``kernel_selection``, also the C file that registers only the kernels
        it calls. ``trial`` has the first stages of this project's compiler for the graph, under any name.

        Raises as ``check`` does; BudgetError where the budget is too small, ConverterError where the converter fails or
        leaves part of the graph out."""


class OpenConverter:
    """``openneutron.compiler``."""

    name = OPEN

    def check(self, options: CompileOptions) -> None:
        """Raise InvalidOptionError for a budget above the target's SRAM."""
        budget_bytes(options.sram_budget, targets.get(options.target))

    def convert(
        self,
        graph: Graph,
        options: CompileOptions,
        kernel_selection: bool = False,
        trial: Trial | Prepared | None = None,
    ) -> Conversion:
        """Compile the graph. Raises as ``compile_graph`` does."""

        if kernel_selection:
            check_target(options.target)

        def first_stages() -> Prepared:
            return trial if isinstance(trial, Prepared) else prepared(graph, trial)

        compiled = programs.compiled(graph, first_stages, targets.get(options.target), options)
        return Conversion(
            compiled.program,
            graph.inputs,
            graph.outputs,
            VERSION,
            compiled,
            selection_of((compiled.program,)).text() if kernel_selection else None,
        )


def get(name: str) -> Converter:
    """Return the converter of this name. Raises InvalidOptionError for an unknown name."""
    check_choice("converter", name, CONVERTERS)
    if name == OPEN:
        return OpenConverter()
    # Imported here, since NXP's converter is a converter itself and knows this module.
    from openneutron.device.converter.eiq import EiqConverter

    return EiqConverter()
