# SPDX-License-Identifier: BSD-3-Clause
"""Fixed-point multipliers, computed as LiteRT computes them when it prepares a model.

Follows QuantizeMultiplier of LiteRT's quantization_util.cc rounding step by rounding step.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LARGEST_SHIFT = 30
"""A left shift of 31 keeps only the sign bit; neutron_shift_is_sound() of kernel.h allows up to 30."""

_FRACTION_BITS = 31
_LOW_BITS = 20
_WIDE_BITS = _FRACTION_BITS + _LOW_BITS

Multipliers = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Fixed-point multipliers and their shifts, one of each for every channel or for all."""


def quantize_multipliers(reals: npt.ArrayLike) -> Multipliers:
    """Return multipliers and shifts with real = multiplier * 2^(shift - 31), for float64 values of any shape.

    A positive shift shifts left. A value below 2^-32 becomes 0. The operators' rows refuse values of 2^30 or more, for
    which LiteRT's own shift is undefined.
    """
    values = np.asarray(reals, np.float64)
    assert np.all(np.isfinite(values)), "a rescaling factor is not finite"
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
    assert not np.any(shifts > LARGEST_SHIFT), "a rescaling factor is too large"
    return fixed.astype(np.int32), shifts


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return one multiplier and shift; see quantize_multipliers."""
    multipliers, shifts = quantize_multipliers(real)
    return int(multipliers), int(shifts)


def fit_multipliers(scales: npt.ArrayLike, low: int, high: int) -> Multipliers | None:
    """Return multipliers and second words whose single rounding equals LiteRT's round(accumulator * scale) in [low,
    high].

    LiteRT's reference FULLY_CONNECTED multiplies with a double and rounds halves away from 0. Within the bounds the
    result is a step function of the accumulator with high - low steps. A multiplier of 51 bits, a little larger than
    the scale so that halves round away from 0 on either side, puts every step at the right accumulator. The function
    verifies each step.

    The first result has the upper 31 bits. The second word has the shift in its lowest 8 bits and the lower 20 bits
    above them. Returns None where no such multiplier works for one of the scales.
    """
    return _fitted(tuple(np.asarray(scales, np.float64).reshape(-1).tolist()), low, high)


@lru_cache(maxsize=256)  # the support check asks before the selection does
def _fitted(scales: tuple[float, ...], low: int, high: int) -> Multipliers | None:
    reals = np.array(scales)
    _, shifts = quantize_multipliers(reals)
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
        return None
    return _in_words(fitted, shifts)


def reciprocal(count: int) -> Multipliers:
    """Return a multiplier and second word whose single rounding equals round(sum / count), halves up, for sums of
    ``count`` bytes.

    The multiplier has 51 bits, rounded up. Its error is far below 1 / count for any such sum.
    """
    exponent = math.frexp(1 / count)[1]
    wide = -(-(1 << _WIDE_BITS - exponent) // count)
    return _in_words(np.array([wide]), np.array([exponent]))


def _in_words(wide: npt.NDArray[np.int64], shifts: npt.NDArray[np.signedinteger]) -> Multipliers:
    words = (wide & (2**_LOW_BITS - 1)) << 8 | (shifts & 0xFF)
    return (wide >> _LOW_BITS).astype(np.int32), words.astype(np.int32)


def _rounded_once(
    accumulators: npt.NDArray[np.int64], wide: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the results of the kernels' single_rounding for these accumulators."""
    fine = accumulators * (wide & (2**_LOW_BITS - 1)) >> _LOW_BITS
    sums = accumulators * (wide >> _LOW_BITS) + fine + (np.int64(1) << (_FRACTION_BITS - 1 - shifts))
    return np.asarray(sums >> (_FRACTION_BITS - shifts))


def _first_accumulators(
    scales: npt.NDArray[np.float64], results: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the smallest accumulator whose rounded product is at least each result, by channel; and whether 32 bits
    hold it."""
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
    """Round to the nearest integer, halves away from 0, as C's round() does."""
    magnitudes = np.abs(values)
    floors = np.floor(magnitudes)
    return np.asarray(np.copysign(floors + (magnitudes - floors >= 0.5), values))
