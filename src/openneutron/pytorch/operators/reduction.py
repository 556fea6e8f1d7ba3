# SPDX-License-Identifier: BSD-3-Clause
"""Means, sums, extrema, variances and norms over dimensions, extrema of two tensors, and normalizations (layer, group, RMS).

The largest exponential of a sum of exponentials is factored out: the remaining sum is between 0 and the number of terms, so int8
resolves it at any magnitude of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType, QuantParams, per_channel, per_tensor
from openneutron.ops.reductions import MOST_ADDED, MOST_NORMALIZED
from openneutron.ops.rescaling import INT8_MAX, mean_multiplier
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, op_name, shape_of
from openneutron.pytorch.operators.annotations import FUNCTION, annotates
from openneutron.pytorch.operators.convolution import bias_of
from openneutron.pytorch.operators.elementwise import times
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, broadcasting
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, always, decomposes, lowers


@decomposes("aten.logsumexp.default")
def logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor | Keep:
    if not self.is_floating_point():
        return KEPT
    if not self.dim():  # ExecuTorch's kernels of reductions end the process for a scalar
        return self.clone()
    dims = sorted(axis % self.dim() for axis in dim) or list(range(self.dim()))
    largest = self.amax(dims, keepdim=True)
    result = largest + torch.log(torch.exp(self - largest).sum(dims, keepdim=True))
    return result if keepdim else result.reshape([n for axis, n in enumerate(self.shape) if axis not in dims])


def _log_of_sum(power: Callable[[Tensor], Tensor], base: float) -> Callable[[Tensor, Tensor], Tensor | Keep]:
    def rule(self: Tensor, other: Tensor) -> Tensor | Keep:
        if not (self.is_floating_point() and other.is_floating_point()):
            return KEPT
        return torch.maximum(self, other) + times(torch.log1p(power(-torch.abs(self - other))), 1 / math.log(base))

    return rule


decomposes("aten.logaddexp.default")(_log_of_sum(torch.exp, math.e))
decomposes("aten.logaddexp2.default")(_log_of_sum(torch.exp2, 2))


@decomposes("aten.hypot.default")
def hypot(self: Tensor, other: Tensor) -> Tensor | Keep:
    if not (self.is_floating_point() and other.is_floating_point()):
        return KEPT
    return torch.sqrt(self * self + other * other)


def _variance(x: Tensor, dims: list[int], correction: float, keepdim: bool) -> Tensor | Keep:
    """Return the variance over ``dims``: the mean of squared deviations, times a factor for the correction. The mean
    comes first, because a sum of squares would be large.

    Return KEPT if the variance is NaN or infinite.
    """
    count = math.prod(x.shape[dim] for dim in dims)
    if count <= correction:
        return KEPT  # It is NaN or infinite.
    apart = x - x.mean(dims, keepdim=True)
    squares = (apart * apart).mean(dims, keepdim=keepdim)
    return squares if correction == 0 else squares * (count / (count - correction))


def _rule(root: bool, with_mean: bool) -> Callable[..., Any]:
    def rule(**given: Any) -> Any:
        x = given["self"]
        dims = [dim % x.dim() for dim in (given.get("dim") or range(x.dim()))]
        correction = float(given["unbiased"]) if "unbiased" in given else given["correction"]
        keepdim = given.get("keepdim", False)
        spread = _variance(x, dims, 1.0 if correction is None else float(correction), keepdim)
        if isinstance(spread, Keep):
            return spread
        spread = torch.sqrt(spread) if root else spread
        return (spread, x.mean(dims, keepdim=keepdim)) if with_mean else spread

    return rule


for _root, _name in ((False, "var"), (True, "std")):
    for _form in ("default", "dim", "correction"):
        decomposes(f"aten.{_name}.{_form}")(_rule(_root, False))
        decomposes(f"aten.{_name}_mean.{_form}")(_rule(_root, True))


@decomposes("aten.linalg_vector_norm.default")
def vector_norm(
    self: Tensor, ord: float, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None
) -> Tensor | Keep:
    """Compute a norm with (mean * number of terms) in place of a sum. If ``ord`` is infinite, compute a maximum or
    minimum.

    The mean has a scale of its own, and the number of terms becomes a part of the root's lookup table.

    Return KEPT if ``ord`` is finite but not positive, if there are no elements or no dimensions in ``dim``, or if
    ``dtype`` is not the input's type.
    """
    dims = tuple(range(self.dim())) if dim is None else tuple(dim)
    if dtype is not None and dtype != self.dtype:
        return KEPT
    if not self.dim() and ord != 0:
        return self.abs()
    if not dims or not self.numel():
        return KEPT
    if abs(ord) == math.inf:
        return self.abs().amax(dims, keepdim) if ord > 0 else self.abs().amin(dims, keepdim)
    if ord <= 0:
        return KEPT
    terms = math.prod(self.shape[axis] for axis in dims)
    if ord == 1:
        return self.abs().mean(dims, keepdim) * terms
    if ord == 2:
        return torch.sqrt((self * self).mean(dims, keepdim) * terms)
    return ((self.abs() ** ord).mean(dims, keepdim) * terms) ** (1 / ord)


MOST_DIFFERENCES = 1 << 18
"""The limit on coordinate differences that are stored to compute the distances between two sets of points: 256 KiB in int8."""


@decomposes("aten.cdist.default")
def distances(x1: Tensor, x2: Tensor, p: float, **_: object) -> Tensor | Keep:
    """Return the p-norm of the difference of each point of ``x1`` and each point of ``x2``. Return KEPT for p = 0, and for too many points."""
    differences = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p <= 0 or not 0 < differences.numel() <= MOST_DIFFERENCES:
        return KEPT
    norms: Tensor = torch.ops.aten.linalg_vector_norm.default(differences, p, [-1])
    return norms


@lowers("aten.mean.default", "aten.mean.dim", layout=Layout.OWN, emits=("mean", "depthwise_conv_2d"))
def mean(node: Node, context: Context) -> Value | Reject:
    data, dims, kept = _reduced(node, context)
    return context.viewed(mean_over(node, context, data, dims, kept), shape_of(node))


@lowers("aten.sum.default", "aten.sum.dim_IntList", layout=Layout.OWN, emits=("mean", "depthwise_conv_2d", "mul"))
def total(node: Node, context: Context) -> Value | Reject:
    """Lower a sum of n values to their mean times n. The scale of the mean is 1/n of the scale of the sum, so that
    the product with n changes only the scale and not the bytes. A SUM is avoided because LiteRT 2.3.0's reference SUM
    takes int8 for uint8."""
    data, dims, kept = _reduced(node, context)
    count = math.prod(data.shape[dim] for dim in dims)
    quant = context.results.quant(node)
    means = mean_over(node, context, data, dims, kept, per_tensor(quant.scale / count, quant.zero_point))
    factor = context.add_factor(f"{node.name}_count", float(count), context.dtype(data))
    stored = context.tensors[means.tensor].shape
    name = context.emit("mul", (means.tensor, factor), stored, quant, node.name, activation="NONE")
    return context.viewed(Value(name, means.shape, means.order, means.base), shape_of(node))


def _reduced(node: Node, context: Context) -> tuple[Value, Shape, Shape]:
    given = arguments_of(node)
    data = context.settled(context.value(given["self"]))
    rank = len(data.shape)
    # PyTorch accepts dimension 0 for a single number, which has no dimensions.
    dims = tuple(sorted({dim % rank for dim in (given.get("dim") or range(rank))})) if rank else ()
    return data, dims, tuple(1 if axis in dims else extent for axis, extent in enumerate(data.shape))


def mean_over(
    node: Node, context: Context, data: Value, dims: Shape, shape: Shape, quant: QuantParams | None = None
) -> Value:
    """Return the mean over ``dims``, which keep the extent 1.

    quant: the quantization of the result. None: that of the node's result.
    """
    data = context.settled(data)
    quant = quant or context.results.quant(node)
    order = data.order
    if len(order) == 4 and dims == (2, 3):
        data = context.from_nhwc(context.nhwc(data), data.shape)
        order = data.order
    places = [place for place, axis in enumerate(order) if axis in dims]
    stored = tuple(shape[axis] for axis in order)
    name = _weighted(node, context, data, places, quant)
    if name is None:
        axes = context.add_integers(f"{node.name}_axes", places)
        name = context.emit("mean", (data.tensor, axes), stored, quant, node.name, keep_dims=True)
    return Value(context.reshaped(name, stored), shape, order, shape)


EXACT_FROM = 8
"""The right shift in MEAN's requantization from which on the second rounding changes fewer than 1/256 of the results."""

MOST_WEIGHTED = 65535 // 8
"""The limit on values that a depthwise convolution adds for a mean. The converter of NXP's SDK takes windows of this size."""

MOST_WEIGHTS = 1 << 18
"""The limit on equal weights, in bytes, that a mean adds to a .tflite file; a number of our own choice. A program has none of them."""


def sum_weight(ratio: float, count: int) -> int:
    """Return the stored weight of a depthwise convolution that computes the mean of ``count`` int8 values. Return 1
    if the convolution would not round better than LiteRT's MEAN. ratio: (scale of the values) / (scale of the mean).

    LiteRT rounds twice: the product of the sum and a multiplier, and then the result of a right shift by n bits. If n
    is at least 1, the first rounding changes 2^-(n + 1) of the results. For example, 1.3 steps are 2.6 before a shift
    by 1 bit. They become 3, and then 2 steps, not 1. A weight w multiplies the sum, which makes n larger by log2(w).
    """
    _, shift = mean_multiplier(ratio, 1.0, count)
    return most_weight(count) if -EXACT_FROM < shift < 0 else 1


def most_weight(count: int) -> int:
    """Return the largest stored weight with which a sum of ``count`` values of int8 fits 32 bits."""
    return max(1, min(INT8_MAX, MOST_ADDED // count))


def _weighted(node: Node, context: Context, data: Value, places: list[int], quant: QuantParams) -> str | None:
    """Add a depthwise convolution that computes the mean over neighbouring axes of the stored tensor. Return its
    result [outer axes, 1, 1, inner axes].

    Return None if MEAN should compute it: if MEAN is as exact, for int16, for axes that are not neighbours or are
    innermost, and above ``MOST_WEIGHTED`` values or ``MOST_WEIGHTS`` bytes of weights.
    """
    here = context.tensors[data.tensor]
    places = [place for place in places if here.shape[place] > 1]
    if not places or here.dtype is not DType.INT8 or places != list(range(places[0], places[-1] + 1)):
        return None
    outer, inner = math.prod(here.shape[: places[0]]), math.prod(here.shape[places[-1] + 1 :])
    height, width = here.shape[places[0]], math.prod(here.shape[places[0] + 1 : places[-1] + 1])
    count = height * width
    weight = sum_weight(context.quant(data).scale / quant.scale, count)
    if weight == 1 or inner == 1 or count > MOST_WEIGHTED or count * inner > MOST_WEIGHTS:
        return None
    source = context.reshaped(data.tensor, (outer, height, width, inner))
    return add_windows(node, context, source, (height, width), (outer, 1, 1, inner), weight, 1 / count, quant)


def add_windows(
    node: Node,
    context: Context,
    source: str,
    window: tuple[int, int],
    shape: Shape,
    weight: int,
    factor: float,
    quant: QuantParams,
    padding: str = "VALID",
    stride: tuple[int, int] = (1, 1),
) -> str:
    """Add a depthwise convolution that multiplies the sum of each window by a factor, and return the result's name.

    shape: that of the result, [batch, rows, columns, channels]. weight: the stored value of all weights.
    """
    channels = shape[3]
    scales = per_channel(np.full(channels, factor / weight), 3)
    weights = context.add_constant(f"{node.name}_weights", np.full((1, *window, channels), weight, np.int8), scales)
    inputs = (source, weights, bias_of(context, None, source, weights, channels))
    numbers: dict[str, Any] = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    return context.emit("depthwise_conv_2d", inputs, shape, quant, node.name, **numbers)


def _extremum(op: str) -> Callable[[Node, Context], Value | Reject]:
    def rule(node: Node, context: Context) -> Value | Reject:
        quant = context.results.quant(node)
        stem = f"{node.name}_operand"
        operands = [context.requantized(context.value(item), quant, stem) for item in node.args[:2]]
        return broadcasting(node, context, op, operands, quant)

    return rule


for _op in ("maximum", "minimum"):
    lowers(f"aten.{_op}.default", moves=True, emits=(_op,))(_extremum(_op))


@lowers("aten.amax.default", "aten.amin.default", moves=True, layout=Layout.OWN, emits=("reduce_max", "reduce_min"))
def extreme(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    value = context.settled(context.value(given["self"]))
    rank = len(value.shape)
    if not rank:
        return Reject("its input is a single number")
    dims = {dim % rank for dim in (given["dim"] or range(rank))}
    places = [place for place, axis in enumerate(value.order) if axis in dims and value.shape[axis] > 1]
    quant, name = context.quant(value), value.tensor
    op = "reduce_max" if op_name(node).startswith("aten.amax") else "reduce_min"
    for part in _two_runs(places):
        stored = tuple(1 if place in part else extent for place, extent in enumerate(context.tensors[name].shape))
        axes = context.add_integers(f"{node.name}_axes", part)
        name = context.emit(op, (name, axes), stored, quant, node.name, keep_dims=True)
    kept = tuple(1 if axis in dims else extent for axis, extent in enumerate(value.shape))
    result = context.viewed(Value(name, kept, value.order, kept), shape_of(node))
    return context.requantized(result, context.results.quant(node), f"{node.name}_requantized")


def _two_runs(places: list[int]) -> list[list[int]]:
    """Divide the places into lists with at most two runs of consecutive places each, which the kernel reduces in one call."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [[place for run in runs[first : first + 2] for place in run] for first in range(0, len(runs), 2)]


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
    """Add a layer_norm over the last dimensions and return its result. These dimensions become one axis, in the order
    in which memory holds them.

    centred: True subtracts the mean, as a layer norm does. False does not, as in an RMS norm.
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
