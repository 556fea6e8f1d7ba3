# SPDX-License-Identifier: BSD-3-Clause
"""No two live buffers overlap, and the arena is the least possible where that can be proved."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.compiler.place.place import Item, live_bound, place

ITEMS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=14).map(
    lambda rows: [Item(f"t{i}", 16 * size, first, first + length) for i, (size, first, length) in enumerate(rows)]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ITEMS)
def test_placements_are_valid_and_never_below_the_bound(items: list[Item]) -> None:
    placement = place(items)
    placement.verify(items)
    assert live_bound(items) <= placement.bound <= placement.size


@settings(max_examples=50, deadline=None, derandomize=True)
@given(ITEMS)
def test_the_order_of_items_does_not_matter(items: list[Item]) -> None:
    assert place(items).size == place(items[::-1]).size


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ITEMS, st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13), st.integers(-20, 20)), max_size=8))
def test_what_may_overlap_overlaps_as_it_may(items: list[Item], pairs: list[tuple[int, int, int]]) -> None:
    """And not more memory is taken than without."""
    overlaps: dict[tuple[str, str], int] = {}
    for one, other, units in pairs:
        if one != other and max(one, other) < len(items) and (items[other].name, items[one].name) not in overlaps:
            overlaps[items[one].name, items[other].name] = 16 * units
    quick, exact = place(items, overlaps, 0), place(items, overlaps, 0.05)
    for placement in (quick, exact):
        placement.verify(items, overlaps)
        assert live_bound(items, overlaps) <= placement.bound <= placement.size
    assert exact.size <= place(items, {}, 0).size


def test_an_output_lies_over_the_input_it_follows() -> None:
    """Rows of the second are written 32 bytes before those of the first that are still needed."""
    items = [Item("input", 160, 0, 1), Item("output", 160, 1, 2), Item("ring", 16, 1, 1)]
    assert place(items).size == 336
    placement = place(items, {("output", "input"): -32})
    assert placement.size == placement.bound == 208
    assert placement.offsets["output"] + 32 <= placement.offsets["input"]


def test_the_depth_first_search_finds_what_first_fit_misses() -> None:
    blocks = [(6, 9, 10), (4, 6, 9), (6, 6, 9), (3, 7, 11), (8, 4, 6), (4, 3, 7)]
    items = [Item(f"t{i}", 16 * size, first, last) for i, (size, first, last) in enumerate(blocks)]
    assert place(items, {}, 0).size > live_bound(items)
    placement = place(items)
    placement.verify(items)
    assert placement.method == "depth-first search"
    assert placement.is_optimal


def test_a_chain_takes_its_two_largest_neighbours() -> None:
    sizes = [3, 10, 4, 9, 6, 12, 1]
    items = [Item(f"t{i}", 16 * size, i, i + 1) for i, size in enumerate(sizes)]
    assert place(items).size == 16 * max(a + b for a, b in pairwise(sizes))


def test_nothing_to_place() -> None:
    assert place([]).size == 0
