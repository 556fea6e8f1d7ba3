# SPDX-License-Identifier: BSD-3-Clause
"""tanh in float32 arithmetic, rounded where Sun's fdlibm rounds it.

LiteRT fills its TANH table with the C library's tanhf. Up to glibc 2.40 that is fdlibm's, on x86-64 without fused
multiply-adds, and often one unit off the correctly rounded value: enough to turn one table in some ten thousand. Here the
same steps are taken whatever machine compiles.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_F = np.float32
_LN2_HIGH, _LN2_LOW = _F(6.9313812256e-01), _F(9.0580006145e-06)
_INVERSE_LN2 = _F(1.4426950216e00)
_Q = tuple(map(_F, (-3.3333335072e-02, 1.5873016091e-03, -7.9365076090e-05, 4.0082177293e-06, -2.0109921195e-07)))


def tanhf(x: Floats) -> Floats:
    """tanh of finite float32 values."""
    magnitude = np.minimum(np.abs(x), _F(22))
    large = magnitude >= 1
    twice = _F(2) * magnitude
    power = _expm1f(np.where(large, twice, -twice).astype(np.float32))
    result = np.where(large, _F(1) - _F(2) / (power + _F(2)), -power / (power + _F(2)))
    result = np.where(magnitude == 22, _F(1), result)
    return np.copysign(np.where(magnitude < _F(2.0**-55), magnitude, result), x).astype(np.float32)


def _expm1f(x: Floats) -> Floats:
    """exp(x) - 1 for |x| <= 44: x = k ln 2 + r, with a rational approximation on r."""
    magnitude = np.abs(x)
    half = np.where(x < 0, _F(-0.5), _F(0.5)).astype(np.float32)
    near = magnitude < _F(1.0397207)  # 1.5 ln 2: k is 1 or -1
    k = np.where(near, np.copysign(_F(1), x), np.trunc(_INVERSE_LN2 * x + half)).astype(np.float32)
    k = np.where(magnitude > _F(0.34657359), k, _F(0)).astype(np.float32)  # 0.5 ln 2
    high, low = x - k * _LN2_HIGH, k * _LN2_LOW
    r = high - low
    lost = (high - r) - low
    half_r = _F(0.5) * r
    square = r * half_r
    series = np.zeros_like(square)
    for coefficient in reversed(_Q):
        series = square * (coefficient + series)
    series = _F(1) + series
    t = _F(3) - series * half_r
    e = square * ((series - t) / (_F(6) - r * t))
    plain = r - (r * e - square)
    e = (r * (e - lost) - lost) - square
    scale = np.exp2(k.astype(np.float64))
    minus_one = _F(0.5) * (r - e) - _F(0.5)
    one = np.where(r < _F(-0.25), _F(-2) * (e - (r + _F(0.5))), _F(1) + _F(2) * (r - e))
    far = _scaled(_F(1) - (e - r), scale) - _F(1)
    middle = _scaled((1 - 1 / scale).astype(np.float32) - (e - r), scale)
    upper = _scaled((r - (e + (1 / scale).astype(np.float32))) + _F(1), scale)
    result = np.select(
        [k == 0, k == -1, k == 1, (k <= -2) | (k > 56), k < 23], [plain, minus_one, one, far, middle], upper
    )
    result = np.where(magnitude < _F(2.0**-25), x, result)
    return np.where(x <= _F(-18.714973), _F(-1), result).astype(np.float32)  # -27 ln 2


def _scaled(x: Floats, power: npt.NDArray[np.float64]) -> Floats:
    """x times a power of two, exactly."""
    return (x.astype(np.float64) * power).astype(np.float32)
