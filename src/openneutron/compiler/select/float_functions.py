# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the C library in float32, with the same bits on whatever machine compiles.

int16 tables show the last bits of a float32, so that correctly rounded functions are no substitute for those that LiteRT calls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_F = np.float32


def _numbers(*values: float) -> tuple[np.float32, ...]:
    return tuple(map(_F, values))


_Near = tuple[tuple[np.float32, ...], tuple[np.float32, ...]]
"""Numerator and denominator of a rational approximation, the lowest power first."""

_BELOW_7_8: _Near = (
    _numbers(1.2837916613e-01, -3.2504209876e-01, -2.8481749818e-02, -5.7702702470e-03, -2.3763017452e-05),
    _numbers(1, 3.9791721106e-01, 6.5022252500e-02, 5.0813062117e-03, 1.3249473704e-04, -3.9602282413e-06),
)
_BELOW_5_4: _Near = (
    _numbers(
        *(-2.3621185683e-03, 4.1485610604e-01, -3.7220788002e-01, 3.1834661961e-01),
        *(-1.1089469492e-01, 3.5478305072e-02, -2.1663755178e-03),
    ),
    _numbers(
        *(1, 1.0642088205e-01, 5.4039794207e-01, 7.1828655899e-02),
        *(1.2617121637e-01, 1.3637083583e-02, 1.1984500103e-02),
    ),
)
_BELOW_20_7: _Near = (
    _numbers(
        *(-9.8649440333e-03, -6.9385856390e-01, -1.0558626175e01, -6.2375331879e01),
        *(-1.6239666748e02, -1.8460508728e02, -8.1287437439e01, -9.8143291473e00),
    ),
    _numbers(
        *(1, 1.9651271820e01, 1.3765776062e02, 4.3456588745e02, 6.4538726807e02),
        *(4.2900814819e02, 1.0863500214e02, 6.5702495575e00, -6.0424413532e-02),
    ),
)
_BELOW_28: _Near = (
    _numbers(
        *(-9.8649431020e-03, -7.9928326607e-01, -1.7757955551e01, -1.6063638306e02),
        *(-6.3756646729e02, -1.0250950928e03, -4.8351919556e02),
    ),
    _numbers(
        *(1, 3.0338060379e01, 3.2579251099e02, 1.5367296143e03),
        *(3.1998581543e03, 2.5530502930e03, 4.7452853394e02, -2.2440952301e01),
    ),
)
_ERF_OF_1 = _F(8.4506291151e-01)
_UPPER_BITS = np.int32(-(2**13))


def _sum_of_powers(coefficients: tuple[np.float32, ...], x: Floats) -> Floats:
    result = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = coefficient + x * result
    return result


def _ratio(near: _Near, x: Floats) -> Floats:
    return np.asarray(_sum_of_powers(near[0], x) / _sum_of_powers(near[1], x), np.float32)


def _exp(x: Floats) -> Floats:
    return np.exp(x.astype(np.float64)).astype(np.float32)


def erfcf(x: Floats) -> Floats:
    """Return 1 - erf(x) of finite float32 values, rounded where Sun's fdlibm rounds it, as glibc's erfcf is up to 2.40."""
    one, half = _F(1), _F(0.5)
    magnitude = np.abs(x)
    with np.errstate(all="ignore"):
        part = x * _ratio(_BELOW_7_8, x * x)
        near = np.where(x < _F(0.25), one - (x + part), half - (part + (x - half)))
        near = np.where(magnitude < _F(2.0**-56), one - x, near)
        about_one = _ratio(_BELOW_5_4, magnitude - one)
        middle = np.where(x >= 0, (one - _ERF_OF_1) - about_one, one + (_ERF_OF_1 + about_one))
        square = (one / (magnitude * magnitude)).astype(np.float32)
        ratio = np.where(magnitude < _F(1 / 0.35), _ratio(_BELOW_20_7, square), _ratio(_BELOW_28, square))
        upper = (magnitude.view(np.int32) & _UPPER_BITS).view(np.float32)
        tail = _exp(-upper * upper - _F(0.5625)) * _exp((upper - magnitude) * (upper + magnitude) + ratio) / magnitude
        far = np.where(x > 0, tail, _F(2) - tail)
        far = np.where(x < -6, _F(2), far)
        result = np.select(
            [magnitude < _F(0.84375), magnitude < _F(1.25), magnitude < 28],
            [near, middle, far],
            np.where(x > 0, _F(0), _F(2)),
        )
    return result.astype(np.float32)
