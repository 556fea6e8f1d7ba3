# SPDX-License-Identifier: BSD-3-Clause
"""Describe paths through tensors as lists of axes, so that a view of a copy can be stated as a view of the copied tensor.

A view has four axes. A copy between two calls may exchange axes, split them or join them (heads of attention, for example). The bytes
of a tensor are counted by the digits of a mixed radix, one for each axis of the copy; an axis of the view steps through one digit, or
through several, and is split then.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openneutron.compiler.select.calls import Extents, View

Axis = tuple[int, int]
"""The extent of an axis, and its pitch in bytes."""

Axes = tuple[Axis, ...]
"""Axes, from the outermost to the innermost."""


@dataclass(frozen=True, slots=True)
class Way:
    """A path through a tensor: groups of axes, each of which stands for one index, and the start in bytes."""

    tensor: str
    groups: tuple[Axes, ...]
    offset: int = 0

    def through(self, near: View, far: View) -> Way | None:
        """Return the same path in the tensor of ``far``, element for element of a copy; None where no axes describe it.

        ``near`` is the copy's view of this path's tensor, which it covers without a gap.
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
    """Return the pitches of axes from the innermost, without a gap between single bytes."""
    pitches = [1]
    for extent in extents:
        pitches.append(pitches[-1] * extent)
    return pitches[: len(extents)]


def _through(axis: Axis, digits: Sequence[tuple[int, int, int]], reached: list[int]) -> list[Axis] | None:
    """Return an axis as axes of the other side. ``reached`` is the largest value of each digit so far."""
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
    """Return paths through one index of the same extent with common axes, as few as possible; None where the paths have no common axes."""
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
    """Return the pitches of axes of these extents that take the same steps; None where no pitches do. Axes of one element have pitch 0."""
    (joined,) = (split_alike({"": axes}) or {"": ()}).values()
    steps = list(itertools.accumulate(reversed(extents), operator.mul))
    ends = sorted({step for step in steps if step > 1})
    if not set(_ends(joined)) <= set(ends) or any(end % start for start, end in itertools.pairwise(ends)):
        return None
    pitches = [pitch for _, pitch in _split(joined, ends)]
    return [pitches.pop(0) if extent > 1 else 0 for extent in extents]


def view_of(tensor: str, extents: Extents, pitches: Extents, offset: int, element_bytes: int = 1) -> View:
    """Return a view whose axes of one element have the pitch that they have in a tensor without gaps."""
    inner = element_bytes
    found: list[int] = []
    for extent, pitch in zip(reversed(extents), reversed(pitches), strict=True):
        found.insert(0, inner if extent == 1 else pitch)
        inner = max(inner, found[0] * extent)
    batch, row, col, channel = found
    return View(tensor, extents, (batch, row, col, channel), offset, element_bytes)


def _ends(axes: Axes) -> list[int]:
    """Return the number of steps that each axis and those inside it take together."""
    ends, total = [], 1
    for extent, _ in reversed(axes):
        total *= extent
        if extent > 1:
            ends.append(total)
    return ends


def _split(axes: Axes, ends: Sequence[int]) -> list[Axis]:
    """Return the axes split at these numbers of steps, from the innermost."""
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
