# SPDX-License-Identifier: BSD-3-Clause
"""Operators that move elements: gather, scatter, pad, resize, and blocks of pixels as channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, cast, converts, integers, scalar


@converts("Gather", constants=(1,))
def _gather(node: NodeView, x: Tensor, indices: Any) -> Values:
    """Indices that are not constants count from the first element, as those of PyTorch's embedding do."""
    axis = node.get("axis", 0) % x.dim()
    size = x.shape[axis]
    if isinstance(indices, np.ndarray):
        if indices.ndim == 0:
            return x.select(axis, int(indices) % size)
        flat = [index % size for index in integers(indices)]
        run = range(flat[0], flat[0] + len(flat)) if flat else range(0)
        if flat == list(run):
            taken = x.narrow(axis, run.start, len(run))
            return taken if indices.ndim == 1 else taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        indices = node.constant("indices", indices.astype(np.int64) % size)
    if axis == 0 and x.dim() == 2:
        return F.embedding(indices, x)
    taken = x.index_select(axis, cast(indices.reshape(-1), torch.int64))
    return taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _positive(indices: Tensor, size: int) -> Tensor:
    return cast(torch.where(indices < 0, indices + size, indices), torch.int64)


@converts("GatherElements")
def _gather_elements(node: NodeView, x: Tensor, indices: Tensor) -> Values:
    axis = node.get("axis", 0)
    return torch.gather(x, axis, _positive(indices, x.shape[axis]))


@converts("GatherND")
def _gather_nd(node: NodeView, x: Tensor, indices: Tensor) -> Values:
    batch, depth = node.get("batch_dims", 0), indices.shape[-1]
    lead = math.prod(x.shape[:batch])
    rows = x.reshape(lead, *x.shape[batch:])
    at = indices.reshape(lead, -1, depth)
    first = torch.arange(lead).reshape(lead, 1).expand(lead, at.shape[1])
    places = [_positive(at[..., i], rows.shape[1 + i]) for i in range(depth)]
    taken = rows[(first, *places)]
    return taken.reshape(*indices.shape[:-1], *x.shape[batch + depth :])


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@converts("ScatterElements", "Scatter")
def _scatter_elements(node: NodeView, x: Tensor, indices: Tensor, updates: Tensor) -> Values:
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    at = _positive(indices, x.shape[axis])
    return x.scatter(axis, at, updates) if how == "none" else x.scatter_reduce(axis, at, updates, _REDUCE[how])


@converts("ScatterND")
def _scatter_nd(node: NodeView, x: Tensor, indices: Tensor, updates: Tensor) -> Values:
    how, depth = node.get("reduction", "none"), indices.shape[-1]
    places = tuple(_positive(indices[..., i], x.shape[i]) for i in range(depth))
    if how in ("none", "add"):
        return x.index_put(places, updates, accumulate=how == "add")
    flat = torch.zeros((), dtype=torch.int64)
    for place, size in zip(places, x.shape[:depth], strict=True):
        flat = flat * size + place
    rest = math.prod(x.shape[depth:])
    rows = x.reshape(-1, rest)
    at = flat.reshape(-1, 1).expand(-1, rest)
    return rows.scatter_reduce(0, at, updates.reshape(-1, rest), _REDUCE[how]).reshape(x.shape)


_PAD = {"reflect": "reflect", "edge": "replicate"}


@converts("Pad", structure=(1, 3), constants=(2,))
def _pad(node: NodeView, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Values:
    given = integers(node.get("pads", node.get("paddings")) if pads is None else pads)
    on = list(range(x.dim())) if axes is None else [axis % x.dim() for axis in integers(axes)]
    if isinstance(value, Tensor):
        raise Refused("pads with a value that is computed from data")
    fill = scalar(value, node.get("value", 0.0))
    pairs = [(0, 0)] * x.dim()
    for place, axis in enumerate(on):
        pairs[axis] = (given[place], given[place + len(on)])
    mode = node.get("mode", "constant")
    flat = [side for pair in reversed(pairs) for side in pair]
    if mode == "constant" or all(side <= 0 for side in flat):
        while len(flat) > 2 and flat[-2:] == [0, 0]:
            flat = flat[:-2]
        return F.pad(x, flat, value=fill if x.is_floating_point() else int(fill))
    spatial = x.dim() - 2
    if (
        spatial in (1, 2)
        and mode in _PAD
        and not any(side for pair in pairs[:2] for side in pair)
        and all(0 <= side < size for pair, size in zip(pairs[2:], x.shape[2:], strict=True) for side in pair)
    ):
        return F.pad(x, flat[: 2 * spatial], mode=_PAD[mode])
    for axis, (before, after) in enumerate(pairs):
        x = _pad_axis(node, x, axis, before, after, mode)
    return x


def _pad_axis(node: NodeView, x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """Return a tensor padded along one axis by copies of its own elements."""
    size = x.shape[axis]
    if (before, after) == (0, 0):
        return x
    where = np.arange(-before, size + after)
    if mode == "edge":
        where = where.clip(0, size - 1)
    elif mode == "wrap":
        where = where % size
    else:
        period = max(2 * (size - 1), 1)
        where = np.abs((where + size - 1) % period - (size - 1))
    return x.index_select(axis, node.constant(f"places_{axis}", where))


@converts("DepthToSpace")
def _depth_to_space(node: NodeView, x: Tensor) -> Values:
    block = node.get("blocksize")
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // block**2, h * block, w * block)


@converts("SpaceToDepth")
def _space_to_depth(node: NodeView, x: Tensor) -> Values:
    block = node.get("blocksize")
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block)
    order = (0, 1, 3, 5, 2, 4) if node.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return y.permute(*order).reshape(n, c * block**2, h // block, w // block)


@converts("ReverseSequence", structure=(1,))
def _reverse_sequence(node: NodeView, x: Tensor, lengths: Any) -> Values:
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    parts = []
    for place, length in enumerate(integers(lengths)):
        row = x.narrow(batch, place, 1)
        left = row.shape[time] - length
        parts.append(torch.cat([row.narrow(time, 0, length).flip(time), row.narrow(time, length, left)], time))
    return torch.cat(parts, batch)


@converts("Compress", structure=(1,))
def _compress(node: NodeView, x: Tensor, condition: Any) -> Values:
    axis = node.get("axis")
    places = node.constant("places", np.flatnonzero(condition))
    return x.reshape(-1).index_select(0, places) if axis is None else x.index_select(axis, places)


@converts("GridSample")
def _grid_sample(node: NodeView, x: Tensor, grid: Tensor) -> Values:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node.get("mode", "bilinear"), node.get("mode", "bilinear"))
    return F.grid_sample(x, grid, mode, node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))


# -- resize ------------------------------------------------------------------------------------------------------------


@converts("Upsample", structure=(1,))
def _upsample(node: NodeView, x: Tensor, scales: Any = None) -> Values:
    factors = [float(scale) for scale in np.asarray(node.get("scales") if scales is None else scales)]
    sizes = [math.floor(size * factor) for size, factor in zip(x.shape, factors, strict=True)]
    mode = "nearest" if node.get("mode", "nearest") == "nearest" else "linear"
    return _resized(x, sizes, factors, mode, "asymmetric", "floor", node)


@converts("Resize", structure=(1, 2, 3))
def _resize(node: NodeView, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Values:
    if node.version == 10:
        roi, scales = None, roi
    mode = node.get("mode", "nearest")
    where = node.get("coordinate_transformation_mode", "half_pixel" if node.version > 10 else "asymmetric")
    axes = [axis % x.dim() for axis in node.get("axes", range(x.dim()))]
    extents, factors = list(x.shape), [1.0] * x.dim()
    if sizes is not None and np.asarray(sizes).size:
        wanted = integers(sizes)
        ratios = [size / x.shape[axis] for size, axis in zip(wanted, axes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(ratios)
            ratios = [one] * len(axes)
            wanted = [math.floor(one * x.shape[axis] + 0.5) for axis in axes]
        for axis, size, ratio in zip(axes, wanted, ratios, strict=True):
            extents[axis], factors[axis] = size, ratio
    else:
        for axis, factor in zip(axes, (float(scale) for scale in np.asarray(scales)), strict=True):
            extents[axis], factors[axis] = math.floor(x.shape[axis] * factor), factor
    if where == "tf_crop_and_resize":
        return _separable(x, extents, factors, mode, where, node, np.asarray(roi, np.float64), axes)
    return _resized(x, extents, factors, mode, where, node.get("nearest_mode", "round_prefer_floor"), node)


def _resized(
    x: Tensor, extents: list[int], factors: list[float], mode: str, where: str, nearest: str, node: NodeView
) -> Tensor:
    """Return a resized tensor: by PyTorch's own function where it computes the same, otherwise a product for each axis."""
    changed = [axis for axis in range(x.dim()) if extents[axis] != x.shape[axis] or factors[axis] != 1]
    if not changed:
        return x
    if changed[0] < 2 or x.dim() not in (3, 4, 5) or node.get("antialias", 0):
        return _separable(x, extents, factors, mode, where, node)
    exact = all(extents[axis] == x.shape[axis] * factors[axis] for axis in changed)
    sizes = extents[2:]
    whole = all(extents[axis] % x.shape[axis] == 0 for axis in changed)
    if mode == "nearest" and exact:
        if where == "asymmetric" and nearest == "floor":
            return F.interpolate(x, size=sizes, mode="nearest")
        if whole and where in ("half_pixel", "pytorch_half_pixel") and nearest.startswith("round"):
            return F.interpolate(x, size=sizes, mode="nearest")
    kind = {("linear", 3): "linear", ("linear", 4): "bilinear", ("cubic", 4): "bicubic"}.get((mode, x.dim()))
    if kind and exact and not node.get("exclude_outside", 0) and node.get("cubic_coeff_a", -0.75) == -0.75:
        if where == "align_corners":
            return F.interpolate(x, size=sizes, mode=kind, align_corners=True)
        if where == "half_pixel" or (where == "pytorch_half_pixel" and all(size > 1 for size in sizes)):
            return F.interpolate(x, size=sizes, mode=kind, align_corners=False)
    return _separable(x, extents, factors, mode, where, node)


def _separable(
    x: Tensor,
    extents: list[int],
    factors: list[float],
    mode: str,
    where: str,
    node: NodeView,
    roi: Any = None,
    axes: list[int] | None = None,
) -> Tensor:
    """Return a resized tensor, computed as a matrix product along each axis."""
    for axis in range(x.dim()):
        size, result = x.shape[axis], extents[axis]
        if (size, factors[axis]) == (result, 1.0) and roi is None:
            continue
        bounds = (0.0, 1.0)
        if roi is not None and axes is not None:
            if axis not in axes:
                continue
            bounds = (float(roi[axes.index(axis)]), float(roi[len(axes) + axes.index(axis)]))
        weights, outside = _weights(size, result, factors[axis], mode, where, node, bounds)
        x = torch.matmul(x.transpose(axis, -1), node.constant(f"weights_{axis}", weights.T.copy())).transpose(axis, -1)
        if outside.any():
            shape = [1] * x.dim()
            shape[axis] = result
            fill = torch.tensor(float(node.get("extrapolation_value", 0.0)))
            x = torch.where(node.constant(f"outside_{axis}", outside.reshape(shape)), fill, x)
    return x


def _weights(
    size: int, result: int, factor: float, mode: str, where: str, node: NodeView, roi: tuple[float, float]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two arrays for one axis of a resize: the weight of each input element in each result, float32 (result,
    size), and whether each result lies outside of the input.

    The formulas are those of ONNX's specification of Resize.
    """
    at = np.arange(result, dtype=np.float64)
    outside = np.zeros(result, bool)
    exact = size * factor
    if where == "align_corners":
        at = at * (size - 1) / (exact - 1) if exact > 1 else np.zeros_like(at)
    elif where == "asymmetric":
        at = at / factor
    elif where == "tf_half_pixel_for_nn":
        at = (at + 0.5) / factor
    elif where == "pytorch_half_pixel" and exact <= 1:
        at = np.zeros_like(at)
    elif where == "half_pixel_symmetric":
        adjustment = result / exact
        at = (size / 2) * (1 - adjustment) + (at + 0.5) / factor - 0.5
    elif where == "tf_crop_and_resize":
        start, end = roi
        step = (end - start) * (size - 1) / (result - 1) if result > 1 else 0.0
        at = start * (size - 1) + at * step if result > 1 else np.full(1, 0.5 * (start + end) * (size - 1))
        outside = (at < 0) | (at > size - 1)
    else:
        at = (at + 0.5) / factor - 0.5
    weights = np.zeros((result, size))
    if mode == "nearest":
        how = node.get("nearest_mode", "round_prefer_floor")
        rounded = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
        }[how]
        weights[np.arange(result), rounded.astype(np.int64).clip(0, size - 1)] = 1
        return weights.astype(np.float32), outside
    reach = 1 if mode == "linear" else 2
    scale = min(factor, 1.0) if node.get("antialias", 0) else 1.0
    taps = math.ceil(reach / scale)
    first = np.floor(at).astype(np.int64)
    places = first[:, None] + np.arange(1 - taps, taps + 1)
    distance = np.abs(at[:, None] - places) * scale
    if mode == "linear":
        part = np.clip(1 - distance, 0, None)
    else:
        a = node.get("cubic_coeff_a", -0.75)
        near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
        part = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    inside = (places >= 0) & (places < size)
    if node.get("exclude_outside", 0):
        part = np.where(inside, part, 0)
    part = part / part.sum(axis=1, keepdims=True)
    np.add.at(weights, (np.arange(result)[:, None], places.clip(0, size - 1)), part)
    return weights.astype(np.float32), outside
