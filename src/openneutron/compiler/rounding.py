# SPDX-License-Identifier: BSD-3-Clause
"""64-bit multipliers that round as a double-precision product does.

LiteRT's reference FULLY_CONNECTED (tflite/kernels/internal/reference/integer_ops/fully_connected.h) computes
round(double(accumulator) * scale), ties away from zero, where its convolutions use a 31-bit multiplier with two
roundings. An integer kernel gives the same bytes if its multiplier steps at the same accumulators; that is checked here
for every step an 8-bit output can see.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.errors import InvalidModelError

STEPS = 2 * 256
"""Magnitudes of output minus zero point that a clamp to int8 can tell apart, with room."""

MOST_BITS = 60
LEAST_BITS = 33
"""Fraction bits: a kernel adds 32-bit halves, and its sums must stay inside 63 bits."""

_NUDGES = tuple(sign * step for step in (0, 1, 2, 4, 8, 16, 32, 64, 128) for sign in (1, -1) if step or sign > 0)
_LARGEST_ACCUMULATOR = 2**31 - 1
_BLOCK = 64
"""Channels checked at once: enough for NumPy's speed, few enough for a small footprint."""


def nearest_multipliers(scales: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], int]:
    """Multipliers and their fraction bits: (|x| * multiplier + half) >> bits is round(|x| * scale) for every x.

    ``half`` is half of the last bit shifted out. The equality holds for all 32-bit accumulators x whose result is below
    STEPS. Raises InvalidModelError for scales that are not positive and finite, are too large, or that no multiplier serves.
    """
    exact = np.asarray(scales, np.float64).reshape(-1)
    if not (np.isfinite(exact).all() and (exact >= 0).all()):
        raise InvalidModelError(
            "quantization: a rescaling factor is not a finite number above 0. Quantize the model again."
        )
    largest = float(exact.max(initial=0.0))
    bits = min(MOST_BITS, MOST_BITS - int(np.frexp(largest)[1])) if largest else MOST_BITS
    if bits < LEAST_BITS:
        raise InvalidModelError(
            f"quantization: a rescaling factor is {largest:.6g}; it must be below 2^{MOST_BITS - LEAST_BITS}. "
            "Quantize the model again with an output scale that fits its values."
        )
    nearest = np.round(np.ldexp(exact, bits)).astype(np.int64)
    found = nearest.copy()
    for start in range(0, exact.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        found[block] = _nudged(exact[block], nearest[block], bits)
    return found, bits


def _nudged(scales: np.ndarray, nearest: np.ndarray, bits: int) -> np.ndarray:
    """``nearest``, moved a little for the channels where it steps at another accumulator than the product."""
    found = nearest.copy()
    pending = np.arange(scales.size)
    for nudge in _NUDGES:
        candidate = np.maximum(nearest[pending] + nudge, 0)
        wrong = _differs(scales[pending], candidate, bits)
        found[pending[~wrong]] = candidate[~wrong]
        pending = pending[wrong]
        if not pending.size:
            return found
    raise InvalidModelError(
        f"quantization: a rescaling factor is {scales[pending[0]]:.17g}; no multiplier of {bits} bits rounds as it does. "
        "Quantize the model again with slightly different scales."
    )


def scaled(accumulators: np.ndarray, multipliers: np.ndarray, bits: int) -> np.ndarray:
    """(x * multiplier + half) >> bits for 0 <= x < 2^31 without a 64-bit overflow, as the kernels compute it."""
    x = accumulators.astype(np.int64)
    high, low = multipliers >> 32, multipliers & 0xFFFFFFFF
    return np.asarray((x * high + ((x * low) >> 32) + (np.int64(1) << (bits - 33))) >> (bits - 32))


def _differs(scales: np.ndarray, multipliers: np.ndarray, bits: int) -> np.ndarray:
    """Whether the two ways to round differ at an accumulator next to one of the output's steps, by channel.

    Both are monotone and odd, and their steps lie within one of each other, so the four accumulators around each step
    of positive ones are all that can differ.
    """
    middles = np.arange(STEPS, dtype=np.float64) + 0.5
    with np.errstate(divide="ignore", over="ignore"):
        around = np.minimum(np.floor(middles[None, :] / scales[:, None]), _LARGEST_ACCUMULATOR)
    accumulators = np.clip(around[:, :, None] + np.array([-1.0, 0.0, 1.0, 2.0]), 0, _LARGEST_ACCUMULATOR)
    products = accumulators * scales[:, None, None]
    wanted = np.floor(products + 0.5)
    # The sum can round up to the next whole number where the product lies just below a half.
    wanted -= wanted - products > 0.5
    got = scaled(accumulators, multipliers[:, None, None], bits)
    return np.asarray(((got != wanted) & (wanted < STEPS)).any(axis=(1, 2)))
