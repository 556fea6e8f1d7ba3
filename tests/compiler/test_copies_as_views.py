# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that a concatenation takes and others read too lie in its result from the start."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls, selections
from openneutron.compiler.search.pareto import pareto
from openneutron.errors import BudgetError
from tests.support import oracle
from tests.support.dense_blocks import dense_block


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_dense_blocks_keep_their_bytes(first: int) -> None:
    fewer = 0
    for seed in range(first, first + 40):
        graph = dense_block(seed)
        legal = legalize(graph)
        fewer += len(selections(legal)[0][1]) < len(select_calls(legal)[1])
        options = CompileOptions(io_place=("arena", "caller")[seed % 2], prefetch_constants=seed % 5 == 0)
        whole = oracle.assert_bit_exact(graph, (seed,), options)
        budget = int(whole.report.sram_bytes * (0.5 + 0.5 * (seed % 7) / 7))
        try:
            oracle.assert_bit_exact(graph, (seed,), CompileOptions(sram_budget=budget, io_place=options.io_place))
        except BudgetError:
            continue
    assert fewer > 15


def test_more_memory_is_never_slower() -> None:
    """Also where the selection with fewer copies needs more, so that budgets are on both sides of it."""
    for seed in range(25):
        graph = dense_block(seed)
        points = pareto(graph, oracle.TARGET)
        budgets = np.linspace(points[0].sram_bytes, points[-1].sram_bytes, 6).astype(int).tolist()
        reports = [compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=budget)).report for budget in budgets]
        cycles = [report.cycles for report in reports]
        assert cycles == sorted(cycles, reverse=True), seed
        assert cycles[-1] == points[-1].cycles == compile_graph(graph, oracle.TARGET).report.cycles


def test_a_tensor_that_others_read_lies_where_it_is_concatenated() -> None:
    graph = dense_block(8)
    _, plain = select_calls(legalize(graph))
    compiled = oracle.assert_bit_exact(graph)
    kernels = oracle.kernels_of(compiled)
    assert kernels.count("copy_s8") < [call.kernel for call in plain].count("copy_s8")
    assert len(kernels) < len(plain)
