# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs whose outputs of few rows are taken from tall inputs, from a seed: resizes, pools with large strides and slices."""

from __future__ import annotations

from openneutron.ir import Graph, Node, Tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops.conv import window_output
from tests.support import random_graphs
from tests.support.random_builder import Builder, Sampler

MOST_ELEMENTS = 40_000


def _few(b: Builder, extent: int) -> int:
    """Return one or two rows mostly, sometimes up to a quarter of them."""
    return b.up_to(2) if b.random.random() < 0.7 else b.up_to(max(1, extent // 4))


def _columns(b: Builder, extent: int) -> int:
    return extent if b.random.random() < 0.4 else b.up_to(extent + 4)


def _resize(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        batches, rows, cols, channels = source.shape
        height, width = _few(b, rows), _columns(b, cols)
        align, half = b.choice((False, False), (True, False), (False, True))
        output = b.new((batches, height, width, channels), source.quant)
        return b.node(op, [source, b.integers(height, width)], output, align_corners=align, half_pixel_centers=half)

    return sample


def _pool(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        batches, rows, cols, channels = source.shape
        attrs: dict[str, AttrValue] = {
            "padding": b.choice("SAME", "VALID"),
            "stride_h": max(1, rows // _few(b, rows)),
            "stride_w": b.up_to(3),
            "kernel_h": b.up_to(min(rows, 6)),
            "kernel_w": b.up_to(min(cols, 3)),
            "activation": "NONE",
        }
        sides = window_output(Node(op, (), ("x",), attrs), rows, cols, int(attrs["kernel_h"]), int(attrs["kernel_w"]))
        return b.node(op, [source], b.new((batches, *sides, channels), source.quant), **attrs)

    return sample


def _slice(b: Builder, source: Tensor) -> Tensor | None:
    batches, rows, cols, channels = source.shape
    height, width = _few(b, rows), b.up_to(cols)
    first, left = int(b.random.integers(rows - height + 1)), int(b.random.integers(cols - width + 1))
    shape = (batches, height, width, channels)
    return b.node("slice", [source, b.integers(0, first, left, 0), b.integers(*shape)], b.new(shape, source.quant))


def _strided_slice(b: Builder, source: Tensor) -> Tensor | None:
    batches, rows, cols, channels = source.shape
    step, across = max(1, rows // _few(b, rows)), b.up_to(2)
    first = int(b.random.integers(step))
    shape = (batches, -(-(rows - first) // step), -(-cols // across), channels)
    masks = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
    operands = [source, b.integers(0, first, 0, 0), b.integers(*source.shape), b.integers(1, step, across, 1)]
    return b.node("strided_slice", operands, b.new(shape, source.quant), **masks, offset=False)


TO_FEW_ROWS: tuple[Sampler, ...] = (
    *(_resize("resize_bilinear"), _resize("resize_bilinear"), _resize("resize_nearest_neighbor")),
    *(_pool("max_pool_2d"), _pool("average_pool_2d"), _slice, _strided_slice),
)

AROUND = ("conv_2d", "depthwise_conv_2d", "add", "mul", "concatenation", "pad", "logistic", "max_pool_2d", "mean")


def graph_of(seed: int) -> Graph:
    """Return a tall image through 1 to 20 operators with branches, few of them mostly; every third operator or so leaves few rows. Unread values are outputs."""
    b = Builder(seed)
    tall = b.input((1, 12 + b.up_to(36), b.up_to(24), int(b.choice(1, 4, 8, b.up_to(20)))))
    values = [tall]
    count = int(b.choice(1, 1, 2, 2, 3, 3, 1 + b.up_to(5), 12 + b.up_to(8)))
    while len(b.nodes) < count:
        is_last = len(b.nodes) == count - 1
        source = tall if b.random.random() < 0.3 else values[-1 - int(b.random.integers(min(3, len(values))))]
        before = len(b.nodes)
        if source.shape[1] > 3 and (is_last or b.random.random() < 0.3):
            sampler = TO_FEW_ROWS[int(b.random.integers(len(TO_FEW_ROWS)))]
        else:
            sampler = random_graphs.SAMPLERS[AROUND[int(b.random.integers(len(AROUND)))]]
        output = sampler(b, source)
        if output is None or len(output.shape) != 4 or output.elements > MOST_ELEMENTS or output.shape[0] > 1:
            del b.nodes[before:]
            continue
        values.append(output)
    read = {name for node in b.nodes for name in node.inputs}
    return b.graph([value for value in values if value.name not in read and value.name not in b.inputs])
