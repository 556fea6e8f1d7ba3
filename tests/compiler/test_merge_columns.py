# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of few channels whose columns are taken for channels: the same bytes, for every window there is."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite import shapes
from openneutron.compiler.rewrite.call_list import CallList, Edit, edited
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.rewrite.shapes import _is_mergeable, _pieces, merge_columns
from openneutron.targets import Target
from scripts.published_networks import Chain, cifarnet, mobilenet_v1
from tests.support import oracle, random_graphs
from tests.support.random_transposed import transpose_conv


def wherever_possible(edit: Edit, target: Target) -> None:
    for place, call in enumerate(edit.given.calls):
        pieces = _pieces(call) if _is_mergeable(call, target) else []
        if pieces:
            edit.replace({place: pieces})


@pytest.mark.without_tiles("convolutions in tiles are not merged")
@pytest.mark.parametrize("part", range(4))
def test_any_window_gives_the_same_bytes(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "merge_columns", wherever_possible)
    merged = 0
    for seed in range(part * 60, part * 60 + 60):
        compiled = oracle.assert_bit_exact(random_graphs.single("conv_2d", seed), (seed,))
        merged += any(call.name.endswith("/middle") for call in compiled.schedule.calls)
    assert merged >= 2


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_padding_below_zero(first: int) -> None:
    """Of a cropped transposed convolution, whose windows begin inside the input."""
    below = 0
    for seed in range(first, first + 20):
        b = random_graphs.Builder(seed)
        source = b.input((1, b.up_to(6), int(b.random.integers(4, 20)), b.up_to(5)))
        whole = transpose_conv(b, source)
        if whole is None:
            continue
        begin = [0, *(int(b.random.integers(extent)) for extent in whole.shape[1:3]), 0]
        size = [whole.shape[0], *(b.up_to(whole.shape[axis] - begin[axis]) for axis in (1, 2)), whole.shape[3]]
        part = b.node("slice", [whole, b.integers(*begin), b.integers(*size)], b.new(size, whole.quant))
        result = b.node("relu", [part], b.new(size, whole.quant))
        compiled = oracle.assert_bit_exact(b.graph([result]), (seed,))
        below += any("/middle" in call.name for call in compiled.schedule.calls)
    # Convolutions in tiles are not merged.
    assert below or oracle.TARGET.moves_tiles


@pytest.mark.imxrt700
def test_first_layers_are_merged_where_that_is_faster() -> None:
    for graph in (cifarnet(), mobilenet_v1()):
        storages, calls = select_calls(legalize(graph))
        found = edited(CallList(tuple(calls), storages), merge_columns, oracle.TARGET)
        merged = found.calls if found else ()
        cycles = [sum(call_cost(call, oracle.TARGET).cycles for call in each) for each in (merged, calls)]
        assert cycles[0] < cycles[1]
        assert [call.name for call in merged if "/" in call.name][-1] == "conv_2d_0/right"
    storages, calls = select_calls(legalize(Chain("small", (1, 8, 8, 3)).conv(8, 3).graph()))
    assert edited(CallList(tuple(calls), storages), merge_columns, oracle.TARGET) is None


@pytest.mark.without_tiles("convolutions in tiles are not merged")
def test_in_little_memory_they_stay_whole() -> None:
    graph = cifarnet()
    fast = oracle.assert_bit_exact(graph, (0,))
    small = oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=16 * 1024))
    assert any("/middle" in call.name for call in fast.schedule.calls)
    assert not any("/middle" in call.name for call in small.schedule.calls)
    assert fast.report.cycles < small.report.cycles
    assert fast.report.arena_bytes == fast.report.bound_bytes == 40 * 1024
