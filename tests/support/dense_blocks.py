# SPDX-License-Identifier: BSD-3-Clause
"""Make random graphs whose concatenations take tensors that others read too."""

from __future__ import annotations

from openneutron.ir import Graph, Tensor
from tests.support.random_graphs import Builder

POOL = {"padding": "SAME", "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "activation": "NONE"}


def joined(b: Builder, parts: list[Tensor], axis: int = 3) -> Tensor:
    """One behind the other along an axis."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    assert parts[0].quant is not None
    return b.node("concatenation", parts, b.new(shape, parts[0].quant), axis=axis, activation="NONE")


def layer(b: Builder, source: Tensor) -> Tensor:
    """A pool, an activation or a sum with itself, of the same shape and quantization."""
    kind = b.up_to(3)
    result = b.new(source.shape, source.quant)
    if kind == 1:
        return b.node("max_pool_2d", [source], result, **POOL)
    return b.node("relu", [source], result) if kind == 2 else b.node("add", [source, source], result, activation="NONE")


def part_of(b: Builder, source: Tensor) -> Tensor:
    """Some rows, columns and channels."""
    begin = [0, *(int(b.random.integers(0, extent)) for extent in source.shape[1:])]
    size = [1, *(b.up_to(extent - first) for first, extent in zip(begin[1:], source.shape[1:], strict=True))]
    return b.node("slice", [source, b.integers(*begin), b.integers(*size)], b.new(size, source.quant))


def dense_block(seed: int) -> Graph:
    """Each layer takes what all before it made, along a random axis; parts of that are read elsewhere too."""
    b = Builder(seed)
    axis = int(b.random.integers(1, 4))
    made = [layer(b, b.input((1, b.up_to(7), b.up_to(7), b.up_to(9))))]
    outputs = []
    for _ in range(b.up_to(3)):
        kept = made if b.up_to(3) > 1 else made[-2:]
        last = layer(b, joined(b, kept, axis) if len(kept) > 1 else kept[0])
        if b.up_to(2) == 1:
            outputs.append(layer(b, part_of(b, made[-1])))
        made += [last]
    if b.up_to(4) == 1:
        outputs.append(made[0])
    return b.graph([*outputs, joined(b, made, axis) if b.up_to(2) == 1 else layer(b, joined(b, made, axis))])
