# SPDX-License-Identifier: BSD-3-Clause
"""Resizes of sequences and volumes as resizes of images; shuffles of pixels and channels as views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.operators.pooling.decompose import by_planes
from openneutron.pytorch.operators.rules.tables import decomposes


def _resize(on_images: str, given: dict[str, Any]) -> Callable[[Tensor, list[int], list[float | None]], Tensor]:
    """Return the resize of images with the attributes of one in other dimensions. It takes either output extents or
    factors."""
    overload = getattr(torch.ops.aten, on_images).vec
    attributes = [given["align_corners"]] if "align_corners" in given else []

    def resize(x: Tensor, sizes: list[int], factors: list[float | None]) -> Tensor:
        if any(factors):
            return overload(x, None, *attributes, [factor or 1.0 for factor in factors])
        return overload(x, sizes, *attributes, None)

    return resize


def _sizes_and_factors(given: dict[str, Any], rank: int) -> tuple[list[int], list[float | None]]:
    """Return what is asked for: output extents without factors, or factors. Factors beside extents are those it
    computes with."""
    factors = given.get("scale_factors") or [
        given[key] for key in ("scales", "scales_d", "scales_h", "scales_w") if key in given
    ]
    return list(given["output_size"] or [0] * rank), list(factors) or [None] * rank


def _by_images(on_images: str, rank: int) -> Callable[..., Tensor]:
    """Return the resize of sequences (rank 1) or volumes (rank 3) by a resize of images."""

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
