# SPDX-License-Identifier: BSD-3-Clause
"""Resizes, by any factor and at the positions that PyTorch samples, and shuffles of pixels and channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from openneutron.compiler.select.rules.data_movement import nearest_neighbors
from openneutron.ops.indexed import bilinear_positions
from openneutron.pytorch.graph.program import Reject, arguments_of, op_name, shape_of
from openneutron.pytorch.operators.pooling import by_planes
from openneutron.pytorch.operators.rules.context import Context, Value, take
from openneutron.pytorch.operators.rules.tables import Layout, always, decomposes, lowers
from openneutron.pytorch.operators.separable import Matrix, Separable, apply, nearest_positions, resized


def _resize(on_images: str, given: dict[str, Any]) -> Callable[[Tensor, list[int], list[float | None]], Tensor]:
    """Return a function that resizes images with the operator ``on_images``. ``given``: the arguments of a resize in
    other dimensions, such as ``align_corners``.

    The function resizes by the factors if any is given, else to the output extents.
    """
    overload = getattr(torch.ops.aten, on_images).vec
    attributes = [given["align_corners"]] if "align_corners" in given else []

    def resize(x: Tensor, sizes: list[int], factors: list[float | None]) -> Tensor:
        if any(factors):
            return overload(x, None, *attributes, [factor or 1.0 for factor in factors])
        return overload(x, sizes, *attributes, None)

    return resize


def _sizes_and_factors(given: dict[str, Any], rank: int) -> tuple[list[int], list[float | None]]:
    """Return the output extents of a call, or zeros if it has none, and its scale factors, or Nones.

    If a call has both, PyTorch computes positions with the factors.
    """
    factors = given.get("scale_factors") or [
        given[key] for key in ("scales", "scales_d", "scales_h", "scales_w") if key in given
    ]
    return list(given["output_size"] or [0] * rank), list(factors) or [None] * rank


def _by_images(on_images: str, rank: int) -> Callable[..., Tensor]:
    """Return the decomposition of a resize of sequences (rank 1) or volumes (rank 3) to resizes of images."""

    def rule(**given: Any) -> Tensor:
        x = given["input"] if "input" in given else given["self"]
        (first, *sizes), (factor, *factors) = _sizes_and_factors(given, rank)
        resize = _resize(on_images, given)
        if rank == 1:
            return resize(x.unsqueeze(-2), [1, first], [None, factor]).squeeze(-2)
        return by_planes(
            x,
            lambda planes: resize(planes, sizes, factors),
            lambda rows: resize(rows, [first, rows.shape[-1]], [factor, None]),
        )

    return rule


for _one, _two, _three in (
    ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
):
    decomposes(f"aten.{_one}.default", f"aten.{_one}.vec")(_by_images(_two, 1))
    decomposes(f"aten.{_three}.default", f"aten.{_three}.vec")(_by_images(_two, 3))


@decomposes("aten.pixel_shuffle.default")
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    *batches, channels, height, width = self.shape
    r, n = upscale_factor, len(batches)
    blocks = self.reshape(*batches, channels // (r * r), r, r, height, width)
    blocks = blocks.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return blocks.reshape(*batches, channels // (r * r), height * r, width * r)


@decomposes("aten.pixel_unshuffle.default")
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    *batches, channels, height, width = self.shape
    r, n = downscale_factor, len(batches)
    blocks = self.reshape(*batches, channels, height // r, r, width // r, r)
    blocks = blocks.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return blocks.reshape(*batches, channels * r * r, height // r, width // r)


@decomposes("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(self: Tensor, groups: int) -> Tensor:
    batches, channels, *rest = self.shape
    grouped = self.reshape(batches, groups, channels // groups, *rest)
    return grouped.transpose(1, 2).reshape(self.shape)


PLACEMENTS = ((False, False), (False, True), (True, False))
"""LiteRT's (align_corners, half_pixel_centers)."""

BILINEAR_TOLERANCE = 2.0**-8
"""The permitted difference between LiteRT's weights, whose positions are rounded to 1/1024 step by step, and PyTorch's. Its effect is
less than one step even between the smallest and the largest stored value."""


def _factors(given: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the factors of rows and columns that a call states, or Nones. They may differ from the ratios of the extents."""
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
    emits=("slice", "gather", "resize_nearest_neighbor"),
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
    return context.requantized(value, context.results.quant(node), f"{node.name}_requantized")


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
    emits=("fully_connected", "batch_matmul", "resize_bilinear"),
)
def interpolate(node: Node, context: Context) -> Value | Reject:
    given, shape = arguments_of(node), shape_of(node)
    value, quant = context.value(node.args[0]), context.results.quant(node)
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
