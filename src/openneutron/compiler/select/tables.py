# SPDX-License-Identifier: BSD-3-Clause
"""Compute the tables of int8 and int16 functions, with the results of LiteRT's reference kernels.

An int8 table of one operand has 256 entries. Entry i is the stored result for the stored value i - 128. ``COMBINED`` has the tables of the
kernels of two operands. Fixed-point operators are emulated step by step in integers. For other operators LiteRT fills a table itself
(LUTPopulateInt8 of its internal/common.h), from float32 functions. The functions here give the same float32 values on every machine.

Kernels interpolate linearly between two entries of an int16 table. LiteRT lowers each entry by half of the error in the middle between
two entries, so that the error at the entries is as large as between them. The last bits of a float32 can change an entry of an int16
table. So correctly rounded functions can't replace the functions of the C library that LiteRT calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.ir import QuantParams
from openneutron.ops.elementwise import hard_swish_factors
from openneutron.ops.rescaling import (
    INT8_MAX,
    INT8_MIN,
    leaky_slope,
    quantize_multiplier,
    ratio,
    ratio_in_float,
    rsqrt_factor,
    steps_of,
)

_F = np.float32
_LN2_HIGH, _LN2_LOW = _F(6.9313812256e-01), _F(9.0580006145e-06)
_INVERSE_LN2 = _F(1.4426950216e00)
_Q = tuple(map(_F, (-3.3333335072e-02, 1.5873016091e-03, -7.9365076090e-05, 4.0082177293e-06, -2.0109921195e-07)))


def tanhf(x: Floats) -> Floats:
    """Return tanh of finite float32 values in float32 arithmetic, rounded where Sun's fdlibm rounds it.

    LiteRT fills its TANH table with the C library's tanhf. Up to glibc 2.40 this is the function of fdlibm, on x86-64 without fused
    multiply-adds. Its results are often one unit from the correctly rounded values, which changes about one table in ten thousand.
    This function takes the same steps on every machine.
    """
    magnitude = np.minimum(np.abs(x), _F(22))
    large = magnitude >= 1
    twice = _F(2) * magnitude
    power = _expm1f(np.where(large, twice, -twice).astype(np.float32))
    result = np.where(large, _F(1) - _F(2) / (power + _F(2)), -power / (power + _F(2)))
    result = np.where(magnitude == 22, _F(1), result)
    return np.copysign(np.where(magnitude < _F(2.0**-55), magnitude, result), x).astype(np.float32)


def _expm1f(x: Floats) -> Floats:
    """Return exp(x) - 1 for |x| <= 44: x = k ln 2 + r, with a rational approximation on r."""
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
    """Return x * power, where ``power`` is a power of two, so that the product is exact in float32."""
    return (x.astype(np.float64) * power).astype(np.float32)


Ints = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.floating[Any]]
Attrs = Mapping[str, Any]

STORED: Ints = np.arange(INT8_MIN, INT8_MAX + 1, dtype=np.int64)

_INT16_MIN, _INT16_MAX = -(2**15), 2**15 - 1


# -- fixed point, as gemmlowp's fixedpoint.h has it --------------------------------------------------------------------


def doubling_high_mul(a: Ints, b: Ints | int, bits: int = 32) -> Ints:
    """Return SaturatingRoundingDoublingHighMul of integers of ``bits`` bits: round(a * b / 2^(bits - 1)), ties up."""
    product = a * b
    shifted = (product + (1 << (bits - 2))) >> (bits - 1)
    return np.asarray(np.minimum(shifted, (1 << (bits - 1)) - 1), np.int64)


def rounding_shift_right(x: Ints, exponent: int, bits: int = 32) -> Ints:
    """Return gemmlowp's RoundingDivideByPOT: round(x / 2^exponent), ties away from zero.

    The mask wraps to ``bits`` bits, as in gemmlowp. So 16-bit values that are shifted by 16 or more do not always become 0.
    """
    mask = _wrapped(np.array((1 << exponent) - 1), bits)
    threshold = (mask >> 1) + (x < 0)
    return np.asarray((x >> exponent) + ((x & mask) > threshold), np.int64)


def requantize(x: Ints, multiplier: int, shift: int) -> Ints:
    """Return LiteRT's MultiplyByQuantizedMultiplier with two roundings. The left shift wraps to 32 bits."""
    shifted = _wrapped(x << max(shift, 0), 32)
    return rounding_shift_right(doubling_high_mul(shifted, multiplier), max(-shift, 0))


def _wrapped(x: Ints, bits: int) -> Ints:
    half = 1 << (bits - 1)
    return np.asarray(((x + half) & (2 * half - 1)) - half, np.int64)


def _stored(values: Ints, low: int = INT8_MIN, high: int = INT8_MAX) -> Int8s:
    return np.minimum(np.maximum(values, low), high).astype(np.int8)


# -- rescaling functions -----------------------------------------------------------------------------------------------


def _quantize(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of QUANTIZE: Requantize of reference/requantize.h."""
    multiplier, shift = quantize_multiplier(ratio(source, result))
    return _stored(requantize(STORED - source.zero_point, multiplier, shift) + result.zero_point)


def _relu(low: float | None, high: float | None) -> Callable[[QuantParams, QuantParams, Attrs], Int8s]:
    """Return the function that fills the table of an activation between two real bounds: QuantizedReluX of activations.cc."""

    def fill(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
        multiplier, shift = quantize_multiplier(ratio_in_float(source, result))
        values = requantize(STORED - source.zero_point, multiplier, shift) + result.zero_point
        bounds = [INT8_MIN, INT8_MAX]
        if low is not None:
            bounds[0] = max(bounds[0], result.zero_point + int(steps_of(low, result.scale)))
        if high is not None:
            bounds[1] = min(bounds[1], result.zero_point + int(steps_of(high, result.scale)))
        return _stored(values, bounds[0], bounds[1])

    return fill


def _abs(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of ABS: AbsEvalQuantized of elementwise.cc."""
    values = np.abs(STORED - source.zero_point)
    if source.scale != result.scale:
        values = requantize(values, *quantize_multiplier(ratio_in_float(source, result)))
    return _stored(values + result.zero_point)


def _neg(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of NEG: Negate of reference/neg.h. It negates the stored values; -128 stays -128."""
    return _wrapped(-STORED, 8).astype(np.int8)


_RSQRT_BITS = 20
"""The number of fraction bits of LiteRT's inverse square root (kShift of elementwise.cc)."""


def _rsqrt(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of RSQRT: RsqrtEvalQuantizedInt8 of elementwise.cc.

    LiteRT refuses inputs below 0. Here they have the same result as 0.
    """
    multiplier, shift = quantize_multiplier(rsqrt_factor(source, result))
    stored = np.full(STORED.size, INT8_MAX, np.int64)
    one = np.array([1], np.int64)
    for index, value in enumerate(STORED - source.zero_point):
        if value > 0:
            root, root_shift = _inverse_root(int(value))
            fine = requantize(one, root, root_shift + _RSQRT_BITS)
            stored[index] = requantize(fine, multiplier, shift - _RSQRT_BITS)[0] + result.zero_point
    return _stored(stored)


def _inverse_root(value: int) -> tuple[int, int]:
    """Return the multiplier and the shift of 1 / sqrt(value): GetInvSqrtQuantizedMultiplierExp of LiteRT's internal/common.h.

    The function takes five steps of Newton's iteration with 3 integer bits, for a value shifted into [2^27, 2^29).
    """
    if value == 1:
        return 2**31 - 1, 0
    pairs = (32 - value.bit_length() - 1) // 2 - 1
    shift = 11 - pairs
    raw = np.array([value << (2 * pairs) >> 1], np.int64)
    half_input = rounding_shift_right(raw, 1)
    x = np.array([1 << 28], np.int64)
    for _ in range(5):
        cubed = _saturated32(doubling_high_mul(doubling_high_mul(x, x), x) << 6)
        step = doubling_high_mul(np.array([3 << 27], np.int64), x) - doubling_high_mul(half_input, cubed)
        x = _saturated32(step << 3)
    root = int(doubling_high_mul(x, _HALF_ROOT_OF_2)[0])
    return (root << -shift, 0) if shift < 0 else (root, -shift)


_HALF_ROOT_OF_2 = 1518500250
"""sqrt(2) / 2 with 31 fraction bits, as LiteRT writes it."""


def _saturated32(x: Ints) -> Ints:
    return np.minimum(np.maximum(x, -(2**31)), 2**31 - 1)


def _sqrt(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of SQRT as in LiteRT 2.3.0: root and quotient are float32, and the quotient is truncated.

    LiteRT refuses inputs below 0. Here they have the same result as 0.
    """
    real = np.float32(source.scale) * np.maximum(STORED - source.zero_point, 0).astype(np.float32)
    steps = np.trunc(np.sqrt(real) / np.float32(result.scale)).astype(np.int64)
    return _stored(steps + result.zero_point)


def _leaky_relu(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of LEAKY_RELU: QuantizeLeakyRelu of reference/leaky_relu.h.

    If the slope is negative, the value is multiplied by the slope's magnitude, and the result is negated.
    """
    multiplier, shift = quantize_multiplier(ratio_in_float(source, result))
    slope_multiplier, slope_shift = quantize_multiplier(leaky_slope(source, result, attrs["alpha"]))
    values = STORED - source.zero_point
    positive = requantize(values, multiplier, shift)
    negative = requantize(values, abs(slope_multiplier), slope_shift) * (-1 if slope_multiplier < 0 else 1)
    return _stored(np.where(values >= 0, positive, negative) + result.zero_point)


def _hard_swish(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of HARD_SWISH: HardSwish of reference/hard_swish.h, in 16-bit fixed point in which 2^15 is 3.0."""
    to_output, to_reluish = hard_swish_factors(source, result)
    output_multiplier, output_shift = _multiplier16(to_output)
    reluish_multiplier, reluish_shift = _multiplier16(to_reluish)
    fine = _wrapped((STORED - source.zero_point) << 7, 16)
    unshifted = doubling_high_mul(fine, output_multiplier, 16)
    reluish = fine
    if reluish_shift > 0:
        reluish = _saturated16(reluish << (reluish_shift - 1))
    reluish = doubling_high_mul(reluish, reluish_multiplier, 16)
    if reluish_shift > 0:
        reluish = _saturated16(reluish << 1)
    if reluish_shift < 0:
        reluish = rounding_shift_right(reluish, -reluish_shift, 16)
    reluish = (reluish + 2**15) >> 1
    product = reluish * unshifted
    scaled = np.sign(product) * (np.abs(product) >> 15)
    return _stored(_wrapped(rounding_shift_right(scaled, -output_shift, 16) + result.zero_point, 16))


def _multiplier16(real: np.float32) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(float(real))
    return min((multiplier + 2**15) >> 16, _INT16_MAX), shift


def _saturated16(x: Ints) -> Ints:
    return np.minimum(np.maximum(x, _INT16_MIN), _INT16_MAX)


# -- functions of a float ----------------------------------------------------------------------------------------------


def rounded_away(x: Reals) -> Reals:
    """Return C's round() of float32 or float64 values below 2^52, in their type: half away from zero."""
    magnitude = np.abs(x).astype(np.float64)
    return np.copysign(np.floor(magnitude + 0.5), x).astype(x.dtype)


def _of_float(transform: Callable[[Floats], Floats]) -> Callable[[QuantParams, QuantParams, Attrs], Int8s]:
    """Return the function that fills the table of a float32 function ``transform``: LiteRT's LUTPopulateInt8."""

    def fill(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
        with np.errstate(over="ignore", invalid="ignore"):
            real = np.float32(source.scale) * (STORED - source.zero_point).astype(np.float32)
            steps = rounded_away(transform(real) * (np.float32(1) / np.float32(result.scale)))
            stored = steps + np.float32(result.zero_point)
            return np.asarray(np.minimum(np.maximum(stored, INT8_MIN), INT8_MAX), np.int8)

    return fill


def exp_in_float(values: Floats) -> Floats:
    """Return exp of float32 values, computed in double and rounded once.

    The expf of C libraries differs in the last bit for about one value in a few hundred.
    """
    exact = [math.exp(value) if value < 700 else math.inf for value in values.astype(np.float64)]
    return np.array(exact).astype(np.float32)


def _elu(values: Floats) -> Floats:
    """Return ELU of float32 values as EluPrepare in LiteRT's activations.cc, with expm1 in double, rounded once."""
    below = [math.expm1(value) for value in np.minimum(values, 0).astype(np.float64)]
    return np.where(values < 0, np.array(below).astype(np.float32), values)


def _logistic(values: Floats) -> Floats:
    one = np.float32(1)
    return one / (one + exp_in_float(-values))


def log_in_float(lowest: np.float32) -> Callable[[Floats], Floats]:
    """Return the natural logarithm as a function of float32 values. Its result is ``lowest`` for values of 0 and below."""

    def log(values: Floats) -> Floats:
        exact = [math.log(value) if value > 0 else float(lowest) for value in values.astype(np.float64)]
        return np.array(exact).astype(np.float32)

    return log


def _log(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of LOG: LogLUTPrepare of elementwise.cc. Values of 0 and below have the lowest output."""
    lowest = np.float32(INT8_MIN - result.zero_point) * np.float32(result.scale)
    return _of_float(log_in_float(lowest))(source, result, attrs)


def _tails(values: Floats) -> Floats:
    """Return erfc(x) of float32 values, computed in double and rounded once to float32."""
    return np.array([math.erfc(value) for value in values.astype(np.float64)]).astype(np.float32)


def gelu_in_float(approximate: bool, tails: Callable[[Floats], Floats] = _tails) -> Callable[[Floats], Floats]:
    """Return GELU as a function of float32 values: GeluTransform or GeluTransformApproximate of reference/gelu.h.

    Each product is rounded to float32, as there. ``tails`` is the function erfc.
    """
    half, one, cubic = np.float32(0.5), np.float32(1), np.float32(0.044715)
    slope = np.float32(math.sqrt(2 / math.pi))
    towards_tail = np.float32(-math.sqrt(0.5))

    def by_tails(values: Floats) -> Floats:
        return half * values * tails(values * towards_tail)

    def by_tanh(values: Floats) -> Floats:
        return half * values * (one + tanhf(slope * (values + cubic * values * values * values)))

    return by_tanh if approximate else by_tails


def _gelu(source: QuantParams, result: QuantParams, attrs: Attrs) -> Int8s:
    """Return the table of GELU, exact or with tanh."""
    return _of_float(gelu_in_float(attrs["approximate"]))(source, result, attrs)


TABLES: Mapping[str, Callable[[QuantParams, QuantParams, Attrs], Int8s]] = {
    "quantize": _quantize,
    "relu": _relu(0.0, None),
    "relu6": _relu(0.0, 6.0),
    "relu_n1_to_1": _relu(-1.0, 1.0),
    "relu_0_to_1": _relu(0.0, 1.0),
    "leaky_relu": _leaky_relu,
    "hard_swish": _hard_swish,
    "abs": _abs,
    "neg": _neg,
    "rsqrt": _rsqrt,
    "sqrt": _sqrt,
    "elu": _of_float(_elu),
    "exp": _of_float(exp_in_float),
    "log": _log,
    "logistic": _of_float(_logistic),
    "tanh": _of_float(tanhf),
    "gelu": _gelu,
}


# -- kernels of two operands --------------------------------------------------------------------------------------------

LOOKUP = "lookup_s8"
"""The kernel that looks up the entries of a table."""

Params = Mapping[str, int]


def _factored(values: Ints, params: Params, side: str) -> Ints:
    return requantize(values, params[f"{side}_multiplier"], params[f"{side}_shift"])


def _shifted(values: Ints, params: Params) -> Ints:
    """Return values that are at the output's scale as stored results: with the output's zero point added, clamped to
    the fused activation."""
    low, high = params.get("clamp_min", INT8_MIN), params.get("clamp_max", INT8_MAX)
    return np.clip(values + params["output_zero_point"], low, high)


def _centered(a: Ints, b: Ints, params: Params) -> tuple[Ints, Ints]:
    return a - params["a_zero_point"], b - params["b_zero_point"]


def _add(a: Ints, b: Ints, params: Params) -> Ints:
    a, b = _centered(a, b, params)
    # LiteRT subtracts the rescaled operand. A negative multiplier would round ties to another side.
    size = {**params, "b_multiplier": abs(params["b_multiplier"])}
    sign = -1 if params["b_multiplier"] < 0 else 1
    return _shifted(
        _factored(_factored(a << 20, size, "a") + sign * _factored(b << 20, size, "b"), params, "output"), params
    )


def _mul(a: Ints, b: Ints, params: Params) -> Ints:
    a, b = _centered(a, b, params)
    return _shifted(_factored(a * b, params, "output"), params)


def _maximum(a: Ints, b: Ints, params: Params) -> Ints:
    return np.minimum(a, b) if params["smaller"] else np.maximum(a, b)


def _squared_difference(a: Ints, b: Ints, params: Params) -> Ints:
    a, b = _centered(a, b, params)
    difference = _factored(a << 7, params, "a") - _factored(b << 7, params, "b")
    return _shifted(_factored(difference * difference, params, "output"), params)


def _prelu(a: Ints, b: Ints, params: Params) -> Ints:
    a, b = _centered(a, b, params)
    return _shifted(np.where(a >= 0, _factored(a, params, "positive"), _factored(a * b, params, "negative")), params)


COMBINED: Mapping[str, Callable[[Ints, Ints, Params], Ints]] = {
    "add_s8": _add,
    "mul_s8": _mul,
    "maximum_s8": _maximum,
    "squared_difference_s8": _squared_difference,
    "prelu_s8": _prelu,
}
"""The stored result of each kernel of two operands, as LiteRT's reference kernels round it, from the stored operands and the parameters
of the call."""


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

    For x = 0 the function returns the largest output. LiteRT refuses inputs below 0. Here they have the same result
    as 0.
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

    Each entry but the last is raised by half of the error that linear interpolation has in the middle between two
    entries. The last entry is 65535, and also applies to all larger values.
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
