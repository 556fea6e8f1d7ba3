# SPDX-License-Identifier: BSD-3-Clause
"""Declare operators that move values or only change the shape: reshape, slice, concatenation, transpose, pad; those that divide a tensor
or join tensors (split, unpack, pack), and those that turn blocks of rows and columns into channels or batches.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import SHARED_QUANTIZATION, Limit, attr_among, axes_of, limit, rank
from openneutron.ops.rescaling import quant_of, ratio_in_float, result_quant
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
    stated_shape,
)


@dataclass(frozen=True, slots=True)
class StridedWindow:
    """The positions that a STRIDED_SLICE takes along each axis of its input: the first index, the step and the count.
    ``dropped`` is True for an axis that the output does not have."""

    first: tuple[int, ...]
    step: tuple[int, ...]
    count: tuple[int, ...]
    dropped: tuple[bool, ...]


_WHOLE, _NEW = -1, -2
"""Marks in place of an index in begin, end and strides: the axis is taken whole, or is a new one with an extent of 1."""


def _places(graph: Graph, node: Node) -> list[int]:
    """Return, for each axis of the input and each new axis in order, its index in the operands begin, end and
    strides. The result is _WHOLE for an axis that is taken whole, and _NEW for a new axis."""
    stated, own = len(constant_values(graph, node, 1)), len(shape_of(graph, node))
    ellipsis, new = node["ellipsis_mask"], node["new_axis_mask"] & ~node["ellipsis_mask"]
    axes = own + sum(new >> place & 1 for place in range(stated))
    places: list[int] = []
    for place in range(stated):
        if ellipsis >> place & 1:
            places += [_WHOLE] * max(1, axes - stated + 1)
        else:
            places.append(_NEW if new >> place & 1 else place)
    return (places + [_WHOLE] * axes)[:axes]


def strided_window(graph: Graph, node: Node) -> StridedWindow:
    """Return the positions that STRIDED_SLICE takes along each axis of its input."""
    first, step, count, dropped = [], [], [], []
    stated = [place for place in _places(graph, node) if place != _NEW]
    for place, extent in zip(stated, shape_of(graph, node), strict=False):  # has_one_ellipsis compares their numbers
        begins, stops, steps, drops = (0, extent, 1, False) if place == _WHOLE else _taken(graph, node, place, extent)
        first.append(begins)
        step.append(steps)
        count.append(max(0, -(-(stops - begins) // steps)))
        dropped.append(drops)
    return StridedWindow(tuple(first), tuple(step), tuple(count), tuple(dropped))


def _taken(graph: Graph, node: Node, place: int, extent: int) -> tuple[int, int, int, bool]:
    """Return the first position that is taken along an axis, the exclusive end, the step, and whether the output drops
    the axis."""
    begin, end, step = (constant_values(graph, node, index)[place] for index in (1, 2, 3))
    # With a negative step the bounds of an index are one lower.
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    masked = node["begin_mask"] >> place & 1
    begins = (0 if step > 0 else extent - 1) if masked else _index(begin, extent, low, high)
    if node["shrink_axis_mask"] >> place & 1:
        return begins, begins + 1, step, True
    stop = begins + end if node["offset"] else end
    stops = (extent if step > 0 else -1) if node["end_mask"] >> place & 1 else _index(stop, extent, low, high)
    return begins, stops, step, False


def _index(value: int, extent: int, low: int, high: int) -> int:
    return min(max(value + extent if value < 0 else value, low), high)


def strided_slice_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the shape of a STRIDED_SLICE's output."""
    window = strided_window(graph, node)
    kept = zip(window.count, window.dropped, strict=True)
    extents = []
    for place in _places(graph, node):
        count, dropped = (1, False) if place == _NEW else next(kept, (1, False))
        if not dropped:
            extents.append(count)
    return (tuple(extents),)


def has_usable_steps(graph: Graph, node: Node) -> str | None:
    """Return the reason why the steps and ends of a STRIDED_SLICE can't be compiled; None if they can."""
    begin, end, steps = (constant_values(graph, node, index) for index in (1, 2, 3))
    if not len(begin) == len(end) == len(steps):
        return f"it states {len(begin)} begins, {len(end)} ends and {len(steps)} strides; they must be as many"
    if 0 in steps:
        return f"its steps are {list(steps)}; none may be 0"
    if any(step < 0 and node["shrink_axis_mask"] >> place & 1 for place, step in enumerate(steps)):
        return f"its steps are {list(steps)}; the step of a dropped axis must be above 0"
    if node["offset"] and (any(value < 0 for value in end) or any(step < 0 for step in steps)):
        return f"its ends are {list(end)}, counted from the begin, its steps {list(steps)}; none may be negative"
    return None


def has_one_ellipsis(graph: Graph, node: Node) -> str | None:
    """Return the reason why a STRIDED_SLICE's masks can't be compiled, or None."""
    if bin(node["ellipsis_mask"]).count("1") > 1:
        return f"its ellipsis_mask is {node['ellipsis_mask']}; at most one bit may be set"
    places = _places(graph, node)
    if len(places) > MOST_AXES:
        return f"it has {len(places)} axes, new ones included; at most {MOST_AXES}"
    stated, own = len(constant_values(graph, node, 1)), len(shape_of(graph, node))
    if len(places) - places.count(_NEW) != own or (not node["ellipsis_mask"] and len(places) < stated):
        return f"it states {stated} axes; its input has only rank {own}"
    if node["ellipsis_mask"] and stated > len(places):
        return "its ellipsis stands for 0 axes; LiteRT counts 1 axis for it"
    return None


MOST_AXES = 5
"""The largest number of axes of LiteRT's STRIDED_SLICE, new axes included."""


def is_rearranged(graph: Graph, node: Node) -> bool:
    """Return whether a STRIDED_SLICE has an ellipsis, new axes or negative steps. It is then composed of other
    operators."""
    masks = node["ellipsis_mask"] | node["new_axis_mask"]
    return bool(masks) or any(step < 0 for step in constant_values(graph, node, 3))


def rearranged(parts: Parts, graph: Graph, node: Node) -> None:
    """Compose a STRIDED_SLICE of three steps. The first takes the same positions with positive steps. The second
    reverses the axes whose steps are negative. The third reshapes to the output."""
    source, (result,) = str(node.inputs[0]), node.outputs
    window = strided_window(graph, node)
    axes = range(len(window.step))
    lasts = [
        first + (count - 1) * step for first, count, step in zip(window.first, window.count, window.step, strict=True)
    ]
    begin = [min(window.first[axis], lasts[axis]) for axis in axes]
    end = [max(window.first[axis], lasts[axis]) + 1 for axis in axes]
    operands = [source, *(parts.integers(list_) for list_ in (begin, end, [abs(step) for step in window.step]))]
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    kind = graph[source].dtype, graph[source].quant
    taken = parts.add("strided_slice", operands, parts.new(window.count, *kind), **masks, offset=False)
    turned = [axis for axis in axes if window.step[axis] < 0 and window.count[axis] > 1]
    if turned:
        taken = parts.add("reverse_v2", [taken, parts.integers(turned)], parts.new(window.count, *kind))
    parts.reshape(taken, graph[result].shape, result)


VIEWS = ("reshape", "squeeze", "expand_dims", "bitcast")
"""Operators whose output is the memory of their input with another shape."""


def _same_elements(graph: Graph, node: Node) -> str | None:
    before, after = math.prod(shape_of(graph, node)), graph[node.outputs[0]].elements
    return None if before == after else f"its input has {before} values, its output {after}"


def _view(name: str, parameter: str, attributes: tuple[Attribute, ...], doc: str) -> Op:
    return moving_bytes(
        name,
        operands=(INPUT, Operand(Role.PARAMETER, parameter, optional=True)),
        shape=stated_shape,
        kernels=("copy_s8",),
        attributes=attributes,
        movable=True,
        limits=(limit("as many values as the input", _same_elements),),
        doc=doc,
    )


def pads(graph: Graph, node: Node) -> tuple[tuple[int, int], ...]:
    """Return the number of values that a pad adds before and after each axis."""
    flat = constant_values(graph, node, 1)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _pad_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    return (tuple(e + before + after for e, (before, after) in zip(shape, pads(graph, node), strict=True)),)


def _pad_amounts(graph: Graph, node: Node) -> str | None:
    amounts = pads(graph, node)
    if any(amount < 0 for pair in amounts for amount in pair):
        return f"it pads by {amounts}; a padding is at least 0"
    return None


def _value_fits(graph: Graph, node: Node) -> str | None:
    data, value = graph.given(node, 0), graph.given(node, 2)
    if value.dtype is data.dtype and value.elements == 1:
        return None
    return f"its padding value is {value.dtype} {list(value.shape)}; it must be one {data.dtype}"


def pad_box(shape: tuple[int, ...], amounts: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """Return (extent, padding before, padding after) of each axis. With more than four axes, an axis without padding
    is merged into the axis before it. Leading axes of extent 1 without padding are dropped."""
    box = [(extent, before, after) for extent, (before, after) in zip(shape, amounts, strict=True)]
    if len(box) <= 4:
        return tuple(box)
    merged: list[tuple[int, int, int]] = []
    for extent, before, after in box:
        if before == after == 0 and (merged or extent == 1):
            merged[-1:] = [(values[0] * extent, values[1] * extent, values[2] * extent) for values in merged[-1:]]
        else:
            merged.append((extent, before, after))
    return tuple(merged)


def _pad_axes(graph: Graph, node: Node) -> str | None:
    box = pad_box(shape_of(graph, node), pads(graph, node))
    if len(box) <= 4:
        return None
    return f"it pads {len(box)} axes that can't be merged; at most 4"


def _concatenation_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shapes = [graph[name].shape for name in node.inputs if name is not None]
    axis = node["axis"] % len(shapes[0])
    shape = list(shapes[0])
    shape[axis] = sum(piece[axis] for piece in shapes)
    return (tuple(shape),)


def _pieces_fit(graph: Graph, node: Node) -> str | None:
    shapes = [list(graph[name].shape) for name in node.inputs if name is not None]
    axis = node["axis"] % len(shapes[0])
    others = [shape[:axis] + shape[axis + 1 :] for shape in shapes]
    if all(len(shape) == len(shapes[0]) for shape in shapes) and all(other == others[0] for other in others):
        return None
    return f"its inputs have shapes {shapes}, which do not join along axis {axis}"


MOST_JOINED_RATIO = 2.0**22
"""The bound of the ratio of an input's scale to the output's. LiteRT casts a stored 8-bit value times this ratio to int32."""


def _joined_quantization(graph: Graph, node: Node) -> str | None:
    """Return the reason why a CONCATENATION with these scales can't be compiled; None if it can.

    LiteRT's int8 kernel copies bytes, so that all tensors must have one scale and zero point. Its int16 kernel copies
    values whatever the scales are, and has no limit. Its uint8 kernel rescales inputs by a ratio of scales, which
    must be below MOST_JOINED_RATIO.
    """
    if graph[node.name].dtype is DType.INT16:
        return None
    if not node.attrs.get("unsigned"):
        return SHARED_QUANTIZATION(graph, node)
    ratios = [
        ratio_in_float(quant_of(graph, node, index), result_quant(graph, node)) for index in range(len(node.inputs))
    ]
    if max(ratios) < MOST_JOINED_RATIO:
        return None
    return f"an input has {max(ratios):.6g} times the output's scale; it must be below 2^22"


def slice_window(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the begin and the size of a slice along each axis. A size of -1 is replaced by the extent up to the end."""
    shape = shape_of(graph, node)
    begin, size = constant_values(graph, node, 1), constant_values(graph, node, 2)
    return begin, tuple(e - b if s == -1 else s for e, b, s in zip(shape, begin, size, strict=True))


def _box_inside(graph: Graph, node: Node) -> str | None:
    shape, (begin, size) = shape_of(graph, node), slice_window(graph, node)
    if all(b >= 0 and s >= 1 and b + s <= e for e, b, s in zip(shape, begin, size, strict=True)):
        return None
    return f"it takes {list(size)} from {list(begin)} on of an input of shape {list(shape)}; that is not inside"


def _slice_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return (slice_window(graph, node)[1],)


def _dropped_inside(graph: Graph, node: Node) -> str | None:
    window = strided_window(graph, node)
    for axis, (extent, first, dropped) in enumerate(
        zip(shape_of(graph, node), window.first, window.dropped, strict=True)
    ):
        if dropped and first >= extent:
            return (
                f"it takes one position of axis {axis}, from behind its {extent}; LiteRT reads outside the input there"
            )
    return None


def _transpose_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape = shape_of(graph, node)
    return (tuple(shape[axis] for axis in constant_values(graph, node, 1)),)


def _is_permutation(graph: Graph, node: Node) -> str | None:
    order, own = constant_values(graph, node, 1), len(shape_of(graph, node))
    return None if sorted(order) == list(range(own)) else f"it orders axes as {list(order)}; they are 0 to {own - 1}"


_PAD_LIMITS = (
    rank(0, 1, 5),
    limit("paddings of at least 0", _pad_amounts),
    limit("at most 4 axes, where one that is not padded counts as part of the one before it", _pad_axes),
)

_MOVED = (
    _view("reshape", "shape", (Attribute("new_shape", "newShape", ()),), "Another shape."),
    _view("squeeze", "", (Attribute("squeeze_dims", "squeezeDims", ()),), "Without extents of 1."),
    _view("expand_dims", "axis", (), "With one more extent of 1."),
    moving_bytes(
        "pad",
        operands=(INPUT, parameter("list of paddings")),
        shape=_pad_shape,
        kernels=("pad_s8",),
        limits=_PAD_LIMITS,
        version=2,
        doc="The input with zeros around it.",
    ),
    moving_bytes(
        "padv2",
        operands=(INPUT, parameter("list of paddings"), Operand(Role.VALUE, "padding value")),
        shape=_pad_shape,
        kernels=("pad_s8",),
        options="PadV2Options",
        limits=(limit("a padding value of the input's type", _value_fits), *_PAD_LIMITS),
        version=2,
        doc="The input with a constant around it.",
    ),
    moving_bytes(
        "concatenation",
        operands=(Operand(Role.ACTIVATION, "input", repeated=True),),
        shape=_concatenation_shape,
        attributes=(
            Attribute("axis", "axis", 0),
            Attribute("activation", "fusedActivationFunction", "NONE", {0: "NONE"}),
        ),
        movable=True,
        rescales_inputs=True,
        limits=(
            limit("int8: inputs and output of the same scale and zero point", _joined_quantization),
            attr_among("activation", "NONE"),
            axes_of(0, lambda _, node: (node["axis"],)),
            limit("inputs of one shape but for the axis", _pieces_fit),
        ),
        version=2,
        doc="Inputs one behind the other along an axis.",
    ),
    moving_bytes(
        "slice",
        operands=(INPUT, parameter("begin"), parameter("size")),
        shape=_slice_shape,
        movable=True,
        limits=(rank(0, 1, 5), limit("a box inside the input", _box_inside)),
        version=2,
        doc="A box of the input.",
    ),
    moving_bytes(
        "strided_slice",
        operands=(INPUT, parameter("begin"), parameter("end"), parameter("list of strides")),
        shape=strided_slice_shape,
        movable=True,
        attributes=(
            Attribute("begin_mask", "beginMask", 0),
            Attribute("end_mask", "endMask", 0),
            Attribute("ellipsis_mask", "ellipsisMask", 0),
            Attribute("new_axis_mask", "newAxisMask", 0),
            Attribute("shrink_axis_mask", "shrinkAxisMask", 0),
            Attribute("offset", "offset", False),
        ),
        limits=(
            rank(0, 1, 5),
            limit("strides that are not 0", has_usable_steps),
            limit(f"at most one ellipsis, at most {MOST_AXES} axes, new ones included", has_one_ellipsis),
            limit("positions of the input where an axis goes", _dropped_inside),
        ),
        version=2,
        doc="Elements of a box of the input at constant steps, forwards or backwards.",
        made_of=rearranged,
        composed=is_rearranged,
    ),
    moving_bytes(
        "transpose",
        operands=(INPUT, parameter("permutation")),
        shape=_transpose_shape,
        movable=True,
        limits=(rank(0, 1, 6), limit("a permutation of the input's axes", _is_permutation)),
        version=2,
        doc="Axes in another order.",
    ),
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
    """Lower DEPTH_TO_SPACE or SPACE_TO_DEPTH to RESHAPE, TRANSPOSE and RESHAPE. The TRANSPOSE exchanges two axes: the
    columns of the smaller image, and the rows of a block."""
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
    """Return, for each axis that blocks divide, the amounts before and after it that SPACE_TO_BATCH_ND pads or
    BATCH_TO_SPACE_ND crops."""
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
    """Lower SPACE_TO_BATCH_ND: pad, then make each position in a block a batch."""
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
    """Lower BATCH_TO_SPACE_ND: move batches back to their positions in blocks, then crop the edges."""
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

_PIECES = (
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

OPS = (*_MOVED, *_PIECES)
