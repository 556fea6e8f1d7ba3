# SPDX-License-Identifier: BSD-3-Clause
"""Real architectures at their budgets: ``python -m tests.fuzz.architectures [NAME ...]`` goes through those of tests/architectures.

Each is quantized, then compiled and compared as in ``tests.fuzz.budgets``, at the least budget, at 1.1, 1.3, 1.7 and 2.2 times that
and for whole tensors; with and without copies of constants, with inputs and outputs in the arena and with the caller, and at both
efforts. Prints for each the least budget, what whole tensors take, and CPU seconds.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Sequence

import torch

import openneutron
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph
from openneutron.options import EFFORTS, IO_PLACES
from tests import architectures
from tests.fuzz.budgets import check_graph
from tests.support import oracle
from tests.support.oracle import least_budget

TIMES = (1.1, 1.3, 1.7, 2.2)
"""Multiples of the least budget."""


@functools.cache
def graphs(name: str) -> tuple[Graph, ...]:
    """The partitions of an architecture, quantized on random inputs. Raises AssertionError where anything stays on the CPU."""
    model, example = architectures.get(name)
    random = torch.Generator().manual_seed(architectures.SEED)
    samples = [example, tuple(torch.randn(each.shape, generator=random) for each in example)]
    compiled = openneutron.compile(model, example, calibration=samples, name=name)
    assert compiled.delegation.on_cpu == (), f"{name}: {compiled.delegation.on_cpu[0]}"
    return tuple(part.compiled.graph for part in compiled.partitions)


def between(least: int, most: int) -> list[int]:
    """Budgets between the least and whole tensors."""
    return [int(least * times) for times in TIMES if least * times < most]


def main(names: Sequence[str]) -> int:
    """Checks the architectures of these names, all where there are none; prints each failure. 1 where anything failed."""
    failures = 0
    for name in names or architectures.ARCHITECTURES:
        for graph in graphs(name):
            for fetch, io, effort in itertools.product((False, True), IO_PLACES, EFFORTS):
                began = time.process_time()
                how = f"{name:<18} {io:<7}{'copies ' if fetch else '       '}{effort:<8}"
                options = CompileOptions(prefetch_constants=fetch, io_place=io, effort=effort)
                try:
                    programs = check_graph(graph, fetch, io, between, effort=effort)
                except AssertionError as error:
                    failures += 1
                    print(f"{how} {str(error)[:400]}", flush=True)
                    continue
                whole = compile_graph(graph, oracle.TARGET, options).report.sram_bytes
                least = least_budget(graph, fetch, io, effort)
                spent = time.process_time() - began
                print(
                    f"{how} {least / 1024:8.2f} of {whole / 1024:7.2f} KiB  {programs} programs, {spent:.1f} s",
                    flush=True,
                )
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
