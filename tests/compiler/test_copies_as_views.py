# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that a concatenation takes and others read too lie in its result from the start."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.graph.legalize import legalize
from openneutron.compiler.search.pareto import pareto
from openneutron.compiler.select.select import select_calls
from openneutron.compiler.select.selections import selections
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Tensor
from tests.support import oracle
from tests.support.random_graphs import Builder

POOL = {"padding": "SAME", "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "activation": "NONE"}


def joined(b: Builder, parts: list[Tensor], axis: int = 3) -> Tensor:
    """One behind the other along an axis."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    assert parts[0].quant is not None
    return b.node("concatenation", parts, b.new(shape, parts[0].quant), axis=axis, activation="NONE")


def layer(b: Builder, source: Tensor) -> Tensor:
    """A pool, an activation or a sum with itself, of the same shape and quantization."""
    kind = b.up_to(3)
    result = b.new(source.shape, source.quant)
    if kind == 1:
        return b.node("max_pool_2d", [source], result, **POOL)
    return b.node("relu", [source], result) if kind == 2 else b.node("add", [source, source], result, activation="NONE")


def part_of(b: Builder, source: Tensor) -> Tensor:
    """Some rows, columns and channels."""
    begin = [0, *(int(b.random.integers(0, extent)) for extent in source.shape[1:])]
    size = [1, *(b.up_to(extent - first) for first, extent in zip(begin[1:], source.shape[1:], strict=True))]
    return b.node("slice", [source, b.integers(*begin), b.integers(*size)], b.new(size, source.quant))


def dense_block(seed: int) -> Graph:
    """Each layer takes what all before it made, along a random axis; parts of that are read elsewhere too."""
    b = Builder(seed)
    axis = int(b.random.integers(1, 4))
    made = [layer(b, b.input((1, b.up_to(7), b.up_to(7), b.up_to(9))))]
    outputs = []
    for _ in range(b.up_to(3)):
        kept = made if b.up_to(3) > 1 else made[-2:]
        last = layer(b, joined(b, kept, axis) if len(kept) > 1 else kept[0])
        if b.up_to(2) == 1:
            outputs.append(layer(b, part_of(b, made[-1])))
        made += [last]
    if b.up_to(4) == 1:
        outputs.append(made[0])
    return b.graph([*outputs, joined(b, made, axis) if b.up_to(2) == 1 else layer(b, joined(b, made, axis))])


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


@pytest.mark.without_tiles("the search for tiles takes the first selection of calls that fits")
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
