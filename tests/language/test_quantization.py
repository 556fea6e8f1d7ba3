# SPDX-License-Identifier: BSD-3-Clause
"""Weights of language models as int8 by row and int4 in groups, plain, with GPTQ, and with scales of input channels."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Matrix
from openneutron.language.quantization import (
    GroupedWeights,
    check_weights,
    dequantized,
    grouped_matrix,
    input_scales,
    quantize,
)


def weights(n: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, k), np.float32) * np.float32(0.05)


def hessian(k: int, seed: int = 1) -> np.ndarray:
    """The second moments of inputs that depend on each other, some of them much larger than others."""
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(4 * k, k)) @ generator.normal(size=(k, k)) * np.exp(generator.normal(size=k))
    inputs[:, 3] = 0
    return inputs.T @ inputs


def cost(wanted: np.ndarray, matrix: Matrix, moments: np.ndarray, scales: np.ndarray | float = 1.0) -> float:
    error = (wanted - dequantized(matrix) / scales).astype(np.float64)
    return float(np.sum((error @ moments) * error))


def test_int8_values_are_the_nearest_of_each_row() -> None:
    w = weights(5, 70)
    w[3] = 0
    matrix = quantize(w, bias=np.arange(5, dtype=np.float32))
    assert np.array_equal(matrix.scales, np.abs(w).max(axis=1) / np.float32(127))
    assert np.abs(matrix.values).max(axis=1).tolist() == [127, 127, 127, 0, 127]
    assert (np.abs(w - dequantized(matrix)) <= matrix.scales[:, None] * 0.50001).all()
    assert matrix.bias is not None and matrix.bias.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("group", [32, 64, 128])
def test_int4_values_are_what_the_npu_decodes(group: int) -> None:
    w = weights(7, 256)
    w[2] = 0
    matrix = quantize(w, bits=4, group=group)
    assert matrix.int4 is not None and np.array_equal(matrix.int4.values, matrix.values)
    assert matrix.group == group
    noise = np.square(w - dequantized(matrix)).sum() / np.square(w).sum()
    assert noise < {32: 0.008, 64: 0.011, 128: 0.014}[group]
    plain = np.abs(w.reshape(7, -1, group)).max(axis=-1, keepdims=True) / 7
    with np.errstate(invalid="ignore"):
        nearest = np.nan_to_num(np.rint(w.reshape(7, -1, group) / plain) * plain).reshape(w.shape)
    assert noise < np.square(w - nearest).sum() / np.square(w).sum()


def test_values_of_a_file_are_kept() -> None:
    """Codes with a float16 scale, negative ones too, come back within the NPU's decode steps."""
    generator = np.random.default_rng(3)
    codes = generator.integers(-8, 8, (6, 96)).astype(np.int8)
    scales = (generator.normal(size=(6, 3)) * 0.01).astype(np.float16).astype(np.float32)
    file = GroupedWeights(codes, scales)
    matrix = grouped_matrix(file)
    negative = np.repeat(scales < 0, 32, axis=1)
    assert matrix.int4 is not None
    assert np.array_equal(matrix.int4.codes, np.where(negative, -codes - 1, codes))
    half = matrix.scales[:, None] * 0.6
    saturated = matrix.values == 127
    assert (np.abs(file.floats - dequantized(matrix)) <= np.where(saturated, 2 * half, half)).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_and_input_scales_lower_the_error_of_outputs(bits: int) -> None:
    w, moments = weights(40, 160), hessian(160)
    plain = cost(w, quantize(w, bits=bits), moments)
    assert cost(w, quantize(w, bits=bits, hessian=moments), moments) < 0.7 * plain
    scales, ratio = input_scales(w, moments, bits=bits, group=32)
    scaled = quantize(w * scales, bits=bits)
    assert cost(w, scaled, moments, scales) == pytest.approx(ratio * plain, rel=1e-6)
    assert ratio < 0.9


def test_gptq_without_dependencies_rounds_to_the_nearest() -> None:
    w = weights(9, 64)
    assert np.array_equal(quantize(w, hessian=np.eye(64)).values, quantize(w).values)
    assert np.array_equal(quantize(w, hessian=np.zeros((64, 64))).values, quantize(w).values)


def test_wrong_weights_are_refused() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        check_weights("down", 576, 4, 128)
    assert str(raised.value) == (
        "down: 576 columns of weights are no multiple of the group of 128 int4 weights. Use group=32 or 64."
    )
    with pytest.raises(InvalidOptionError) as raised:
        check_weights("down", 100, 4, 32)
    assert str(raised.value) == (
        "down: 100 columns of weights are no multiple of the group of 32 int4 weights. Use bits=8."
    )
    with pytest.raises(InvalidModelError) as raised_model:
        quantize(np.full((2, 32), np.inf, np.float32), bits=4, name="down")
    assert str(raised_model.value) == "down: a weight is not finite; a model's weights are finite numbers."
