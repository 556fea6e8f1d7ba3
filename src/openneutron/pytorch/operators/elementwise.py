# SPDX-License-Identifier: BSD-3-Clause
"""Operators that treat every element alike.

Lowering rules work on any order of the axes of their inputs. An operator is decomposed here if PyTorch's own decomposition loses
accuracy in int8 or has pieces without a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from openneutron.ir import DType, QuantParams, per_tensor
from openneutron.ops import BY_NAME
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of
from openneutron.pytorch.operators.rules.context import Context, Value, broadcasting, clamp_bounds, clamp_operator
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, always, decomposes, is_computed, lowers, of_integers

_aten = torch.ops.aten


def times(x: Tensor, factor: float) -> Tensor:
    """Return the tensor times a number, or the tensor itself if the number is 1."""
    return x if factor == 1 else x * factor


ALIASES = {
    "aten.clamp_max.default": _aten.clamp.default,
    "aten.clip.default": _aten.clamp.default,
    "aten.divide.Tensor": _aten.div.Tensor,
    "aten.fmax.default": _aten.maximum.default,
    "aten.fmin.default": _aten.minimum.default,
    "aten.linalg_matmul.default": _aten.matmul.default,
    "aten.max.other": _aten.maximum.default,
    "aten.min.other": _aten.minimum.default,
    "aten.multiply.Tensor": _aten.mul.Tensor,
    "aten.subtract.Tensor": _aten.sub.Tensor,
    "aten.true_divide.Tensor": _aten.div.Tensor,
}
"""Operators, each with one that computes the same from the same arguments. fmax and maximum differ only for NaN, which int8 can't
represent."""


def _renamed(overload: torch._ops.OpOverload) -> Callable[..., Tensor]:
    def rule(**given: Any) -> Tensor:
        result: Tensor = overload(**given)
        return result

    return rule


for _name, _overload in ALIASES.items():
    decomposes(_name)(_renamed(_overload))


@decomposes("aten.addcmul.default")
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return self + times(tensor1 * tensor2, value)


@decomposes("aten.addcdiv.default")
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: float) -> Tensor:
    return self + times(tensor1 / tensor2, value)


@decomposes("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(self: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    return self + (end - self) * weight


@decomposes("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(self: Tensor, other: Tensor | float) -> Tensor | Keep:
    if not self.is_floating_point():
        return KEPT
    if isinstance(other, Tensor):
        return _aten.div.Tensor_mode(self, other, rounding_mode="floor")
    return _aten.div.Scalar_mode(self, other, rounding_mode="floor")


@decomposes("aten.div.Tensor_mode")
def divide_and_round(self: Tensor, other: Tensor, rounding_mode: str | None) -> Tensor | Keep:
    """Return the quotient of two tensors, rounded down or towards zero, or not rounded if ``rounding_mode`` is None.

    Return KEPT for integers, and for a rounded division by a single number: that is one pointwise function, which
    becomes a table.
    """
    if not (self.is_floating_point() and other.is_floating_point()) or (other.numel() == 1 and rounding_mode):
        return KEPT
    quotient = self / other
    if rounding_mode is None:
        return quotient
    return _aten.floor.default(quotient) if rounding_mode == "floor" else _aten.trunc.default(quotient)


@decomposes("aten.clamp.Tensor", "aten.clamp_max.Tensor", "aten.clamp_min.Tensor", "aten.clip.Tensor")
def clamp_between(self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if min is not None:
        self = _aten.maximum.default(self, min)
    return self if max is None else _aten.minimum.default(self, max)


@decomposes("aten.aminmax.default")
def aminmax(self: Tensor, dim: int | None, keepdim: bool) -> list[Tensor] | Keep:
    if not self.is_floating_point():
        return KEPT
    dims = list(range(self.dim())) if dim is None else [dim]
    return [_aten.amin.default(self, dims, keepdim), _aten.amax.default(self, dims, keepdim)]


@decomposes("aten.mean.dim", "aten.mean.default")
def mean_of_another_type(
    self: Tensor, dtype: torch.dtype | None, dim: list[int] | None = None, keepdim: bool = False
) -> Tensor | Keep:
    """Return the mean of float32 values as float64. The mean is computed in float32 and then converted: sums of int8
    values are exact in both types. Return KEPT for other types."""
    if self.dtype != torch.float32 or dtype != torch.float64:
        return KEPT
    return self.mean(dim or list(range(self.dim())), keepdim=keepdim).to(dtype)


MOST_CLASSES = 4096
"""The limit on classes of a one-hot vector; the identity matrix has the square of the classes in bytes."""

MOST_FACTORS = 64
"""The limit on values along a dimension whose product is computed, pair by pair."""


@decomposes("aten.rrelu.default")
def rrelu(self: Tensor, lower: float, upper: float, training: bool, **_: object) -> Tensor | Keep:
    """In eval mode RReLU is a leaky ReLU with the mean of the slopes."""
    return KEPT if training else F.leaky_relu(self, (lower + upper) / 2)


@decomposes("aten.feature_dropout.default")
def dropout(input: Tensor, train: bool, **_: object) -> Tensor | Keep:
    return KEPT if train else input


@decomposes("aten.one_hot.default")
def one_hot(self: Tensor, num_classes: int) -> Tensor | Keep:
    """Return rows of an identity matrix: one GATHER, in float where the result is cast to float (``CastRows``)."""
    if not 0 < num_classes <= MOST_CLASSES:
        return KEPT
    return _aten.embedding.default(torch.eye(num_classes, dtype=torch.int64), self)


@decomposes("aten.bilinear.default")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a bilinear layer: input1 [..., i], input2 [..., j], weight [o, i, j].

    One linear layer on input1 has o * j outputs; for each output o, their products with input2 are summed.
    """
    outputs, _, extent = weight.shape
    rows = F.linear(input1, weight.transpose(1, 2).reshape(outputs * extent, -1))
    products = rows.reshape(*input1.shape[:-1], outputs, extent) * input2.unsqueeze(-2)
    sums = products.sum(-1)
    return sums if bias is None else sums + bias


@decomposes("aten.prod.dim_int")
def product_along(self: Tensor, dim: int, keepdim: bool, dtype: torch.dtype | None) -> Tensor | Keep:
    """Multiply the first half of the values by the second half, until one value is left. If a number of values is
    odd, the last one is set aside and multiplied in at the end.

    Each product thus has a scale of its own. A concatenation of products and values would need one scale for all of
    them.

    Return KEPT for integers, for another result type, and for more than ``MOST_FACTORS`` values.
    """
    if not self.is_floating_point() or dtype not in (None, self.dtype) or not self.dim():
        return KEPT
    if not 0 < self.shape[dim] <= MOST_FACTORS:
        return KEPT
    odd = []
    while (count := self.shape[dim]) > 1:
        half = count // 2
        if count % 2:
            odd.append(self.narrow(dim, count - 1, 1))
        self = self.narrow(dim, 0, half) * self.narrow(dim, half, half)
    for factor in odd:
        self = self * factor
    return self if keepdim else self.squeeze(dim)


@decomposes("aten.any.default", "aten.any.dim", "aten.any.dims")
def is_any(self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor | Keep:
    """Return whether any boolean is true, by the maximum of the booleans as numbers."""
    if self.dtype != torch.bool or not self.dim() or not self.numel():
        return KEPT
    dims = [dim] if isinstance(dim, int) else list(range(self.dim()) if dim is None else dim)
    return self.to(torch.float32).amax(dims, keepdim) > 0.5


@decomposes("aten.dist.default")
def distance(self: Tensor, other: Tensor, p: float) -> Tensor | Keep:
    return torch.linalg.vector_norm(self - other, p) if self.is_floating_point() else KEPT


@decomposes("aten.special_erfc.default", "aten.erfc.default")
def erfc(self: Tensor) -> Tensor:
    return 1 - torch.erf(self)


@decomposes("aten.exp2.default", "aten.special_exp2.default")
def exp2(self: Tensor) -> Tensor:
    return torch.exp(self * math.log(2))


@decomposes("aten.round.decimals")
def round_to_decimals(self: Tensor, decimals: int) -> Tensor:
    return torch.round(self * 10.0**decimals) / 10.0**decimals


@decomposes("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(self: Tensor, other: Tensor | float) -> Tensor | Keep:
    """Return the values with the signs of others. A zero has no sign in int8, and counts as positive."""
    if not self.is_floating_point():
        return KEPT
    size = self.abs()
    if isinstance(other, Tensor):
        return torch.where(other < 0, -size, size)
    return -size if math.copysign(1, other) < 0 else size


@decomposes("aten.signbit.default")
def signbit(self: Tensor) -> Tensor:
    """Return whether each value is negative. A zero has no sign in int8, and counts as positive."""
    return self < 0


def one_to_one(node: Node, context: Context, op: str, **attrs: Any) -> Value:
    """Add an operator on each element of the node's first argument, and return its result in the same order and view."""
    data = context.value(node.args[0])
    stored = context.tensors[data.tensor].shape
    name = context.emit(op, (data.tensor,), stored, context.results.quant(node), node.name, **attrs)
    return Value(name, data.shape, data.order, data.base)


def function(op: str) -> Callable[[Node, Context], Value | Reject]:
    """Return the rule of an operator without attributes."""

    def rule(node: Node, context: Context) -> Value | Reject:
        return one_to_one(node, context, op)

    return rule


lowers("aten.sigmoid.default", emits=("logistic",))(function("logistic"))
lowers("aten.tanh.default", emits=("tanh",))(function("tanh"))
lowers("aten.abs.default", emits=("abs",))(function("abs"))
lowers("aten.exp.default", emits=("exp",))(function("exp"))
lowers("aten.log.default", emits=("log",))(function("log"))
lowers("aten.hardswish.default", preserve=always, emits=("hard_swish",))(function("hard_swish"))


@lowers("aten.gelu.default", preserve=always, emits=("gelu",))
def gelu(node: Node, context: Context) -> Value | Reject:
    return one_to_one(node, context, "gelu", approximate=arguments_of(node)["approximate"] == "tanh")


@lowers("aten.leaky_relu.default", emits=("leaky_relu",))
def leaky_relu(node: Node, context: Context) -> Value | Reject:
    return one_to_one(node, context, "leaky_relu", alpha=float(arguments_of(node)["negative_slope"]))


@lowers(
    "aten.relu.default",
    "aten.relu6.default",
    "aten.hardtanh.default",
    "aten.clamp.default",
    "aten.clamp_min.default",
    emits=("relu", "relu6", "relu_n1_to_1", "relu_0_to_1"),
)
def clamp(node: Node, context: Context) -> Value | Reject:
    quant, bounds = context.results.quant(node), clamp_bounds(node)
    op = clamp_operator(bounds, quant, context.results.dtype(node))
    if op is None:
        return Reject(
            f"it clamps to {bounds}, which is none of LiteRT's clamps", "ReLU, ReLU6, Hardtanh(-1, 1) and (0, 1) are."
        )
    if not op:
        return context.requantized(context.value(node.args[0]), quant, node.name)
    return one_to_one(node, context, op)


def _two(op: str, **wide: Any) -> Callable[[Node, Context], Value | Reject]:
    """Return the rule of a sum, difference or product. ``wide``: LiteRT's attributes of the int16 form."""

    def rule(node: Node, context: Context) -> Value | Reject:
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            return Reject(f"alpha is {alpha}; it must be 1")
        operands, quant = [context.value(item) for item in node.args[:2]], context.results.quant(node)
        attrs = wide if context.dtype(operands[0]) is DType.INT16 else {}
        return broadcasting(node, context, op, operands, quant, activation=context.activation(node, quant), **attrs)

    return rule


lowers("aten.add.Tensor", fuses=True, emits=("add",))(_two("add", pot_scale_int16=False))
lowers("aten.sub.Tensor", fuses=True, emits=("sub",))(_two("sub", pot_scale_int16=False))
lowers("aten.mul.Tensor", fuses=True, emits=("mul",))(_two("mul"))


ROUNDS = Reject(
    "it rounds a quotient of two computed tensors; where that is near a whole number, half a step of an operand decides which one",
    "Divide without rounding.",
)


def of_two(node: Node) -> Reject | None:
    """Return the reason why the NPU can't compute a quotient: it is of integers, or it is rounded and both operands
    are computed. Otherwise return None.

    The quotient of one computed tensor and a constant becomes a lookup table.
    """
    if (integers := of_integers(node)) is not None:
        return integers
    return ROUNDS if len([source for source in node.all_input_nodes if is_computed(source)]) > 1 else None


@lowers("aten.div.Tensor_mode", "aten.fmod.Tensor", "aten.remainder.Tensor", against=of_two)
def rounded_quotient(node: Node, context: Context) -> Value | Reject:
    """Reject a rounded quotient of two computed tensors: the rounded operands do not determine it. A quotient of one computed
    tensor and a number is lowered as a table, without this rule."""
    del node, context
    return ROUNDS


@lowers("aten.prelu.default", preserve=always, emits=("prelu",))
def prelu(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data, slopes = context.value(given["self"]), context.value(given["weight"])
    if len(data.shape) > 1 and slopes.shape:
        slopes = context.viewed(slopes, (*slopes.shape, *(1 for _ in data.shape[2:])))
    return broadcasting(node, context, "prelu", (data, slopes), context.results.quant(node))


Rescaled = Callable[[Node, Context, str, QuantParams], str]
"""A function that adds a softmax or log_softmax of a tensor along its last axis, with the given quantization of the result, and returns
the name of the result."""


def _along(op: str, rescaled: Rescaled) -> Callable[[Node, Context], Value | Reject]:
    """Return the lowering rule of an operator along one dimension, such as softmax. The rule moves this dimension to
    the last axis, as LiteRT requires.

    ``rescaled`` adds the operators for an int8 result whose quantization differs from LiteRT's fixed one.
    """
    fixed = BY_NAME[op].fixed_output
    assert fixed is not None
    usual = per_tensor(*fixed)

    def rule(node: Node, context: Context) -> Value | Reject:
        given = arguments_of(node)
        if given.get("half_to_float"):
            return Reject("half_to_float is set; there is only int8")
        data = context.value(given["self"])
        if not data.shape:
            raise Rejected("its input is a single number")
        axis = given["dim"] % len(data.shape)
        data = context.settled(data)
        order = data.order
        if order[-1] != axis:
            order = (*(other for other in order if other != axis), axis)
        stored = tuple(data.shape[other] for other in order)
        quant, source = context.results.quant(node), context.arranged(data, order)
        if quant == usual or context.dtype(data) is DType.INT16:
            name = context.emit(op, (source,), stored, quant, node.name)
        else:
            name = rescaled(node, context, source, quant)
        return Value(name, data.shape, order, data.shape)

    return rule


def _fine(node: Node, context: Context, source: str, quant: QuantParams) -> str:
    return context.emit("softmax_rescaled", (source,), context.tensors[source].shape, quant, node.name)


def _wide(node: Node, context: Context, source: str, quant: QuantParams) -> str:
    """Add log_softmax as x - max(x) + max(log_softmax(x)) and return the name of the result.

    LiteRT's log_softmax saturates at -255/16. The largest value of a row never saturates, so that only this value is
    taken from it. x - max(x) is exact.
    """
    fixed = BY_NAME["log_softmax"].fixed_output
    here, shape = context.tensors[source].quant, context.tensors[source].shape
    assert fixed is not None and here is not None
    usual, row = per_tensor(*fixed), (*shape[:-1], 1)
    axes = context.add_integers(f"{node.name}_axes", [len(shape) - 1])
    logs = context.emit("log_softmax", (source,), shape, usual, f"{node.name}_saturated")
    top = context.emit("reduce_max", (logs, axes), row, usual, f"{node.name}_top", keep_dims=True)
    largest = context.emit("reduce_max", (source, axes), row, here, f"{node.name}_largest", keep_dims=True)
    below = per_tensor(here.scale, 127)
    apart = context.emit("sub", (source, largest), shape, below, f"{node.name}_below", activation="NONE")
    return context.emit("add", (apart, top), shape, quant, node.name, activation="NONE")


lowers("aten._softmax.default", "aten.softmax.int", emits=("softmax", "softmax_rescaled"))(_along("softmax", _fine))
lowers("aten._log_softmax.default", "aten.log_softmax.int", emits=("reduce_max", "log_softmax", "add", "sub"))(
    _along("log_softmax", _wide)
)
