# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of random graphs (random_builder.py) for operators that move values, choose them or only rename them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import BY_NAME
from tests.support.random_builder import Builder, Sampler


def _of_any_type(b: Builder, source: Tensor, *dtypes: DType) -> Tensor:
    """Return the source, or sometimes an input of its shape and one of these types."""
    if b.random.random() < 0.8 or source.elements > 400:
        return source
    return b.input(source.shape, dtype=b.choice(*dtypes))


def _some(b: Builder, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a constant of another tensor's type."""
    low, high = (0, 2) if like.dtype is DType.BOOL else (-128, 128)
    return b.const(b.random.integers(low, high, tuple(shape)).astype(like.dtype.numpy), like.quant)


def reshape(b: Builder, source: Tensor) -> Tensor | None:
    shape = b.choice((source.shape[0], source.elements // source.shape[0]), (source.elements,), (1, 1, *source.shape))
    if len(shape) > 4:
        shape = (source.elements, 1)
    return b.node("reshape", [source, b.integers(*shape)], b.new(shape, source.quant), new_shape=shape)


def squeeze(b: Builder, source: Tensor) -> Tensor | None:
    axes = tuple(axis for axis, extent in enumerate(source.shape) if extent == 1)
    shape = tuple(extent for extent in source.shape if extent != 1)
    if not axes or not shape:
        return None
    return b.node("squeeze", [source], b.new(shape, source.quant), squeeze_dims=axes)


def expand_dims(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) >= 4:
        return None
    axis = int(b.random.integers(len(source.shape) + 1))
    shape = (*source.shape[:axis], 1, *source.shape[axis:])
    return b.node("expand_dims", [source, b.integers(axis)], b.new(shape, source.quant))


def pad(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if len(source.shape) > 4:
            return None
        spatial_only = len(source.shape) == 4 and b.random.random() < 0.5
        amounts = b.random.integers(0, 3, (len(source.shape), 2)).astype(np.int32)
        if spatial_only:
            amounts[0] = amounts[3] = 0
        shape = tuple(int(e + a[0] + a[1]) for e, a in zip(source.shape, amounts, strict=True))
        operands: list[Tensor | None] = [source, b.const(amounts)]
        if op == "padv2":
            value = b.choice(-128, 5, source.quant.zero_point if source.quant else 0)
            operands.append(b.const(np.array([value], np.int8), source.quant))
        return b.node(op, operands, b.new(shape, source.quant))

    return sample


def concatenation(b: Builder, source: Tensor) -> Tensor | None:
    if not 1 <= len(source.shape) <= 4:
        return None
    source = _of_any_type(b, source, DType.INT32, DType.INT64, DType.BOOL)
    axis = int(b.random.integers(len(source.shape)))
    pieces = [source]
    for _ in range(b.up_to(2)):
        shape = tuple(b.up_to(3) if i == axis else extent for i, extent in enumerate(source.shape))
        pieces.append(_some(b, shape, source))
    if b.random.random() < 0.3:
        pieces.append(source)
    pieces = [pieces[i] for i in b.random.permutation(len(pieces))]
    shape = tuple(sum(p.shape[i] for p in pieces) if i == axis else e for i, e in enumerate(source.shape))
    sign = axis if b.random.random() < 0.5 else axis - len(shape)
    return b.node("concatenation", pieces, b.new(shape, source.quant, source.dtype), axis=sign, activation="NONE")


def slice_(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) > 4:
        return None
    source = _of_any_type(b, source, DType.INT32, DType.INT64, DType.BOOL)
    begin = [int(b.random.integers(extent)) for extent in source.shape]
    size = [b.up_to(extent - start) for extent, start in zip(source.shape, begin, strict=True)]
    given = [-1 if start + n == extent and b.random.random() < 0.5 else n
             for start, n, extent in zip(begin, size, source.shape, strict=True)]  # fmt: skip
    return b.node("slice", [source, b.integers(*begin), b.integers(*given)], b.new(size, source.quant, source.dtype))


def strided_slice(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) > 4:
        return None
    rank, source = len(source.shape), _of_any_type(b, source, DType.INT32, DType.INT64, DType.BOOL)
    begin = [int(b.random.integers(extent)) for extent in source.shape]
    end = [int(b.random.integers(start, extent)) + 1 for start, extent in zip(begin, source.shape, strict=True)]
    step = [b.up_to(3) for _ in source.shape]
    masks = {name: int(b.random.integers(1 << rank)) & int(b.random.integers(1 << rank)) for name in ("begin", "end")}
    shrink = 1 << int(b.random.integers(rank)) if rank > 1 and b.random.random() < 0.4 else 0
    attrs: dict[str, AttrValue] = {
        "begin_mask": masks["begin"] & ~shrink,
        "end_mask": masks["end"] & ~shrink,
        "ellipsis_mask": 0,
        "new_axis_mask": 0,
        "shrink_axis_mask": shrink,
        "offset": False,
    }
    step = [1 if shrink >> axis & 1 else n for axis, n in enumerate(step)]
    negative = [n - extent if b.random.random() < 0.3 else n for n, extent in zip(begin, source.shape, strict=True)]
    operands = [source, b.integers(*negative), b.integers(*end), b.integers(*step)]
    tensors = {tensor.name: tensor for tensor in operands}
    names = tuple(tensors)
    (shape,) = BY_NAME["strided_slice"].shape(
        Graph("main", tensors, (), (), ()), Node("strided_slice", names, ("x",), attrs)
    )
    return b.node("strided_slice", operands, b.new(shape, source.quant, source.dtype), **attrs)


def transpose(b: Builder, source: Tensor) -> Tensor | None:
    order = [int(axis) for axis in b.random.permutation(len(source.shape))]
    shape = [source.shape[axis] for axis in order]
    return b.node("transpose", [source, b.integers(*order)], b.new(shape, source.quant))


def resize_nearest_neighbor(b: Builder, source: Tensor, op: str = "resize_nearest_neighbor") -> Tensor | None:
    if len(source.shape) != 4:
        return None
    height, width = b.up_to(2 * source.shape[1]), b.up_to(2 * source.shape[2])
    align, half = b.choice((False, False), (True, False), (False, True))
    output = b.new((source.shape[0], height, width, source.shape[3]), source.quant)
    operands = [source, b.integers(height, width)]
    return b.node(op, operands, output, align_corners=align, half_pixel_centers=half)


def resize_bilinear(b: Builder, source: Tensor) -> Tensor | None:
    return resize_nearest_neighbor(b, source, "resize_bilinear")


def indexed(op: str) -> Sampler:
    """Along one axis or two, as far as the operator allows."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        shape = source.shape
        axis = int(b.random.integers(len(shape)))
        attrs: dict[str, AttrValue] = {}
        if op == "gather":
            taken = b.random.integers(0, shape[axis], (b.up_to(2), b.up_to(3)) if len(shape) < 4 else b.up_to(5))
            parameter = b.const(taken.astype(np.int32))
            attrs = {"axis": axis - int(b.choice(0, len(shape))), "batch_dims": 0}
        elif op == "mirror_pad":
            mode = b.choice("REFLECT", "SYMMETRIC")
            amounts = [b.random.integers(0, min(3, extent + (mode == "SYMMETRIC")), 2) for extent in shape]
            parameter = b.const(np.array(amounts, np.int32))
            attrs = {"mode": mode}
        elif op == "reverse_v2":
            parameter = b.integers(axis)
        elif op == "tile":
            parameter = b.integers(*(b.up_to(2) for _ in shape))
        else:
            narrow = tuple(extent if b.random.random() < 0.6 else 1 for extent in shape)
            if narrow != shape:
                first = tuple(0 for _ in shape)
                source = b.node("slice", [source, b.integers(*first), b.integers(*narrow)], b.new(narrow, source.quant))
            parameter = b.integers(*shape)
        node = Node(op, (source.name, parameter.name), ("x",), attrs)
        (result,) = BY_NAME[op].shape(Graph("main", b.tensors, (), (), ()), node)
        return b.node(op, [source, parameter], b.new(result, source.quant), **attrs)

    return sample


def pieces(op: str) -> Sampler:
    """Returns one of the parts; the others are read by nobody."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        axes = [axis for axis, extent in enumerate(source.shape) if extent > 1]
        if not axes or (op == "unpack" and len(source.shape) == 1):
            return None
        source = _of_any_type(b, source, DType.INT32)
        axis = axes[int(b.random.integers(len(axes)))]
        extent = source.shape[axis]
        stated = axis - int(b.choice(0, len(source.shape)))
        count = b.choice(*(n for n in range(1, extent + 1) if extent % n == 0)) if op == "split" else extent
        sizes = [extent // count] * count
        if op == "split_v":
            first = b.up_to(extent - 1)
            count, sizes = 2, [first, extent - first]
        before, after = source.shape[:axis], source.shape[axis + 1 :]
        shapes = [(*before, *(() if op == "unpack" else (size,)), *after) for size in sizes]
        outputs = [b.new(shape, source.quant, source.dtype) for shape in shapes]
        operands, attrs = {
            "split": lambda: ([b.integers(stated), source], {"num_splits": count}),
            "split_v": lambda: ([source, b.integers(sizes[0], -1), b.integers(stated)], {"num_splits": count}),
            "unpack": lambda: ([source], {"num": count, "axis": stated}),
        }[op]()
        b.nodes.append(Node(op, tuple(t.name for t in operands), tuple(t.name for t in outputs), attrs))
        return outputs[int(b.random.integers(len(outputs)))]

    return sample


def pack(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) >= 4:
        return None
    source = _of_any_type(b, source, DType.INT32, DType.INT64)
    pieces = [source, _some(b, source.shape, source), source][: b.up_to(3)]
    axis = int(b.random.integers(len(source.shape) + 1))
    shape = (*source.shape[:axis], len(pieces), *source.shape[axis:])
    stated = axis - int(b.choice(0, len(shape)))
    return b.node("pack", pieces, b.new(shape, source.quant, source.dtype), values_count=len(pieces), axis=stated)
