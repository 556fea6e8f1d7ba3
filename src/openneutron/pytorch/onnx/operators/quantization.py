# SPDX-License-Identifier: BSD-3-Clause
"""Quantization: QuantizeLinear and DequantizeLinear are those of PyTorch's quantized models, and quantized operators are float operators
between them.

Values of uint8 are kept as int8 with a zero point that is 128 less, which is the same real value. Every operator between a
QuantizeLinear and a DequantizeLinear moves elements, and does not see the difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import executorch.exir  # noqa: F401  (registers quantized_decomposed)
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import OPERATORS, NodeView, Refused, Values, cast, converts

_q = torch.ops.quantized_decomposed

_MICROSOFT = "com.microsoft"

UNSIGNED = 128
"""The difference between a uint8 and the int8 of the same real value."""

_RANGES = {
    torch.int8: (-128, 127), torch.int16: (-32768, 32767), torch.int32: (-(2**31), 2**31 - 1)
}  # fmt: skip


def _parameters(scale: Any, zero: Any, what: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], torch.dtype]:
    """Return the scales, the zero points, and the type of the quantized values. uint8 and uint16 become int8 and
    int16, with zero points that are smaller by half the range. Without a zero point the type is uint8, as ONNX
    defines it.

    Raises Refused if the scales or zero points are not constant, and for types other than uint8, uint16, int8, int16
    and int32.
    """
    if isinstance(scale, Tensor) or isinstance(zero, Tensor):
        raise Refused(f"{what} with a scale that is computed from data")
    scales = np.asarray(scale, np.float32)
    points = np.zeros(scales.shape, np.uint8) if zero is None else np.asarray(zero)
    kind = points.dtype.name
    if kind == "uint8":
        return scales, points.astype(np.int64) - UNSIGNED, torch.int8
    if kind == "uint16":
        return scales, points.astype(np.int64) - UNSIGNED * 256, torch.int16
    if kind.startswith("float"):
        raise Refused(
            f"{what} with floats of 8 or 4 bits, which the NPU does not have. Quantize to int8, or compile the float model"
        )
    if kind not in ("int8", "int16", "int32"):
        raise Refused(f"{what} values of the type {kind}")
    return scales, points.astype(np.int64), getattr(torch, kind)


def quantize(node: NodeView, x: Tensor, scale: Any, zero: Any, name: str = "y") -> Tensor:
    """Return a float tensor as integers. ``axis`` of the node is that of several scales."""
    scales, points, kind = _parameters(scale, zero, "quantizes")
    low, high = _RANGES[kind]
    if scales.size == 1:
        return _q.quantize_per_tensor(x, float(scales.reshape(())), int(points.reshape(())), low, high, kind)
    axis = _axis(node, x, scales)
    return _q.quantize_per_channel(
        x, node.constant(f"{name}_scale", scales), node.constant(f"{name}_zero", points), axis, low, high, kind
    )


def dequantize(node: NodeView, x: Any, scale: Any, zero: Any, name: str = "x") -> Tensor:
    """Return the dequantized float tensor. ``x`` is an array if it is constant.

    A float ``x`` is returned unchanged: it is the input of a dynamic quantization, which the importer leaves out.
    """
    if isinstance(x, Tensor) and x.is_floating_point():
        return x  # a dynamic quantization, which is read as the values that it quantizes
    if node.get("block_size", 0):
        return _of_blocks(node, x, scale, zero, name)
    if not isinstance(x, Tensor) and x.dtype.kind == "f":
        return node.constant(f"{name}_real", x * _along(node, x, scale))
    x = _signed(node, x, name)
    if zero is None:
        zero = np.zeros(np.asarray(scale).shape, {torch.int32: np.int32, torch.int16: np.int16}.get(x.dtype, np.int8))
    scales, points, kind = _parameters(scale, zero, "dequantizes")
    low, high = _RANGES[kind]
    if scales.size == 1:
        return _q.dequantize_per_tensor(x, float(scales.reshape(())), int(points.reshape(())), low, high, kind)
    axis = _axis(node, x, scales)
    return _q.dequantize_per_channel(
        x, node.constant(f"{name}_scale", scales), node.constant(f"{name}_zero", points), axis, low, high, kind
    )


def _along(node: NodeView, x: np.ndarray[Any, Any], scale: Any) -> np.ndarray[Any, Any]:
    """Return the scales of constants of floats of 8 bits in a shape that fits the constants."""
    if isinstance(scale, Tensor):
        raise Refused("dequantizes with a scale that is computed from data")
    scales, shape = np.asarray(scale, np.float32), [1] * x.ndim
    if scales.size > 1:
        shape[_axis(node, torch.from_numpy(x), scales)] = -1
    return scales.reshape(shape)


def _signed(node: NodeView, x: Any, name: str) -> Tensor:
    """Return integers as a tensor; unsigned constants, and inputs of the model, as the signed ones of the same real values."""
    middle = {"uint8": UNSIGNED, "uint16": UNSIGNED * 256}.get(str(x.dtype).removeprefix("torch."), 0)
    if not isinstance(x, Tensor):
        return node.constant(f"{name}_values", (x.astype(np.int32) - middle).astype(f"i{x.itemsize}") if middle else x)
    return (x.to(torch.int32) - middle).to(torch.int8 if middle == UNSIGNED else torch.int16) if middle else x


def _of_blocks(node: NodeView, x: Any, scale: Any, zero: Any, name: str) -> Tensor:
    """Return constants with a scale for each block along an axis as their real values, which are then quantized as others are."""
    if any(isinstance(one, Tensor) for one in (x, scale, zero)):
        raise Refused("has scales for blocks of values that are computed from data")
    axis, block = int(node.get("axis", 1)), int(node.get("block_size"))
    scales, points = (
        np.repeat(np.asarray(one, np.float32), block, axis).take(range(x.shape[axis]), axis)
        for one in (scale, np.zeros_like(scale) if zero is None else zero)
    )
    return node.constant(f"{name}_real", (x.astype(np.float32) - points) * scales)


def _axis(node: NodeView, x: Tensor, scales: np.ndarray[Any, Any]) -> int:
    axis = int(node.get("axis", 1))
    if node.get("block_size", 0) or scales.ndim != 1:
        raise Refused("has scales for blocks of values")
    return axis % x.dim()


@converts("QuantizeLinear", constants=(1, 2), folds=False, domain=_MICROSOFT)
@converts("QuantizeLinear", constants=(1, 2), folds=False)
def _quantize(node: NodeView, x: Tensor, scale: Any, zero: Any = None) -> Values:
    return quantize(node, cast(x, torch.float32), scale, zero)


@converts("DequantizeLinear", constants=(0, 1, 2), folds=False, domain=_MICROSOFT)
@converts("DequantizeLinear", constants=(0, 1, 2), folds=False)
def _dequantize(node: NodeView, x: Any, scale: Any, zero: Any = None) -> Values:
    return dequantize(node, x, scale, zero)


# -- dynamic quantization: products of the values themselves, and of the real values of the weights -----------------------


def _real(node: NodeView, x: Any, zero: Any, name: str) -> Tensor:
    """Return integers without their zero point, as floats; values that are dynamically quantized are floats already."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x
    points = np.zeros((), np.int8) if zero is None else np.asarray(zero)
    points = points.reshape(-1, *[1] * (x.ndim - 1)) if points.ndim == 1 and node.operator == "ConvInteger" else points
    if not isinstance(x, Tensor):
        return node.constant(f"{name}_real", x.astype(np.float32) - points)
    shift = UNSIGNED if points.dtype == np.uint8 and x.dtype == torch.int8 else 0
    return x.to(torch.float32) - node.constant(f"{name}_zero", points.astype(np.float32) - shift)


@converts("MatMulInteger", "ConvInteger", constants=(1, 2, 3), folds=False)
def _integer_product(node: NodeView, a: Tensor, b: Any, a_zero: Any = None, b_zero: Any = None) -> Values:
    y = _float(node, node.operator.removesuffix("Integer"), _real(node, a, a_zero, "a"), _real(node, b, b_zero, "b"))
    return y if a.is_floating_point() else y.to(torch.int32)


@converts("DynamicQuantizeMatMul", structure=(1, 2, 3), folds=False, domain=_MICROSOFT)
def _dynamic_matmul(
    node: NodeView, a: Tensor, b: Any, scale: Any, zero: Any = None, bias: Tensor | None = None
) -> Values:
    real = (b.astype(np.float32) - (0 if zero is None else zero)) * scale
    y = torch.matmul(a, node.constant("weights", real.astype(np.float32)))
    return y if bias is None else y + bias


# -- quantized operators ------------------------------------------------------------------------------------------------


def _float(node: NodeView, operator: str, *inputs: Tensor) -> Tensor:
    """Return the result of the float operator that a quantized one has in the middle."""
    made = OPERATORS["", operator].function(replace(node, operator=operator), *inputs)
    assert isinstance(made, Tensor)
    return made


@converts("QLinearConv", constants=(1, 2, 3, 4, 5, 6, 7, 8), folds=False)
def _qlinear_conv(
    node: NodeView, x: Tensor, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any,
    bias: Any = None,
) -> Values:  # fmt: skip
    of_weights = replace(node, attributes={"axis": 0})
    scales = np.asarray(w_scale, np.float32)
    values = dequantize(node, x, x_scale, x_zero)
    b = None
    if bias is not None:
        b_scale = np.asarray(x_scale, np.float32) * scales
        b = dequantize(of_weights, bias, b_scale, np.zeros(b_scale.shape, np.int32), "bias")
    operands = values, dequantize(of_weights, w, w_scale, w_zero, "w")
    y = _float(node, "Conv", *operands) if b is None else _float(node, "Conv", *operands, b)
    return quantize(node, y, y_scale, y_zero)


@converts("QLinearMatMul", constants=(1, 2, 3, 4, 5, 6, 7), folds=False)
def _qlinear_matmul(
    node: NodeView,
    a: Tensor,
    a_scale: Any,
    a_zero: Any,
    b: Tensor,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any,
) -> Values:
    of_columns = replace(node, attributes={"axis": -1})
    y = torch.matmul(dequantize(of_columns, a, a_scale, a_zero), dequantize(of_columns, b, b_scale, b_zero, "b"))
    return quantize(node, y, y_scale, y_zero)


@converts("QLinearAdd", "QLinearMul", constants=(0, 1, 2, 3, 4, 5, 6, 7), folds=False, domain=_MICROSOFT)
def _qlinear_binary(
    node: NodeView,
    a: Tensor,
    a_scale: Any,
    a_zero: Any,
    b: Tensor,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any = None,
) -> Values:
    operands = dequantize(node, a, a_scale, a_zero, "a"), dequantize(node, b, b_scale, b_zero, "b")
    return quantize(node, _float(node, node.operator.removeprefix("QLinear"), *operands), y_scale, y_zero)


@converts(
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", "QLinearSoftmax",
    constants=(1, 2, 3, 4), folds=False, domain=_MICROSOFT,
)  # fmt: skip
def _qlinear_unary(node: NodeView, x: Tensor, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Values:
    if node.get("channels_last", 0):
        raise Refused("has its channels last")
    version = node.get("opset", node.version) if node.operator == "QLinearSoftmax" else node.version
    real = dequantize(node, x, x_scale, x_zero)
    y = _float(replace(node, version=version), node.operator.removeprefix("QLinear"), real)
    return quantize(node, y, y_scale, y_zero)


_JOINED = 128
"""The most inputs of a QLinearConcat."""


@converts(
    "QLinearConcat",
    constants=[0, 1, *(2 + 3 * i + k for i in range(_JOINED) for k in (1, 2))],
    folds=False,
    domain=_MICROSOFT,
)
def _qlinear_concat(node: NodeView, y_scale: Any, y_zero: Any, *inputs: Any) -> Values:
    operands = [
        dequantize(node, *inputs[place : place + 3], name=f"x{place}")  # type: ignore[misc]
        for place in range(0, len(inputs), 3)
    ]
    return quantize(node, torch.cat(operands, node.get("axis", 1)), y_scale, y_zero)


@converts("QGemm", constants=(1, 2, 3, 4, 5, 6, 7, 8), folds=False, domain=_MICROSOFT)
def _qgemm(
    node: NodeView, a: Tensor, a_scale: Any, a_zero: Any, b: Tensor, b_scale: Any, b_zero: Any, c: Tensor | None = None,
    y_scale: Any = None, y_zero: Any = None,
) -> Values:  # fmt: skip
    of_columns = replace(node, attributes={"axis": 0 if node.get("transB", 0) else 1})
    operands = [dequantize(node, a, a_scale, a_zero, "a"), dequantize(of_columns, b, b_scale, b_zero, "b")]
    if c is not None:
        scale = np.asarray(a_scale, np.float32) * np.asarray(b_scale, np.float32)
        operands.append(
            dequantize(replace(node, attributes={"axis": 0}), c, scale, np.zeros(scale.shape, np.int32), "c")
        )
    y = _float(node, "Gemm", *operands)
    return y if y_scale is None else quantize(node, y, y_scale, y_zero)


@converts("MatMulNBits", structure=(1, 2, 3, 4), folds=False, domain=_MICROSOFT)
def _matmul_bits(
    node: NodeView,
    x: Tensor,
    packed: Any,
    scales: Any,
    zeros: Any = None,
    groups: Any = None,
    bias: Tensor | None = None,
) -> Values:
    """A product with weights of a few bits, in blocks along the inputs, is one with their real values."""
    if groups is not None:
        raise Refused("has weights whose inputs are in another order")
    inputs, outputs, bits, block = node.get("K"), node.get("N"), node.get("bits", 4), node.get("block_size")
    blocks = -(-inputs // block)
    values = _unpacked(packed.reshape(outputs, blocks, -1), bits)[..., :block]
    middle = np.full((outputs, blocks), 1 << (bits - 1), np.float32)
    if zeros is not None:
        points = np.asarray(zeros)
        middle = (
            points.reshape(outputs, blocks)
            if points.dtype.kind == "f"
            else _unpacked(points.reshape(outputs, -1), bits)[:, :blocks]
        )
    real = (values.astype(np.float32) - middle[..., None]) * np.asarray(scales, np.float32).reshape(outputs, blocks, 1)
    weights = real.reshape(outputs, blocks * block)[:, :inputs]
    return F.linear(x, node.constant("weights", np.ascontiguousarray(weights, np.float32)), bias)


def _unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return the values of bytes along the last axis, the lowest bits first."""
    if bits not in (2, 4, 8):
        raise Refused(f"has weights of {bits} bits")
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)
