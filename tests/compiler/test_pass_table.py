# SPDX-License-Identifier: BSD-3-Clause
"""The table of passes: each pass can be switched off, and what each did can be told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, Cause, Edit
from openneutron.compiler.rewrite.passes import (
    BY_NAME,
    IN_PLACE,
    IN_PLACE_CHAINED,
    PASSES,
    Group,
    Passes,
    explained,
    for_cascades,
    select_calls,
    selections,
)
from openneutron.compiler.select.needs import in_place
from openneutron.errors import InvalidOptionError
from openneutron.features.report.text import passes_table
from openneutron.ir import Graph
from tests.support import oracle
from tests.support.attention_graphs import block


def _graph(batches: int = 1) -> Graph:
    return block(6, batches, 12, 2, 8, layer_norm=True)


@pytest.mark.parametrize("batches", [1, 2])
def test_each_pass_switched_off_computes_the_same(batches: int) -> None:
    """With less memory than whole tensors take, so that the lists for cascades are searched too."""
    graph = _graph(batches)
    every = tuple(BY_NAME)
    least = compile_graph(graph, oracle.TARGET, CompileOptions(without_passes=every)).report.sram_bytes
    for names in (every, *((name,) for name in every)):
        budget = least * 7 // 8 if len(names) == 1 and names != ("attention",) else least
        options = CompileOptions(without_passes=names, sram_budget=budget, prefetch_constants=False)
        oracle.assert_bit_exact(graph, (0,), options)


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        compile_graph(_graph(), oracle.TARGET, CompileOptions(without_passes=("joint",)))
    assert str(raised.value) == (
        f"without_passes: 'joint' is unknown; there are {', '.join(BY_NAME)}. Did you mean 'join'?"
    )


def test_no_list_of_calls_is_searched_twice() -> None:
    passes = Passes(oracle.TARGET)
    for storages, calls in selections(legalize(_graph()), passes=passes):
        given = CallList(tuple(calls), storages)
        lists = list(for_cascades(given, in_place(storages, calls), passes))
        assert lists and all(each not in lists[:place] for place, each in enumerate(lists))


def test_routes_name_passes() -> None:
    for row in PASSES:
        assert not row.routes or row.group is Group.CASCADES
        for route in row.routes:
            assert row.name in route and {*route} <= {*BY_NAME, IN_PLACE, IN_PLACE_CHAINED}


def test_passes_tell_what_they_did_and_why_not() -> None:
    found = {
        each.row.name: each for each in explained(_graph(), oracle.TARGET, CompileOptions(without_passes=("join",)))
    }
    assert list(found) == list(BY_NAME)
    assert found["attention"].made and str(found["attention"]).startswith("made ")
    assert found["join"].skipped == {Cause.SWITCHED_OFF: ()} and str(found["join"]) == "the pass is switched off"
    assert str(found["excitation"]) == "there are no means of images"
    assert found["excitation"].to_dict() == {
        "name": "excitation",
        "family": "join",
        "lists": "lists of joined calls",
        "made": [],
        "skipped": {"no_calls": []},
    }


def test_an_edit_keeps_its_index() -> None:
    storages, calls = select_calls(_graph())
    edit = Edit(CallList(tuple(calls), storages))
    place = next(at for at in range(len(edit)) if len(edit.readers_of_result(at)) == 1)
    (reader, name), tensor = edit.readers_of_result(place)[0], edit[place].views["output"].tensor
    other = edit.store(tensor, storages[tensor].size_bytes)
    assert other == f"{tensor}'"
    edit.rename((reader, name), other)
    assert edit.readers_of_result(place) == [] and edit.readers(other) == [(reader, name)]
    edit.remove_unread()
    assert edit.find(place) is None and edit.writers(storages.of[tensor]) == []
    made = edit.finished()
    assert len(made.calls) < len(calls) and storages.of[tensor] not in made.storages.storages
    assert made.storages[other].is_scratch


def test_the_names_of_passes_are_whole_in_a_narrow_terminal() -> None:
    """They are what ``--without-passes`` takes."""
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(passes_table(explained(_graph(), oracle.TARGET, CompileOptions())))
    lines = console.export_text().splitlines()
    assert {*BY_NAME} <= {line.split("  ")[0] for line in lines}
