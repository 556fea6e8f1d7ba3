# SPDX-License-Identifier: BSD-3-Clause
"""Attention as one kernel call: the bytes of the calls whose place it takes, and of LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.select.calls import View
from openneutron.compiler.select.needs import AccessMap, split_alike
from openneutron.ir import Graph
from tests.support import oracle
from tests.support.attention_graphs import attention

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_attention_is_one_call_with_litert_s_bytes(seed: int) -> None:
    assert oracle.kernels_of(oracle.assert_bit_exact(attention(seed))) == (["attention_s8"] if seed != 34 else UNFUSED)


@pytest.mark.parametrize("seed", range(200, 212))
def test_heads_may_be_in_front(seed: int) -> None:
    assert oracle.kernels_of(oracle.assert_bit_exact(attention(seed, heads_first=True))) == ["attention_s8"]


UNFUSED = [
    *("copy_s8", "batch_matmul_s8", "reduce_max_s8", "add_s8", "lookup_s8"),
    *("mean_s8", "lookup_s8", "batch_matmul_s8", "mul_s8", "copy_s8"),
]
"""The calls of attention to a single key, whose mean is no mean of rows."""


def test_one_call_and_several_compute_the_same_bytes() -> None:
    for seed in range(100, 106):
        graph = attention(seed)
        inputs = oracle.random_inputs(graph, seed)
        fused = compile_graph(graph, oracle.TARGET)
        several = compile_graph(graph, oracle.TARGET, CompileOptions(without_passes=("attention",)))
        assert len(oracle.kernels_of(several)) > 3 and len(oracle.kernels_of(fused)) == 1
        assert fused.report.cycles < several.report.cycles
        for one, other in zip(
            oracle.simulated_outputs(fused, inputs), oracle.simulated_outputs(several, inputs), strict=True
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("division_last", [False, True])
def test_probabilities_that_another_operator_reads_are_computed(division_last: bool) -> None:
    graph = attention(3, division_last, spy=True)
    assert "attention_s8" not in oracle.kernels_of(oracle.assert_bit_exact(graph))


def views_of(graph: Graph) -> dict[str, View]:
    _, (call,) = select_calls(graph)
    return dict(call.views)


def test_heads_are_columns_of_the_tensors_without_copies() -> None:
    for seed in SEEDS:
        views = views_of(attention(seed)) if seed != 34 else {}
        heads = {name: view.extents[2] for name, view in views.items() if name != "scores"}
        assert all(view.has_dense_channels for name, view in views.items() if name != "mask"), seed
        assert not heads or (heads["query"] == heads["output"] == heads["mask"] and heads["key"] == heads["value"])


def test_a_way_goes_through_a_copy_axis_by_axis() -> None:
    """[2, 3, 4] in memory becomes [3, 2, 4]; the first two axes are read as one."""
    near = View("copy", (1, 3, 2, 4), (24, 8, 4, 1))
    far = View("source", (1, 3, 2, 4), (24, 4, 12, 1), 100)
    way = AccessMap("copy", (((6, 4),), ((4, 1),)))
    assert way.through(near, far) == AccessMap("source", (((3, 4), (2, 12)), ((4, 1),)), 100)
    assert AccessMap("copy", (((2, 8),), ((4, 1),)), 12).through(near, far) == AccessMap(
        "source", (((2, 4),), ((4, 1),)), 116
    )
    assert AccessMap("copy", (((4, 4),),)).through(near, far) == AccessMap("source", (((2, 4), (2, 12)),), 100)
    assert AccessMap("copy", (((3, 4),),)).through(near, far) is None


def test_axes_are_split_where_one_of_the_ways_is() -> None:
    ways = {"a": ((6, 4),), "b": ((3, 4), (2, 12)), "c": ((6, 0),)}
    assert split_alike(ways) == {"a": ((3, 8), (2, 4)), "b": ((3, 4), (2, 12)), "c": ((3, 0), (2, 0))}
    assert split_alike({"a": ((3, 2), (2, 1))}) == {"a": ((6, 1),)}
    assert split_alike({"a": ((3, 8), (2, 1)), "b": ((2, 8), (3, 1))}) is None
