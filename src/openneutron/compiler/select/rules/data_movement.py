# SPDX-License-Identifier: BSD-3-Clause
"""Select kernel calls for operators that move values: pad, concatenation, pack, split, slice, transpose, resize, gather, tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.select.calls import (
    KernelCall,
    Maps,
    View,
    call_on_whole,
    dense_pitches,
    elements,
    extents_of,
    four,
    quant_of,
    selects,
    shape_in_bytes,
)
from openneutron.compiler.select.needs import Walk, boxes, by_elements, dense, merged, row_major, with_rows
from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.indexed import INDEXED, Indexed, bilinear_positions, gathers_by_maps, kernel_axes, moved_axes
from openneutron.ops.shape import DATA, pad_box, pads, piece_sizes, slice_window, split_axis, strided_window
from openneutron.ops.table import constant_values


def _copies(
    name: str, extents: Sequence[int], source: Walk, destination: Walk, element: DType = DType.INT8
) -> list[KernelCall]:
    """Return the calls that copy a box of elements of type ``element``. Extents, pitches and offsets count elements.

    If int16 channels are contiguous in both tensors, the call copies bytes, with twice as many channels. The rows of
    the call are then still the rows of the tensors.
    """
    walks, size = {"input": source, "output": destination}, element.size_bytes
    if element is DType.INT16:
        return copies_of_elements(name, extents, {field: _of_elements(walk, size) for field, walk in walks.items()})
    if size > 1:
        extents = (*extents, size)
        for field, walk in walks.items():
            walks[field] = Walk(walk.tensor, (*(pitch * size for pitch in walk.pitches), 1), walk.offset * size)
    return [KernelCall("copy_s8", name, views) for views in boxes(extents, walks)]


def _of_elements(walk: Walk, size: int) -> Walk:
    """Return a walk whose pitches and offset count bytes, from one whose pitches and offset count elements of ``size``
    bytes."""
    return Walk(walk.tensor, tuple(pitch * size for pitch in walk.pitches), walk.offset * size, size)


def copies_of_elements(name: str, extents: Sequence[int], walks: Mapping[str, Walk]) -> list[KernelCall]:
    """Return the calls that copy a box of elements of two bytes: copy_s8 if channels are contiguous in both tensors, else copy_s16."""
    calls = []
    for views in boxes(extents, walks):
        side_by_side = all(view.has_dense_channels for view in views.values())
        made = {field: view.in_bytes() if side_by_side else view for field, view in views.items()}
        calls.append(KernelCall("copy_s8" if side_by_side else "copy_s16", name, made))
    return calls


def _whole(tensor: Tensor) -> Walk:
    return Walk(tensor.name, row_major(tensor.shape))


@selects("pad", "padv2")
def pad(graph: Graph, node: Node) -> list[KernelCall]:
    """Select pad_s8. PAD fills with the zero point, PADV2 with the stored value of its third operand.

    An int16 value whose two bytes differ needs two calls, one for each byte of the elements.
    """
    source, result = graph.given(node, 0), graph[node.name]
    box = pad_box(source.shape, pads(graph, node))
    value = constant_values(graph, node, 2)[0] if node.op == "padv2" else quant_of(result).zero_point
    size = result.dtype.size_bytes
    values = np.array([value], result.dtype.numpy).view(np.int8)
    if size > 1 and len(set(values.tolist())) == 1:
        # Both bytes of the value are equal, so each byte can be a channel.
        *outer_axes, channels = box
        box, size = (*outer_axes, (size * channels[0], size * channels[1], size * channels[2])), 1
    before = [0] * (4 - len(box)) + [first for _, first, _ in box]
    params = dict(zip(("pad_batch", "pad_top", "pad_left", "pad_channel"), before, strict=True))
    inner = extents_of(tuple(extent for extent, _, _ in box))
    outer = extents_of(tuple(extent + first + last for extent, first, last in box))
    return [
        KernelCall(
            "pad_s8",
            node.name,
            {
                "input": View(source.name, inner, dense_pitches(inner, size), place),
                "output": View(result.name, outer, dense_pitches(outer, size), place),
            },
            {**params, "value": int(values[place])},
        )
        for place in range(size)
    ]


@selects("concatenation", "pack")
def joined(graph: Graph, node: Node) -> list[KernelCall]:
    """Select a copy of each input to its range of the output (CONCATENATION, PACK)."""
    result = graph[node.name]
    axis = node["axis"] % len(result.shape)
    pitches = row_major(result.shape)
    packs = node.op == "pack"
    inner = pitches[:axis] + pitches[axis + 1 :] if packs else pitches
    calls, begin = [], 0
    for place in range(len(node.inputs)):
        piece = graph.given(node, place)
        to = Walk(result.name, inner, begin * pitches[axis])
        calls += _copies(node.name, piece.shape, _whole(piece), to, piece.dtype)
        begin += 1 if packs else piece.shape[axis]
    return calls


@selects(*DATA)
def split(graph: Graph, node: Node) -> list[KernelCall]:
    """Select a copy of each range of the input to its own output (SPLIT, UNPACK)."""
    source = graph.given(node, DATA[node.op])
    axis = split_axis(graph, node)
    pitches = row_major(source.shape)
    calls, begin = [], 0
    for name, size in zip(node.outputs, piece_sizes(graph, node), strict=True):
        shape = (*source.shape[:axis], size, *source.shape[axis + 1 :])
        walk = Walk(source.name, pitches, begin * pitches[axis])
        calls += _copies(name, shape, walk, Walk(name, row_major(shape)), source.dtype)
        begin += size
    return calls


@selects("slice")
def slice_(graph: Graph, node: Node) -> list[KernelCall]:
    """Select copies of a part of the input."""
    source, result = graph.given(node, 0), graph[node.name]
    begin, size = slice_window(graph, node)
    pitches = row_major(source.shape)
    offset = sum(start * pitch for start, pitch in zip(begin, pitches, strict=True))
    return _copies(node.name, size, Walk(source.name, pitches, offset), _whole(result), source.dtype)


@selects("strided_slice")
def strided_slice(graph: Graph, node: Node) -> list[KernelCall]:
    """Select copies of the elements at regular steps of the input."""
    source, result = graph.given(node, 0), graph[node.name]
    window = strided_window(graph, node)
    pitches = row_major(source.shape)
    offset = sum(first * pitch for first, pitch in zip(window.first, pitches, strict=True))
    steps = [step * pitch for step, pitch in zip(window.step, pitches, strict=True)]
    walk = Walk(source.name, tuple(steps), offset)
    return _copies(node.name, window.count, walk, Walk(result.name, row_major(window.count)), source.dtype)


@selects("transpose")
def transpose(graph: Graph, node: Node) -> list[KernelCall]:
    """Select copies whose channels are the innermost axis of the output, and whose columns are the innermost axis of
    the input.

    So the channels and the columns are contiguous in one of the two tensors each, and copy_s8 transposes this plane
    square by square. If possible, the rows of the copy are the rows of the input or of the output as an image. A
    cascade (calls that are computed some rows at a time) can then begin or end with the copy.
    """
    source, result = graph.given(node, 0), graph[node.name]
    wide = source.dtype is DType.INT16
    given, to = (by_elements(tensor) if wide else dense(tensor) for tensor in (source, result))
    shape = result.shape if wide else shape_in_bytes(result)
    order = (*constant_values(graph, node, 1), *range(len(result.shape), len(shape)))
    walk = replace(given, pitches=tuple(given.pitches[axis] for axis in order))
    extents, walks = merged(shape, {"input": walk, "output": to})
    size = to.element_bytes
    sides = [("output", result), ("input", source)]
    for side, image in sides[::-1] if result.name in graph.kept_tensors else sides:
        _, height, width, channels = extents_of(image.shape if wide else shape_in_bytes(image))
        found = with_rows(extents, walks, side, height, width * channels * size)
        if found is not None:
            extents, walks = found
            break
    rows = found is not None
    axes = sorted(
        range(len(extents)),
        key=lambda axis: (axis >= rows, axis == len(extents) - 1, walks["input"].pitches[axis] == size),
    )
    turned = {name: replace(w, pitches=tuple(w.pitches[axis] for axis in axes)) for name, w in walks.items()}
    box = [extents[axis] for axis in axes]
    if wide:
        return copies_of_elements(node.name, box, turned)
    return _copies(node.name, box, turned["input"], turned["output"])


@selects("resize_nearest_neighbor", "resize_bilinear")
def resize(graph: Graph, node: Node) -> list[KernelCall]:
    """Select the kernel with the operator's name, with a map for the rows and a map for the columns."""
    source, result = graph.given(node, 0), graph[node.name]
    maps = []
    for axis in (1, 2):
        places = source.shape[axis], result.shape[axis], node["align_corners"], node["half_pixel_centers"]
        nearest = node.op == "resize_nearest_neighbor"
        maps.append(nearest_neighbors(*places)[None] if nearest else np.array(bilinear_positions(*places)).T)
    constants = {"map": Maps(*(positions.astype(np.int32) for positions in maps))}
    if node.op == "resize_bilinear" and source.dtype is DType.INT16:
        views = {"input": elements(source), "output": elements(result)}
        return [KernelCall("resize_bilinear_s16", node.name, views, constants=constants)]
    return call_on_whole(f"{node.op}_s8", graph, node, constants=constants)


def nearest_neighbors(inputs: int, outputs: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """Return the input position that each output position reads.

    The arithmetic is float32 as in GetNearestNeighbor of LiteRT's reference/resize_nearest_neighbor.h.
    """
    if align_corners and outputs > 1:
        scale = np.float32(inputs - 1) / np.float32(outputs - 1)
    else:
        scale = np.float32(inputs) / np.float32(outputs)
    offset = np.float32(0.5 if half_pixel_centers else 0.0)
    positions = ((np.arange(outputs).astype(np.float32) + offset) * scale).astype(np.float64)
    # In double, adding a half to the position is exact, so that the floor rounds as round() does.
    nearest = np.floor(positions + 0.5) if align_corners else np.floor(positions)
    return np.minimum(nearest, inputs - 1).astype(np.int32)


_ONE = Indexed(1, (0,))

LATENCY_BYTES = 64
"""The latency of a copy, expressed as the bytes that are copied in that time. It decides between copies of single
entries of a table and one copy of the whole table."""

CHANNEL = 15
"""The channel of the copy engine that kernels use for their own copies. Loads of tiles use it too. Copies of constants
use the lowest free channel, and so rarely this one."""


@selects("gather")
def gather(graph: Graph, node: Node) -> list[KernelCall]:
    """Select gather_s8. Its batches are the batch dimensions, and its columns are the gathered axis. Its rows are the
    axes between these, and its channels are the axes after the gathered one.

    For constant indices without batch dimensions select resize_nearest_neighbor_s8, whose maps can list any rows and
    columns, if few calls suffice (``gathers_by_maps``). For a constant table whose entries lie along its first axis
    select embedding_lookup_s8, which copies only the entries that the indices name, if that takes less time than a
    copy of the whole table.
    """
    if gathers_by_maps(graph, node):
        return indexed(graph, node)
    source, indices, result = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    batch_dims, axis = node["batch_dims"], node["axis"] % len(source.shape)
    batches, outer = math.prod(source.shape[:batch_dims]), math.prod(source.shape[batch_dims:axis])
    extent, inner = source.shape[axis], math.prod(source.shape[axis + 1 :]) * source.dtype.size_bytes
    count, size = math.prod(indices.shape[batch_dims:]), indices.dtype.size_bytes
    taken, given = (batches, outer, extent, inner), (batches, outer, count, inner)
    named = (batches, 1, count, size)
    if source.is_constant and batches * outer == 1 and count * (inner + LATENCY_BYTES) < source.size_bytes:
        return [_looked_up(node.name, (source, indices, result), (extent, count, inner))]
    views = {
        "input": View(source.name, taken, dense_pitches(taken)),
        "indices": View(indices.name, named, dense_pitches(named)),
        "output": View(result.name, given, dense_pitches(given)),
    }
    return [KernelCall("gather_s8", node.name, views)]


def _looked_up(name: str, tensors: tuple[Tensor, Tensor, Tensor], extents: tuple[int, int, int]) -> KernelCall:
    """Return the embedding_lookup_s8 call that copies entries of a table.

    ``tensors`` are the table, the indices and the result. ``extents`` are the number of entries, the number of
    indices, and the bytes of an entry. If the table is a matrix and the indices have several axes, the last of these
    axes becomes the columns, as in the calls that read the result. Otherwise all indices are columns of one row.
    """
    (table, indices, result), (extent, count, inner) = tensors, extents
    cols = indices.shape[-1] if indices.shape and len(table.shape) == 2 and len(result.shape) > 2 else count
    named, given = ((1, count // cols, cols, size) for size in (indices.dtype.size_bytes, inner))
    entries = (1, 1, extent, inner)
    views = {
        "input": View(table.name, entries, dense_pitches(entries)),
        "indices": View(indices.name, named, dense_pitches(named)),
        "output": View(result.name, given, dense_pitches(given)),
    }
    return KernelCall("embedding_lookup_s8", name, views, {"channel": CHANNEL})


@selects(*(op for op in INDEXED if op != "gather"))
def indexed(graph: Graph, node: Node) -> list[KernelCall]:
    """Select resize_nearest_neighbor_s8. Its maps list the rows and columns of the input that are read.

    The kernel has four axes: batches, rows, columns and channels. If the tensor has further axes, each of their
    positions needs a call. If the elements are moved in byte planes (``moved_axes``), each byte of the elements has
    its own calls.
    """
    source, result = graph.given(node, 0), graph[node.name]
    axes, planes = moved_axes(graph, node)
    from_pitches = row_major([axis.extent for axis in axes], planes)
    to_pitches = row_major([len(axis.positions) for axis in axes], planes)
    chosen, rest = kernel_axes(axes)
    own = [axes[i] if i >= 0 else _ONE for i in chosen]
    # An axis of one element may have any pitch; 1 keeps the buffer small.
    read = [from_pitches[i] if i >= 0 else 1 for i in chosen]
    written = [to_pitches[i] if i >= 0 else 1 for i in chosen]
    maps = Maps(*(np.array([axis.positions], np.int32) for axis in own[1:3]))
    calls = []
    steps_of_rest = itertools.product(*(enumerate(axes[i].positions) for i in rest))
    for places, plane in itertools.product(steps_of_rest, range(planes)):
        steps = list(zip(rest, places, strict=True))
        offset = plane + sum(position * from_pitches[i] for i, (_, position) in steps)
        to_offset = plane + sum(place * to_pitches[i] for i, (place, _) in steps)
        views = {
            "input": View(source.name, four([axis.extent for axis in own]), four(read), offset),
            "output": View(result.name, four([len(axis.positions) for axis in own]), four(written), to_offset),
        }
        calls.append(KernelCall("resize_nearest_neighbor_s8", node.name, views, constants={"map": maps}))
    return calls
