# SPDX-License-Identifier: BSD-3-Clause
"""No two live buffers overlap, and the arena is the least possible where that can be proved."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.compiler.place import Item, live_bound, place

ITEMS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=14).map(
    lambda rows: [Item(f"t{i}", 16 * size, first, first + length) for i, (size, first, length) in enumerate(rows)]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ITEMS)
def test_placements_are_valid_and_never_below_the_bound(items: list[Item]) -> None:
    placement = place(items)
    placement.verify(items)
    assert placement.bound == live_bound(items) <= placement.size


@settings(max_examples=50, deadline=None, derandomize=True)
@given(ITEMS)
def test_the_order_of_items_does_not_matter(items: list[Item]) -> None:
    assert place(items).size == place(items[::-1]).size


def test_the_exact_search_finds_what_first_fit_misses() -> None:
    blocks = [(6, 9, 10), (4, 6, 9), (6, 6, 9), (3, 7, 11), (8, 4, 6), (4, 3, 7)]
    items = [Item(f"t{i}", 16 * size, first, last) for i, (size, first, last) in enumerate(blocks)]
    placement = place(items)
    placement.verify(items)
    assert placement.method == "exact search"
    assert placement.is_optimal


def test_a_chain_takes_its_two_largest_neighbours() -> None:
    sizes = [3, 10, 4, 9, 6, 12, 1]
    items = [Item(f"t{i}", 16 * size, i, i + 1) for i, size in enumerate(sizes)]
    assert place(items).size == 16 * max(a + b for a, b in pairwise(sizes))


def test_nothing_to_place() -> None:
    assert place([]).size == 0
