# SPDX-License-Identifier: BSD-3-Clause
"""State the operands of attention as views with a column for each head, through the copies in front of it and behind it.

A product of matrices has a batch for each head. In memory the heads of a token are mostly side by side, and copies transpose them to
the front and back. With a row for each token and a column for each head, attention reads and writes the tensors without these
copies; its rows are those of the layers around it, so that cascades include all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.axes import Axes, Axis, Way, split_alike, view_of
from openneutron.compiler.select.calls import View
from openneutron.compiler.select.uses import Uses
from openneutron.isa.kernels.row import Function


@dataclass(frozen=True, slots=True)
class Operands:
    """Views of products: query [batch, row, 1, depth], key [batch, depth, 1, key], scores [batch, row, 1, key], value [batch, key, 1,
    channel]; a mask has a channel for each key, and as many other positions as the scores."""

    query: View
    key: View
    scores: View
    value: View | None = None
    mask: View | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The views of the call, the table in front of the query, and the indices of the copies that the call's output replaces."""

    views: Mapping[str, View]
    table: npt.NDArray[Any] | None
    behind: tuple[int, ...]


def placed(uses: Uses, operands: Operands, result: View) -> Placed | None:
    """Return the operands and the result with heads for columns; None where their axes do not divide so."""
    ways = _ways(operands, result)
    seen, table = _before_copies(uses, ways)
    seen["output"], behind = _behind_copies(uses, ways["output"])
    views = _views(seen)
    if views is not None:
        return Placed(views, table, behind)
    views = _views(ways)
    return None if views is None else Placed(views, None, ())


def _ways(operands: Operands, result: View) -> dict[str, Way]:
    """Return each operand with the axes of the scores' rows and its own axes; the last of these is summed, or the output's channels."""
    assert operands.value is not None
    rows = operands.scores.extents[1]

    def each_row(view: View) -> Axes:
        return tuple(zip(view.extents[:3], view.pitches[:3], strict=True))

    def each_batch(view: View) -> Axes:
        return (view.extents[0], view.pitches[0]), (rows, 0)

    def axis(view: View, place: int) -> Axes:
        return ((view.extents[place], view.pitches[place]),)

    key, value = operands.key, operands.value
    found = {
        "query": Way(operands.query.tensor, (each_row(operands.query), axis(operands.query, 3)), operands.query.offset),
        "key": Way(key.tensor, (each_batch(key), axis(key, 3), axis(key, 1)), key.offset),
        "value": Way(value.tensor, (each_batch(value), axis(value, 1), axis(value, 3)), value.offset),
        "output": Way(result.tensor, (each_row(result), axis(result, 3)), result.offset),
    }
    if operands.mask is not None:
        mask = operands.mask
        found["mask"] = Way(mask.tensor, (each_row(mask), axis(mask, 3)), mask.offset)
    return found


def _before_copies(uses: Uses, ways: Mapping[str, Way]) -> tuple[dict[str, Way], npt.NDArray[Any] | None]:
    """Return the paths of the operands through all copies in front, and the table of the query, if one is in front of it."""
    seen = dict(ways)
    table: npt.NDArray[Any] | None = None
    for name in ("query", "key", "value"):
        while (place := uses.writer(seen[name].tensor)) is not None:
            call = uses[place]
            looks_up = name == "query" and table is None and call.traits.function is Function.TABLE
            if not (looks_up and uses.only_reader(place)) and call.traits.function is not Function.IDENTITY:
                break
            further = seen[name].through(call.views["output"], call.views["input"])
            if call.views["input"].element_bytes > 1 or further is None or not _is_as_dense(further, seen[name]):
                break
            if looks_up:
                constant = call.constants["table"]
                assert isinstance(constant, np.ndarray)
                table = constant
            seen[name] = further
    return seen, table


def _behind_copies(uses: Uses, way: Way) -> tuple[Way, tuple[int, ...]]:
    """Return the path of the output through all copies behind it, and the indices of these copies."""
    behind: list[int] = []
    place = uses.writer(way.tensor)
    while place is not None and (reader := uses.only_reader(place)) is not None:
        place, call = reader[0], uses[reader[0]]
        source = call.views["input"]
        whole = source.size_bytes == uses.storages[source.tensor].size_bytes
        if call.traits.function is not Function.IDENTITY or source.element_bytes > 1 or not whole:
            break
        further = way.through(source, call.views["output"])
        if further is None or not _is_as_dense(further, way):
            break
        way = further
        behind.append(place)
    return way, tuple(behind)


def _is_as_dense(way: Way, before: Way) -> bool:
    """Return whether the last axis is still one axis, and contiguous where it was contiguous."""
    return len(way.groups[-1]) <= 1 and all(pitch == 1 for _, pitch in way.groups[-1])


@dataclass(frozen=True, slots=True)
class _Shape:
    """The extents of attention, and the pitches of batches, rows and heads of each operand. ``group``: the heads of the query that share a
    head of the keys."""

    batches: int
    rows: int
    heads: int
    group: int
    pitches: Mapping[str, tuple[int, int, int]]


_RESIDENT = ("key", "value")


def _views(ways: Mapping[str, Way]) -> dict[str, View] | None:
    """Return the paths as views [batch, row, head, channel]; keys and values may have fewer heads."""
    places = split_alike({name: way.groups[0] for name, way in ways.items()})
    if places is None or any(len(group) > 1 for way in ways.values() for group in way.groups[1:]):
        return None
    shape = _shape(places)
    if shape is None:
        return None
    found = {}
    for name, way in ways.items():
        batch, row, head = shape.pitches[name]
        inner = [group[0] if group else (1, 1) for group in way.groups[1:]]
        heads, rows = shape.heads, shape.rows
        if name in _RESIDENT:
            heads, (rows, row) = heads // shape.group, inner[0]
        channels, channel = inner[-1]
        found[name] = view_of(
            way.tensor, (shape.batches, rows, heads, channels), (batch, row, head, channel), way.offset
        )
    found.setdefault("mask", found["query"])
    return found


def _shape(places: Mapping[str, Axes]) -> _Shape | None:
    """Return the axes of the scores' rows as batches, heads and rows; None for more than three axes."""
    axes = [dict(zip(places, each, strict=True)) for each in zip(*places.values(), strict=True)]
    one: dict[str, Axis] = dict.fromkeys(places, (1, 0))
    rows = axes.pop() if axes and _is_shared(axes[-1]) else one
    heads, group = axes.pop() if axes else one, 1
    count = heads["output"][0]
    if _is_shared(heads):
        group = count
        outer = axes[-1] if axes else None
        if outer is not None and all(
            outer[name][1] == heads[name][1] * count for name in places if name not in _RESIDENT
        ):
            count *= axes.pop()["output"][0]
            heads = {name: (outer if name in _RESIDENT else heads)[name] for name in places}
    if len(axes) > 1:
        return None
    batches = axes[0] if axes else one
    if not axes and count == heads["output"][0] and heads["output"][1] >= rows["output"][0] * rows["output"][1] > 0:
        batches, heads, count, group = heads, one, 1, 1
    pitches = {name: (batches[name][1], rows[name][1], heads[name][1]) for name in places}
    return _Shape(batches["output"][0], rows["output"][0], count, group, pitches)


def _is_shared(axis: Mapping[str, Axis]) -> bool:
    """Return whether keys and values are constant along an axis."""
    return all(axis[name][1] == 0 for name in _RESIDENT)
