# SPDX-License-Identifier: BSD-3-Clause
"""Sums with zeros are dropped where LiteRT's result equals the other operand for every value, and kept elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from tests.oracle import TARGET, reference_outputs, simulated_outputs

EVERY = np.arange(-128, 128, dtype=np.int8).reshape(1, 4, 8, 8)
"""All values of int8."""


def sum_with(
    op: str, order: tuple[str, str], zeros: float, zero_point: int, value: int, scale: float = 0.0371
) -> Graph:
    """Return a graph with ``op`` of x and a constant of ``value`` (zeros where it is the zero point), with these
    scales."""
    quant = per_tensor(scale, -7)
    constant = np.full((1, 1, 1, 8), value, np.int8)
    tensors = [
        Tensor("x", EVERY.shape, DType.INT8, quant),
        Tensor("c", constant.shape, DType.INT8, per_tensor(zeros, zero_point), constant),
        Tensor("s", EVERY.shape, DType.INT8, quant),
    ]
    return Graph("g", {t.name: t for t in tensors}, (Node(op, order, ("s",), {"activation": "NONE"}),), ("x",), ("s",))


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
