# SPDX-License-Identifier: BSD-3-Clause
"""Operators that change shapes, make tensors, and put tensors together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from openneutron.pytorch.onnx.operators.elementwise import type_of
from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, axes_of, cast, converts, integers


@converts("Reshape", structure=(1,))
def _reshape(node: NodeView, x: Tensor, shape: Any = None) -> Values:
    wanted = integers(node.get("shape") if shape is None else shape)
    if not node.get("allowzero", 0):
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    return x.reshape(wanted)


@converts("Flatten")
def _flatten(node: NodeView, x: Tensor) -> Values:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    if axis == 1 and x.dim() > 1:
        return torch.flatten(x, 1)
    first = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(first, int(np.prod(x.shape[axis:], dtype=np.int64)))


@converts("Transpose")
def _transpose(node: NodeView, x: Tensor) -> Values:
    order = list(node.get("perm", range(x.dim())[::-1]))
    moved = [axis for axis, source in enumerate(order) if axis != source]
    return x.transpose(moved[0], moved[1]) if len(moved) == 2 else x.permute(order)


@converts("Squeeze", structure=(1,))
def _squeeze(node: NodeView, x: Tensor, axes: Any = None) -> Values:
    on = axes_of(node, axes, x.dim())
    return x.squeeze() if on is None else x.squeeze(tuple(on))


@converts("Unsqueeze", structure=(1,))
def _unsqueeze(node: NodeView, x: Tensor, axes: Any = None) -> Values:
    count = len(integers(node.get("axes") if axes is None else axes))
    for axis in sorted(axes_of(node, axes, x.dim() + count) or ()):
        x = x.unsqueeze(axis)
    return x


@converts("Concat")
def _concat(node: NodeView, *inputs: Tensor) -> Values:
    return torch.cat(inputs, node.get("axis", 1))


@converts("Split", structure=(1,))
def _split(node: NodeView, x: Tensor, sizes: Any = None) -> Values:
    axis = node.get("axis", 0)
    given = node.get("split") if sizes is None else sizes
    if given is not None:
        return torch.split(x, integers(given), axis)
    each = -(-x.shape[axis] // node.get("num_outputs", len(node.names)))
    return torch.split(x, each, axis)


@converts("Slice", structure=(1, 2, 3, 4))
def _slice(
    node: NodeView, x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Values:
    starts, ends = (
        integers(node.get(name) if given is None else given) for name, given in (("starts", starts), ("ends", ends))
    )
    on = axes_of(node, axes, x.dim()) or list(range(len(starts)))
    for place, axis in enumerate(on):
        step = 1 if steps is None else integers(steps)[place]
        taken = range(x.shape[axis])[starts[place] : _end(ends[place], step, x.shape[axis]) : step]
        if step < 0:
            x = (
                x.index_select(axis, node.constant(f"taken_{axis}", np.array(list(taken), np.int64)))
                if step < -1
                else _flipped(x, axis, taken)
            )
        elif len(taken) < x.shape[axis]:
            index = [slice(None)] * x.dim()
            index[axis] = slice(taken.start, taken.stop, step)
            x = x[tuple(index)]
    return x


def _flipped(x: Tensor, axis: int, taken: range) -> Tensor:
    return x.narrow(axis, taken[-1] if taken else 0, len(taken)).flip(axis)


def _end(end: int, step: int, size: int) -> int | None:
    """Return the end of a slice; None for one that ends before the first element in the other direction."""
    return None if step < 0 and end < -size else end


@converts("Expand", structure=(1,))
def _expand(node: NodeView, x: Tensor, shape: Any) -> Values:
    return x.expand(torch.broadcast_shapes(x.shape, integers(shape)))


@converts("Tile", structure=(1, 2))
def _tile(node: NodeView, x: Tensor, repeats: Any, axis: Any = None) -> Values:
    if axis is None:
        return x.repeat(integers(repeats))
    counts = [1] * x.dim()
    counts[integers(axis)[0]] = integers(repeats)[0]
    return x.repeat(counts)


@converts("Trilu", structure=(1,))
def _trilu(node: NodeView, x: Tensor, k: Any = None) -> Values:
    place = 0 if k is None else integers(k)[0]
    return torch.triu(x, place) if node.get("upper", 1) else torch.tril(x, place)


@converts("Constant")
def _constant(node: NodeView) -> Values:
    for name, kind in (
        ("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64), ("value_ints", np.int64)
    ):  # fmt: skip
        if (value := node.get(name)) is not None:
            return torch.from_numpy(np.array(value, kind))
    value = node.get("value", node.get("sparse_value"))
    if value is None:
        raise Refused("has no tensor as its value")
    return torch.from_numpy(np.array(value))


@converts("ConstantOfShape", structure=(0,))
def _constant_of_shape(node: NodeView, shape: Any) -> Values:
    value = np.array(node.get("value", np.zeros(1, np.float32))).reshape(())
    return torch.full(integers(shape), value.item(), dtype=torch.from_numpy(value.reshape(1)).dtype)


@converts("Range", structure=(0, 1, 2))
def _range(node: NodeView, start: Any, limit: Any, delta: Any) -> Values:
    count = max(int(np.ceil((limit - start) / delta)), 0)
    kind = torch.from_numpy(np.zeros(1, start.dtype)).dtype
    return (start.item() + torch.arange(count) * delta.item()).to(kind)


@converts("EyeLike")
def _eye_like(node: NodeView, x: Tensor) -> Values:
    kind = x.dtype if node.get("dtype") is None else type_of(node.get("dtype"))
    places = torch.arange(x.shape[1]) - torch.arange(x.shape[0]).reshape(-1, 1)
    return (places == node.get("k", 0)).to(kind)


@converts("OneHot", structure=(1, 2))
def _one_hot(node: NodeView, indices: Tensor, depth: Any, values: Any) -> Values:
    count, axis = integers(depth)[0], node.get("axis", -1)
    at = cast(indices, torch.int64)
    at = torch.where(at < 0, at + count, at)
    axis = axis % (indices.dim() + 1)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = count
    is_hot = at.unsqueeze(axis) == torch.arange(count).reshape(shape)
    off, on = (node.constant(name, value) for name, value in zip(("off", "on"), np.asarray(values), strict=True))
    return torch.where(is_hot, on, off)


# -- sequences: lists of tensors ----------------------------------------------------------------------------------------


@converts("SequenceConstruct", folds=False)
def _sequence(node: NodeView, *inputs: Tensor) -> Values:
    return (list(inputs),)


@converts("SequenceEmpty", folds=False)
def _no_sequence(node: NodeView) -> Values:
    return ([],)


@converts("SequenceAt", structure=(1,), folds=False)
def _at(node: NodeView, sequence: list[Tensor], place: Any) -> Values:
    return sequence[integers(place)[0]]


@converts("SequenceInsert", structure=(2,), folds=False)
def _insert(node: NodeView, sequence: list[Tensor], x: Tensor, place: Any = None) -> Values:
    at = len(sequence) if place is None else integers(place)[0]
    return ([*sequence[:at], x, *sequence[at:]],)


@converts("SequenceErase", structure=(1,), folds=False)
def _erase(node: NodeView, sequence: list[Tensor], place: Any = None) -> Values:
    at = len(sequence) - 1 if place is None else integers(place)[0] % len(sequence)
    return ([*sequence[:at], *sequence[at + 1 :]],)


@converts("ConcatFromSequence", folds=False)
def _concat_sequence(node: NodeView, sequence: list[Tensor]) -> Values:
    axis = node.get("axis", 0)
    return torch.stack(sequence, axis) if node.get("new_axis", 0) else torch.cat(sequence, axis)


@converts("SplitToSequence", structure=(1,), folds=False)
def _split_sequence(node: NodeView, x: Tensor, sizes: Any = None) -> Values:
    axis = node.get("axis", 0)
    if sizes is None:
        parts = list(torch.split(x, 1, axis))
        return (parts if node.get("keepdims", 1) else [part.squeeze(axis) for part in parts],)
    return (list(torch.split(x, int(sizes) if np.asarray(sizes).ndim == 0 else integers(sizes), axis)),)
