# SPDX-License-Identifier: BSD-3-Clause
"""Placements against all placements there are, where a part of the schedule can run in one of several ways too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from bench.arena import greedy_by_size
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.place.place import (
    Candidate,
    Item,
    Overlaps,
    Parts,
    exceed,
    live_bound,
    place,
    place_below,
    place_parts,
)
from openneutron.compiler.place.place_exact import place_exactly
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.search.cascade.choose import CascadeSearch
from openneutron.compiler.select.needs import in_place
from openneutron.isa.rows import ALIGNMENT
from tests.support import oracle
from tests.support.random_images import image_graph


def random_items(seed: int, most: int = 5) -> tuple[list[Item], dict[tuple[str, str], int]]:
    """Up to ``most`` buffers of 1 to 5 units and what of them may overlap."""
    b = np.random.default_rng(seed)
    items = []
    for index in range(int(b.integers(2, most + 1))):
        first = int(b.integers(0, 5))
        items.append(Item(f"t{index}", ALIGNMENT * int(b.integers(1, 6)), first, first + int(b.integers(0, 4))))
    overlaps: dict[tuple[str, str], int] = {}
    for one, other in product(items, items):
        if one.name != other.name and b.random() < 0.2 and (other.name, one.name) not in overlaps:
            overlaps[one.name, other.name] = ALIGNMENT * int(b.integers(-4, 5))
    return items, overlaps


def fits(items: Sequence[Item], overlaps: Overlaps, ceiling: int) -> bool:
    """Return whether a placement takes at most ``ceiling`` bytes: all are tried."""
    starts: list[int] = []

    def may_lie(item: Item, start: int) -> bool:
        for other, there in zip(items, starts, strict=False):
            apart = start + item.size <= there or there + other.size <= start
            before = start - there <= overlaps.get((item.name, other.name), -ceiling)
            behind = there - start <= overlaps.get((other.name, item.name), -ceiling)
            if item.overlaps(other) and not (apart or before or behind):
                return False
        return True

    def more() -> bool:
        if len(starts) == len(items):
            return True
        item = items[len(starts)]
        for start in range(0, ceiling - item.size + 1, ALIGNMENT):
            if may_lie(item, start):
                starts.append(start)
                if more():
                    return True
                starts.pop()
        return False

    return more()


def least(items: Sequence[Item], overlaps: Overlaps) -> int:
    return next(size for size in range(ALIGNMENT, ALIGNMENT * 99, ALIGNMENT) if fits(items, overlaps, size))


@pytest.mark.parametrize("seed", range(40))
def test_the_smallest_of_all_placements_is_found_and_proved(seed: int) -> None:
    items, overlaps = random_items(seed)
    for allowed in ({}, overlaps):
        found = place(items, allowed)
        found.verify(items, allowed)
        assert found.is_optimal
        assert found.size == least(items, allowed)


def random_parts(seed: int) -> Parts:
    """Two parts of two ways each: buffers of both parts, and those of one, whose sizes, steps and overlaps depend on the way."""
    b = np.random.default_rng(seed)
    shared = [("through", ALIGNMENT * int(b.integers(1, 4)))]

    def ways(part: int) -> Iterator[Candidate]:
        for _ in range(2):
            items = [Item(name, size, 0, 3) for name, size in shared]
            for index in range(2):
                first = int(b.integers(0, 3))
                items.append(
                    Item(f"{part}{index}", ALIGNMENT * int(b.integers(1, 5)), first, first + int(b.integers(0, 2)))
                )
            pair = (items[int(b.integers(3))].name, items[int(b.integers(3))].name)
            yield Candidate(tuple(items), {pair: ALIGNMENT * int(b.integers(-2, 3))} if pair[0] != pair[1] else {})

    return [list(ways(part)) for part in range(2)]


def as_one(ways: Sequence[Candidate]) -> tuple[list[Item], dict[tuple[str, str], int]]:
    """The ways one after the other as one schedule."""
    items: dict[str, Item] = {}
    overlaps: dict[tuple[str, str], int] = {}
    for index, way in enumerate(ways):
        for item in way.items:
            first = items[item.name].first if item.name in items else item.first + 10 * index
            items[item.name] = Item(item.name, item.size, first, item.last + 10 * index)
        overlaps |= way.overlaps
    return list(items.values()), overlaps


@pytest.mark.parametrize("seed", range(40))
def test_the_best_way_of_each_part_is_found_along_with_the_addresses(seed: int) -> None:
    parts = random_parts(seed)
    smallest = min(least(*as_one(ways)) for ways in product(*parts))
    start = place(*as_one([part[0] for part in parts]), 0)
    for search in (place_parts, place_exactly):
        found, taken = search(parts, start, 10.0)
        found.verify(*as_one([part[way] for part, way in zip(parts, taken, strict=True)]))
        assert found.size == smallest
        assert found.is_optimal
    assert place_below(parts, smallest - ALIGNMENT) is None
    assert exceed(parts, smallest - ALIGNMENT)
    assert not exceed(parts, smallest)


@pytest.mark.parametrize("seed", range(16))
def test_arenas_come_down_to_what_the_search_reckoned(seed: int) -> None:
    """Or are proved to be the smallest of their schedule, whichever way its cascades run."""
    storages, calls = select_calls(legalize(image_graph(seed)))
    search = CascadeSearch(calls, in_place(storages, calls), oracle.TARGET, "arena")
    for found in search.levels(0.95):
        assert found.arena_bytes <= found.peak_bytes or found.layout.placement.is_optimal


@pytest.mark.parametrize("seed", range(2))
def test_many_buffers_take_less_than_by_size(seed: int) -> None:
    """The exact search ends early where there are many buffers, and the bound stays one."""
    b = np.random.default_rng(seed)
    items = []
    for index in range(250):
        last = index + (1 if b.random() < 0.8 else int(b.integers(2, 90)))
        items.append(Item(f"t{index}", ALIGNMENT * int(2 ** b.uniform(0, 10)), index, last))
    found = place(items, {}, 0.01)
    found.verify(items)
    assert live_bound(items) <= found.bound <= found.size < greedy_by_size(items)
    assert place(items[::-1], {}, 0.01) == found
