# SPDX-License-Identifier: BSD-3-Clause
"""Compute the positions that STRIDED_SLICE takes, as LiteRT reads its masks (strided_slice.cc, strided_slice_logic.h)."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.ir import Graph, Node
from openneutron.ops.table import Parts, constant_values, shape_of


@dataclass(frozen=True, slots=True)
class StridedWindow:
    """First index, step and count along each axis of the input, and the axes that the output drops."""

    first: tuple[int, ...]
    step: tuple[int, ...]
    count: tuple[int, ...]
    dropped: tuple[bool, ...]


_WHOLE, _NEW = -1, -2
"""Axes without an entry in begin, end and strides are taken whole, or are new with an extent of 1."""


def _places(graph: Graph, node: Node) -> list[int]:
    """Return the index in begin, end and strides of each axis of the input and each new axis, in order."""
    stated, own = len(constant_values(graph, node, 1)), len(shape_of(graph, node))
    ellipsis, new = node["ellipsis_mask"], node["new_axis_mask"] & ~node["ellipsis_mask"]
    axes = own + sum(new >> place & 1 for place in range(stated))
    places: list[int] = []
    for place in range(stated):
        if ellipsis >> place & 1:
            places += [_WHOLE] * max(1, axes - stated + 1)
        else:
            places.append(_NEW if new >> place & 1 else place)
    return (places + [_WHOLE] * axes)[:axes]


def strided_window(graph: Graph, node: Node) -> StridedWindow:
    """Return the positions that STRIDED_SLICE takes along each axis of its input."""
    first, step, count, dropped = [], [], [], []
    stated = [place for place in _places(graph, node) if place != _NEW]
    for place, extent in zip(stated, shape_of(graph, node), strict=False):  # has_one_ellipsis compares their numbers
        begins, stops, steps, drops = (0, extent, 1, False) if place == _WHOLE else _taken(graph, node, place, extent)
        first.append(begins)
        step.append(steps)
        count.append(max(0, -(-(stops - begins) // steps)))
        dropped.append(drops)
    return StridedWindow(tuple(first), tuple(step), tuple(count), tuple(dropped))


def _taken(graph: Graph, node: Node, place: int, extent: int) -> tuple[int, int, int, bool]:
    """Return the first position of an axis, the exclusive end, the step, and whether the output drops the axis."""
    begin, end, step = (constant_values(graph, node, index)[place] for index in (1, 2, 3))
    # With a negative step the bounds of an index are one lower.
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    masked = node["begin_mask"] >> place & 1
    begins = (0 if step > 0 else extent - 1) if masked else _index(begin, extent, low, high)
    if node["shrink_axis_mask"] >> place & 1:
        return begins, begins + 1, step, True
    stop = begins + end if node["offset"] else end
    stops = (extent if step > 0 else -1) if node["end_mask"] >> place & 1 else _index(stop, extent, low, high)
    return begins, stops, step, False


def _index(value: int, extent: int, low: int, high: int) -> int:
    return min(max(value + extent if value < 0 else value, low), high)


def strided_slice_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the shape of a STRIDED_SLICE's output."""
    window = strided_window(graph, node)
    kept = zip(window.count, window.dropped, strict=True)
    extents = []
    for place in _places(graph, node):
        count, dropped = (1, False) if place == _NEW else next(kept, (1, False))
        if not dropped:
            extents.append(count)
    return (tuple(extents),)


def has_usable_steps(graph: Graph, node: Node) -> str | None:
    """Return the reason against a STRIDED_SLICE's steps and ends, or None."""
    begin, end, steps = (constant_values(graph, node, index) for index in (1, 2, 3))
    if not len(begin) == len(end) == len(steps):
        return f"it states {len(begin)} begins, {len(end)} ends and {len(steps)} strides; they must be as many"
    if 0 in steps:
        return f"its steps are {list(steps)}; none may be 0"
    if any(step < 0 and node["shrink_axis_mask"] >> place & 1 for place, step in enumerate(steps)):
        return f"its steps are {list(steps)}; the step of a dropped axis must be above 0"
    if node["offset"] and (any(value < 0 for value in end) or any(step < 0 for step in steps)):
        return f"its ends are {list(end)}, counted from the begin, its steps {list(steps)}; none may be negative"
    return None


def has_one_ellipsis(graph: Graph, node: Node) -> str | None:
    """Return the reason against a STRIDED_SLICE's masks, or None."""
    if bin(node["ellipsis_mask"]).count("1") > 1:
        return f"its ellipsis_mask is {node['ellipsis_mask']}; at most one bit may be set"
    places = _places(graph, node)
    if len(places) > MOST_AXES:
        return f"it has {len(places)} axes, new ones included; at most {MOST_AXES}"
    stated, own = len(constant_values(graph, node, 1)), len(shape_of(graph, node))
    if len(places) - places.count(_NEW) != own or (not node["ellipsis_mask"] and len(places) < stated):
        return f"it states {stated} axes; its input has only rank {own}"
    if node["ellipsis_mask"] and stated > len(places):
        return "its ellipsis stands for 0 axes; LiteRT counts 1 axis for it"
    return None


MOST_AXES = 5
"""The most axes of LiteRT's STRIDED_SLICE, new axes included."""


def is_rearranged(graph: Graph, node: Node) -> bool:
    """Return whether a STRIDED_SLICE has an ellipsis, new axes or negative steps, so that it is composed."""
    masks = node["ellipsis_mask"] | node["new_axis_mask"]
    return bool(masks) or any(step < 0 for step in constant_values(graph, node, 3))


def rearranged(parts: Parts, graph: Graph, node: Node) -> None:
    """Take the same positions with positive steps, then reverse the axes with negative steps, and reshape to the output."""
    source, (result,) = str(node.inputs[0]), node.outputs
    window = strided_window(graph, node)
    axes = range(len(window.step))
    lasts = [
        first + (count - 1) * step for first, count, step in zip(window.first, window.count, window.step, strict=True)
    ]
    begin = [min(window.first[axis], lasts[axis]) for axis in axes]
    end = [max(window.first[axis], lasts[axis]) + 1 for axis in axes]
    operands = [source, *(parts.integers(list_) for list_ in (begin, end, [abs(step) for step in window.step]))]
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    kind = graph[source].dtype, graph[source].quant
    taken = parts.add("strided_slice", operands, parts.new(window.count, *kind), **masks, offset=False)
    turned = [axis for axis in axes if window.step[axis] < 0 and window.count[axis] > 1]
    if turned:
        taken = parts.add("reverse_v2", [taken, parts.integers(turned)], parts.new(window.count, *kind))
    parts.reshape(taken, graph[result].shape, result)
