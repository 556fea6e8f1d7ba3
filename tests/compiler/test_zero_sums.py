# SPDX-License-Identifier: BSD-3-Clause
"""Sums with zeros are dropped where LiteRT's result equals the other operand for every value, and kept elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph
from tests.support.oracle import TARGET, reference_outputs, simulated_outputs
from tests.support.small_graphs import EVERY, sum_with


def kernels(graph: Graph) -> list[str]:
    compiled = compile_graph(graph, TARGET, CompileOptions())
    inputs = [EVERY]
    for got, want in zip(simulated_outputs(compiled, inputs), reference_outputs(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    return [call.kernel for call in compiled.schedule.calls]


@pytest.mark.parametrize("zeros", [0.0371, 0.01, 2**-12, 1e-30])
@pytest.mark.parametrize(("op", "order"), [("add", ("x", "c")), ("add", ("c", "x")), ("sub", ("x", "c"))])
def test_a_sum_with_zeros_is_no_addition(op: str, order: tuple[str, str], zeros: float) -> None:
    for scale in (0.0371, 1.0, 0.0999999, 1e4):
        if zeros <= scale:
            assert "add_s8" not in kernels(sum_with(op, order, zeros, 3, 3, scale))


def test_what_may_change_values_stays() -> None:
    for graph in (
        sum_with("sub", ("c", "x"), 0.01, 3, 3),  # a negation
        sum_with("add", ("x", "c"), 0.01, 3, 4),  # not zeros
        sum_with("add", ("x", "c"), 0.04, 3, 3),  # a factor that is rounded
    ):
        assert "add_s8" in kernels(graph)
