# SPDX-License-Identifier: BSD-3-Clause
"""Calls that repeat are one group, which begins where a layer begins, and whose sums are those of all its calls."""

from __future__ import annotations

import dataclasses

from openneutron import litert
from openneutron.device.mixed import compile_file
from openneutron.features.report import of_compiled_file
from openneutron.features.report.repeats import Block, blocks, listed
from openneutron.features.report.text import calls_of
from tests.support.litert_files import mixed_file
from tests.support.oracle import TARGET

PARTS = ("norm", "query", "query", "attention", "output")


def _layers(numbers: range) -> list[str]:
    return [f"layers.{number}.{part}" for number in numbers for part in PARTS]


def test_a_group_begins_where_a_layer_begins() -> None:
    """The calls from the attention of layer 0 to the queries of layer 1 repeat too, but are of two layers."""
    names = ["load", *_layers(range(1)), "copy", *_layers(range(1, 12)), "head"]
    facts = [name.rpartition(".")[2] for name in names]
    found = blocks(names, facts)
    assert found[-2:] == [Block(7, 5, 11, "layers.1 to 11"), Block(62)]
    assert [place for block in found for place in block.all_items] == list(range(len(names)))
    names[3] = "copy"  # in front of a layer's attention
    assert Block(7, 5, 11, "layers.1 to 11") in blocks(names, facts)


def test_calls_of_one_name_and_calls_without_a_number_repeat_too() -> None:
    assert blocks(["same"] * 6, [0] * 6) == [Block(0, 1, 6, "same")]
    assert blocks(["same"] * 4, [0] * 4) == [Block(place) for place in range(4)]
    assert blocks([], []) == []


def test_other_facts_and_two_numbers_make_no_group() -> None:
    names = [f"layers.{number}.up" for number in range(6)]
    assert len(blocks(names, [0, 1, 2, 3, 4, 5])) == 6
    assert len(blocks([f"{number}/{number}" for number in range(6)], [0] * 6)) == 6


def test_many_pieces_take_no_time() -> None:
    names = [f"0/{piece}" for piece in range(5000)] + [f"{piece}/a{piece * piece}" for piece in range(300)]
    assert len(blocks(names, [0] * len(names))) == 301


def test_a_list_of_names_has_each_range_once() -> None:
    assert ", ".join(listed([f"0/{piece}" for piece in range(256)])) == "0/0 to 0/255"
    assert list(listed(["a", "b.1", "b.2", "c"])) == ["a", "b.1", "b.2", "c"]


def test_the_table_of_calls_has_the_sums_of_a_group() -> None:
    part = of_compiled_file(compile_file(litert.read(mixed_file()), "mixed.tflite"), "out.tflite", 0).partitions[0]
    one = part.report.operators[0]
    repeated = tuple(dataclasses.replace(one, name=f"layers.{layer}.up") for layer in range(30))
    last = dataclasses.replace(one, name="head", macs=one.macs + 1)
    report = dataclasses.replace(part.report, operators=(*repeated, last))
    table = calls_of(dataclasses.replace(part, report=report), TARGET)
    cells = {column.heading: list(column.cells) for column in table.columns}
    assert cells["operator"] == ["layers.0 to 29, each:", "  layers.0.up", "head"]
    assert cells["times"] == [30, None, None]
    assert cells["MACs"] == [30 * one.macs, one.macs, one.macs + 1]
    assert cells["cycles"] == [30 * one.cycles, one.cycles, one.cycles]
