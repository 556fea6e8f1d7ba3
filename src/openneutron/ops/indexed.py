# SPDX-License-Identifier: BSD-3-Clause
"""Declare operators that take elements of the input by position, along each axis separately: gather, mirror pad,
reverse, tile, resizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from openneutron.ir import Graph, Node
from openneutron.ops.limits import STORED, Limit, attr_among, axes_of, limit, rank
from openneutron.ops.shape import pads
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Operand,
    Quantization,
    Role,
    constant_values,
    moving_bytes,
    parameter,
    shape_of,
    shape_reason,
)

MOST_CALLS = 64
"""The limit on kernel calls for one node. The number is our own choice and bounds the microcode's size."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A selection of positions along one axis: for each position of the output, the position of the input that it
    takes. ``extent`` is the extent of the input's axis."""

    extent: int
    positions: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Return whether the output takes all positions of the axis in their order."""
        return self.positions == tuple(range(self.extent))


def _gather(graph: Graph, node: Node) -> list[Indexed]:
    """Return the positions that a GATHER takes. Its indices must be constant, and the same for every batch."""
    shape = shape_of(graph, node)
    axis = node["axis"] % len(shape)
    taken = constant_values(graph, node, 1)
    return [Indexed(n, taken if i == axis else tuple(range(n))) for i, n in enumerate(shape)]


def _mirror_pad(graph: Graph, node: Node) -> list[Indexed]:
    apart = 1 if node["mode"] == "REFLECT" else 0
    axes = []
    for extent, (before, after) in zip(shape_of(graph, node), pads(graph, node), strict=True):
        first = tuple(range(before - 1 + apart, apart - 1, -1))
        last = tuple(range(extent - 1 - apart, extent - 1 - apart - after, -1))
        axes.append(Indexed(extent, (*first, *range(extent), *last)))
    return axes


def _reverse(graph: Graph, node: Node) -> list[Indexed]:
    shape = shape_of(graph, node)
    turned = {axis % len(shape) for axis in constant_values(graph, node, 1)}
    return [Indexed(n, tuple(range(n))[:: -1 if i in turned else 1]) for i, n in enumerate(shape)]


def _tile(graph: Graph, node: Node) -> list[Indexed]:
    times = constant_values(graph, node, 1)
    return [Indexed(n, tuple(range(n)) * count) for n, count in zip(shape_of(graph, node), times, strict=True)]


def _broadcast_to(graph: Graph, node: Node) -> list[Indexed]:
    wanted, shape = constant_values(graph, node, 1), shape_of(graph, node)
    shape = (1,) * (len(wanted) - len(shape)) + shape
    return [Indexed(own, (0,) * n if own == 1 else tuple(range(own))) for own, n in zip(shape, wanted, strict=True)]


INDEXED: dict[str, Callable[[Graph, Node], list[Indexed]]] = {
    "gather": _gather,
    "mirror_pad": _mirror_pad,
    "reverse_v2": _reverse,
    "tile": _tile,
    "broadcast_to": _broadcast_to,
}
"""The function of each operator that returns the positions along each axis of its output. GATHER's indices must be
constant, and count as one axis."""


def merged_axes(axes: list[Indexed]) -> list[Indexed]:
    """Return fewer axes that describe the same selection. An axis with one element in both input and output is
    dropped. Neighbouring axes are merged if both are taken whole (all positions in order)."""
    merged: list[Indexed] = []
    for axis in axes:
        if axis.extent == 1 and len(axis.positions) == 1:
            continue
        if merged and merged[-1].whole and axis.whole:
            extent = merged[-1].extent * axis.extent
            merged[-1] = Indexed(extent, tuple(range(extent)))
        else:
            merged.append(axis)
    return merged


def kernel_axes(axes: list[Indexed]) -> tuple[list[int], list[int]]:
    """Return two lists of indices into the merged axes. The first list has the axes that become the kernel's batches,
    rows, columns and channels (-1: none). Each position along the axes of the second list takes a kernel call of its
    own.

    The two longest axes that are not taken whole become rows and columns.
    """
    mapped = sorted((i for i, axis in enumerate(axes) if not axis.whole), key=lambda i: -len(axes[i].positions))
    plain = sorted((i for i, axis in enumerate(axes) if axis.whole), key=lambda i: -axes[i].extent)
    # Along the channels elements are copied line by line: the innermost axis, if it is taken whole.
    if len(axes) - 1 in plain:
        plain.insert(0, plain.pop(plain.index(len(axes) - 1)))
    planes, lines = mapped[:2], plain[:2]
    rest = mapped[2:] + plain[2:]
    while len(planes) < 2 and any(axes[i].whole for i in rest):
        planes.append(next(i for i in rest if axes[i].whole))
        rest.remove(planes[-1])
    planes += [-1] * (2 - len(planes))
    lines += [-1] * (2 - len(lines))
    return [lines[1], *planes, lines[0]], rest


def _calls_for(axes: list[Indexed]) -> int:
    return math.prod(len(axes[i].positions) for i in kernel_axes(axes)[1])


def moved_axes(graph: Graph, node: Node) -> tuple[list[Indexed], int]:
    """Return the merged axes that one kernel call moves, and the number of byte planes, which is 1 or the bytes of an
    element.

    With one plane, the bytes of an element are an additional innermost axis. With several planes, each plane has one
    byte of every element, and needs kernel calls of its own. Several planes are used only if they take fewer calls in
    total.
    """
    size, axes = graph[node.name].dtype.size_bytes, INDEXED[node.op](graph, node)
    one, apart = merged_axes([*axes, Indexed(size, tuple(range(size)))]), merged_axes(axes)
    return (one, 1) if _calls_for(one) <= size * _calls_for(apart) else (apart, size)


def _calls(graph: Graph, node: Node) -> int:
    axes, planes = moved_axes(graph, node)
    return planes * _calls_for(axes)


def gathers_by_maps(graph: Graph, node: Node) -> bool:
    """Return whether a GATHER's positions are constant, the same in every batch, and at most MOST_CALLS calls gather
    them."""
    indices = graph.given(node, 1)
    return indices.is_constant and node["batch_dims"] == 0 and _calls(graph, node) <= MOST_CALLS


def _few_calls(graph: Graph, node: Node) -> str | None:
    calls = _calls(graph, node)
    if calls <= MOST_CALLS:
        return None
    return f"it would take {calls} kernel calls, one for each position of the axes beyond two; at most {MOST_CALLS}"


def _indexed_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    return (tuple(len(axis.positions) for axis in INDEXED[node.op](graph, node)),)


def _gather_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    shape, indices = shape_of(graph, node), graph.given(node, 1)
    axis = node["axis"] % len(shape)
    return ((*shape[:axis], *indices.shape[node["batch_dims"] :], *shape[axis + 1 :]),)


def _gather_axes(graph: Graph, node: Node) -> str | None:
    shape, indices, batches = shape_of(graph, node), graph.given(node, 1), node["batch_dims"]
    if not -len(shape) <= node["axis"] < len(shape):
        return f"its axis is {node['axis']}; its input has rank {len(shape)}"
    if not 0 <= batches <= min(node["axis"] % len(shape), len(indices.shape)):
        return f"its batch_dims is {batches}; it must be at least 0 and at most the axis and the indices' rank"
    if shape[:batches] != indices.shape[:batches]:
        return f"its input has batches {list(shape[:batches])}, its indices {list(indices.shape[:batches])}"
    return None


def _indices_inside(graph: Graph, node: Node) -> str | None:
    indices = graph.given(node, 1)
    if not indices.is_constant:
        return None
    extent, taken = shape_of(graph, node)[node["axis"]], constant_values(graph, node, 1)
    if all(0 <= index < extent for index in taken):
        return None
    return f"its indices go from {min(taken)} to {max(taken)}; the axis has positions 0 to {extent - 1}"


def _mirrored_amounts(graph: Graph, node: Node) -> str | None:
    apart = 1 if node["mode"] == "REFLECT" else 0
    for axis, (extent, amounts) in enumerate(zip(shape_of(graph, node), pads(graph, node), strict=True)):
        if min(amounts) < 0 or max(amounts) > extent - apart:
            return f"it pads axis {axis} of extent {extent} by {amounts}; {node['mode']} allows 0 to {extent - apart}"
    return None


def _counts(graph: Graph, node: Node) -> str | None:
    counts, shape = constant_values(graph, node, 1), shape_of(graph, node)
    if len(counts) != len(shape) or any(count < 1 for count in counts):
        return f"its counts are {list(counts)}; there must be {len(shape)}, each above 0"
    # Before positions are listed one by one: a damaged file may state thousands of millions.
    return shape_reason(graph, node, tuple(extent * count for extent, count in zip(shape, counts, strict=True)))


def _broadcasts(graph: Graph, node: Node) -> str | None:
    wanted, shape = constant_values(graph, node, 1), shape_of(graph, node)
    own = (1,) * (len(wanted) - len(shape)) + shape
    if len(own) != len(wanted) or not all(a in (1, b) for a, b in zip(own, wanted, strict=True)):
        return f"its input has shape {list(shape)}, which does not broadcast to {list(wanted)}"
    return shape_reason(graph, node, wanted)


def _row(
    name: str, operand: str, doc: str, *limits: Limit, attributes: tuple[Attribute, ...] = (), version: int = 2
) -> Op:
    calls = limit(f"at most {MOST_CALLS} kernel calls: two axes, and all positions of others together", _few_calls)
    return moving_bytes(
        name,
        operands=(INPUT, parameter(operand)),
        shape=_indexed_shape,
        kernels=("resize_nearest_neighbor_s8",),
        attributes=attributes,
        limits=(rank(0, 1, 6), *limits, calls),
        version=version,
        doc=doc,
    )


def _resize_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    batches, _, _, channels = shape_of(graph, node)
    height, width = constant_values(graph, node, 1)
    return ((batches, height, width, channels),)


def bilinear_positions(
    inputs: int, outputs: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[tuple[int, int, int], ...]:
    """Return for each output position the two neighbouring input positions, and the weight of the second one in units
    of 1/1024.

    Follows ResizeBilinearInteger of LiteRT's reference/resize_bilinear.h: 10 bits of fraction.
    """
    if align_corners and outputs > 1:
        step = (1024 * (inputs - 1) + (outputs - 1) // 2) // (outputs - 1)
    else:
        step = (1024 * inputs + outputs // 2) // outputs
    made = []
    for position in range(outputs):
        place = position * step + (step // 2 - 512 if half_pixel_centers else 0)
        first = max(place, 0) // 1024
        second = min((max(place, -1023) + 1023) // 1024, inputs - 1)
        # Where both are one, weights outside 0 to 1024 (before the first, behind the last) change nothing.
        made.append((first, second, 0 if first == second else place - 1024 * first))
    return tuple(made)


def _inside_input(graph: Graph, node: Node) -> str | None:
    source, (result,) = shape_of(graph, node), _resize_shape(graph, node)
    if min(result) < 1:
        return f"its size makes the output {list(result)}; every extent must be above 0"
    if reason := shape_reason(graph, node, result):
        return reason
    for axis, name in ((1, "rows"), (2, "columns")):
        positions = bilinear_positions(source[axis], result[axis], node["align_corners"], node["half_pixel_centers"])
        last = positions[-1][0]
        if last >= source[axis]:
            return (
                f"its {result[axis]} output {name} reach input position {last} of {source[axis]}, "
                "because LiteRT rounds their step to 1/1024; it reads outside the input there"
            )
    return None


def _one_way_to_place(graph: Graph, node: Node) -> str | None:
    if node["align_corners"] and node["half_pixel_centers"]:
        return "it has both align_corners and half_pixel_centers; LiteRT takes one of them"
    return None


_OPERANDS = (INPUT, parameter("size"))
_PLACES = (
    Attribute("align_corners", "alignCorners", False),
    Attribute("half_pixel_centers", "halfPixelCenters", False),
)

OPS = (
    moving_bytes(
        "gather",
        movable=True,
        operands=(INPUT, Operand(Role.INDICES, "indices")),
        shape=_gather_shape,
        kernels=("resize_nearest_neighbor_s8", "gather_s8", "embedding_lookup_s8"),
        attributes=(Attribute("axis", "axis", 0), Attribute("batch_dims", "batchDims", 0)),
        limits=(
            rank(0, 1, 6),
            limit("an axis of the input, behind the batches, which both have", _gather_axes),
            limit("constant indices of the input's axis; others are looked at when it runs", _indices_inside),
        ),
        version=2,
        doc=(
            "Slices of the input, in the order of a list of indices. A computed index below 0 counts from the end, and one "
            "outside the axis ends the run with an error (in LiteRT both do)."
        ),
    ),
    _row(
        "mirror_pad",
        "list of paddings",
        "The input with its own values around it, mirrored.",
        attr_among("mode", "REFLECT", "SYMMETRIC"),
        limit("paddings that the input's extents allow", _mirrored_amounts),
        attributes=(Attribute("mode", "mode", "REFLECT", {0: "REFLECT", 1: "SYMMETRIC"}),),
    ),
    _row(
        "reverse_v2",
        "list of axes",
        "Some axes turned round.",
        axes_of(0, lambda graph, node: constant_values(graph, node, 1)),
    ),
    _row("tile", "list of counts", "The input many times over.", limit("counts above 0", _counts)),
    _row(
        "broadcast_to",
        "shape",
        "The input broadcast to another shape.",
        limit("a shape that the input broadcasts to", _broadcasts),
        version=3,
    ),
    moving_bytes(
        "resize_nearest_neighbor",
        operands=_OPERANDS,
        shape=_resize_shape,
        kernels=("resize_nearest_neighbor_s8",),
        attributes=_PLACES,
        limits=(rank(0, 4, 4),),
        version=2,
        doc="Rows and columns repeated or left out.",
    ),
    Op(
        "resize_bilinear",
        operands=_OPERANDS,
        shape=_resize_shape,
        kernels=("resize_bilinear_s8", "resize_bilinear_s16"),
        types=STORED,
        attributes=_PLACES,
        quantization=Quantization.SHARED,
        limits=(
            rank(0, 4, 4),
            limit("align_corners or half_pixel_centers, not both", _one_way_to_place),
            limit("positions that LiteRT's rounding keeps inside the input", _inside_input),
        ),
        version=3,
        doc="Rows and columns interpolated.",
    ),
)
