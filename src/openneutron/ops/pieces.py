# SPDX-License-Identifier: BSD-3-Clause
"""Declare operators that divide a tensor or join tensors: split, unpack, pack, and those that turn blocks of rows and
columns into channels or batches."""

from __future__ import annotations

import itertools
import math

import numpy as np

from openneutron.ir import Graph, Node
from openneutron.ops.limits import Limit, limit, rank
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Operand,
    Parts,
    Role,
    constant_values,
    moving,
    moving_bytes,
    parameter,
    shape_of,
)

DATA = {"split": 1, "split_v": 0, "unpack": 0}
"""The index of the operand that is divided."""


def split_axis(graph: Graph, node: Node) -> int:
    """Return the axis along which a tensor is divided, counted from 0."""
    data = graph.given(node, DATA[node.op])
    if node.op == "unpack":
        return int(node["axis"]) % len(data.shape)
    (axis,) = constant_values(graph, node, 0 if node.op == "split" else 2)
    return axis % len(data.shape)


def piece_sizes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the extent of each output along the divided axis."""
    data = graph.given(node, DATA[node.op])
    extent = data.shape[split_axis(graph, node)]
    if node.op == "split_v":
        sizes = constant_values(graph, node, 1)
        rest = extent - sum(size for size in sizes if size >= 0)
        return tuple(rest if size == -1 else size for size in sizes)
    return (extent // len(node.outputs),) * len(node.outputs)


def _pieces_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data = graph.given(node, DATA[node.op])
    axis = split_axis(graph, node)
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    if node.op == "unpack":
        return ((*before, *after),) * len(node.outputs)
    return tuple((*before, size, *after) for size in piece_sizes(graph, node))


def _sizes_fit(graph: Graph, node: Node) -> str | None:
    data = graph.given(node, DATA[node.op])
    axis, sizes = split_axis(graph, node), piece_sizes(graph, node)
    extent = data.shape[axis]
    one_each = node.op != "unpack" or extent == len(node.outputs)
    if one_each and len(sizes) == len(node.outputs) and min(sizes) >= 1 and sum(sizes) == extent:
        return None
    return f"it has {len(node.outputs)} outputs, whose sizes do not add up to the {extent} positions of axis {axis}"


def _pack_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    axis = node["axis"] % (len(shape) + 1)
    return ((*shape[:axis], len(node.inputs), *shape[axis:]),)


def _same_shapes(graph: Graph, node: Node) -> str | None:
    shapes = {graph[name].shape for name in node.inputs if name is not None}
    if len(shapes) == 1:
        return None
    return f"its inputs have {len(shapes)} different shapes; they must be the same"


_AXIS = parameter("axis")
_SIZES = limit("outputs whose sizes add up to the axis", _sizes_fit)


def _depth_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    (batches, height, width, channels), size = shape_of(graph, node), node["block_size"]
    if node.op == "depth_to_space":
        return ((batches, height * size, width * size, channels // size**2),)
    return ((batches, height // size, width // size, channels * size**2),)


def _whole_blocks(graph: Graph, node: Node) -> str | None:
    (_, height, width, channels), size = shape_of(graph, node), node["block_size"]
    if size < 1:
        return f"its block size is {size}; it must be at least 1"
    if node.op == "depth_to_space" and channels % size**2:
        return f"its input has {channels} channels; with blocks of {size} they must be a multiple of {size**2}"
    if node.op == "space_to_depth" and (height % size or width % size):
        return f"its input has {height} rows and {width} columns; both must be multiples of the block size {size}"
    return None


def _depth(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower DEPTH_TO_SPACE or SPACE_TO_DEPTH. Between them, the rows and columns of a block are channels."""
    size = node["block_size"]
    (source,), result = node.inputs, node.outputs[0]
    assert source is not None
    small = graph[source if node.op == "depth_to_space" else result].shape
    batches, height, width, channels = small
    line = size * (channels // size**2)
    if node.op == "depth_to_space":
        turned = parts.transpose(parts.reshape(source, (batches * height, width, size, line)), (0, 2, 1, 3))
    else:
        turned = parts.transpose(parts.reshape(source, (batches * height, size, width, line)), (0, 2, 1, 3))
    parts.reshape(turned, graph[result].shape, result)


def block_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the extents of a block, one for each divided axis. These axes follow the batches."""
    return constant_values(graph, node, 1)


def amounts_of(graph: Graph, node: Node) -> tuple[tuple[int, int], ...]:
    """Return for each divided axis the amounts before and after it that are padded, or cropped (BATCH_TO_SPACE_ND)."""
    flat = constant_values(graph, node, 2)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _batch_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape, block, amounts = shape_of(graph, node), block_of(graph, node), amounts_of(graph, node)
    inner = shape[1 : 1 + len(block)]
    if node.op == "space_to_batch_nd":
        spatial = [(n + sum(pair)) // size for n, pair, size in zip(inner, amounts, block, strict=True)]
        return ((shape[0] * math.prod(block), *spatial, *shape[1 + len(block) :]),)
    spatial = [n * size - sum(pair) for n, pair, size in zip(inner, amounts, block, strict=True)]
    return ((shape[0] // math.prod(block), *spatial, *shape[1 + len(block) :]),)


def _divides(graph: Graph, node: Node) -> str | None:
    shape, block, amounts = shape_of(graph, node), block_of(graph, node), amounts_of(graph, node)
    if len(block) != len(amounts) or not 1 <= len(block) <= len(shape) - 2:
        return f"it has {len(block)} block sizes and {len(amounts)} pairs of amounts for an input of rank {len(shape)}"
    if min(block) < 1 or min(itertools.chain(*amounts)) < 0:
        return f"its blocks are {list(block)}, its amounts {amounts}; blocks must be at least 1, amounts at least 0"
    if node.op == "batch_to_space_nd":
        if shape[0] % math.prod(block):
            return f"its input has {shape[0]} batches; with blocks of {list(block)} they must be a multiple of {math.prod(block)}"
        return None
    padded = [extent + sum(pair) for extent, pair in zip(shape[1:], amounts, strict=False)]
    if any(extent % size for extent, size in zip(padded, block, strict=True)):
        return f"its axes have {padded} values with padding; they must be multiples of the blocks {list(block)}"
    return None


def _space_to_batch(parts: Parts, graph: Graph, node: Node) -> None:
    """Pad, then make each position in a block a batch."""
    block, amounts = block_of(graph, node), amounts_of(graph, node)
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    around = np.array([(0, 0), *amounts, *[(0, 0)] * (len(graph[source].shape) - 1 - len(block))], np.int32)
    wide = parts.pad(source, around) if around.any() else source
    batches, *spatial = parts[wide].shape[: 1 + len(block)]
    divided = [(extent // size, size) for extent, size in zip(spatial, block, strict=True)]
    rest = math.prod(parts[wide].shape[1 + len(block) :])
    split = parts.reshape(wide, (batches, *itertools.chain(*divided), rest))
    count = len(block)
    order = (*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), 2 * count + 1)
    parts.reshape(parts.transpose(split, order), graph[result].shape, result)


def _batch_to_space(parts: Parts, graph: Graph, node: Node) -> None:
    """Move batches back to their positions in blocks, then crop the edges."""
    block, amounts = block_of(graph, node), amounts_of(graph, node)
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    shape, count = graph[source].shape, len(block)
    batches, spatial, tail = shape[0] // math.prod(block), shape[1 : 1 + count], shape[1 + count :]
    split = parts.reshape(source, (*block, batches, *spatial, math.prod(tail)))
    pairs = [(count + 1 + axis, axis) for axis in range(count)]
    turned = parts.transpose(split, (count, *itertools.chain(*pairs), 2 * count + 1))
    whole = (batches, *(extent * size for extent, size in zip(spatial, block, strict=True)), *tail)
    cut = any(itertools.chain(*amounts))
    joined = parts.reshape(turned, whole, None if cut else result)
    if cut:
        begin = (0, *(first for first, _ in amounts), *(0 for _ in tail))
        parts.slice(joined, begin, graph[result].shape, result)


def _depth_row(name: str, doc: str) -> Op:
    return moving(
        name,
        shape=_depth_shape,
        attributes=(Attribute("block_size", "blockSize", 0),),
        limits=(rank(0, 4, 4), limit("whole blocks", _whole_blocks)),
        doc=doc,
        made_of=_depth,
    )


_BATCH_LIMITS: tuple[Limit, ...] = (
    rank(0, 3, 4),
    limit("blocks that the axes, and padding, are whole multiples of", _divides),
)

OPS = (
    moving_bytes(
        "split",
        operands=(_AXIS, INPUT),
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num_splits", "numSplits", 0),),
        limits=(rank(1, 1, 6), _SIZES),
        version=2,
        several_outputs=True,
        doc="Equal parts of the input along an axis.",
    ),
    moving_bytes(
        "split_v",
        operands=(INPUT, parameter("list of sizes"), _AXIS),
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num_splits", "numSplits", 0),),
        limits=(rank(0, 1, 6), _SIZES),
        version=2,
        several_outputs=True,
        doc="Parts of the input along an axis, of any sizes.",
    ),
    moving_bytes(
        "unpack",
        shape=_pieces_shape,
        movable=True,
        attributes=(Attribute("num", "num", 0), Attribute("axis", "axis", 0)),
        limits=(rank(0, 1, 6), _SIZES),
        version=2,
        several_outputs=True,
        doc="Each position of an axis on its own, without that axis.",
    ),
    moving_bytes(
        "pack",
        operands=(Operand(Role.ACTIVATION, "input", repeated=True),),
        shape=_pack_shape,
        movable=True,
        attributes=(Attribute("values_count", "valuesCount", 0), Attribute("axis", "axis", 0)),
        limits=(limit("inputs of one shape", _same_shapes),),
        version=2,
        doc="Inputs one behind the other along a new axis.",
    ),
    _depth_row("depth_to_space", "Groups of channels as blocks of rows and columns."),
    _depth_row("space_to_depth", "Blocks of rows and columns as groups of channels."),
    moving_bytes(
        "space_to_batch_nd",
        operands=(INPUT, parameter("list of block sizes"), parameter("list of amounts")),
        shape=_batch_shape,
        kernels=("copy_s8", "pad_s8"),
        options="SpaceToBatchNDOptions",
        limits=_BATCH_LIMITS,
        version=2,
        doc=(
            "Each place in a block of rows and columns as a batch. Before a convolution and with BATCH_TO_SPACE_ND behind it, it is "
            "the convolution's dilation, and costs nothing."
        ),
        made_of=_space_to_batch,
    ),
    moving_bytes(
        "batch_to_space_nd",
        operands=(INPUT, parameter("list of block sizes"), parameter("list of amounts")),
        shape=_batch_shape,
        options="BatchToSpaceNDOptions",
        limits=_BATCH_LIMITS,
        version=2,
        doc="Batches as places in blocks of rows and columns, without what is cropped.",
        made_of=_batch_to_space,
    ),
)
