# SPDX-License-Identifier: BSD-3-Clause
"""Samplers for random_graphs.py of operators whose operands or results are integers or truth values."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, QuantParams, Tensor, per_tensor
from openneutron.ops.elementwise import MOST_BROADCAST
from tests.support.random_builder import Builder, Sampler

LARGEST_SCALE = 0.999
"""LiteRT compares for scales below 1."""


def _narrowed(b: Builder, shape: tuple[int, ...], family: str) -> tuple[int, ...]:
    """The shape with some extents 1, and without some in front, where LiteRT broadcasts that."""
    if len(shape) > MOST_BROADCAST[family]:
        return shape
    first = int(b.random.integers(len(shape))) if b.random.random() < 0.3 else 0
    return tuple(extent if b.random.random() < 0.6 else 1 for extent in shape)[first:]


def _int8(b: Builder, shape: tuple[int, ...], quant: QuantParams) -> Tensor:
    return b.const(b.random.integers(-128, 128, shape).astype(np.int8), quant)


def truth(b: Builder, shape: tuple[int, ...]) -> Tensor:
    """A constant or an input."""
    if b.random.random() < 0.4:
        return b.const(b.random.integers(0, 2, shape).astype(bool))
    return b.input(shape, dtype=DType.BOOL)


def comparison(op: str) -> Sampler:
    """With a constant, sometimes of the same quantization."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        assert source.quant is not None
        if source.quant.scale > LARGEST_SCALE:
            return None
        if op in ("equal", "not_equal") and b.random.random() < 0.2:
            shape = source.shape
            operands = [truth(b, shape), truth(b, _narrowed(b, shape, "compare"))]
        else:
            quant = source.quant if b.random.random() < 0.5 else b.quant()
            if b.random.random() < 0.2:
                quant = per_tensor(float(np.exp(b.random.uniform(np.log(1e-4), 0))) * LARGEST_SCALE, 0)
            operands = [source, _int8(b, _narrowed(b, source.shape, "compare"), quant)]
        if b.random.random() < 0.5:
            operands.reverse()
        return b.node(op, operands, b.new(source.shape, dtype=DType.BOOL))

    return sample


def logical(op: str, count: int) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        operands = [truth(b, source.shape), truth(b, _narrowed(b, source.shape, "logical"))][:count]
        return b.node(op, operands, b.new(source.shape, dtype=DType.BOOL))

    return sample


def select_v2(b: Builder, source: Tensor) -> Tensor | None:
    """Between the source and a constant, by truth values that are given or compared."""
    assert source.quant is not None
    condition = truth(b, _narrowed(b, source.shape, "select"))
    if b.random.random() < 0.3 and (compared := comparison("less")(b, source)) is not None:
        condition = compared
    operands = [source, _int8(b, _narrowed(b, source.shape, "select"), source.quant)]
    if b.random.random() < 0.5:
        operands.reverse()
    return b.node("select_v2", [condition, *operands], b.new(source.shape, source.quant))


def position(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        axis = int(b.random.integers(len(source.shape)))
        kind = b.choice("INT32", "INT64")
        stated = b.const(np.array(axis - int(b.choice(0, len(source.shape))), np.int32))
        shape = (*source.shape[:axis], *source.shape[axis + 1 :])
        return b.node(op, [source, stated], b.new(shape, dtype=DType[kind]), output_type=kind)

    return sample


def gather(by_constant: Sampler) -> Sampler:
    """By a constant list, or by indices that are given, or constant and other ones in each batch."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if b.random.random() < 0.4:
            return by_constant(b, source)
        rank = len(source.shape)
        axis = int(b.random.integers(rank))
        batch_dims = int(b.random.integers(axis + 1)) if b.random.random() < 0.5 else 0
        shape = (*source.shape[:batch_dims], *(b.up_to(3) for _ in range(int(b.random.integers(3)))))
        dtype = b.choice(DType.INT32, DType.INT64)
        if b.random.random() < 0.3:
            indices = b.const(b.random.integers(0, source.shape[axis], shape).astype(dtype.numpy))
        else:
            indices = b.input(shape, dtype=dtype)
        result = (*source.shape[:axis], *shape[batch_dims:], *source.shape[axis + 1 :])
        attrs = {"axis": axis - int(b.choice(0, rank)), "batch_dims": batch_dims}
        return b.node("gather", [source, indices], b.new(result, source.quant), **attrs)

    return sample
