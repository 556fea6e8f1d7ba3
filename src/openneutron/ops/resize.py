# SPDX-License-Identifier: BSD-3-Clause
"""Operators that resize images: nearest neighbour and bilinear."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.limits import limit, rank
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Quantization,
    constant_values,
    moving,
    parameter,
    shape_of,
    shape_reason,
)


def _resize_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    batches, _, _, channels = shape_of(graph, node)
    height, width = constant_values(graph, node, 1)
    return ((batches, height, width, channels),)


def bilinear_positions(
    inputs: int, outputs: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[tuple[int, int, int], ...]:
    """Return for each output position the two input positions around it and the second's weight in 1/1024.

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
    moving(
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
        kernels=("resize_bilinear_s8",),
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
