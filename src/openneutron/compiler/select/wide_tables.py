# SPDX-License-Identifier: BSD-3-Clause
"""Compute the tables of int16 functions as LiteRT's reference kernels do, from float32 functions of the C library.

The kernels interpolate linearly between two entries. LiteRT lowers each entry by half of the error in the middle between two entries,
so that the error at the entries is as large as between them.

The last bits of a float32 can change an entry of an int16 table. So correctly rounded functions can't replace the functions that LiteRT
calls. The functions here give the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.tables import exp_in_float, gelu_in_float, log_in_float, rounded_away
from openneutron.ir import QuantParams

Floats = npt.NDArray[np.float32]
_F = np.float32


def _numbers(*values: float) -> tuple[np.float32, ...]:
    return tuple(map(_F, values))


_Near = tuple[tuple[np.float32, ...], tuple[np.float32, ...]]
"""The coefficients of the numerator and the denominator of a rational approximation, lowest power first."""

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
    """Return 1 - erf(x) of finite float32 values, rounded where Sun's fdlibm rounds it. Up to glibc 2.40, glibc's erfcf is the same."""
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


Int16s = npt.NDArray[np.int16]
Reals = npt.NDArray[np.floating[Any]]
Transform = Callable[[Reals], Reals]

_STEPS = 512
_LOW, _HIGH = -(2**15), 2**15 - 1


def table_of(
    transform: Transform,
    source_scale: float,
    result_scale: float,
    source_zero_point: int = 0,
    real: type[np.floating[Any]] = np.float32,
) -> Int16s:
    """Return the table of ``transform`` for these scales: 513 entries, as LUTPopulate of LiteRT's internal/common.h computes them.

    ``real`` is the type of the arithmetic, float32 or float64.
    """
    source, result, half = real(source_scale), real(result_scale), real(2)
    lowest, highest = (source * real(stored - source_zero_point) for stored in (_LOW, _HIGH))
    step = (highest - lowest) / real(_STEPS)
    inverse = real(2**16) / (result * real(_HIGH) - result * real(_LOW))
    places = np.arange(_STEPS + 1).astype(real) * step + lowest
    values = transform(places)
    middles = rounded_away(transform(places[:-1] + step / half) * inverse)
    entries = rounded_away(values[:-1] * inverse)
    between = rounded_away((values[1:] * inverse + entries) / half)
    entries = entries - rounded_away((between - middles) / half)
    last = rounded_away(transform(np.array([highest], real)) * inverse)
    return np.asarray(np.clip(np.concatenate([entries, last]), _LOW, _HIGH), np.int16)


def _wide_rsqrt(result: QuantParams) -> Transform:
    """Return 1 / sqrt(x) as a function: GenericPrepare of elementwise.cc for RSQRT.

    The result of 0 is the largest output. LiteRT refuses values below 0; here they get the result of 0.
    """
    largest = np.float32(_HIGH) * np.float32(result.scale)

    def inverse_root(values: Reals) -> Reals:
        positive = values > 0
        root = np.sqrt(np.where(positive, values, np.float32(1)))
        return np.where(positive, np.float32(1) / root, largest).astype(np.float32)

    return inverse_root


def _wide_log(result: QuantParams) -> Transform:
    """Return LOG as a function: LogLUTPrepare of elementwise.cc. Values of 0 and below have the lowest output."""
    return log_in_float(np.float32(_LOW) * np.float32(result.scale))


_TRANSFORMS: Mapping[str, Callable[[QuantParams, Mapping[str, Any]], Transform]] = {
    "exp": lambda result, attrs: exp_in_float,
    "log": lambda result, attrs: _wide_log(result),
    "rsqrt": lambda result, attrs: _wide_rsqrt(result),
    "gelu": lambda result, attrs: gelu_in_float(bool(attrs["approximate"]), erfcf),
}
"""The functions that LiteRT computes with a table on int16, by operator name."""


def function_table(op: str, source: QuantParams, result: QuantParams, attrs: Mapping[str, Any]) -> Int16s:
    """Return the table of an operator for these scales."""
    with np.errstate(over="ignore", under="ignore"):
        return table_of(_TRANSFORMS[op](result, attrs), source.scale, result.scale)


INTERPOLATED = tuple(_TRANSFORMS)


@cache
def sigmoid_table() -> npt.NDArray[np.uint16]:
    """Return LiteRT's table of the sigmoid of 0, 1/24 ... 255/24, with 16 fractional bits.

    Each entry is raised by half of the error that linear interpolation has in the middle between two entries. The last entry also
    applies to all larger values.
    """
    places = np.arange(256.0)
    values, middles, after = (_sigmoid((places + offset) / 24) * 2**16 for offset in (0, 0.5, 1))
    raised = np.floor(values - ((values + after) / 2 - middles) / 2 + 0.5)
    raised[-1] = 2**16 - 1
    return raised.astype(np.uint16)


def _sigmoid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.array([math.exp(-value) for value in values]))


@cache
def softmax_tables() -> tuple[Int16s, Int16s]:
    """Return the tables of exp(x) for x from -10 to 0, and of 1 / (1 + x) for x from 0 to 1, with 15 fractional bits.

    They are those of SoftmaxPrepare of LiteRT's activations.cc.
    """
    steps = float(_HIGH - _LOW)

    def exponential(values: Reals) -> Reals:
        return np.array([math.exp(value) for value in values])

    exponentials = table_of(exponential, 10.0 / steps, 2.0 / steps, _HIGH, np.float64)
    reciprocals = table_of(lambda values: 1.0 / (1.0 + values), 1.0 / steps, 2.0 / steps, _LOW, np.float64)
    return exponentials, reciprocals
