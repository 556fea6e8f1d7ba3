# SPDX-License-Identifier: BSD-3-Clause
"""Describe paths through tensors, to turn operators of any rank, and views of copied tensors, into views of four axes.

A ``Walk`` has a pitch for each dimension of a box; ``boxes`` turns it into views. A ``Way`` has a list of axes for each index; ``through``
turns a view of a copy into a view of the copied tensor. The copy may exchange, split or join axes, as for the heads of attention. To
follow a path through a copy, ``through`` writes a byte's address as a number with mixed radices, with a digit for each axis of the copy.
An axis of the path that steps through several digits is split.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.select.calls import Extents, View, four, shape_in_bytes
from openneutron.ir import Tensor


@dataclass(frozen=True, slots=True)
class Walk:
    """A path through a tensor along a box: ``pitches`` has the bytes from element to element for each dimension of the box.

    The path starts ``offset`` bytes from the start of the tensor.
    """

    tensor: str
    pitches: tuple[int, ...]
    offset: int = 0
    element_bytes: int = 1


def row_major(shape: Sequence[int], element_bytes: int = 1) -> tuple[int, ...]:
    """Return the pitches in bytes of a dense tensor whose last dimension is innermost."""
    pitches = [element_bytes]
    for extent in reversed(shape[1:]):
        pitches.append(pitches[-1] * extent)
    return tuple(reversed(pitches))[: len(shape)]


def dense(tensor: Tensor) -> Walk:
    """Return the walk through a whole tensor by bytes; elements of several bytes have a dimension more."""
    return Walk(tensor.name, row_major(shape_in_bytes(tensor)))


def by_elements(tensor: Tensor) -> Walk:
    """Return the walk through a whole tensor by elements."""
    size = tensor.dtype.size_bytes
    return Walk(tensor.name, row_major(tensor.shape, size), element_bytes=size)


def boxes(extents: Sequence[int], walks: Mapping[str, Walk]) -> Iterator[dict[str, View]]:
    """Yield sets of views of four axes that together cover the box once. A set has a view for each key of ``walks``.

    A box of up to four dimensions has one set. In a larger box, dimensions that all tensors walk as one are merged first. If more
    than four are left, there is a set for each index into the leading ones.
    """
    if len(extents) > 4:
        extents, walks = merged(extents, walks)
    leading = max(0, len(extents) - 4)
    inner = tuple(extents[leading:])
    padded = (1,) * (4 - len(inner)) + inner
    for index in itertools.product(*map(range, extents[:leading])):
        views = {}
        for name, walk in walks.items():
            outer, pitches = walk.pitches[:leading], walk.pitches[leading:]
            offset = walk.offset + sum(i * pitch for i, pitch in zip(index, outer, strict=True))
            whole = (pitches[0] if pitches else 1) * (inner[0] if inner else 1)
            full = (whole,) * (4 - len(inner)) + tuple(pitches)
            views[name] = View(walk.tensor, four(padded), four(full), offset, walk.element_bytes)
        yield views


def merged(extents: Sequence[int], walks: Mapping[str, Walk]) -> tuple[tuple[int, ...], Mapping[str, Walk]]:
    """Return the extents and walks without dimensions of one element, and with neighbouring dimensions merged.

    Two dimensions are merged if each tensor can walk them as one dimension.
    """
    kept: list[int] = []
    pitches: dict[str, list[int]] = {name: [] for name in walks}
    for axis, extent in enumerate(extents):
        if extent == 1:
            continue
        here = {name: walk.pitches[axis] for name, walk in walks.items()}
        if kept and all(pitches[name][-1] == here[name] * extent for name in walks):
            kept[-1] *= extent
            for name in walks:
                pitches[name][-1] = here[name]
        else:
            kept.append(extent)
            for name in walks:
                pitches[name].append(here[name])
    return tuple(kept), {name: replace(walk, pitches=tuple(pitches[name])) for name, walk in walks.items()}


def with_rows(
    extents: Sequence[int], walks: Mapping[str, Walk], side: str, rows: int, pitch: int
) -> tuple[tuple[int, ...], Mapping[str, Walk]] | None:
    """Return the extents and walks with three dimensions, of which the first one is the rows of the tensor of ``walks[side]``.

    ``rows`` and ``pitch`` are the number of these rows and the bytes from one to the next. Return None if no dimension steps
    through all rows, or if not exactly two dimensions are left for the rest.
    """
    for axis, (extent, step) in enumerate(zip(extents, walks[side].pitches, strict=True)):
        if rows == 1 or extent * step != rows * pitch or pitch % step:
            continue
        inside = pitch // step
        kept = [other for other in range(len(extents)) if other != axis]
        if len(kept) + (inside > 1) != 2:
            return None
        within = sorted([*kept, axis]) if inside > 1 else kept
        new = {
            name: replace(walk, pitches=(walk.pitches[axis] * inside, *(walk.pitches[other] for other in within)))
            for name, walk in walks.items()
        }
        return (rows, *(inside if other == axis else extents[other] for other in within)), new
    return None


Axis = tuple[int, int]
"""The extent of an axis, and its pitch in bytes."""

Axes = tuple[Axis, ...]
"""Axes, from the outermost to the innermost."""


@dataclass(frozen=True, slots=True)
class Way:
    """A path through a tensor that starts at byte ``offset``. Each group of axes is one index of the path, outermost axis first."""

    tensor: str
    groups: tuple[Axes, ...]
    offset: int = 0

    def through(self, near: View, far: View) -> Way | None:
        """Return the path through another tensor that visits the same elements as this path. A copy connects the two
        tensors.

        ``near`` is the copy's view of this path's tensor, and ``far`` its view of the other tensor. Return None if
        axes can't describe the path, or if ``near`` does not cover its tensor without gaps.
        """
        digits = sorted(
            (pitch, extent, source)
            for extent, pitch, source in zip(near.extents, near.pitches, far.pitches, strict=True)
            if extent > 1
        )
        if near.offset or [pitch for pitch, _, _ in digits] != _dense([extent for _, extent, _ in digits]):
            return None
        left, offset, reached = self.offset, far.offset, []
        for _, extent, source in digits:
            left, digit = divmod(left, extent)
            offset += digit * source
            reached.append(digit)
        groups = []
        for group in self.groups:
            split: list[Axis] = []
            for axis in group:
                pieces = _through(axis, digits, reached)
                if pieces is None:
                    return None
                split += pieces
            groups.append(tuple(split))
        return None if left else Way(far.tensor, tuple(groups), offset)


def _dense(extents: Sequence[int]) -> list[int]:
    """Return the pitches of dense axes of single bytes. ``extents`` and the result start with the innermost axis."""
    pitches = [1]
    for extent in extents:
        pitches.append(pitches[-1] * extent)
    return pitches[: len(extents)]


def _through(axis: Axis, digits: Sequence[tuple[int, int, int]], reached: list[int]) -> list[Axis] | None:
    """Return the axes through the other tensor of a copy that ``axis`` becomes, outermost first; None if there are no such axes.

    ``digits`` are (pitch, extent, pitch in the other tensor), innermost first. ``reached`` has the largest value of each digit on
    the path so far, and is updated.
    """
    count, pitch = axis
    found: list[Axis] = []
    for place, (unit, extent, source) in enumerate(digits):
        if count == 1 or pitch == 0:
            break
        if pitch % unit or pitch >= unit * extent:
            continue
        step = pitch // unit
        if reached[place] + step * (count - 1) < extent:
            here = count
        elif reached[place] == 0 and extent % step == 0 and count % (extent // step) == 0:
            here = extent // step
        else:
            return None
        reached[place] += step * (here - 1)
        found.insert(0, (here, step * source))
        count, pitch = count // here, unit * extent
    if count > 1 and pitch:
        return None
    return [(count, 0), *found] if count > 1 else found


def split_alike(ways: Mapping[str, Axes]) -> dict[str, Axes] | None:
    """Return the paths of ``ways`` with their axes split so that all have the same extents, with as few axes as possible.

    All paths have the same number of steps. Return None if no common extents exist.
    """
    ends = sorted({end for axes in ways.values() for end in _ends(axes)})
    if any(end % start for start, end in itertools.pairwise(ends)):
        return None
    split = {name: _split(axes, ends) for name, axes in ways.items()}
    count = len(ends)
    for place in reversed(range(1, count)):
        if all(axes[place - 1][1] == axes[place][1] * axes[place][0] for axes in split.values()):
            for axes in split.values():
                axes[place - 1 : place + 1] = [(axes[place - 1][0] * axes[place][0], axes[place][1])]
    return {name: tuple(axes) for name, axes in split.items()}


def reshaped(axes: Axes, extents: Sequence[int]) -> list[int] | None:
    """Return the pitches that axes of these ``extents`` need to take the same steps as ``axes``; None if there are none.

    Axes of one element have pitch 0.
    """
    (joined,) = (split_alike({"": axes}) or {"": ()}).values()
    steps = list(itertools.accumulate(reversed(extents), operator.mul))
    ends = sorted({step for step in steps if step > 1})
    if not set(_ends(joined)) <= set(ends) or any(end % start for start, end in itertools.pairwise(ends)):
        return None
    pitches = [pitch for _, pitch in _split(joined, ends)]
    return [pitches.pop(0) if extent > 1 else 0 for extent in extents]


def view_of(tensor: str, extents: Extents, pitches: Extents, offset: int, element_bytes: int = 1) -> View:
    """Return a view with these numbers, but with the pitches of a dense tensor for axes of one element."""
    inner = element_bytes
    found: list[int] = []
    for extent, pitch in zip(reversed(extents), reversed(pitches), strict=True):
        found.insert(0, inner if extent == 1 else pitch)
        inner = max(inner, found[0] * extent)
    batch, row, col, channel = found
    return View(tensor, extents, (batch, row, col, channel), offset, element_bytes)


def _ends(axes: Axes) -> list[int]:
    """Return for each axis of several elements, innermost first, the number of steps of this axis and all inner axes together."""
    ends, total = [], 1
    for extent, _ in reversed(axes):
        total *= extent
        if extent > 1:
            ends.append(total)
    return ends


def _split(axes: Axes, ends: Sequence[int]) -> list[Axis]:
    """Return the axes, outermost first, split at ``ends``: the numbers of steps that each new axis and its inner axes take together."""
    inner = [axis for axis in reversed(axes) if axis[0] > 1]
    found: list[Axis] = []
    total, place, pitch = 1, 0, 0
    left = 1
    for end in ends:
        if left == 1:
            left, pitch = inner[place]
            place += 1
        here = end // total
        found.insert(0, (here, pitch))
        left, pitch, total = left // here, pitch * here, end
    return found
