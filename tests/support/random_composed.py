# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of random graphs (random_builder.py) for operators that are compositions, and for changes of type."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Tensor, per_tensor
from tests.support.random_builder import Builder, Sampler


def depth_to_space(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 4:
        return None
    size = int(b.choice(*(n for n in (1, 2, 3, 4) if source.shape[3] % n**2 == 0)))
    batches, height, width, channels = source.shape
    result = b.new((batches, height * size, width * size, channels // size**2), source.quant)
    return b.node("depth_to_space", [source], result, block_size=size)


def space_to_depth(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 4:
        return None
    batches, height, width, channels = source.shape
    size = int(b.choice(*(n for n in (1, 2, 3, 4) if height % n == width % n == 0)))
    result = b.new((batches, height // size, width // size, channels * size**2), source.quant)
    return b.node("space_to_depth", [source], result, block_size=size)


def space_to_batch_nd(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) not in (3, 4):
        return None
    count = len(source.shape) - 2
    block = [b.up_to(3) for _ in range(count)]
    before = [int(b.random.integers(3)) for _ in block]
    behind = [-(extent + first) % size for extent, first, size in zip(source.shape[1:-1], before, block, strict=True)]
    inner = [(n + x + y) // size for n, x, y, size in zip(source.shape[1:-1], before, behind, block, strict=True)]
    result = b.new((source.shape[0] * math.prod(block), *inner, source.shape[-1]), source.quant)
    amounts = b.const(np.array(list(zip(before, behind, strict=True)), np.int32))
    return b.node("space_to_batch_nd", [source, b.integers(*block), amounts], result)


def _dilated(b: Builder, source: Tensor) -> Tensor | None:
    """Return a depthwise convolution between SPACE_TO_BATCH_ND and back, as TensorFlow writes a dilated one."""
    spread = space_to_batch_nd(b, source)
    assert spread is not None and source.quant is not None
    taps = [b.up_to(min(3, extent)) for extent in spread.shape[1:3]]
    channels = source.shape[3]
    weights = b.const(b.random.integers(-127, 128, (1, *taps, channels)).astype(np.int8), per_tensor(0.01, 0))
    bias = b.const(b.random.integers(-900, 900, channels).astype(np.int32), per_tensor(0.01 * source.quant.scale, 0))
    inner = [extent - tap + 1 for extent, tap in zip(spread.shape[1:3], taps, strict=True)]
    narrow = b.new((spread.shape[0], *inner, channels), b.quant(source.quant.scale * 2))
    window = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "depth_multiplier": 1}
    activation = b.choice("NONE", "RELU6")
    b.node("depthwise_conv_2d", [spread, weights, bias], narrow, padding="VALID", activation=activation, **window)
    block = b.tensors[str(b.nodes[-2].inputs[1])]
    assert block.data is not None
    sizes = block.data.tolist()
    crops = [(int(b.random.integers(2)), int(b.random.integers(2))) if n * size > 2 else (0, 0)
             for n, size in zip(inner, sizes, strict=True)]  # fmt: skip
    rows = [n * size - sum(pair) for n, size, pair in zip(inner, sizes, crops, strict=True)]
    result = b.new((source.shape[0], *rows, channels), narrow.quant)
    return b.node("batch_to_space_nd", [narrow, block, b.const(np.array(crops, np.int32))], result)


def batch_to_space_nd(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) not in (3, 4):
        return None
    if len(source.shape) == 4 and b.random.random() < 0.5:
        return _dilated(b, source)
    first = int(b.choice(*(n for n in (1, 2, 3) if source.shape[0] % n == 0)))
    block = [first, *[1] * (len(source.shape) - 3)]
    block = [block[i] for i in b.random.permutation(len(block))]
    crops = [(0, 0) if n * size < 3 else (int(b.random.integers(2)), int(b.random.integers(2)))
             for n, size in zip(source.shape[1:-1], block, strict=True)]  # fmt: skip
    inner = [n * size - sum(pair) for n, size, pair in zip(source.shape[1:-1], block, crops, strict=True)]
    result = b.new((source.shape[0] // first, *inner, source.shape[-1]), source.quant)
    return b.node("batch_to_space_nd", [source, b.integers(*block), b.const(np.array(crops, np.int32))], result)


def gather_nd(b: Builder, source: Tensor) -> Tensor | None:
    width = b.up_to(len(source.shape))
    places = (b.up_to(3),) if b.random.random() < 0.5 else (b.up_to(2), b.up_to(3))
    if width == 1 and b.random.random() < 0.5:
        indices = b.input((*places, 1), dtype=b.choice(DType.INT32, DType.INT64))
    else:
        taken = [b.random.integers(0, extent, places) for extent in source.shape[:width]]
        indices = b.const(np.stack(taken, -1).astype(np.int32))
    return b.node("gather_nd", [source, indices], b.new((*places, *source.shape[width:]), source.quant))


def embedding_lookup(b: Builder, source: Tensor) -> Tensor | None:
    count = b.up_to(4)
    if len(source.shape) < 2:
        return None
    return b.node(
        "embedding_lookup",
        [b.input((count,), dtype=DType.INT32), source],
        b.new((count, *source.shape[1:]), source.quant),
    )


def scatter_nd(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) < 2:
        return None
    places = source.shape[0] + b.up_to(4)
    taken = b.random.permutation(places)[: source.shape[0]].astype(np.int32)
    shape = (places, *source.shape[1:])
    return b.node("scatter_nd", [b.const(taken[:, None]), source, b.integers(*shape)], b.new(shape, source.quant))


def sparse_to_dense(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 1:
        return None
    (count,) = source.shape
    shape = (count + b.up_to(3),) if b.random.random() < 0.5 else (count, b.up_to(3))
    taken = np.sort(b.random.permutation(math.prod(shape))[:count])
    indices = np.stack(np.unravel_index(taken, shape), -1).astype(np.int32)
    fill = b.const(np.array(b.random.integers(-128, 128), np.int8), source.quant)
    operands = [b.const(indices[:, 0] if len(shape) == 1 else indices), b.integers(*shape), source, fill]
    return b.node("sparse_to_dense", operands, b.new(shape, source.quant))


def dynamic_update_slice(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) > 4:
        return None
    part = [b.up_to(extent) for extent in source.shape]
    begin = [int(b.random.integers(-1, extent + 1)) for extent in source.shape]
    update = b.const(b.random.integers(-128, 128, part).astype(np.int8), source.quant)
    whole, written = (source, update) if b.random.random() < 0.7 or part != list(source.shape) else (update, source)
    return b.node("dynamic_update_slice", [whole, written, b.integers(*begin)], b.new(source.shape, source.quant))


def one_hot(b: Builder, source: Tensor) -> Tensor | None:
    """Add an operator whose indices are an input; the source is unused."""
    shape = tuple(b.up_to(3) for _ in range(b.up_to(2)))
    depth, axis = b.up_to(9), int(b.random.integers(-1, len(shape) + 1))
    place = len(shape) if axis == -1 else axis
    indices = b.input(shape, dtype=b.choice(DType.INT32, DType.INT64))
    result = b.new((*shape[:place], depth, *shape[place:]))
    values = [b.const(np.array(b.random.integers(-128, 128), np.int8), result.quant) for _ in range(2)]
    depth_of = b.const(np.array(depth, np.int32))
    return b.node("one_hot", [indices, depth_of, *values], result, axis=axis)


def matrix_diag(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) > 3 or source.elements * source.shape[-1] > 2000:
        return None
    return b.node("matrix_diag", [source], b.new((*source.shape, source.shape[-1]), source.quant))


def matrix_set_diag(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) < 2:
        return None
    shape = (*source.shape[:-2], min(source.shape[-2:]))
    diagonal = b.const(b.random.integers(-128, 128, shape).astype(np.int8), source.quant)
    return b.node("matrix_set_diag", [source, diagonal], b.new(source.shape, source.quant))


def dilate(b: Builder, source: Tensor) -> Tensor | None:
    factors = [b.up_to(3) if b.random.random() < 0.5 else 1 for _ in source.shape]
    shape = [(extent - 1) * factor + 1 for extent, factor in zip(source.shape, factors, strict=True)]
    filler = b.const(np.array([b.random.integers(-128, 128)], np.int8), source.quant)
    return b.node("dilate", [source, b.integers(*factors), filler], b.new(shape, source.quant))


def fill(b: Builder, source: Tensor) -> Tensor | None:
    value = b.input((), source.quant)
    shape = tuple(b.up_to(4) for _ in range(b.up_to(4)))
    return b.node("fill", [b.integers(*shape), value], b.new(shape, source.quant))


def extents(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        dtype = b.choice(DType.INT32, DType.INT64) if op == "shape" else DType.INT32
        result = b.new((len(source.shape),) if op == "shape" else (), dtype=dtype)
        attrs = {"out_type": str(dtype).upper()} if op == "shape" else {}
        return b.node(op, [source], result, **attrs)

    return sample


def select(b: Builder, source: Tensor) -> Tensor | None:
    own = b.choice(source.shape, source.shape[:1], ())
    other = b.const(b.random.integers(-128, 128, source.shape).astype(np.int8), source.quant)
    operands = [source, other] if b.random.random() < 0.5 else [other, source]
    return b.node("select", [b.input(own, dtype=DType.BOOL), *operands], b.new(source.shape, source.quant))


def over_axes(op: str) -> Sampler:
    """Return a sampler of an operator on booleans that a comparison with the source gives."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        flags = b.new(source.shape, dtype=DType.BOOL)
        if source.quant is None or source.quant.scale >= 1:
            return None
        b.node("less", [source, source], flags) if b.random.random() < 0.2 else b.node("cast", [source], flags)
        axis = int(b.random.integers(len(source.shape)))
        keep = bool(b.random.integers(2))
        shape = (*source.shape[:axis], *((1,) if keep else ()), *source.shape[axis + 1 :])
        return b.node(op, [flags, b.integers(axis)], b.new(shape, dtype=DType.BOOL), keep_dims=keep)

    return sample


def cast(b: Builder, source: Tensor) -> Tensor | None:
    """Cast the source, or an input of another type."""
    dtype = b.choice(DType.INT8, DType.BOOL, DType.INT32, DType.INT64)
    given = source if dtype is DType.INT8 else b.input(tuple(b.up_to(4) for _ in range(b.up_to(3))), dtype=dtype)
    into = [DType.INT8, DType.INT32, DType.INT64] + [DType.BOOL] * (dtype in (DType.INT8, DType.BOOL))
    return b.node("cast", [given], b.new(given.shape, dtype=b.choice(*into)))


def bitcast(b: Builder, source: Tensor) -> Tensor | None:
    if b.random.random() < 0.5 and source.shape and source.shape[-1] % 4 == 0:
        shape = source.shape[:-1] if source.shape[-1] == 4 else None
        return None if shape is None else b.node("bitcast", [source], b.new(shape, dtype=DType.INT32))
    given = b.input(tuple(b.up_to(4) for _ in range(b.up_to(3))), dtype=DType.INT32)
    return b.node("bitcast", [given], b.new((*given.shape, 4)))


def sum_(b: Builder, source: Tensor) -> Tensor | None:
    axes = [axis for axis in range(len(source.shape)) if b.random.random() < 0.5] or [len(source.shape) - 1]
    keep = bool(b.random.integers(2))
    count = math.prod(source.shape[axis] for axis in axes)
    shape = [1 if axis in axes else n for axis, n in enumerate(source.shape) if keep or axis not in axes]
    assert source.quant is not None
    quant = b.quant(source.quant.scale * count**0.5 * float(b.random.uniform(0.3, 3)))
    stated = [axis - int(b.choice(0, len(source.shape))) for axis in axes]
    return b.node("sum", [source, b.integers(*stated)], b.new(shape, quant), keep_dims=keep)
