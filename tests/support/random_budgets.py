# SPDX-License-Identifier: BSD-3-Clause
"""Compile a graph for random budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openneutron.compiler import CompileOptions
from openneutron.ir import Graph
from tests.support import oracle


def cycles_at_budgets(
    graph: Graph, options: CompileOptions, least: int, most: int, seed: int, count: int = 2
) -> list[int]:
    """Return the modelled cycles of programs at rising budgets in bytes: ``least``, ``count`` random ones, and ``most``.

    Raises AssertionError where a program needs more than its budget, or gives other bytes than LiteRT.
    """
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(graph, inputs)
    between = np.random.default_rng(seed).integers(least, most + 1, count)
    return [
        oracle.assert_fits_and_is_exact(
            graph, replace(options, sram_budget=budget, check=True), inputs, want
        ).report.overlapped_cycles
        for budget in sorted({least, most, *map(int, between)})
    ]
