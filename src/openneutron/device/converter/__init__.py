# SPDX-License-Identifier: BSD-3-Clause
"""The converters of a partition to a NeutronGraph: this project's compiler (``open``), or NXP's SDK (``eiq``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from openneutron import targets
from openneutron.compiler import Compiled, Prepared, prepared
from openneutron.compiler.select.select import Refused, Trial
from openneutron.device import cache
from openneutron.device.converter.kernel_selections import check_target, selection_of
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.isa.payload import VERSION
from openneutron.options import CONVERTERS, EIQ, OPEN, CompileOptions, budget_bytes
from openneutron.options.flags import check_choice


@dataclass(frozen=True, slots=True)
class Conversion:
    """The NeutronGraph that a converter made of a graph.

    ``program`` has the three blobs of the NeutronGraph. This project can read them only where ``compiled`` is not None:
    NXP's microcode is passed on as it is. ``inputs`` and ``outputs`` are names of the graph's tensors, in the
    NeutronGraph's order. ``payload_version`` is 0 or 1, by the form of the NeutronGraph's outputs
    (``litert.neutron_graph``). ``kernel_selection`` is the text of the C file, if it was asked for. ``file`` is the
    converted ``.tflite``, if the converter made one. ``work_bytes`` are the sizes of the NeutronGraph's work buffers; None: as the
    header of this project's microcode states.
    """

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload_version: int
    compiled: Compiled | None = None
    kernel_selection: str | None = None
    file: bytes | None = field(default=None, repr=False)
    work_bytes: tuple[int, ...] | None = None


class Converter(Protocol):
    """A converter turns a graph of LiteRT's int8 operators into exactly one NeutronGraph."""

    name: str

    def check(self, options: CompileOptions) -> None:
        """Check the options before there is a model. Raises InvalidOptionError for an option that the converter does
        not accept, and MissingToolError where the converter is not installed."""

    def tried(self, graph: Graph, options: CompileOptions) -> tuple[Refused, ...]:
        """Return nodes that must leave the graph before the converter can convert the rest of it; empty where it converts
        the graph. The first stages of this project's compiler (``select.try_compile``) are not repeated."""

    def convert(
        self,
        graph: Graph,
        options: CompileOptions,
        kernel_selection: bool = False,
        trial: Trial | Prepared | None = None,
    ) -> Conversion:
        """Convert a graph to one NeutronGraph. With ``kernel_selection`` the result also has the C file that registers
        only the kernels that the NeutronGraph calls. ``trial`` has the results of the first stages of this project's
        compiler for the graph, if they are known; they may be those of an equal graph of another name.

        Raises as ``check`` does. Raises BudgetError where the budget is too small, and ConverterError where the
        converter fails or leaves out a part of the graph.
        """


@dataclass(slots=True)
class OpenConverter:
    """The converters ``open`` and ``driver``: this project's compiler, ``openneutron.compiler``. The target of ``driver`` is a host core
    with the facts about matrix products on the NPU."""

    name: str = OPEN

    def check(self, options: CompileOptions) -> None:
        """Raise InvalidOptionError for a budget above the target's SRAM."""
        budget_bytes(options.sram_budget, targets.get(options.target))

    def tried(self, graph: Graph, options: CompileOptions) -> tuple[Refused, ...]:
        """Return an empty tuple: this project's compiler converts each graph that ``try_compile`` accepts."""
        return ()

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

        compiled = cache.compiled(graph, first_stages, targets.get(options.target), options)
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
    if name != EIQ:
        return OpenConverter(name)
    # Imported here, since the module of NXP's converter imports this one.
    from openneutron.device.converter.eiq import EiqConverter

    return EiqConverter()
