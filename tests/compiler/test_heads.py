# SPDX-License-Identifier: BSD-3-Clause
"""Attention head by head, with its layers in front of it: the order of calls, and budgets that this makes feasible."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.divide import head_groups, heads_apart
from openneutron.compiler.rewrite.join import chain
from openneutron.compiler.rewrite.order import Flow, order_by_depth
from openneutron.compiler.rewrite.passes import ALL, BY_NAME, Passes, select_calls, selections
from openneutron.compiler.search import fit
from openneutron.compiler.search.tiles.fit import _column_groups
from openneutron.compiler.search.tuning import TUNING
from openneutron.compiler.select.calls import Storages, View, dense_pitches
from openneutron.compiler.select.select import Selection
from openneutron.isa.kernels.row import Everything, Operand, SameRow
from tests.support import oracle
from tests.support.attention_graphs import attention, block


@pytest.mark.parametrize("joined", [False, True])
def test_queries_come_last(joined: bool) -> None:
    storages, calls = select_calls(block(0, 1, 12, 2, 8, joined))
    cut = edited(CallList(tuple(calls), storages), heads_apart, False)
    assert cut is not None
    first = [call.views["output"] for call in cut.calls[:3]]
    found = next(call for call in cut.calls if call.traits.columns_apart)
    assert [view.tensor for view in first] == [found.views[name].tensor for name in ("key", "value", "query")]
    assert all(view.extents == (1, 1, 12, 16) for view in first)
    assert len(cut.calls) == len(calls) + 2 * joined


def test_columns_are_divided_for_operands_that_each_row_needs_whole() -> None:
    """A kernel that reads only the same row of its operands has none, so that no budget divides its columns."""
    view = View("x", (1, 4, 6, 8), dense_pitches((1, 4, 6, 8)))
    for access, groups in ((Everything(), 3), (SameRow(), 1)):
        traits = SimpleNamespace(columns_apart=True, operands=(Operand("x", access),))
        call: Any = SimpleNamespace(traits=traits, views={"x": view, "output": view}, is_scratch=lambda _name: False)
        assert _column_groups(call, int(2 * view.size_bytes / 5 / TUNING.whole_share)) == groups


@pytest.mark.parametrize("joined", [False, True])
def test_heads_one_after_the_other(joined: bool) -> None:
    storages, calls = select_calls(block(0, 1, 12, 2, 8, joined))
    cut = edited(CallList(tuple(calls), storages), heads_apart, True)
    assert cut is not None
    found = [call for call in cut.calls if call.traits.columns_apart]
    assert [call.views["output"].offset for call in found] == [0, 8]
    assert all(view.extents[2] == 1 for call in found for view in call.views.values())
    assert sum(storage.size_bytes == 12 * 8 for storage in cut.storages.storages.values()) == 6


def test_operands_that_are_no_layers_stay_as_they_are() -> None:
    storages, calls = select_calls(attention(0))
    assert edited(CallList(tuple(calls), storages), heads_apart, True) is None


@pytest.mark.parametrize(("joined", "seed"), [(False, 4), (True, 5)])
def test_heads_within_budgets_have_litert_s_bytes(joined: bool, seed: int) -> None:
    """Beside the input and the result of all heads, the keys and values of one head are in memory."""
    graph = block(seed, 1, 64, 4, 8, joined)
    tensor = 64 * 32
    least = oracle.least_budget(graph)
    assert compile_graph(graph, oracle.TARGET).report.sram_bytes >= 5 * tensor
    assert least < 3 * tensor
    for budget in (least, 3 * tensor, 4 * tensor):
        oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=budget))


@pytest.mark.parametrize("joined", [False, True])
def test_groups_of_heads(joined: bool) -> None:
    """Keys and values apart from queries, the heads in two groups, and each head alone: a group is one layer and one attention."""
    storages, calls = select_calls(block(0, 1, 12, 4, 8, joined))
    given = CallList(tuple(calls), storages)
    divided = [edited(given, head_groups, parts) for parts in (1, 2, None)]
    lists = [edited(each, chain, last_first=False) or each for each in divided if each is not None]
    found = [[call for call in each.calls if call.traits.columns_apart] for each in lists]
    assert [[call.views["output"].offset for call in each] for each in found] == [[0], [0, 16], [0, 8, 16, 24]]
    for each, attentions, width in zip(lists, found, (64, 48, 24), strict=True):
        key = attentions[0].views["key"].tensor
        assert [c.views["output"].extents for c in each.calls if c.views["output"].tensor == key] == [(1, 1, 12, width)]
    assert [len(each.calls) - len(lists[0].calls) for each in lists] == [0, 1, 5]


@pytest.mark.without_tiles("groups of heads are lists of the search for cascades, which tiles do not use")
@pytest.mark.parametrize("number", range(3))
def test_groups_of_heads_have_litert_s_bytes(number: int) -> None:
    routes = BY_NAME["chain-to-next"].routes

    def only(given: CallList, _storages: Storages, passes: Passes) -> list[CallList]:
        made = passes.follow(routes[number], given, {})
        return [] if made is None else [made]

    def divided(*given: Any) -> list[Selection]:
        return [each for each in selections(*given) if only(CallList(tuple(each[1]), each[0]), each[0], ALL)]

    graph = block(6, 1, 16, 4, 8, layer_norm=True)
    whole = compile_graph(graph, oracle.TARGET).report.sram_bytes
    with (
        mock.patch.object(fit, "for_cascades", only),
        mock.patch.object(fit, "selections", divided),
    ):
        report = oracle.assert_bit_exact(graph, (0, 1), CompileOptions(sram_budget=whole * 3 // 4)).report
    kernels = [call.kernel for call in report.operators]
    assert kernels.count("attention_s8") == (1, 2, 4)[number]
    assert sum(kernel.startswith("layer_norm_conv_2d_1x1") for kernel in kernels) == (2, 2, 4)[number]


def test_short_branches_are_computed_where_they_are_needed() -> None:
    """Call 1 is a branch of call 0 beside the chain of 2, 3 and 4; call 5 joins both."""
    before = (0, 0b1, 0b1, 0b100, 0b1000, 0b10010)
    flow = Flow(before, ((),) * len(before), (), (), ())
    assert order_by_depth(flow) == (0, 2, 3, 4, 1, 5)
