# SPDX-License-Identifier: BSD-3-Clause
"""Fixed-point multipliers and fused activation ranges, computed as LiteRT computes them when it prepares a model.

Follows QuantizeMultiplier of LiteRT's quantization_util.cc, and PopulateConvolutionQuantizationParams and
CalculateActivationRangeQuantized of its kernel_util.cc, rounding step by rounding step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.errors import InvalidModelError

INT8_MIN, INT8_MAX = -128, 127

LARGEST_SHIFT = 30
"""A left shift of 31 takes away every bit but the sign; neutron_shift_is_sound() of kernel.h allows up to 30."""

_FRACTION_BITS = 31
_LOW_BITS = 20
_WIDE_BITS = _FRACTION_BITS + _LOW_BITS
_INT32_MAX_AS_FLOAT = np.float32(2**31 - 1)


Multipliers = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Fixed-point multipliers and their shifts, one of each for every channel or for all."""


def quantize_multipliers(reals: npt.ArrayLike) -> Multipliers:
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

    That is how LiteRT's reference kernels do it for CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED.
    """
    weights = np.asarray(weight_scales, np.float32).astype(np.float64)
    product = np.float64(np.float32(input_scale)) * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(product / np.float64(np.float32(output_scale)), np.float64)


def fit_multipliers(scales: npt.ArrayLike, low: int, high: int) -> Multipliers:
    """Multipliers and words beside them whose single rounding is LiteRT's round(accumulator * scale) in [low, high].

    LiteRT's reference FULLY_CONNECTED multiplies with a double and rounds halves away from 0. Bounded, that is a step
    function of the accumulator with high - low steps. A multiplier of 51 bits, a little larger than the scale so that
    halves leave 0 on either side, puts every step where it belongs, which is verified here step by step.

    The upper 31 bits are the first result; the second has the shift in its lowest 8 bits and the lower 20 above them.
    Raises InvalidModelError for a scale that no such multiplier serves.
    """
    reals = np.asarray(scales, np.float64).reshape(-1)
    _, shifts = quantize_multipliers(reals)  # refuses what is too large
    fractions, exponents = np.frexp(reals)
    results = np.arange(low + 1, high + 1, dtype=np.int64)
    steps, reached = _first_accumulators(reals, results)
    fitted = np.zeros(reals.shape, np.int64)
    missing = np.ones(reals.shape, bool)
    for offset in (1, 0, 2, -1, 3):
        wide = np.ceil(fractions * 2.0**_WIDE_BITS).astype(np.int64) + offset
        carried = wide >= 2**_WIDE_BITS
        wide, shift = np.where(carried, wide // 2, wide), exponents + carried
        vanishing = (reals == 0) | (shift < -_FRACTION_BITS)
        wide, shift = np.where(vanishing, 0, wide), np.where(vanishing, 0, shift)
        right = reached & ~vanishing[:, None]
        for accumulators, is_reached in ((steps, True), (steps - 1, False)):
            right &= (_rounded_once(accumulators, wide[:, None], shift[:, None]) >= results) == is_reached
        exact = missing & (right | ~reached | vanishing[:, None]).all(axis=1)
        fitted, shifts = np.where(exact, wide, fitted), np.where(exact, shift, shifts)
        missing &= ~exact
        if not missing.any():
            break
    else:
        raise InvalidModelError(
            f"quantization: no multiplier of {_WIDE_BITS} bits rounds as LiteRT does with the factor "
            f"{reals[missing][0]:.17g}. Quantize the model again with slightly different scales."
        )
    words = (fitted & (2**_LOW_BITS - 1)) << 8 | (shifts & 0xFF)
    return (fitted >> _LOW_BITS).astype(np.int32), words.astype(np.int32)


def _rounded_once(
    accumulators: npt.NDArray[np.int64], wide: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """What the kernels make of an accumulator with single_rounding."""
    fine = accumulators * (wide & (2**_LOW_BITS - 1)) >> _LOW_BITS
    sums = accumulators * (wide >> _LOW_BITS) + fine + (np.int64(1) << (_FRACTION_BITS - 1 - shifts))
    return np.asarray(sums >> (_FRACTION_BITS - shifts))


def _first_accumulators(
    scales: npt.NDArray[np.float64], results: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The least accumulator whose rounded product is at least each result, by channel; and where 32 bits reach it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        guess = np.ceil((results[None, :] - 0.5) / scales[:, None])
    reached = np.abs(guess) < 2.0**31 - 2
    middle = np.where(reached, guess, 0).astype(np.int64)
    # The guess is off by one at most, through the roundings of the division and of the product.
    short = sum(
        (_rounded_away((middle + offset) * scales[:, None]) < results).astype(np.int64) for offset in (-1, 0, 1)
    )
    return middle - 1 + short, reached


def _rounded_away(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """C's round(): to the nearest integer, halves away from 0."""
    magnitudes = np.abs(values)
    floors = np.floor(magnitudes)
    return np.asarray(np.copysign(floors + (magnitudes - floors >= 0.5), values))


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
