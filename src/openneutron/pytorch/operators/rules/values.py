# SPDX-License-Identifier: BSD-3-Clause
"""Edge values and how their elements lie in a graph's tensors: the whole of format inference.

A value of the edge program has dimensions in PyTorch's order. Its tensor in the graph may hold them in another order, for
instance NHWC. Operators that don't care about the order keep it; those that do ask for one, and only then is something
moved. A permute costs nothing, and neither does a view as long as it can be said of the stored order too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """An edge value of shape ``shape``, held by the graph's tensor ``tensor``.

    The tensor's axis i is axis ``order[i]`` of ``base``. ``base`` is ``shape``, except where a view could not yet be said of
    the stored order: then the value is ``base`` read row by row in ``shape``.
    """

    tensor: str
    shape: Shape
    order: Shape
    base: Shape

    @property
    def is_settled(self) -> bool:
        """Return whether the tensor holds ``shape``'s own dimensions."""
        return self.base == self.shape

    @property
    def stored(self) -> Shape:
        """Return the tensor's shape."""
        return tuple(self.base[axis] for axis in self.order)

    def verify(self) -> None:
        """Assert that order and shapes fit each other."""
        assert sorted(self.order) == list(range(len(self.base))), f"{self.tensor}: order {self.order} of {self.base}"
        assert math.prod(self.base) == math.prod(self.shape), f"{self.tensor}: {self.base} is no view of {self.shape}"


def plain(tensor: str, shape: Shape) -> Value:
    """Return a value whose tensor has its dimensions in their own order."""
    return Value(tensor, shape, tuple(range(len(shape))), shape)


def without_ones(order: Shape, base: Shape) -> Shape:
    """Return the order of the axes that are longer than one: two orders that agree here lie alike in memory."""
    return tuple(axis for axis in order if base[axis] != 1)


def lies_as(base: Shape, order: Shape, other: Shape) -> bool:
    """Return whether the same elements in these two orders of axes are the same bytes."""
    return without_ones(order, base) == without_ones(other, base)


def permuted(value: Value, dims: Shape) -> Value:
    """Return the settled value with its dimensions in another order; the tensor stays as it is."""
    assert value.is_settled
    base = tuple(value.base[dim] for dim in dims)
    place = {dim: new for new, dim in enumerate(dims)}
    return Value(value.tensor, base, tuple(place[axis] for axis in value.order), base)


def groups_of(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the finest pairs of runs of axes with equal products, of two shapes with as many elements; ones left
    out."""
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    right = [axis for axis, extent in enumerate(after) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        first, second = [left.pop(0)], [right.pop(0)]
        a, b = before[first[0]], after[second[0]]
        while a != b:
            if a < b:
                first.append(left.pop(0))
                a *= before[first[-1]]
            else:
                second.append(right.pop(0))
                b *= after[second[-1]]
        groups.append((first, second))
    assert not left and not right, f"{before} and {after} have not as many elements"
    return groups


def order_for_view(base: Shape, order: Shape, shape: Shape) -> Shape:
    """Return the order nearest to ``order`` in which the stored bytes can be read in ``shape``: the axes that become
    one run are gathered, in their own order, where the last of them lies."""
    place = {axis: index for index, axis in enumerate(order)}
    gathered = [(max(place[axis] for axis in run), run) for run, _ in groups_of(base, shape)]
    loose = [(place[axis], [axis]) for axis in order if base[axis] == 1]
    return tuple(axis for _, run in sorted(gathered + loose) for axis in run)


def order_after_view(base: Shape, order: Shape, shape: Shape) -> Shape | None:
    """Return the order in which the stored bytes hold ``shape``'s dimensions, or None.

    Each run of axes that becomes another run must lie together and in its own order.
    """
    place = {axis: index for index, axis in enumerate(without_ones(order, base))}
    runs = []
    for old, new in groups_of(base, shape):
        first = place[old[0]]
        if [place[axis] for axis in old] != list(range(first, first + len(old))):
            return None
        runs.append((first, new))
    result = [axis for _, run in sorted(runs) for axis in run]
    # Axes of one lie anywhere; beside the axis before them they keep a plain order plain.
    for axis, extent in enumerate(shape):
        if extent == 1:
            result.insert(result.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(result)
