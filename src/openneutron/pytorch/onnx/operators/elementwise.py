# SPDX-License-Identifier: BSD-3-Clause
"""Operators that compute each element by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, cast, converts, scalar

_SAME: dict[str, Callable[..., Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh, "Atan": torch.atan,
    "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "HardSwish": F.hardswish, "IsNaN": torch.isnan, "Log": torch.log, "Mish": F.mish, "Neg": torch.neg,
    "Not": torch.logical_not, "Reciprocal": torch.reciprocal, "Relu": F.relu, "Round": torch.round, "Sigmoid": torch.sigmoid,
    "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": torch.sqrt,
    "Tan": torch.tan, "Tanh": torch.tanh, "BitwiseNot": torch.bitwise_not,
    "And": torch.logical_and, "Equal": torch.eq, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "Less": torch.lt, "LessOrEqual": torch.le, "Or": torch.logical_or,
    "Xor": torch.logical_xor, "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
    "Where": torch.where,
}  # fmt: skip
"""The operators that PyTorch has with the same operands and no attributes."""


def _same(name: str) -> None:
    function = _SAME[name]
    converts(name)(lambda node, *inputs: function(*inputs))


for _operator in _SAME:
    _same(_operator)


@converts("Identity")
def _identity(node: NodeView, x: Any) -> Values:
    return x


@converts("Dropout", constants=(1, 2))
def _dropout(node: NodeView, x: Tensor, *others: Any) -> Values:
    """A dropout in training mode is used as in inference."""
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.wants(1) else x


def _division(a: Any, b: Any) -> Tensor:
    whole = not any(isinstance(one, float) or (isinstance(one, Tensor) and one.is_floating_point()) for one in (a, b))
    return torch.div(a, b, rounding_mode="trunc") if whole else torch.div(a, b)


_ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _division,
}


def _arithmetic(name: str) -> None:
    function = _ARITHMETIC[name]

    def converter(node: NodeView, a: Any, b: Any) -> Values:
        """A constant whose elements are equal is a number, as PyTorch's models have it; a factor of 1 and a term of 0 are left out."""
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return function(torch.from_numpy(np.array(a)), torch.from_numpy(np.array(b)))
        operands = [
            one if isinstance(one, Tensor) else _number(node, name, one, other)
            for name, one, other in (("a", a, b), ("b", b, a))
        ]
        for number, other in (operands, operands[::-1]) if node.operator in ("Mul", "Add") else (operands[::-1],):
            if isinstance(number, float) and number == _NEUTRAL[node.operator]:
                return other
        return function(*operands)

    converts(name, constants=(0, 1))(converter)


_NEUTRAL = {"Mul": 1, "Div": 1, "Add": 0, "Sub": 0}


def _number(node: NodeView, name: str, array: Any, other: Tensor) -> Any:
    is_divided = node.operator == "Div" and name == "a"
    first = array.reshape(-1)[:1]
    fits = array.size and array.ndim <= other.dim() and torch.broadcast_shapes(array.shape, other.shape) == other.shape
    if fits and not is_divided and (array == first).all():
        return first.item()
    return node.constant(name, array)


for _operator in _ARITHMETIC:
    _arithmetic(_operator)


@converts("Pow", constants=(1,))
def _pow(node: NodeView, a: Tensor, b: Any) -> Values:
    """Convert a power. A constant exponent of one element becomes a number, as PyTorch's models have it. The result
    has the type of the base."""
    if isinstance(b, Tensor):
        return cast(torch.pow(a, b), a.dtype)
    if b.size > 1 or b.ndim > a.dim():
        return cast(torch.pow(a, node.constant("exponent", b)), a.dtype)
    exponent = float(b.reshape(()))
    y = torch.pow(a, int(exponent) if exponent.is_integer() else exponent)
    return cast(y, a.dtype)


@converts("Mod")
def _mod(node: NodeView, a: Tensor, b: Tensor) -> Values:
    return torch.fmod(a, b) if node.get("fmod", 0) else torch.remainder(a, b)


@converts("BitShift")
def _bit_shift(node: NodeView, a: Tensor, b: Tensor) -> Values:
    wide, by = cast(a, torch.int64), cast(b, torch.int64)
    shifted = wide << by if node.get("direction") in ("LEFT", b"LEFT") else wide >> by
    return cast(shifted, a.dtype)


@converts("Max")
def _max(node: NodeView, *inputs: Tensor) -> Values:
    return reduce(torch.maximum, inputs)


@converts("Min")
def _min(node: NodeView, *inputs: Tensor) -> Values:
    return reduce(torch.minimum, inputs)


@converts("Sum")
def _sum(node: NodeView, *inputs: Tensor) -> Values:
    return reduce(torch.add, inputs)


@converts("Mean")
def _mean(node: NodeView, *inputs: Tensor) -> Values:
    return reduce(torch.add, inputs) / len(inputs)


@converts("Clip", constants=(1, 2))
def _clip(node: NodeView, x: Tensor, low: Any = None, high: Any = None) -> Values:
    low, high = node.get("min") if low is None else low, node.get("max") if high is None else high
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        least = None if low is None else torch.as_tensor(low)
        most = None if high is None else torch.as_tensor(high)
        return torch.clamp(x, least, most)
    if low is None and high is None:
        return x
    number = float if x.is_floating_point() else int
    bounds = [None if bound is None else number(np.asarray(bound).reshape(())) for bound in (low, high)]
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        bounds[0] = bounds[1]  # every element is the greatest value then (the specification of Clip)
    return torch.clamp(x, *bounds)


@converts("Elu")
def _elu(node: NodeView, x: Tensor) -> Values:
    return F.elu(x, node.get("alpha", 1.0))


@converts("Celu")
def _celu(node: NodeView, x: Tensor) -> Values:
    return F.celu(x, node.get("alpha", 1.0))


@converts("Selu")
def _selu(node: NodeView, x: Tensor) -> Values:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return gamma * (torch.clamp(x, min=0) + alpha * (torch.exp(torch.clamp(x, max=0)) - 1))


@converts("LeakyRelu")
def _leaky_relu(node: NodeView, x: Tensor) -> Values:
    return F.leaky_relu(x, node.get("alpha", 0.01))


@converts("PRelu")
def _prelu(node: NodeView, x: Tensor, slope: Tensor) -> Values:
    """A slope for each channel is PyTorch's own form; others are broadcast from the right."""
    if slope.numel() == 1:
        return F.prelu(x, slope.reshape(1))
    if x.dim() > 1 and slope.numel() == slope.shape[0] == x.shape[1] and slope.dim() == x.dim() - 1:
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@converts("Gelu")
def _gelu(node: NodeView, x: Tensor) -> Values:
    return F.gelu(x, approximate="tanh" if node.get("approximate", "none") == "tanh" else "none")


@converts("HardSigmoid")
def _hard_sigmoid(node: NodeView, x: Tensor) -> Values:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0, 1)


@converts("Swish")
def _swish(node: NodeView, x: Tensor) -> Values:
    alpha = node.get("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@converts("ThresholdedRelu")
def _thresholded_relu(node: NodeView, x: Tensor) -> Values:
    return F.threshold(x, node.get("alpha", 1.0), 0.0)


@converts("Shrink")
def _shrink(node: NodeView, x: Tensor) -> Values:
    lambd, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero))


@converts("IsInf")
def _is_inf(node: NodeView, x: Tensor) -> Values:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if positive and negative:
        return torch.isinf(x)
    if not positive and not negative:
        return torch.zeros_like(x, dtype=torch.bool)
    return x == (float("inf") if positive else float("-inf"))


TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float32, 11: torch.float32, 16: torch.float32,
}  # fmt: skip
"""PyTorch's types by the number of ONNX's type (onnx.TensorProto.DataType). Floats of 16 and 64 bits are read as float32."""


def type_of(number: int) -> torch.dtype:
    """Return the PyTorch type for a number of onnx.TensorProto.DataType (``TYPES``). Floats of 16 and 64 bits give
    float32. Raises Refused for a type that ``TYPES`` does not have."""
    if number not in TYPES:
        raise Refused(f"has values of the type {type_name(number)}")
    return TYPES[number]


def type_name(number: int) -> str:
    """Return the name of a number in ONNX's list of types, or the number itself if the list does not have it."""
    import onnx

    known = onnx.TensorProto.DataType
    return known.Name(number).lower() if number in known.values() else str(number)


@converts("Cast")
def _cast(node: NodeView, x: Tensor) -> Values:
    return cast(x, type_of(node.get("to")))


@converts("BitCast", constants=(0,))
def _bit_cast(node: NodeView, x: Any) -> Values:
    """Convert the bits of a constant. No runtime has an operator for those of computed values."""
    kind = type_of(node.get("to"))
    if isinstance(x, Tensor):
        raise Refused("reads the bits of values that the program computes. Compute it in the application")
    return torch.from_numpy(np.array(x)).view(kind)


@converts("CumSum", structure=(1,))
def _cum_sum(node: NodeView, x: Tensor, axis: Any) -> Values:
    at = int(scalar(axis, 0))
    x = x.flip(at) if node.get("reverse", 0) else x
    y = cast(torch.cumsum(x, at), x.dtype)
    y = y - x if node.get("exclusive", 0) else y
    return y.flip(at) if node.get("reverse", 0) else y
