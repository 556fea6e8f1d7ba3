# SPDX-License-Identifier: BSD-3-Clause
"""Quantize the float weights of linear layers to the matrices of a decoder: int8 with a scale for each row, or int4 with a scale for each group
along a row.

If the Hessian (the second moments of a layer's inputs) is given, weights are rounded as in GPTQ (Frantar et al., arXiv 2210.17323): columns are
rounded in order, and the error of each column is compensated in the columns after it. ``input_scales`` finds scales of input channels as in AWQ
(Lin et al., arXiv 2306.00978).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.device.neutron_jobs import GROUPS, Int4Weights, int4_weights
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Floats, Matrix

Doubles = npt.NDArray[np.float64]

BITS = (4, 8)

CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""The candidates for the range of int4 values, as fractions of the largest weight of a group. Each is tried with the largest weight at -8, as in
GGUF's Q4_0, and at 7."""

DAMPING = 0.01
"""The fraction of the mean of the Hessian's diagonal that is added to the diagonal (the default of GPTQ's authors)."""

GPTQ_BLOCK = 128
"""The number of columns in a block. Errors are compensated inside the block at once, and in the columns after it when the block is done (the
default of GPTQ's authors)."""

ALPHAS = tuple(i / 10 for i in range(11))
"""The candidates for the exponent that turns input magnitudes into scales of input channels. 0 means no scaling."""

_ELEMENTS = 1 << 22
"""The number of weights that are quantized at a time. It keeps temporary arrays small beside the model."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedWeights:
    """int4 weights in the form of a file: ``codes`` int8 [N, K] from -8 to 7, and float32 ``scales`` [N, K / group]. A weight is its code times
    the scale of its group."""

    codes: npt.NDArray[np.int8] = field(repr=False)
    scales: Floats = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])

    @property
    def group(self) -> int:
        return int(self.codes.shape[1] // self.scales.shape[1])

    @property
    def floats(self) -> Floats:
        return self.codes.astype(np.float32) * np.repeat(self.scales, self.group, axis=1)

    @classmethod
    def joined(cls, parts: Sequence[GroupedWeights]) -> GroupedWeights:
        """Return one matrix with the rows of all parts."""
        return cls(np.concatenate([part.codes for part in parts]), np.concatenate([part.scales for part in parts]))


def check_weights(name: str, columns: int, bits: int, group: int) -> None:
    """Raise InvalidOptionError if weights with this number of columns can't be quantized to ``bits`` in groups of ``group`` columns."""
    if bits not in BITS:
        raise InvalidOptionError(f"bits: {bits}; weights have 4 or 8 bits.")
    if bits == 8:
        return
    if group not in GROUPS:
        raise InvalidOptionError(f"group: {group}; int4 weights have groups of 32, 64 or 128.")
    if columns % group:
        fitting = [str(each) for each in GROUPS if columns % each == 0]
        remedy = f"Use group={' or '.join(fitting)}" if fitting else "Use bits=8"
        raise InvalidOptionError(
            f"{name}: {columns} columns of weights are no multiple of the group of {group} int4 weights. {remedy}."
        )


def quantize(
    weights: Floats,
    *,
    bits: int = 8,
    group: int = 32,
    bias: Floats | None = None,
    hessian: Doubles | None = None,
    name: str = "weights",
) -> Matrix:
    """Return float32 weights [N, K] as a matrix of int8 values, or of int4 values in groups.

    ``hessian`` is float64 [K, K], the sum of the outer products of the layer's inputs; if it is given, weights are rounded as in GPTQ. ``name``
    is the subject of messages. Raises InvalidOptionError for unsupported ``bits`` or ``group``, and InvalidModelError for weights that are not
    finite.
    """
    check_weights(name, weights.shape[1], bits, group)
    if not np.isfinite(weights).all():
        raise InvalidModelError(f"{name}: a weight is not finite; a model's weights are finite numbers.")
    weights = np.asarray(weights, np.float32)
    if bits == 4:
        return grouped_matrix(_grouped(weights, group, hessian), bias)
    scales = _row_scales(weights)
    if hessian is None:
        values = _nearest(weights, _divisors(scales)[:, None], 127)
    else:
        values = _int8_by_gptq(weights, scales, hessian)
    return Matrix(values, scales, bias=bias)


def grouped_matrix(weights: GroupedWeights, bias: Floats | None = None) -> Matrix:
    """Return int4 weights with the scales of their groups as a matrix. Its ``values`` are the int8 values that the NPU decodes from them."""
    step = max(1, _ELEMENTS // weights.shape[1])
    parts: list[Int4Weights] = []
    values, scales = [], []
    for first in range(0, weights.shape[0], step):
        rows = slice(first, first + step)
        shifted = (weights.codes[rows] + 8).astype(np.uint8)
        nibbles = shifted[:, 0::2] | shifted[:, 1::2] << 4
        part, channel_scales = int4_weights(nibbles, weights.scales[rows], weights.group)
        parts.append(part)
        values.append(part.values)
        scales.append(channel_scales)
    int4 = Int4Weights(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.decode_scales for part in parts]),
        np.concatenate([part.decode_biases for part in parts]),
        weights.group,
    )
    return Matrix(np.concatenate(values), np.concatenate(scales), int4, bias)


def dequantized(matrix: Matrix) -> Floats:
    """Return the float32 weights [N, K] that a matrix multiplies."""
    return matrix.values * matrix.scales[:, None]


def powers(weights: Floats, matrix: Matrix) -> tuple[float, float]:
    """Return two sums of squares: of the weights, and of the differences between the weights and the quantized matrix."""
    noise = float(np.square(weights - dequantized(matrix), dtype=np.float64).sum())
    return float(np.square(weights, dtype=np.float64).sum()), noise


def decibels(signal: float, noise: float) -> float:
    """Return the signal-to-noise ratio of two sums of squares in dB; infinity if one of them is 0."""
    return 10 * log10(signal / noise) if signal and noise else float("inf")


def input_scales(
    weights: Floats, hessian: Doubles, *, bits: int, group: int, clip: float = 1e4
) -> tuple[Floats, float]:
    """Return the float32 scales [K] of the input channels with the least quantization error, and the ratio of this error to the error without
    scales.

    The layer then multiplies inputs / scales by weights * scales. Candidates are powers of the root mean square of each input channel. The error
    is the squared error of the layer's outputs. If no candidate is better, the scales are 1 and the ratio is 1.0.
    """
    count = weights.shape[1]
    magnitudes = np.sqrt(np.maximum(np.diag(hessian), 0))
    magnitudes = np.maximum(magnitudes / max(float(magnitudes.max(initial=0)), 1e-30), 1 / clip)
    best: Floats = np.ones(count, np.float32)
    costs = []
    for alpha in ALPHAS:
        scales = magnitudes**alpha
        scales = (scales / np.sqrt(scales.max() * scales.min())).astype(np.float32)
        scaled = weights * scales
        error = (weights - dequantized(quantize(scaled, bits=bits, group=group)) / scales).astype(np.float64)
        costs.append(float(np.sum((error @ hessian) * error)))
        if costs[-1] < min(costs[:-1], default=np.inf):
            best = scales
    return best, min(costs) / costs[0] if costs[0] else 1.0


def _row_scales(weights: Floats) -> Floats:
    largest: Floats = np.abs(weights).max(axis=1, initial=np.float32(0))
    return (largest / np.float32(127)).astype(np.float32)


def _divisors(scales: Floats) -> Floats:
    return np.where(scales == 0, np.float32(1), scales)


def _nearest(weights: npt.NDArray[Any], divisors: Floats, most: int) -> npt.NDArray[np.int8]:
    """Return weights [N, K] / divisors, rounded to the nearest integers and clamped to -most to most."""
    result = np.empty(weights.shape, np.int8)
    step = max(1, _ELEMENTS // weights.shape[1])
    for first in range(0, len(weights), step):
        rows = slice(first, first + step)
        result[rows] = np.clip(np.rint(weights[rows] / divisors[rows]), -most, most)
    return result


def _grouped(weights: Floats, group: int, hessian: Doubles | None) -> GroupedWeights:
    n, k = weights.shape
    importance = None if hessian is None else np.maximum(np.diag(hessian), 0).astype(np.float32)
    scales = np.empty((n, k // group), np.float32)
    codes = np.empty((n, k), np.int8)
    step = max(1, _ELEMENTS // k)
    for first in range(0, n, step):
        rows = slice(first, first + step)
        part = np.ascontiguousarray(weights[rows]).reshape(-1, k // group, group)
        each = None if importance is None else importance.reshape(k // group, group)
        scales[rows] = _group_scales(part, each)
        codes[rows] = _codes(part, scales[rows][..., None]).reshape(-1, k)
    if hessian is not None:
        codes = _int4_by_gptq(weights, scales, group, hessian)
    return GroupedWeights(codes, scales)


def _codes(weights: npt.NDArray[Any], scales: Floats) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = np.clip(np.rint(weights / _divisors(scales)), -8, 7)
    return result


def _group_scales(groups: Floats, importance: Floats | None) -> Floats:
    """Return the scale of each group of weights [N, groups, group] that gives the least squared error among the candidates ``CLIPS``.

    ``importance`` [groups, group] weights the squared errors of the columns; None: all are equal.
    """
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1)[..., None], axis=-1)
    best = np.zeros_like(largest)
    least = np.full(largest.shape, np.inf, np.float32)
    for level in (-8, 7):
        for clip in CLIPS:
            scales = largest * np.float32(clip / level)
            error = groups - _codes(groups, scales) * scales
            np.square(error, out=error)
            if importance is not None:
                error *= importance
            cost = error.sum(axis=-1, keepdims=True)
            better = cost < least
            best = np.where(better, scales, best)
            least = np.where(better, cost, least)
    result: Floats = best[..., 0]
    return result


Round = Callable[[int, Doubles], tuple[npt.NDArray[np.int8], Doubles]]
"""A function that rounds one column: of its index and weights, it returns the codes and the weights that the codes stand for."""


def _gptq(weights: Floats, hessian: Doubles, rounded: Round) -> npt.NDArray[np.int8]:
    """Return the codes of weights [N, K] by GPTQ: column by column, with the error of each column compensated in the columns after it."""
    left = weights.astype(np.float64)
    k = left.shape[1]
    codes = np.empty(left.shape, np.int8)
    inverse = _inverse_factor(hessian)
    for first in range(0, k, GPTQ_BLOCK):
        end = min(first + GPTQ_BLOCK, k)
        errors = np.empty((len(left), end - first))
        for column in range(first, end):
            codes[:, column], values = rounded(column, left[:, column])
            error = (left[:, column] - values) / inverse[column, column]
            left[:, column + 1 : end] -= np.outer(error, inverse[column, column + 1 : end])
            errors[:, column - first] = error
        left[:, end:] -= errors @ inverse[first:end, end:]
    return codes


def _inverse_factor(hessian: Doubles) -> Doubles:
    """Return the upper Cholesky factor of the inverse of a damped Hessian. An input that is always 0 is treated as
    independent of the other inputs.

    Raises InvalidModelError if no damping makes the Hessian positive definite.
    """
    damped = hessian.astype(np.float64)
    dead = np.diag(damped) <= 0
    damped[dead, dead] = 1
    mean = float(np.diag(damped).mean())
    damping = DAMPING * mean
    for _ in range(10):
        try:
            lower = np.linalg.cholesky(damped + damping * np.eye(len(damped)))
            inverse = np.linalg.inv(lower)
            result: Doubles = np.linalg.cholesky(inverse.T @ inverse).T
            return result
        except np.linalg.LinAlgError:
            damping *= 10
    raise InvalidModelError(
        "hessian: it is not positive definite with any damping; the calibration inputs are not finite numbers."
    )


def _int8_by_gptq(weights: Floats, scales: Floats, hessian: Doubles) -> npt.NDArray[np.int8]:
    divisors, values = _divisors(scales).astype(np.float64), scales.astype(np.float64)

    def rounded(_: int, column: Doubles) -> tuple[npt.NDArray[np.int8], Doubles]:
        codes = np.clip(np.rint(column / divisors), -127, 127)
        return codes.astype(np.int8), codes * values

    return _gptq(weights, hessian, rounded)


def _int4_by_gptq(weights: Floats, scales: Floats, group: int, hessian: Doubles) -> npt.NDArray[np.int8]:
    """Return int4 codes of weights by GPTQ, for given scales of groups. The rounding errors that GPTQ compensates are
    those of the values that the NPU decodes, which differ from code * scale."""
    zeros = np.full((len(weights), weights.shape[1] // 2), 0x88, np.uint8)
    decoder, channels = int4_weights(zeros, scales, group)
    stored = decoder.decode_scales.view(np.uint16).astype(np.int64)
    signs = np.where(decoder.decode_biases == 1, -1, 1)
    steps = np.ldexp((stored & 1023).astype(np.float64), -(stored >> 10)) * signs
    divisors = _divisors(scales).astype(np.float64)

    def rounded(at: int, column: Doubles) -> tuple[npt.NDArray[np.int8], Doubles]:
        codes = np.clip(np.rint(column / divisors[:, at // group]), -8, 7)
        decoded = np.clip(np.floor(codes * steps[:, at // group] + 0.5), -128, 127)
        return codes.astype(np.int8), decoded * channels

    return _gptq(weights, hessian, rounded)
