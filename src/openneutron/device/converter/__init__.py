# SPDX-License-Identifier: BSD-3-Clause
"""The converters of a graph to a NeutronGraph: this project's compiler (``open``, ``driver``), or NXP's SDK (``eiq``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openneutron import targets
from openneutron.compiler import Compiled, Prepared, prepared
from openneutron.compiler.legalize.partition import extract, operator_title
from openneutron.compiler.select.select import Refused, Trial
from openneutron.device import cache
from openneutron.device.converter.kernel_selections import check_target, selection_of
from openneutron.errors import Failure
from openneutron.ir import Graph, Node
from openneutron.isa import Program
from openneutron.isa.payload import VERSION
from openneutron.options import CONVERTERS, EIQ, OPEN, CompileOptions, budget_bytes
from openneutron.options.flags import check_choice


@dataclass(frozen=True, slots=True)
class Conversion:
    """The NeutronGraph that a converter made of a graph.

    ``program`` has the three blobs of the NeutronGraph. This project can decode them only if ``compiled`` is not None: NXP's microcode is
    passed on unread. ``inputs`` and ``outputs`` are names of the graph's tensors, in the NeutronGraph's order. ``payload_version`` is 0 or
    1, by the form of the NeutronGraph's outputs (``litert.neutron_graph``). ``kernel_selection`` is the text of the C file, if it was asked
    for. ``file`` is the converted ``.tflite``, if the converter wrote one. ``work_bytes`` are the sizes of the NeutronGraph's work buffers;
    None: the header of this project's microcode has them.
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
    """A converter turns a graph of LiteRT's quantized operators into exactly one NeutronGraph."""

    name: str

    def check(self, options: CompileOptions) -> None:
        """Check the options before there is a model. Raises InvalidOptionError for an option that the converter does
        not accept, and MissingToolError where the converter is not installed."""

    def tried(self, graph: Graph, options: CompileOptions) -> tuple[Refused, ...]:
        """Return nodes that must leave the graph before the converter can convert the rest of it. Return an empty
        tuple if the converter converts the graph.

        The graph has passed the first stages of this project's compiler (``select.try_compile``) already. They are
        not repeated.
        """

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
    """The converters ``open`` and ``driver``: this project's compiler, ``openneutron.compiler``.

    The target of ``driver`` is a host core with the properties of the NPU's matrix products.
    """

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
        """Compile the graph, or take the result from the cache of the running compile. Raises as ``compile_graph``
        does. With ``kernel_selection``, it also raises InvalidOptionError for a target whose host software contains
        no kernels, so that there is nothing to select."""

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


Converts = Callable[[Graph], Failure | None]
"""A function that converts a graph, and returns None, or the failure."""

SAMPLES = 4
"""The limit on operators that are tried alone if no part of a graph could be converted. The number is our choice."""


def refusals(graph: Graph, converts: Converts, converter: str) -> tuple[Refused, ...]:
    """Return nodes that must leave the graph before the converter can convert the rest of it. Return an empty tuple
    if it converts the whole graph. ``converter`` is the converter's name in the reasons.

    If the converter leaves nodes outside of the NeutronGraph, these are returned. If it fails, the result is the node
    that its output names, provided that it also refuses this node alone. Otherwise bisection finds a node. If this is
    the first node of the graph, and the converter also refuses each of a few other nodes alone (``_converts_any``),
    all nodes of the graph are returned.

    To find one refused node among n, the converter is called at most 4 + log2(n) times. This includes the conversions
    of the parts into which the node divides the graph.
    """
    failure = converts(graph)
    if failure is None:
        return ()
    results = {name for node in graph.nodes for name in node.outputs}
    outside = {_known(name, results) for name in failure.outside}
    left = [node for node in graph.nodes if outside & set(node.outputs)]
    if left:
        words = f"{converter} refuses it: it leaves the operator outside of the NeutronGraph"
        return tuple(Refused(node.outputs[0], words) for node in left)
    named = _named(graph, failure.output)
    if named is not None and len(graph.nodes) > 1:
        alone = converts(extract(graph, [named]))
        if alone is not None:
            return (Refused(graph.nodes[named].outputs[0], f"{converter} {alone.verdict}"),)
    place, failure = _bisected(graph, failure, converts)
    found = Refused(graph.nodes[place].outputs[0], f"{converter} {failure.verdict}")
    if place == 0 and len(graph.nodes) > 1 and not _converts_any(graph, converts):
        return tuple(Refused(node.outputs[0], f"{converter} {failure.verdict}") for node in graph.nodes)
    return (found,)


def _known(name: str, known: Collection[str]) -> str:
    """Return the known name that the converter's name ``name`` stands for, or "" if there is none.

    The converter may divide a node into several operators, whose results have the name of the node's result with a suffix, such as
    ``y/wide``.
    """
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name


def _named(graph: Graph, output: str) -> int | None:
    """Return the index of the node that the converter's output names, or None if it names none or several. Only the
    last line with a name of the graph counts.

    A node is named by one of its results, or by LiteRT's name of its operator if no other node has this operator.
    """
    by_name: dict[str, set[int]] = {}
    for place, node in enumerate(graph.nodes):
        for name in (*node.outputs, operator_title(node)):
            by_name.setdefault(name, set()).add(place)
    for line in reversed(output.splitlines()):
        words = {word.strip(".,:;()[]{}'\"`") for word in re.split(r"[\s'\"`,()\[\]]+", line)}
        found = [by_name[name] for name in (_known(word, by_name) for word in words) if name]
        if found:
            exact = [places for places in found if len(places) == 1]
            places = set.union(*exact) if exact else set.intersection(*found)
            return places.pop() if len(places) == 1 else None
    return None


def _bisected(graph: Graph, failure: Failure, converts: Converts) -> tuple[int, Failure]:
    """Return the index of a node and the failure of a conversion: the converter converts the nodes before it, but not together with it."""
    converted, failed = 0, len(graph.nodes)
    while failed - converted > 1:
        middle = (converted + failed) // 2
        found = converts(extract(graph, range(middle)))
        if found is None:
            converted = middle
        else:
            failed, failure = middle, found
    return converted, failure


def _converts_any(graph: Graph, converts: Converts) -> bool:
    """Return whether the converter converts at least one of a few nodes alone: the first node of each kind, for at
    most ``SAMPLES`` kinds other than that of the graph's first node.

    If all nodes are of one kind, only the second node is tried.
    """
    kinds: dict[str, int] = {}
    for place, node in enumerate(graph.nodes[1:], 1):
        kinds.setdefault(node.op, place)
    if len(kinds) > 1:
        kinds.pop(graph.nodes[0].op, None)
    return any(converts(extract(graph, [place])) is None for place in list(kinds.values())[:SAMPLES])


def owner_of(nodes: Sequence[Node], result: str, known: Collection[str] | Mapping[str, object]) -> str | None:
    """Return the known tensor that is the fewest nodes away from ``result``: ``result`` itself if it is known. Return
    None if there is none.

    Of equally near tensors, results of the nodes that read a tensor come before operands of the node that computes
    it. A result is not known if its node only converts an input or output of a partition, since the model has no such
    node.
    """
    front, seen = [result], {result}
    while front:
        for name in front:
            if name in known:
                return name
        readers = [name for node in nodes if set(front) & set(node.inputs) for name in node.outputs]
        sources = [name for node in nodes if set(front) & set(node.outputs) for name in node.inputs if name is not None]
        front = [name for name in dict.fromkeys((*readers, *sources)) if name not in seen]
        seen |= set(front)
    return None
