# SPDX-License-Identifier: BSD-3-Clause
"""Average pools and resizes as products with two matrices, one along the rows and one along the columns.

The matrix along an axis has the operator's results for unit vectors. PyTorch computes them, so that every attribute counts,
such as the divisors at the borders under ceil_mode, and scale factors that differ slightly from the ratio of the extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from openneutron.ir import DType, QuantParams, per_tensor
from openneutron.ops.conv import same_padding
from openneutron.pytorch.operators.convolution import Window, bias_of
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, ends_of

Matrix = npt.NDArray[np.float64]
"""[outputs, inputs]"""

TOLERANCE = 1e-5
"""Matrix entries that differ by less count as equal. The rounding errors of float32 quotients are smaller."""

WHOLE_MATRIX_BYTES = 1 << 14
"""The limit on one matrix for both rows and columns. A product with one matrix rounds the result once."""

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, eq=False)
class Separable:
    """result[i, j] = sum of rows[i, h] * columns[j, w] * input[h, w]"""

    rows: Matrix
    columns: Matrix

    def is_window(self, window: Window) -> bool:
        """Return whether each result is the sum of the values under the window, times ``weight``."""
        axes = zip((self.rows, self.columns), window.kernel, window.stride, window.before, strict=True)
        return self.weight > 0 and all(
            np.allclose(matrix / matrix.max(), _inside(*matrix.shape, *numbers), rtol=0, atol=TOLERANCE)
            for matrix, *numbers in axes
        )

    @property
    def mean_axes(self) -> tuple[int, ...]:
        """Return the axes (0: rows, 1: columns) that the operator reduces to their mean, if it changes no other axis.

        Return () for an operator that does something else.
        """
        kept = [is_identity(matrix) for matrix in (self.rows, self.columns)]
        means = [
            len(matrix) == 1 and np.allclose(matrix, 1 / matrix.size, rtol=TOLERANCE, atol=0)
            for matrix in (self.rows, self.columns)
        ]
        if not all(keeps or averages for keeps, averages in zip(kept, means, strict=True)):
            return ()
        return tuple(axis for axis in (0, 1) if not kept[axis])

    @property
    def weight(self) -> float:
        """Return the largest weight of an input value in a result: the product of the largest entries of both matrices."""
        return float(self.rows.max() * self.columns.max())

    @property
    def fits_whole(self) -> bool:
        """Return whether one matrix for both axes has at most ``WHOLE_MATRIX_BYTES``."""
        return self.rows.size * self.columns.size <= WHOLE_MATRIX_BYTES


def is_identity(matrix: Matrix) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.allclose(matrix, np.eye(len(matrix)), rtol=0, atol=TOLERANCE)


def _inside(outputs: int, extent: int, kernel: int, stride: int, before: int) -> Matrix:
    """Return a matrix [outputs, extent] with 1 for the positions under the window of each output, and 0 elsewhere.

    The first window begins ``before`` positions before the first position.
    """
    starts = np.arange(outputs)[:, None] * stride - before
    places = np.arange(extent)[None, :]
    return ((places >= starts) & (places < starts + kernel)).astype(np.float64)


def litert_padding(averages: Separable, window: Window) -> str | None:
    """Return the padding (VALID or SAME) with which LiteRT's AVERAGE_POOL_2D computes the same with this window, or None."""
    axes = list(zip((averages.rows, averages.columns), window.kernel, window.stride, strict=True))
    for padding in ("VALID", "SAME"):
        if all(_is_pool(matrix, size, step, padding) for matrix, size, step in axes):
            return padding
    return None


def _is_pool(matrix: Matrix, kernel: int, stride: int, padding: str) -> bool:
    outputs, extent = matrix.shape
    if padding == "VALID":
        before, made = 0, (extent - kernel) // stride + 1
    else:
        before, made = same_padding(extent, kernel, stride, 1)[0], -(-extent // stride)
    if made != outputs:
        return False
    inside = _inside(outputs, extent, kernel, stride, before)
    return np.allclose(matrix, inside / inside.sum(1, keepdims=True), rtol=0, atol=TOLERANCE)


def average_pool(given: Mapping[str, Any], size: tuple[int, int]) -> Separable:
    """Return the matrices of aten.avg_pool2d. given: its arguments by the names in its schema. size: rows and columns of the input."""
    kernels = [_in_row(axis, given["kernel_size"], 1)[1] for axis in (0, 1)]
    divisor = given["divisor_override"]
    # A divisor that is the window's area is split into the window's extents.
    divisors = (divisor, None if divisor is None else 1) if divisor != kernels[0] * kernels[1] else kernels
    matrices = []
    for axis, extent in enumerate(size):
        kernel, padding = [1, kernels[axis]], _in_row(axis, given["padding"], 0)
        stride = _in_row(axis, given["stride"] or given["kernel_size"], 1)
        include, ceil = given["count_include_pad"], given["ceil_mode"]
        args = (kernel, stride, padding, ceil, include, divisors[axis])
        matrices.append(_matrix(extent, _aten.avg_pool2d.default, *args))
    return Separable(*matrices)


def adaptive_average_pool(size: tuple[int, int], result: tuple[int, int]) -> Separable:
    """Return the matrices of aten._adaptive_avg_pool2d from ``size`` to ``result`` rows and columns."""
    matrices = []
    for extent, outputs in zip(size, result, strict=True):
        matrices.append(_matrix(extent, _aten._adaptive_avg_pool2d.default, [1, outputs]))
    return Separable(*matrices)


def window_of(matrix: Matrix) -> tuple[int, int]:
    """Return (kernel, stride) that the first two rows of a pool's matrix suggest."""
    first = matrix > 0
    stride = int(first[1].argmax() - first[0].argmax()) if len(matrix) > 1 else 1
    return int(first[0].sum()), max(stride, 1)


Resize = Callable[..., torch.Tensor]
"""An overload of the upsample family. Its arguments are the input, the output size, align_corners if it has that, and the factors of
rows and columns, each of which may be None."""


def resized(
    resize: Resize,
    attributes: tuple[Any, ...],
    size: tuple[int, int],
    result: tuple[int, int],
    factors: tuple[float | None, float | None],
) -> Separable:
    """Return the matrices of a resize from ``size`` to ``result`` rows and columns.

    attributes: the arguments of ``resize`` between the output size and the factors.
    """
    matrices = []
    for extent, outputs, factor in zip(size, result, factors, strict=True):
        args = ([1, outputs], *attributes, None, factor)
        matrices.append(_matrix(extent, resize, *args))
    return Separable(*matrices)


def nearest_positions(
    resize: Resize, size: tuple[int, int], result: tuple[int, int], factors: tuple[float | None, float | None]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the input row of each output row, and the input column of each output column, of a nearest-neighbor resize."""
    found = []
    for extent, outputs, factor in zip(size, result, factors, strict=True):
        ramp = torch.arange(extent, dtype=torch.float32).reshape(1, 1, 1, extent)
        picked = resize(ramp, [1, outputs], None, factor)
        found.append(tuple(int(place) for place in picked.reshape(-1)))
    return found[0], found[1]


def _in_row(axis: int, item: Any, neutral: int) -> list[int]:
    """Return a pool's argument for an image of a single row, which is one axis of the original image: [``neutral``,
    the number for ``axis`` in ``item``].

    item: the argument for the original image, [rows, columns] or one number for both.
    """
    items = list(item) if isinstance(item, (list, tuple)) else [item]
    return [neutral, items[axis % len(items)]]


def _matrix(extent: int, overload: Callable[..., torch.Tensor], *args: Any) -> Matrix:
    """Return the matrix of a linear operator along an axis. Its columns are the operator's results for unit vectors,
    which are passed as images of one row.

    The matrix is the same for columns, because these operators treat rows and columns alike.
    """
    units = torch.eye(extent).reshape(1, extent, 1, extent)
    with torch.no_grad():
        made = overload(units, *args)
    return made.reshape(extent, -1).numpy().astype(np.float64).T


def as_integers(matrix: Matrix, dtype: DType = DType.INT8) -> tuple[npt.NDArray[np.integer[Any]], float]:
    """Return (stored, scale): the matrix as int8 or int16 integers, and the scale 1/n that has the smallest rounding
    error.

    n is a whole number, or the largest number at which all integers fit the type. Each row keeps its sum as far as n
    allows, so that a constant input has a constant result.
    """
    largest, end = float(np.abs(matrix).max()), ends_of(dtype)[1]
    assert largest > 0
    entries = np.unique(np.round(np.abs(matrix[matrix != 0]), 7))
    entries = entries[:: -(-len(entries) // MOST_ENTRIES)]
    most = max(1, int(end / largest + TOLERANCE))
    steps = np.arange(1, min(most, MOST_STEPS) + 1, dtype=np.float64)
    if most > MOST_STEPS:
        steps = np.append(steps, end / largest)
    loss = np.zeros(len(steps))
    for entry in entries:
        loss = np.maximum(loss, np.abs(np.rint(entry * steps) - entry * steps) / steps)
    # Of equally good numbers the smallest is taken: whole weights make exact sums.
    best = float(steps[int(np.argmax(loss <= loss.min() + 1e-6 * largest))])
    scaled = matrix * best
    stored = np.floor(scaled + 1e-4)
    missing = np.rint(scaled.sum(1) - stored.sum(1)).astype(int)
    for row, count in enumerate(missing):
        if count > 0:
            stored[row, np.argsort(stored[row] - scaled[row], kind="stable")[:count]] += 1
    assert np.abs(stored).max() <= end
    return stored.astype(dtype.numpy), 1.0 / best


MOST_STEPS = 2048
"""The limit on whole numbers that are tried as the reciprocal of a matrix's scale."""

MOST_ENTRIES = 256
"""The limit on different entries of a matrix for which the rounding error of a scale is computed."""


def apply(context: Context, value: Value, operator: Separable, quant: QuantParams, stem: str) -> Value:
    """Add a separable operator on an image, in the image's axis order, and return the result with the quantization
    ``quant``.

    If rows and columns are neighbours in this order, a small operator becomes one matrix, which rounds once.
    Otherwise there is one product for each axis, first along the axis that shrinks more. The tensor between both
    products has the quantization of the input if no weight of the first matrix is negative and none of its rows has a
    sum above 1. Otherwise its range includes all results.
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
    """Return the quantization of the tensor if its range includes all products of the matrix and the tensor, or a
    wider one that does."""
    quant, dtype = context.tensors[source].quant, context.tensors[source].dtype
    assert quant is not None
    more = max(1.0, float(np.maximum(matrix, 0).sum(1).max()))
    less = float(np.maximum(-matrix, 0).sum(1).max())
    if more < 1 + TOLERANCE and less < TOLERANCE:
        return quant
    least, most = ends_of(dtype)
    low, high = ((stored - quant.zero_point) * quant.scale for stored in (least, most))
    low, high = min(more * low - less * high, 0.0), max(more * high - less * low, 0.0)
    if dtype is DType.INT16:
        return per_tensor(float(np.float32(max(-low, high) / most)), 0)
    scale = float(np.float32((high - low) / (most - least)))
    return per_tensor(scale, int(np.clip(round(least - low / scale), least, most)))


def along(context: Context, source: str, axis: int, matrix: Matrix, quant: QuantParams, stem: str) -> str:
    """Return the tensor with this axis multiplied by the matrix, in the quantization ``quant``.

    The last axis of an int8 tensor is multiplied by a FULLY_CONNECTED, all others by a BATCH_MATMUL.
    """
    shape, dtype = context.tensors[source].shape, context.tensors[source].dtype
    before, extent, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    outputs = len(matrix)
    result: Shape = (*shape[:axis], outputs, *shape[axis + 1 :])
    stored, scale = as_integers(matrix, dtype)
    weights = per_tensor(float(np.float32(scale)), 0)
    if behind == 1 and dtype is DType.INT16:
        # BATCH_MATMUL has finer weights (int16) than FULLY_CONNECTED.
        constant = context.add_constant(f"{stem}_matrix", np.ascontiguousarray(stored.T)[None], weights)
        flat = context.reshaped(source, (1, before, extent))
        name = context.emit("batch_matmul", (flat, constant), (1, before, outputs), quant, stem)
    elif behind == 1:
        constant = context.add_constant(f"{stem}_matrix", stored, weights)
        flat = context.reshaped(source, (before, extent))
        inputs = (flat, constant, bias_of(context, None, flat, constant, outputs))
        name = context.emit("fully_connected", inputs, (before, outputs), quant, stem)
    else:
        constant = context.add_constant(f"{stem}_matrix", stored.reshape(1, outputs, extent), weights)
        flat = context.reshaped(source, (before, extent, behind))
        name = context.emit("batch_matmul", (constant, flat), (before, outputs, behind), quant, stem)
    return context.reshaped(name, result)
