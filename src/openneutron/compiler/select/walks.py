# SPDX-License-Identifier: BSD-3-Clause
"""Ways through tensors of any rank, as views of at most four dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.select.calls import View, four, shape_in_bytes
from openneutron.ir import Tensor


@dataclass(frozen=True, slots=True)
class Walk:
    """The way through a tensor: a pitch in bytes for each dimension of the box, and the start."""

    tensor: str
    pitches: tuple[int, ...]
    offset: int = 0
    element_bytes: int = 1


def row_major(shape: Sequence[int], element_bytes: int = 1) -> tuple[int, ...]:
    """Return the pitches of a tensor without gaps, the last dimension innermost."""
    pitches = [element_bytes]
    for extent in reversed(shape[1:]):
        pitches.append(pitches[-1] * extent)
    return tuple(reversed(pitches))[: len(shape)]


def dense(tensor: Tensor) -> Walk:
    """Return the whole tensor, byte after byte."""
    return Walk(tensor.name, row_major(shape_in_bytes(tensor)))


def by_elements(tensor: Tensor) -> Walk:
    """Return the whole tensor, element after element."""
    size = tensor.dtype.size_bytes
    return Walk(tensor.name, row_major(tensor.shape, size), element_bytes=size)


def boxes(extents: Sequence[int], walks: Mapping[str, Walk]) -> Iterator[dict[str, View]]:
    """Yield views that together walk the box once, each of at most four dimensions.

    Up to rank 4 that is one set of views with the box's own extents. Above it, dimensions that all tensors walk as one are
    merged; where more than four are left, there is a set for each index into the leading ones.
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
    """Return the same walk without dimensions of one element, and with neighbours joined that every tensor walks as one."""
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
    """Return the same walk of a plane or a box with the rows of one of its tensors as its first dimension, and two behind it.

    ``rows`` and ``pitch`` (bytes) are of the tensor that ``walks[side]`` goes through; None where no dimension holds all its
    rows, or there are more dimensions than that.
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
