# SPDX-License-Identifier: BSD-3-Clause
"""Resizes of images, by any factor and as PyTorch places the positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from openneutron.compiler.select.rules.data_movement import nearest_neighbors
from openneutron.ops.indexed import bilinear_positions
from openneutron.pytorch.graph.program import Reject, arguments_of, op_name, shape_of
from openneutron.pytorch.operators.rules.context import Context, take
from openneutron.pytorch.operators.rules.results import Value
from openneutron.pytorch.operators.rules.tables import Layout, always, lowers
from openneutron.pytorch.operators.separable.sums import Matrix, Separable, apply, nearest_positions, resized

PLACEMENTS = ((False, False), (False, True), (True, False))
"""LiteRT's (align_corners, half_pixel_centers)."""

BILINEAR_TOLERANCE = 2.0**-8
"""The permitted distance of LiteRT's weights, whose positions are rounded to 1/1024 step by step, from PyTorch's: less than a step
between the smallest and the largest stored value."""


def _factors(given: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the factors that were asked for, which may differ from those of the extents."""
    rows, columns = given.get("scale_factors") or (given.get("scales_h"), given.get("scales_w"))
    return rows, columns


def _whole(node: Node) -> Any:
    """Return the form of the node's operator that takes the output size and factors."""
    packet = op_name(node).split(".")[1]
    return getattr(torch.ops.aten, packet).default


@lowers(
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest2d.vec",
    "aten._upsample_nearest_exact2d.default",
    "aten._upsample_nearest_exact2d.vec",
    moves=True,
    preserve=always,
    layout=Layout.NHWC,
)
def nearest(node: Node, context: Context) -> Value | Reject:
    given, shape = arguments_of(node), shape_of(node)
    value = context.settled(context.value(node.args[0]))
    size, result = (value.shape[2], value.shape[3]), (shape[2], shape[3])
    positions = nearest_positions(_whole(node), size, result, _factors(given))
    for align, half in PLACEMENTS:
        places = (nearest_neighbors(a, b, align, half) for a, b in zip(size, result, strict=True))
        if all(tuple(own) == wanted for own, wanted in zip(places, positions, strict=True)):
            value = _resized(node, context, "resize_nearest_neighbor", context.nhwc(value), align, half)
            break
    else:
        name = value.tensor
        for dim, taken in enumerate(positions, start=2):
            name = take(context, name, value.order.index(dim), taken, node.name)
        value = Value(name, shape, value.order, shape)
    return context.requantized(value, context.result_quant(node), f"{node.name}_requantized")


@lowers(
    "aten.upsample_bilinear2d.default",
    "aten.upsample_bilinear2d.vec",
    "aten._upsample_bilinear2d_aa.default",
    "aten._upsample_bilinear2d_aa.vec",
    "aten.upsample_bicubic2d.default",
    "aten.upsample_bicubic2d.vec",
    "aten._upsample_bicubic2d_aa.default",
    "aten._upsample_bicubic2d_aa.vec",
    preserve=always,
    layout=Layout.NHWC,
)
def interpolate(node: Node, context: Context) -> Value | Reject:
    given, shape = arguments_of(node), shape_of(node)
    value, quant = context.value(node.args[0]), context.result_quant(node)
    size, result = (value.shape[2], value.shape[3]), (shape[2], shape[3])
    wanted = resized(_whole(node), (given["align_corners"],), size, result, _factors(given))
    if quant == context.quant(value):
        for align, half, own in _litert_bilinear(size, result):
            if _near(own.rows, wanted.rows) and _near(own.columns, wanted.columns):
                return _resized(node, context, "resize_bilinear", context.nhwc(value), align, half)
    return apply(context, value, wanted, quant, node.name)


def _resized(node: Node, context: Context, op: str, source: str, align: bool, half: bool) -> Value:
    shape, quant = shape_of(node), context.tensors[source].quant
    assert quant is not None
    operand = context.add_integers(f"{node.name}_size", shape[2:])
    stored = (shape[0], *shape[2:], shape[1])
    name = context.emit(op, (source, operand), stored, quant, node.name, align_corners=align, half_pixel_centers=half)
    return context.from_nhwc(name, shape)


def _near(own: Matrix, wanted: Matrix) -> bool:
    return bool(np.abs(own - wanted).max() <= BILINEAR_TOLERANCE)


def _litert_bilinear(size: tuple[int, int], result: tuple[int, int]) -> Iterator[tuple[bool, bool, Separable]]:
    """Yield (align_corners, half_pixel_centers, LiteRT's RESIZE_BILINEAR) for each placement that stays inside the
    input."""
    for align, half in PLACEMENTS:
        matrices = []
        for extent, outputs in zip(size, result, strict=True):
            matrix = np.zeros((outputs, extent))
            for output, (first, second, weight) in enumerate(bilinear_positions(extent, outputs, align, half)):
                if first >= extent:
                    break
                matrix[output, first] += 1 - weight / 1024
                matrix[output, second] += weight / 1024
            else:
                matrices.append(matrix)
        if len(matrices) == 2:
            yield align, half, Separable(*matrices)
