# SPDX-License-Identifier: BSD-3-Clause
"""The lower bound of traffic over all schedules that compute each element once, and the dependence that its proof uses."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bench.live_traffic import Dependence, dependence, least_reloaded_bytes
from bench.traffic_of_choices import least_moved_bytes
from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.errors import BudgetError
from openneutron.ir import DType, Graph, Node, Tensor
from scripts.published_networks import ACTIVATION, Chain
from tests.support.random_graphs import several

SIDE, CHANNELS = 32, 8
SKIPPED = SIDE * SIDE * CHANNELS


def _to_a_pixel(chain: Chain, wide: int = CHANNELS) -> Chain:
    return chain.conv(wide, 5, 4).conv(wide, 5, 4).conv(CHANNELS, 2, 2).conv(CHANNELS, 1)


@cache
def unet(wide: int = CHANNELS) -> Graph:
    """Return a U-Net of one level: a layer, one pixel that reads all of it by ``wide`` channels, and their sum, behind which another layer is."""
    chain = Chain("unet", (1, SIDE, SIDE, CHANNELS)).conv(CHANNELS, 3)
    skipped = chain.last.name
    _to_a_pixel(chain, wide)
    total = Tensor("sum", (1, SIDE, SIDE, CHANNELS), DType.INT8, ACTIVATION)
    chain.tensors[total.name] = total
    chain.nodes.append(Node("add", (skipped, chain.last.name), (total.name,), {"activation": "NONE"}))
    chain.last = total
    return chain.conv(CHANNELS, 3).graph()


def compiled(graph: Graph, size: int) -> Compiled:
    return compile_graph(graph, targets.get("imx95"), CompileOptions(target="imx95", sram_budget=size))


def least_of_choices(graph: Graph, size: int) -> int:
    return least_moved_bytes(prepared(graph).tasks.selected, targets.get("imx95"), size, 1 << 40)


def reloaded(graph: Graph, *sizes: int) -> list[int]:
    storages, calls = prepared(graph).tasks.selected[0]
    return least_reloaded_bytes(calls, storages, sizes)


def test_a_skipped_tensor_that_the_memory_does_not_hold_is_stored_and_loaded_again() -> None:
    # The sum waits for the one pixel: the skipped tensor is live with one element of the pixel's layer.
    live = SKIPPED + 1
    assert reloaded(unet(), live // 2, live - 1, live, 2 * live) == [2 * (live - live // 2), 2, 0, 0]


def test_a_program_stores_and_loads_just_the_live_tensor() -> None:
    # 5 KiB of constants and the stripes leave no memory for the skipped tensor.
    report = compiled(unet(), 12 << 10).report
    assert reloaded(unet(), 1) == [2 * SKIPPED] == [report.moved_bytes - report.io_bytes]


def test_the_bound_over_the_choices_stores_a_tensor_that_leaves_no_memory_for_a_later_layer() -> None:
    # A layer between the skipped tensor and its sum needs 13 KiB of constants at once.
    least = least_of_choices(unet(64), 20 << 10)
    report = compiled(unet(64), 20 << 10).report
    assert report.io_bytes < least <= report.moved_bytes


def test_an_input_is_loaded_again_and_not_stored() -> None:
    chain = _to_a_pixel(Chain("skip", (1, SIDE, SIDE, CHANNELS)))
    total = Tensor("sum", (1, SIDE, SIDE, CHANNELS), DType.INT8, ACTIVATION)
    chain.tensors[total.name] = total
    chain.nodes.append(Node("add", ("input", chain.last.name), (total.name,), {"activation": "NONE"}))
    chain.last = total
    assert reloaded(chain.graph(), 1024) == [SKIPPED + 1 - 1024]


def test_layers_without_a_skipped_tensor_have_only_the_rows_of_a_window() -> None:
    graph = Chain("plain", (1, SIDE, SIDE, CHANNELS)).conv(CHANNELS, 3).conv(CHANNELS, 3).graph()
    assert reloaded(graph, 4 * 9 * CHANNELS) == [0]


@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_no_program_copies_less_than_the_bound(seed: int) -> None:
    graph = several(seed)
    for size in (32 << 10, 4 << 10):
        try:
            report = compiled(graph, size).report
        except BudgetError:
            continue
        (more,) = reloaded(graph, size)
        assert report.traffic_bound_bytes + more <= report.moved_bytes + report.fetched_bytes


def _of(graph: Graph) -> Dependence:
    storages, calls = prepared(graph).tasks.selected[0]
    return dependence(calls, storages)


@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_marks_forwards_and_backwards_are_one_relation(seed: int) -> None:
    """x is ahead of y exactly where y is behind x: for some elements of the input and of the output of one call, element by element."""
    generator = np.random.default_rng(seed)
    found = _of(several(seed))
    for call, readings in zip(found.calls, found.readings, strict=True):
        written = call.views["output"].extents
        for each in readings:
            read = call.views[each.operand].extents
            if each.all_of:
                continue
            for _ in range(4):
                x, y = np.zeros(read, np.bool_), np.zeros(written, np.bool_)
                x[tuple(generator.integers(0, read))] = True
                y[tuple(generator.integers(0, written))] = True
                there = bool((each.forwards(x, written) & y).any())
                assert there == bool((each.backwards(y, read) & x).any())
