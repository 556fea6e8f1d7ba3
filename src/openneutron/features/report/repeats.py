# SPDX-License-Identifier: BSD-3-Clause
"""Find repetitions in a list of kernel calls: layers of equal structure, and pieces of one operator.

Two calls are repetitions if their names differ in at most one number and all other facts that a table shows are equal.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

LEAST_SAVED = 4
"""The smallest number of rows that a group must save in a table. A group that saves fewer rows is not shorter, since the group has a row of its
own."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Block:
    """``times`` repetitions of ``period`` consecutive items, the first of which has index ``first``.

    ``title`` names the repetitions. It is empty for a single item that is not repeated.
    """

    first: int
    period: int = 1
    times: int = 1
    title: str = ""

    @property
    def all_items(self) -> range:
        """Return the indices of the items in all repetitions."""
        return range(self.first, self.first + self.period * self.times)

    @property
    def shown_items(self) -> range:
        """Return the indices of the items in the first repetition."""
        return range(self.first, self.first + self.period)


def blocks(names: Sequence[str], facts: Sequence[Hashable]) -> list[Block]:
    """Return the items of a list divided into blocks, in their order. ``facts`` has a value for each item; items with different values are no
    repetitions.

    >>> facts = ["product", "norm"] * 3
    >>> names = [f"layers.{layer}.{part}" for layer in range(3) for part in ("product", "norm")]
    >>> blocks(names, facts)
    [Block(first=0, period=2, times=3, title='layers.0 to 2')]
    """
    keys = [(_NUMBER.sub("#", name), fact) for name, fact in zip(names, facts, strict=True)]
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    found: list[Block] = []
    first = 0
    while first < len(keys):
        best = Block(first)
        for other in places[keys[first]]:
            period = other - first
            if period <= 0:
                continue
            if best.period * (best.times - 1) >= len(keys) - other:
                break  # no longer period stands for more items
            times = _times(names, keys, first, period)
            if period * (times - 1) > max(best.period * (best.times - 1), LEAST_SAVED - 1):
                best = Block(first, period, times, _title(names, first, period, times))
        found.append(best)
        first += best.period * best.times
    return found


def _times(names: Sequence[str], keys: Sequence[Hashable], first: int, period: int) -> int:
    """Return how often the ``period`` items from ``first`` on occur one after the other; 1 if they do not repeat. In
    a repeat, each name is that of the first occurrence, or differs from it in one number. All names that differ must
    have the same change: the same text before the number, and the same two numbers."""
    times, start = 1, first + period
    while start + period <= len(keys) and keys[start : start + period] == keys[first : first + period]:
        moved = [
            (here, there)
            for here, there in zip(names[first : first + period], names[start : start + period], strict=True)
            if here != there
        ]
        changes = {_change(here, there) for here, there in moved}
        if len(changes) > 1 or None in changes:
            break
        times, start = times + 1, start + period
    return times


def _change(here: str, there: str) -> tuple[str, str, str] | None:
    """Return how two names differ that are equal but for numbers: the text before the number that differs, its value
    in ``here``, and its value in ``there``. Return None if no number or several numbers differ."""
    pairs = [
        (one, other)
        for one, other in zip(_NUMBER.finditer(here), _NUMBER.finditer(there), strict=True)
        if one[0] != other[0]
    ]
    if len(pairs) != 1:
        return None
    ((one, other),) = pairs
    return here[: one.start()], one[0], other[0]


def _title(names: Sequence[str], first: int, period: int, times: int) -> str:
    """Return the title of a block of repeats, such as ``layers.0 to 2``.

    The names of an item in the first and in the last repeat are compared. The first item whose names differ in
    exactly one number gives the title: the text before the number, then both numbers. If there is no such item, the
    title is the name of the block's first item.
    """
    last = first + period * (times - 1)
    changes = (_change(names[first + item], names[last + item]) for item in range(period))
    change = next(filter(None, changes), None)
    if change is None:
        return names[first]
    before, one, other = change
    return f"{before}{one} to {other}"


def listed(names: Iterable[str]) -> Iterator[str]:
    """Yield names in their order. Repeated names that differ only in one number are joined to one text if that saves
    at least LEAST_SAVED names.

    >>> list(listed(["0/0", "0/1", "0/2", "0/3", "0/4", "head"]))
    ['0/0 to 0/4', 'head']
    >>> list(listed([f"layers.{layer}.{part}" for layer in range(3) for part in ("up", "down")]))
    ['layers.0.up', 'layers.0.down (the same for layers.0 to 2)']
    """
    known = list(names)
    for block in blocks(known, [None] * len(known)):
        if block.period == 1 and block.times > 1:
            yield f"{known[block.first]} to {known[block.all_items[-1]]}"
            continue
        *before, last = (known[place] for place in block.shown_items)
        yield from before
        yield f"{last} (the same for {block.title})" if block.times > 1 else last
