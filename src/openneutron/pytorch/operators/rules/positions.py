# SPDX-License-Identifier: BSD-3-Clause
"""Taking an axis's positions in another order, some several times or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.pytorch.operators.rules.context import Context


def take(context: Context, source: str, axis: int, positions: Sequence[int], stem: str) -> str:
    """The tensor with these positions of an axis, in this order: a GATHER, or a SLICE where they follow each other."""
    here = context.tensors[source]
    assert here.quant is not None
    positions = list(positions)
    shape = (*here.shape[:axis], len(positions), *here.shape[axis + 1 :])
    if positions == list(range(here.shape[axis])):
        return source
    if positions == list(range(positions[0], positions[0] + len(positions))):
        begin = context.add_integers(f"{stem}_begin", [positions[0] if i == axis else 0 for i in range(len(shape))])
        size = context.add_integers(f"{stem}_size", shape)
        return context.emit("slice", (source, begin, size), shape, here.quant, stem)
    indices = context.add_integers(f"{stem}_positions", positions)
    return context.emit("gather", (source, indices), shape, here.quant, stem, axis=axis)
