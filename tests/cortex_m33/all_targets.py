# SPDX-License-Identifier: BSD-3-Clause
"""Networks on every processor that QEMU has: ``python -m tests.cortex_m33.all_targets`` compiles each for each and compares the bytes.
``--targets cortex-m55`` takes that target alone.

Each network is compiled for the target with a core, once whole and once in the least memory. QEMU runs the firmware for that core,
built at -O2 with gcc, and its outputs are compared with those of LiteRT's reference kernels, or of the simulator for a network from
PyTorch with an operator that LiteRT lacks. QEMU 7.2 has no Cortex-M85, and gcc 12 does not know it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph
from openneutron.options import CALLER
from tests.cortex_m33.boards import CORTEX_M4, CORTEX_M7, CORTEX_M33, CORTEX_M55, Board
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import SPEED, image, library
from tests.cortex_m33.models import on_the_host
from tests.support import normalized
from tests.support.made_networks import models_folder
from tests.support.oracle import least_budget, random_inputs, reference_outputs

BOARDS: dict[str, Board] = {
    "cortex-m4": CORTEX_M4,
    "cortex-m7": CORTEX_M7,
    "cortex-m33": CORTEX_M33,
    "cortex-m55": CORTEX_M55,
}
"""The board of QEMU for each processor."""

RECURRENT = ("gru", "rnn")
"""Operators of this project's own that have no form in LiteRT."""

FROM_PYTORCH = ("ds_cnn", "lstm_kws", "gru_kws", "transformer_encoder")


def files() -> Iterator[tuple[str, Graph]]:
    """Yield the shared networks."""
    for path in sorted(models_folder().glob("*.tflite")):
        yield path.stem, litert.read(path).graph


def from_pytorch() -> Iterator[tuple[str, Graph]]:
    """Yield networks that are quantized here."""
    from openneutron.pytorch.source import models

    for name in FROM_PYTORCH:
        network, example = models.get(name)
        made = openneutron.compile(network, example, calibration=models.samples(name, 2), name=name)
        yield from ((f"{name} {index}", part.compiled.graph) for index, part in enumerate(made.partitions))


def compare(graph: Graph, core: str, in_least_memory: bool = False) -> int:
    """Compare the outputs of a network on a core with LiteRT's; return the bytes of RAM of a run. Raises AssertionError for a difference."""
    target = targets.get(core)
    options = CompileOptions(target=core, io_place=CALLER)
    if in_least_memory:
        options = replace(options, sram_budget=least_budget(graph, io=CALLER, target=target))
    result = compile_graph(graph, target, options)
    inputs = random_inputs(graph, 0)
    data = b"".join(each.tobytes() for each in inputs)
    (done,) = run(image(library(SPEED, board=BOARDS[core]), board=BOARDS[core]), [Case(result.program, (data,))])
    (ran,) = done.runs
    assert ran.error == 0, (core, ran.error)
    (simulated,) = on_the_host(result.program, (data,))
    assert ran.outputs == simulated, f"{core}: other bytes than on the host"
    if not graph.states and not any(node.op in RECURRENT for node in graph.nodes):
        model = graph if any(node.op in normalized.OPERATORS for node in graph.nodes) else litert.write(graph)
        wanted = reference_outputs(model, inputs)
        assert np.array_equal(
            np.frombuffer(ran.outputs, np.uint8), np.frombuffer(b"".join(each.tobytes() for each in wanted), np.uint8)
        ), core
    return result.report.sram_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the outputs of networks on each target with LiteRT's.")
    parser.add_argument("--targets", nargs="+", default=list(BOARDS), choices=list(BOARDS))
    chosen = parser.parse_args().targets
    failures = 0
    for name, graph in (*files(), *from_pytorch()):
        for core in chosen:
            for least in (False, True):
                try:
                    print(
                        f"{name:28} {core:11} {'least memory' if least else 'whole':12} {compare(graph, core, least):9,} bytes: equal"
                    )
                except Exception as error:
                    failures += 1
                    print(f"{name:28} {core:11} {type(error).__name__}: {str(error)[:200]}")
                sys.stdout.flush()
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
