# SPDX-License-Identifier: BSD-3-Clause
"""Values of several shapes in tensors that broadcast as they are, in one order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.results import Shape, Value


@dataclass(frozen=True, slots=True)
class Together:
    """Tensors for an operator on each element, and how its result lies."""

    tensors: tuple[str, ...]
    shape: Shape
    order: Shape
    base: Shape

    @property
    def stored(self) -> Shape:
        """Return the result's shape as a tensor."""
        return tuple(self.base[axis] for axis in self.order)

    def result(self, tensor: str) -> Value:
        """Return the value that such a tensor holds."""
        return Value(tensor, self.shape, self.order, self.base)


def together(context: Context, values: Sequence[Value], shape: Shape) -> Together:
    """Return the values side by side, moved where they lie in different orders. ``shape`` is what they broadcast to."""
    first = values[0]
    if all((value.shape, value.base, value.order) == (shape, first.base, first.order) for value in values):
        return Together(tuple(value.tensor for value in values), shape, first.order, first.base)
    order = _common_order(context, values, shape)
    padded = (context.viewed(value, (1,) * (len(shape) - len(value.shape)) + value.shape) for value in values)
    return Together(tuple(context.arranged(value, order) for value in padded), shape, order, shape)


def _common_order(context: Context, values: Sequence[Value], shape: Shape) -> Shape:
    """Return the order of one that is computed and not broadcast, NHWC before plain; else of one of the same rank."""
    computed = [value for value in values if value.is_settled and not context.is_constant(value)]
    orders = [value.order for value in computed if value.shape == shape]
    orders = orders or [value.order for value in computed if len(value.shape) == len(shape)]
    plain = tuple(range(len(shape)))
    return next((order for order in orders if order != plain), plain)


def take(context: Context, source: str, axis: int, positions: Sequence[int], stem: str) -> str:
    """Return the tensor with these positions of an axis, in this order: a GATHER, or a SLICE where they follow each
    other."""
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
