# SPDX-License-Identifier: BSD-3-Clause
"""Stock ``.tflite`` bytes to ``.tflite`` bytes with NeutronGraphs, under the SDK's names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openneutron import files, litert, ops, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.layout import CALLER
from openneutron.compiler.partition import extract
from openneutron.converter.kernel_selections import selection_of
from openneutron.errors import InvalidOptionError, InvalidTargetError
from openneutron.ir import Graph
from openneutron.litert.neutron_graph import NeutronNode, splice
from openneutron.mixed import analyse_file
from openneutron.mixed.compile import part_name
from openneutron.mixed.fold import folded

KERNEL_SELECTION = "_kernel_selection.c"
"""The file in the working directory that ``dumpKernelSelectionCode`` asks for."""

HARDWARE_VERSIONS = {"N1": 1, "N3": 2}
"""The numbers that ExecuTorch's NXP backend knows them by."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NeutronNpu:
    """An NPU's shape."""

    subsystem: bool
    numUnits: int
    numPipes: int
    numMacs: int
    hwVersion: int


@dataclass(frozen=True, slots=True)
class NeutronTarget:
    """A chip."""

    name: str
    npu: NeutronNpu


@dataclass(slots=True)
class CompilationOptions:
    """What a caller may set.

    ``fetchConstantsToSRAM``, ``dumpKernelSelectionCode`` and ``useProfiling`` do what ``generate_neutron_compile_spec`` says of
    them. ``minNumOpsPerGraph`` and ``excludeGraphPasses`` steer passes that this compiler does not have; ``dumpAfterImport``,
    ``dumpAfterGenerate`` and ``verbose`` are about the SDK's own log: all of these are taken and change nothing.
    """

    minNumOpsPerGraph: int = 1
    excludeGraphPasses: str = ""
    fetchConstantsToSRAM: bool = False
    dumpKernelSelectionCode: bool = False
    useProfiling: bool = False
    dumpAfterImport: str = ""
    dumpAfterGenerate: str = ""
    verbose: bool = False


@dataclass(slots=True)
class CompilationContext:
    """The target (see ``getNeutronTarget``) and the options of a conversion."""

    targetOpts: NeutronTarget | None = None
    compilationOpts: CompilationOptions = field(default_factory=CompilationOptions)


def getNeutronTarget(name: str) -> NeutronTarget:
    """The target of this name. Raises InvalidTargetError where it is unknown."""
    chip = targets.KNOWN.get(name)
    if chip is None:
        raise InvalidTargetError(f"Target `{name}` is not a valid target. Must be one of `{list(targets.KNOWN)}`.")
    version = HARDWARE_VERSIONS[chip.hw_version]
    return NeutronTarget(chip.name, NeutronNpu(chip.subsystem, chip.units, chip.pipelines, chip.macs, version))


def convertModel(model: bytes | Sequence[int], context: CompilationContext) -> bytes:
    """The model with a NeutronGraph for each part that the NPU can run; other operators stay as they are.

    ``model`` is a ``.tflite`` file as bytes, or as a list of their values. With ``dumpKernelSelectionCode`` the kernels it calls
    are written to ``_kernel_selection.c`` in the working directory. Why an operator stays is logged as a warning.

    Raises InvalidOptionError without a target, InvalidTargetError for one that is not compiled for, InvalidModelError for a
    damaged file, BudgetError where a part needs more SRAM than the target has.
    """
    if context.targetOpts is None:
        raise InvalidOptionError("CompilationContext: targetOpts is not set. Set it to getNeutronTarget(name).")
    given = context.compilationOpts
    options = CompileOptions(io=CALLER, fetch_constants_to_sram=given.fetchConstantsToSRAM, profile=given.useProfiling)
    loaded, chip = folded(litert.read(bytes(model))), targets.get(context.targetOpts.name)
    whole = _whole(loaded.graph)
    if whole is not None:
        program = compile_graph(whole, chip, options).program
        programs = [program]
        data = splice(loaded, [NeutronNode(part_name(0), whole.inputs, whole.outputs, program)])
    else:
        compiled = analyse_file(loaded, "model", chip, options)
        for item in compiled.partitioning.on_cpu:
            _log.warning("%s", item)
        programs, data = [part.program for part in compiled.parts], compiled.to_bytes()
    if given.dumpKernelSelectionCode:
        files.write({Path(KERNEL_SELECTION): selection_of(programs).text().encode()})
    return data


def _whole(graph: Graph) -> Graph | None:
    """The graph without inputs that nothing reads, where all of it can be one program; None where part of it can't.

    It is one even where it only gives values another shape: that is for the caller to avoid.
    """
    part = extract(graph, range(len(graph.nodes)))
    if not graph.nodes or set(part.outputs) != set(graph.outputs):
        return None
    return part if all(ops.reject(graph, node) is None for node in graph.nodes) else None
