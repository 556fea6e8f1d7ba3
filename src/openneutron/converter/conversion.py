# SPDX-License-Identifier: BSD-3-Clause
"""The interface: a partition's graph in, its NeutronGraph out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from openneutron.compiler import Compiled
from openneutron.compiler.select.trial import Trial
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.options import CompileOptions


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
    """Takes what LiteRT's int8 operators can say and gives exactly one NeutronGraph for it."""

    name: str

    def check(self, options: CompileOptions) -> None:
        """Raise the errors that need no model: InvalidOptionError for an option that the converter does not take,
        MissingToolError where the converter is not installed."""

    def convert(
        self, graph: Graph, options: CompileOptions, kernel_selection: bool = False, trial: Trial | None = None
    ) -> Conversion:
        """Return the graph's NeutronGraph; with ``kernel_selection``, also the C file that registers only the kernels
        it calls. ``trial`` has the first stages of this project's compiler for the graph.

        Raises as ``check`` does; BudgetError where the budget is too small, ConverterError where the converter fails or
        leaves part of the graph out."""
