# SPDX-License-Identifier: BSD-3-Clause
"""The interface: a partition's graph in, its NeutronGraph out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from openneutron.compiler import Compiled
from openneutron.compiler.select.trial import Trial
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.options import CALLER


@dataclass(frozen=True, slots=True)
class ConverterOptions:
    """What a user may ask of a converter. ``sram_budget`` is bytes, ``io`` one of ``options.IO_PLACES``.

    ``flags`` are the converter's own, as on a command line. ``kernel_selection`` asks for the C file that registers only the
    kernels the partition calls.
    """

    target: str
    sram_budget: int | None = None
    io: str = CALLER
    fetch_constants_to_sram: bool = False
    profile: bool = False
    kernel_selection: bool = False
    flags: tuple[str, ...] = ()


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

    def check(self, options: ConverterOptions) -> None:
        """Raises what can be said before there is a model: InvalidOptionError for options it does not take,
        MissingToolError where it can't be used here."""

    def convert(self, graph: Graph, options: ConverterOptions, trial: Trial | None = None) -> Conversion:
        """The graph's NeutronGraph. ``trial``: what this project's compiler has made of the graph so far. Raises as ``check`` does; BudgetError where the budget is too small, ConverterError where
        the converter fails or leaves part of the graph out."""
