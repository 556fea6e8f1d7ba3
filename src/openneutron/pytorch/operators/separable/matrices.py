# SPDX-License-Identifier: BSD-3-Clause
"""Constant matrices along the axes of an image: what becomes of pools and resizes that LiteRT has no operator for.

A matrix along an axis is a BATCH_MATMUL with a constant first operand, on the tensor as it lies: what stands before the axis
are batches, what stands behind it columns. Nothing is transposed. Where nothing stands behind it, it is a FULLY_CONNECTED.
"""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import QuantParams, per_tensor
from openneutron.pytorch.operators.convolution.lower import bias_of
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.values import Shape, Value
from openneutron.pytorch.operators.separable.separable import TOLERANCE, Matrix, Separable, as_integers, is_identity

INT8_MIN, INT8_MAX = -128, 127


def apply(context: Context, value: Value, operator: Separable, quant: QuantParams, stem: str) -> Value:
    """A separable operator on an image, in the order in which it lies, the result with this quantization.

    By one matrix where that is small: one rounding. Otherwise one axis after the other, the one that leaves less first, with
    what is between them in the input's units, or in wider ones where weights are negative.
    """
    value = context.settled(value)
    shape = (*value.shape[:2], len(operator.rows), len(operator.columns))
    source, order = value.tensor, value.order
    rows, columns = order.index(2), order.index(3)
    passes = [(rows, operator.rows), (columns, operator.columns)]
    passes = [one for one in passes if not is_identity(one[1])] or passes[:1]
    if len(passes) == 2 and operator.fits_whole and columns == rows + 1:
        here = context.tensors[source].shape
        flat = context.reshaped(source, (*here[:rows], here[rows] * here[columns], *here[columns + 1 :]))
        both: Matrix = np.kron(operator.rows, operator.columns).astype(np.float64)
        name = along(context, flat, rows, both, quant, stem)
    else:
        passes.sort(key=lambda one: one[1].shape[0] / one[1].shape[1])
        for axis, matrix in passes[:-1]:
            source = along(context, source, axis, matrix, _between(context, source, matrix), f"{stem}_first")
        name = along(context, source, *passes[-1], quant, stem)
    return Value(context.reshaped(name, tuple(shape[axis] for axis in order)), shape, order, shape)


def _between(context: Context, source: str, matrix: Matrix) -> QuantParams:
    """Parameters that hold everything a matrix makes of a tensor."""
    quant = context.tensors[source].quant
    assert quant is not None
    more = max(1.0, float(np.maximum(matrix, 0).sum(1).max()))
    less = float(np.maximum(-matrix, 0).sum(1).max())
    if more < 1 + TOLERANCE and less < TOLERANCE:
        return quant
    low, high = ((stored - quant.zero_point) * quant.scale for stored in (INT8_MIN, INT8_MAX))
    low, high = min(more * low - less * high, 0.0), max(more * high - less * low, 0.0)
    scale = float(np.float32((high - low) / (INT8_MAX - INT8_MIN)))
    return per_tensor(scale, int(np.clip(round(INT8_MIN - low / scale), INT8_MIN, INT8_MAX)))


def along(context: Context, source: str, axis: int, matrix: Matrix, quant: QuantParams, stem: str) -> str:
    """The tensor with this axis multiplied by the matrix."""
    shape = context.tensors[source].shape
    before, extent, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    outputs = len(matrix)
    result: Shape = (*shape[:axis], outputs, *shape[axis + 1 :])
    stored, scale = as_integers(matrix)
    weights = per_tensor(float(np.float32(scale)), 0)
    if behind == 1:
        constant = context.add_constant(f"{stem}_matrix", stored, weights)
        flat = context.reshaped(source, (before, extent))
        inputs = (flat, constant, bias_of(context, None, flat, constant, outputs))
        name = context.emit("fully_connected", inputs, (before, outputs), quant, stem)
    else:
        constant = context.add_constant(f"{stem}_matrix", stored.reshape(1, outputs, extent), weights)
        flat = context.reshaped(source, (before, extent, behind))
        name = context.emit("batch_matmul", (constant, flat), (before, outputs, behind), quant, stem)
    return context.reshaped(name, result)
