# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations and softmax."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts


@converts("BatchNormalization")
def _batch_norm(node: NodeView, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Values:
    if node.get("training_mode", 0):
        raise Refused("is in training mode. Export the model in inference mode")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


@converts("InstanceNormalization")
def _instance_norm(node: NodeView, x: Tensor, scale: Tensor, bias: Tensor) -> Values:
    return F.instance_norm(x, weight=scale, bias=bias, use_input_stats=True, eps=node.get("epsilon", 1e-5))


@converts("LayerNormalization")
def _layer_norm(node: NodeView, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Values:
    axis, epsilon = node.get("axis", -1) % x.dim(), node.get("epsilon", 1e-5)
    shape = x.shape[axis:]
    if scale.shape == shape and (bias is None or bias.shape == shape) and not node.wants(1):
        return F.layer_norm(x, shape, scale, bias, epsilon)
    axes = list(range(axis, x.dim()))
    mean = x.mean(axes, keepdim=True)
    inverse = torch.rsqrt(((x - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    y = (x - mean) * inverse * scale
    return y if bias is None else y + bias, mean, inverse


@converts("RMSNormalization")
def _rms_norm(node: NodeView, x: Tensor, scale: Tensor) -> Values:
    axis, epsilon = node.get("axis", -1) % x.dim(), node.get("epsilon", 1e-5)
    if scale.shape == x.shape[axis:]:
        return F.rms_norm(x, x.shape[axis:], scale, epsilon)
    return F.rms_norm(x, x.shape[axis:], None, epsilon) * scale


@converts("GroupNormalization")
def _group_norm(node: NodeView, x: Tensor, scale: Tensor, bias: Tensor) -> Values:
    groups, epsilon = node.get("num_groups"), node.get("epsilon", 1e-5)
    if node.version < 21:  # a scale for each group, not for each channel
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, scale, bias, epsilon)


@converts("MeanVarianceNormalization")
def _mean_variance(node: NodeView, x: Tensor) -> Values:
    axes = node.get("axes", [0, 2, 3])
    mean = x.mean(axes, keepdim=True)
    deviation = torch.sqrt((x * x).mean(axes, keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@converts("LpNormalization")
def _lp_norm(node: NodeView, x: Tensor) -> Values:
    axis = node.get("axis", -1)
    size = torch.sum(torch.abs(x), axis, True) if node.get("p", 2) == 1 else torch.sqrt(torch.sum(x * x, axis, True))
    return torch.where(size == 0, torch.zeros_like(x), x / size)


@converts("LRN")
def _local_response(node: NodeView, x: Tensor) -> Values:
    size = node.get("size")
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    before, after = (size - 1) // 2, size // 2
    squares = F.pad((x * x).unsqueeze(1), [0, 0] * (x.dim() - 2) + [before, after])
    total = squares.unfold(2, size, 1).sum(-1).squeeze(1)
    return x / torch.pow(bias + alpha / size * total, beta)


def _over_axis(node: NodeView, x: Tensor) -> tuple[Tensor, int]:
    """Return the operand and the axis: before version 13 all axes from ``axis`` on are one."""
    if node.version >= 13:
        return x, node.get("axis", -1)
    axis = node.get("axis", 1) % max(x.dim(), 1)
    return (x, axis) if axis == x.dim() - 1 else (x.flatten(axis), axis)


@converts("Softmax")
def _softmax(node: NodeView, x: Tensor) -> Values:
    flat, axis = _over_axis(node, x)
    return F.softmax(flat, axis).reshape(x.shape)


@converts("LogSoftmax")
def _log_softmax(node: NodeView, x: Tensor) -> Values:
    flat, axis = _over_axis(node, x)
    return F.log_softmax(flat, axis).reshape(x.shape)


@converts("Hardmax")
def _hardmax(node: NodeView, x: Tensor) -> Values:
    flat, axis = _over_axis(node, x)
    axis = axis % flat.dim()
    shape = [1] * flat.dim()
    shape[axis] = flat.shape[axis]
    first = torch.argmax(flat, axis, keepdim=True)
    return (torch.arange(flat.shape[axis]).reshape(shape) == first).to(x.dtype).reshape(x.shape)
