# SPDX-License-Identifier: BSD-3-Clause
"""Fixed-point multipliers and fused activation ranges, computed as LiteRT computes them when it prepares a model.

Follows QuantizeMultiplier of LiteRT's quantization_util.cc, and PopulateConvolutionQuantizationParams,
GetQuantizedConvolutionMultipler and CalculateActivationRangeQuantized of its kernel_util.cc, rounding step by rounding
step: a scale product that LiteRT rounds to float32 is rounded to float32 here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.errors import InvalidModelError

INT8_MIN, INT8_MAX = -128, 127

LARGEST_SHIFT = 30
"""A left shift of 31 takes away every bit but the sign; neutron_shift_is_sound() of kernel.h allows up to 30."""

_FRACTION_BITS = 31
_INT32_MAX_AS_FLOAT = np.float32(2**31 - 1)


def quantize_multipliers(reals: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Multipliers and shifts with real = multiplier * 2^(shift - 31), for float64 values of any shape.

    A positive shift shifts left. What is below 2^-32 becomes 0. Raises InvalidModelError for a value of 2^30 or more, for
    which LiteRT's own shift is undefined, and for what is not finite.
    """
    values = np.asarray(reals, np.float64)
    if not np.all(np.isfinite(values)):
        raise InvalidModelError(
            "quantization: a rescaling factor is not a finite number; scales must be positive and finite. "
            "Quantize the model again."
        )
    fractions, exponents = np.frexp(values)
    scaled = fractions * 2.0**_FRACTION_BITS
    fixed = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int64)
    shifts = exponents.astype(np.int32)
    carried = fixed == 2**_FRACTION_BITS
    fixed = np.where(carried, fixed // 2, fixed)
    shifts = shifts + carried.astype(np.int32)
    vanishing = shifts < -_FRACTION_BITS
    fixed = np.where(vanishing, 0, fixed)
    shifts = np.where(vanishing, 0, shifts).astype(np.int32)
    if np.any(shifts > LARGEST_SHIFT):
        raise InvalidModelError(
            f"quantization: a rescaling factor is {float(np.max(np.abs(values))):.6g}; it must be below 2^{LARGEST_SHIFT}. "
            "Quantize the model again with an output scale that fits its values."
        )
    return fixed.astype(np.int32), shifts


def quantize_multiplier(real: float) -> tuple[int, int]:
    """One multiplier and shift; see quantize_multipliers."""
    multipliers, shifts = quantize_multipliers(real)
    return int(multipliers), int(shifts)


def convolution_scales(
    input_scale: float, weight_scales: npt.ArrayLike, output_scale: float
) -> npt.NDArray[np.float64]:
    """input * weight / output scale for each weight scale, in double arithmetic.

    That is how LiteRT does it for CONV_2D, DEPTHWISE_CONV_2D, and FULLY_CONNECTED with more than one weight scale.
    """
    weights = np.asarray(weight_scales, np.float32).astype(np.float64)
    product = np.float64(np.float32(input_scale)) * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(product / np.float64(np.float32(output_scale)), np.float64)


def fully_connected_scales(
    input_scale: float, weight_scales: npt.ArrayLike, output_scale: float
) -> npt.NDArray[np.float64]:
    """As convolution_scales, but for one weight scale LiteRT rounds input * weight scale to float32 first."""
    weights = np.asarray(weight_scales, np.float32).reshape(-1)
    if weights.size != 1:
        return convolution_scales(input_scale, weights, output_scale)
    with np.errstate(all="ignore"):
        product = np.float32(input_scale) * weights
        return np.asarray(product.astype(np.float64) / np.float64(np.float32(output_scale)), np.float64)


def activation_range(
    activation: str, scale: float, zero_point: int, low: int = INT8_MIN, high: int = INT8_MAX
) -> tuple[int, int]:
    """Stored bounds (lowest, highest) of a fused activation on an output of this scale and zero point.

    ``activation`` is "NONE", "RELU", "RELU_N1_TO_1" or "RELU6". The lower bound may lie above the upper one where a
    zero point puts it there, as in LiteRT. Raises InvalidModelError where a bound does not fit 32 bits.
    """
    if activation == "NONE":
        return low, high
    bounds = {"RELU": (0.0, None), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}
    assert activation in bounds, f"{activation} is not a fused activation"
    smallest, largest = bounds[activation]
    stored_low = max(low, _stored(smallest, scale, zero_point)) if smallest is not None else low
    stored_high = min(high, _stored(largest, scale, zero_point)) if largest is not None else high
    return stored_low, stored_high


def _stored(value: float, scale: float, zero_point: int) -> int:
    with np.errstate(all="ignore"):
        quotient = np.float32(value) / np.float32(scale)
    magnitude = np.abs(quotient)
    # round() away from zero; from 2^23 on, a float32 is whole already and adding a half would round it again
    rounded = magnitude if magnitude >= 2.0**23 else np.float32(np.floor(np.float64(magnitude) + 0.5))
    if not rounded <= _INT32_MAX_AS_FLOAT:
        raise InvalidModelError(
            f"quantization: the fused activation's bound {value:g} at scale {scale:.6g} does not fit 32 bits. "
            "Quantize the model again with an output scale that fits its values."
        )
    return zero_point + int(np.copysign(rounded, quotient))
