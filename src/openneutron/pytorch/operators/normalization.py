# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations, by statistics of the input or by given ones.

A normalization by statistics of the input is one operator. It is decomposed if it has more elements than one kernel call takes, or for a
converter without such an operator, to x - mean, its square, the mean of the squares, the reciprocal of the root, and one
product. Every intermediate result gets a scale of its own, and only three of them have the input's size. The difference comes first:
x * r - mean * r would round numbers as large as the mean. Scale and shift per channel are a depthwise 1x1 convolution, which rounds
once to the scale of each channel, where a product and a sum round twice (1 to 1.5 dB; docs/quantization-quality.md).

An annotated normalization has a scale for its input and one for its result. Gain and bias stay float until they are lowered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from openneutron.ops.reductions import MOST_NORMALIZED
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.annotations import FUNCTION, annotates
from openneutron.pytorch.operators.rules.context import Context, Shape, Value
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, always, decomposes, lowers

annotates({f"aten.{name}_norm.default": FUNCTION for name in ("layer", "rms", "group")})


def _fits_a_line(normalized_shape: Sequence[int], **_: object) -> bool:
    return math.prod(normalized_shape) <= MOST_NORMALIZED


def _fits_a_group(input: Tensor, num_groups: int, **_: object) -> bool:
    return math.prod(input.shape[1:]) // num_groups <= MOST_NORMALIZED


@decomposes("aten.layer_norm.default", own_operator=_fits_a_line)
def decompose_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float, **_: object
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    return _scaled_and_shifted(_standardized(input, dims, eps), len(normalized_shape), weight, bias)


@decomposes("aten.rms_norm.default", own_operator=_fits_a_line)
def decompose_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _scaled_and_shifted(input * _over_root_mean_square(input, dims, eps), len(normalized_shape), weight, None)


@decomposes("aten.group_norm.default", own_operator=_fits_a_group)
def decompose_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, **_: object
) -> Tensor:
    batch, channels, *extents = input.shape
    if num_groups == channels:
        return _per_channel(_standardized(input, tuple(range(2, input.dim())), eps), weight, bias)
    groups = input.reshape(batch, num_groups, channels // num_groups, *extents)
    normal = _standardized(groups, tuple(range(2, groups.dim())), eps)
    return _per_channel(normal.reshape(input.shape), weight, bias)


@decomposes("aten.instance_norm.default")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    eps: float,
    **_: object,
) -> Tensor | Keep:
    if not use_input_stats:
        assert running_mean is not None and running_var is not None
        factor = torch.rsqrt(running_var + eps)
        factor = factor if weight is None else factor * weight
        offset = -running_mean * factor
        return _per_channel(input, factor, offset if bias is None else offset + bias)
    if running_mean is not None:
        return KEPT  # it changes its running statistics
    if math.prod(input.shape[2:]) <= MOST_NORMALIZED:
        normal: Tensor = torch.ops.aten.group_norm.default(input, input.shape[1], weight, bias, eps)
        return normal
    return _per_channel(_standardized(input, tuple(range(2, input.dim())), eps), weight, bias)


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), both over ``dims``."""
    centred = x - x.mean(dims, keepdim=True)
    return centred * _over_root_mean_square(centred, dims, eps)


def _over_root_mean_square(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    return torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)


def _scaled_and_shifted(x: Tensor, rank: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return weight * x + bias, both of the shape of x's last ``rank`` dimensions."""
    if weight is None and bias is None:
        return x
    if rank > 1:
        # One factor for each element of a sample: an image of per-element channels would be as large as the weights.
        x = x if weight is None else x * weight
        return x if bias is None else x + bias
    rows = x.reshape(1, -1, x.shape[-1], 1).transpose(1, 2)
    return _per_channel(rows, weight, bias).transpose(1, 2).reshape(x.shape)


def _per_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return weight * x + bias for each index of x's second dimension."""
    if weight is None and bias is None:
        return x
    channels = x.shape[1]
    weight = torch.ones(channels) if weight is None else weight
    weight = weight.reshape(channels, 1, 1, 1)
    if x.dim() == 4:
        return F.conv2d(x, weight, bias, groups=channels)
    image = x.reshape(x.shape[0], channels, -1, 1)
    return F.conv2d(image, weight, bias, groups=channels).reshape(x.shape)


@lowers("aten.layer_norm.default", preserve=always, layout=Layout.OWN, emits=("layer_norm",))
def layer_norm(node: Node, context: Context) -> Value | Reject:
    return _lines(node, context, True)


@lowers("aten.rms_norm.default", preserve=always, layout=Layout.OWN, emits=("layer_norm",))
def rms_norm(node: Node, context: Context) -> Value | Reject:
    return _lines(node, context, False)


def _lines(node: Node, context: Context, centred: bool) -> Value:
    """Add a layer_norm over the last dimensions, which become one axis in the order of the tensor's memory; return its result.

    centred: the mean is subtracted, as in a layer norm and not in an RMS norm.
    """
    given, shape = arguments_of(node), shape_of(node)
    data = context.settled(context.value(given["input"]))
    count = len(given["normalized_shape"])
    kept = tuple(axis for axis in data.order if axis < len(shape) - count)
    normalized = tuple(axis for axis in data.order if axis >= len(shape) - count)
    order = (*kept, *normalized)
    stored = tuple(shape[axis] for axis in order)
    lines = (*stored[: len(kept)], math.prod(stored[len(kept) :]))
    source = context.reshaped(context.arranged(data, order), lines)
    own = tuple(axis - len(kept) for axis in normalized)
    gain, bias = (_numbers(context, given.get(name), given["normalized_shape"], own) for name in ("weight", "bias"))
    epsilon = torch.finfo(torch.float32).eps if given["eps"] is None else given["eps"]
    quant = context.results.quant(node)
    name = context.emit(
        "layer_norm", (source, gain, bias), lines, quant, node.name, epsilon=float(epsilon), centred=centred
    )
    return Value(context.reshaped(name, stored), shape, order, shape)


@lowers("aten.group_norm.default", preserve=always, layout=Layout.NHWC, emits=("group_norm",))
def group_norm(node: Node, context: Context) -> Value | Reject:
    """Lower to group_norm of an image, whose rows and columns are the dimensions after the channels, in any order."""
    given, shape = arguments_of(node), shape_of(node)
    data = context.settled(context.value(given["input"]))
    order = (0, *(axis for axis in data.order if axis > 1), 1)
    stored = tuple(shape[axis] for axis in order)
    rows, cols = (stored[1], math.prod(stored[2:-1])) if len(shape) > 3 else (1, math.prod(stored[1:-1]))
    image = (shape[0], rows, cols, shape[1])
    source = context.reshaped(context.arranged(data, order), image)
    gain, bias = (_numbers(context, given[name], shape[1:2], (0,)) for name in ("weight", "bias"))
    attrs = {"epsilon": float(given["eps"]), "groups": given["num_groups"]}
    name = context.emit("group_norm", (source, gain, bias), image, context.results.quant(node), node.name, **attrs)
    return Value(context.reshaped(name, stored), shape, order, shape)


def _numbers(context: Context, node: Any, shape: Sequence[int], order: Shape) -> str | None:
    """Add a gain or bias as a constant float32 vector, with its axes in this order, and return its name; None if ``node`` is None.

    Raises Rejected for a gain or bias that is not constant.
    """
    if node is None:
        return None
    if node not in context.constants:
        raise Rejected("its gain or bias is computed at run time; both must be constant")
    value = context.constants.array(node)
    if value.size > 1 and not any(value.strides):
        # Only the shape is known while ExecuTorch partitions.
        return context.add_constant(node.name, np.broadcast_to(np.zeros((), np.float32), (value.size,)))
    return context.add_constant(node.name, value.reshape(tuple(shape)).transpose(order).reshape(-1).astype(np.float32))
