# SPDX-License-Identifier: BSD-3-Clause
"""Compute the factors by which LiteRT's kernels rescale stored values, in LiteRT's arithmetic, and turn them into
fixed point.

Limits here bound the factors. Kernel selection turns the same factors into fixed-point multipliers, so a node whose
factors are within these bounds always compiles. Multipliers follow QuantizeMultiplier of LiteRT's
quantization_util.cc rounding step by rounding step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams
from openneutron.ops.limits import Limit, limit

LARGEST_SHIFT = 30
"""A left shift of 31 keeps only the sign bit; neutron_shift_is_sound() of kernel.h allows up to 30."""

WIDE_SUM_EXPONENT = 7
"""LiteRT rescales int64 accumulators by factors below 2^7 (MultiplyByQuantizedMultiplier of common.cc)."""

MOST_WIDE_SUM = 2.0**47
"""The bound of the magnitude of an int64 accumulator that LiteRT rescales (MultiplyByQuantizedMultiplier of common.cc)."""

_FRACTION_BITS = 31
_LOW_BITS = 20
_WIDE_BITS = _FRACTION_BITS + _LOW_BITS

Multipliers = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""Fixed-point multipliers and their shifts. There is one of each for every channel, or one for all channels."""


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
    """Return the multiplier and the shift of one factor (see ``quantize_multipliers``)."""
    multipliers, shifts = quantize_multipliers(real)
    return int(multipliers), int(shifts)


def reduced_multipliers(reals: npt.ArrayLike) -> Multipliers:
    """Return multipliers with 15 fractional bits, and their shifts. LiteRT uses these for int64 accumulators
    (common.cc)."""
    multipliers, shifts = quantize_multipliers(reals)
    rounded = (multipliers.astype(np.int64) + 2**15) >> 16
    return np.minimum(rounded, 2**15 - 1).astype(np.int32), shifts


_DOUBLE_BITS = 53
_LOW_BITS_OF_DOUBLE = _DOUBLE_BITS - _FRACTION_BITS


def double_multipliers(reals: npt.ArrayLike) -> Multipliers:
    """Return doubles without loss as two int32 words each: the upper 31 of the 53 bits, and a word with the exponent
    and the other 22 bits.

    The exponent is in the lowest 8 bits of the second word, and the 22 bits are above it. A value below 2^-101
    becomes 0: its product with any accumulator rounds to the same number.
    """
    values = np.asarray(reals, np.float64)
    fractions, exponents = np.frexp(values)
    assert np.all(values >= 0) and not np.any(exponents > LARGEST_SHIFT), "a rescaling factor is too large"
    wide = np.where(exponents < -100, 0.0, fractions * 2.0**_DOUBLE_BITS).astype(np.int64)
    words = (wide & (2**_LOW_BITS_OF_DOUBLE - 1)) << 8 | (np.where(wide == 0, 0, exponents) & 0xFF)
    return (wide >> _LOW_BITS_OF_DOUBLE).astype(np.int32), words.astype(np.int32)


def fit_multipliers(scales: npt.ArrayLike, low: int, high: int) -> Multipliers | None:
    """Return multipliers and second words for a rescaling that rounds once. For all results in [low, high] it equals
    LiteRT's round(accumulator * scale). Return None if one of the scales has no such multiplier.

    LiteRT's reference FULLY_CONNECTED multiplies by a double and rounds halves away from 0. In [low, high] the result
    is a step function of the accumulator with high - low steps. A multiplier of 51 bits that is a little larger than
    the scale can put all these steps at the right accumulators, and round halves away from 0 for both signs. The
    function verifies each step.

    A multiplier (the first result) has the upper 31 of the 51 bits. The second word has the shift in its lowest 8
    bits, and above it the lower 20 bits.
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


def mean_multiplier(input_scale: float, output_scale: float, count: int) -> tuple[int, int]:
    """Return the multiplier and the shift of input_scale / (output_scale * count), as QuantizedMeanOrSum of LiteRT's
    reference/reduce.h computes them.

    For precision, the multiplier is shifted left before it is divided by ``count``: by min(floor(log2(count)), 32, 31
    + shift) bits, where ``shift`` is that of input_scale / output_scale.
    """
    multiplier, shift = quantize_multiplier(input_scale / output_scale)
    spare = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << spare) // count, shift - spare


def reciprocal(count: int) -> Multipliers:
    """Return a multiplier and a second word with which a single rounding gives round(sum / count), halves up, for sums
    of ``count`` bytes.

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
    """Return the results of these accumulators as kernels compute them with ``single_rounding``."""
    fine = accumulators * (wide & (2**_LOW_BITS - 1)) >> _LOW_BITS
    sums = accumulators * (wide >> _LOW_BITS) + fine + (np.int64(1) << (_FRACTION_BITS - 1 - shifts))
    return np.asarray(sums >> (_FRACTION_BITS - shifts))


def _first_accumulators(
    scales: npt.NDArray[np.float64], results: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return two arrays [channels, results]. The first has the smallest accumulator for which round(accumulator *
    scale), with the channel's scale, is at least the result. The second is True where int32 holds this accumulator."""
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


Factors = Callable[[Graph, Node], npt.ArrayLike]
"""A function that returns all factors of a node. The node's quantization must satisfy its other limits."""


def quant_of(graph: Graph, node: Node, index: int) -> QuantParams:
    """Return the quantization parameters of the operand at ``index``; asserts that they exist."""
    tensor = graph.given(node, index)
    assert tensor.quant is not None
    return tensor.quant


def result_quant(graph: Graph, node: Node) -> QuantParams:
    """Return the quantization parameters of the first output; asserts that they exist."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    return quant


def ratio(source: QuantParams, result: QuantParams) -> float:
    """Return the ratio of the input's scale to the output's scale, in double."""
    return source.scale / result.scale


def ratio_in_float(source: QuantParams, result: QuantParams) -> float:
    """Return the ratio of the input's scale to the output's scale, rounded to float32; infinity if float32 overflows."""
    with np.errstate(all="ignore"):
        return float(np.float32(source.scale) / np.float32(result.scale))


def product_in_float(a: QuantParams, b: QuantParams, result: QuantParams) -> float:
    """Return a's scale * b's scale / output scale, each step rounded to float32; infinite or NaN on overflow."""
    with np.errstate(all="ignore"):
        return float(np.float32(a.scale) * np.float32(b.scale) / np.float32(result.scale))


def matmul_factor(a: QuantParams, b: QuantParams, result: QuantParams) -> float:
    """Return the product of both input scales in float32, divided by the output scale in double
    (GetQuantizedConvolutionMultipler of kernel_util.cc)."""
    with np.errstate(all="ignore"):
        return float(np.float32(a.scale) * np.float32(b.scale)) / result.scale


def rsqrt_factor(source: QuantParams, result: QuantParams) -> float:
    """Return 1 / (sqrt(input scale) * output scale), with the divisor in float32 (elementwise.cc); infinity where the
    divisor is 0."""
    with np.errstate(all="ignore"):
        divisor = float(np.sqrt(np.float32(source.scale)) * np.float32(result.scale))
    return 1.0 / divisor if divisor else math.inf


def leaky_slope(source: QuantParams, result: QuantParams, alpha: float) -> float:
    """Return input scale * alpha / output scale, each step rounded to float32 (activations.cc)."""
    with np.errstate(all="ignore"):
        return float(np.float32(source.scale) * np.float32(alpha) / np.float32(result.scale))


def convolution_scales(
    input_scale: float, weight_scales: npt.ArrayLike, output_scale: float
) -> npt.NDArray[np.float64]:
    """Return input * weight / output scale for each weight scale, in double arithmetic.

    LiteRT's reference kernels of CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED use this arithmetic.
    """
    weights = np.asarray(weight_scales, np.float32).astype(np.float64)
    product = np.float64(np.float32(input_scale)) * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(product / np.float64(np.float32(output_scale)), np.float64)


def of_convolution(data: int, weights: int) -> Factors:
    """Return a rule that computes a rescaling factor for each scale of the weights. ``data`` and ``weights`` are the
    indices of the operands.

    As in LiteRT, convolutions with uint8 weights multiply the scales of both operands in float32 (``matmul_factor``).
    Convolutions with int8 weights and FULLY_CONNECTED multiply them in double (``convolution_scales``).
    """

    def factors(graph: Graph, node: Node) -> npt.ArrayLike:
        if node.attrs.get("unsigned") and node.op != "fully_connected":
            sources = quant_of(graph, node, data), quant_of(graph, node, weights)
            return matmul_factor(*sources, result_quant(graph, node))
        scales = quant_of(graph, node, weights).scales
        return convolution_scales(quant_of(graph, node, data).scale, scales, result_quant(graph, node).scale)

    return factors


def of_one(factor: Callable[[QuantParams, QuantParams], float]) -> Factors:
    """Return a rule that computes one factor from the quantization of the input and of the output."""
    return lambda graph, node: factor(quant_of(graph, node, 0), result_quant(graph, node))


def of_two(factor: Callable[[QuantParams, QuantParams, QuantParams], float]) -> Factors:
    """Return a rule that computes one factor from the quantization of both inputs and of the output."""
    return lambda graph, node: factor(quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node))


WIDE_EXPONENT = 15
"""The bound of the exponent of a factor of int16 values. A value shifted by less, plus a zero point, fits 32 bits."""


def rescales(*factors: Factors, exponent: int = LARGEST_SHIFT, wide: int | None = None) -> Limit:
    """Return the limit that every rescaling factor is below 2^exponent. With ``wide``, the bound is 2^wide if the
    first operand or the output is int16.

    A factor just below the bound is refused too if it would become the bound when it is rounded to 31 bits.
    """

    def rule(graph: Graph, node: Node) -> str | None:
        most = exponent
        if wide is not None and DType.INT16 in (graph.given(node, 0).dtype, graph[node.outputs[0]].dtype):
            most = wide
        found = np.concatenate([np.atleast_1d(np.asarray(each(graph, node), np.float64)) for each in factors])
        large = found[~(np.abs(found) < 2.0**most * (1 - 2.0**-32))]
        if not large.size:
            return None
        return f"its scales make a rescaling factor of {large[0]:.6g}; it must be below 2^{most}"

    return limit(f"rescaling factors below 2^{exponent}" + ("" if wide is None else f" (int16: 2^{wide})"), rule)


FUSED_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}
"""The lower and the upper bound of each fused activation, as real numbers; None if there is no bound."""

_INT32_MAX_AS_FLOAT = np.float32(2**31 - 1)


def steps_of(value: float, scale: float) -> float:
    """Return a real value as a number of steps of size ``scale``. As in LiteRT, the quotient is computed in float32,
    and halves are rounded away from zero. If the quotient overflows, the result is infinite."""
    with np.errstate(all="ignore"):
        quotient = np.float32(value) / np.float32(scale)
    magnitude = np.abs(quotient)
    # From 2^23 on a float32 is an integer already, and adding a half would round it again.
    rounded = magnitude if magnitude >= 2.0**23 else np.float32(np.floor(np.float64(magnitude) + 0.5))
    return float(np.copysign(rounded, quotient))


def bounds_reason(bounds: tuple[float | None, ...], scale: float) -> str | None:
    """Return the reason why the bounds of an activation can't be stored at this scale, or None."""
    for value in bounds:
        if value is not None and not abs(steps_of(value, scale)) <= _INT32_MAX_AS_FLOAT:
            return f"its output has scale {scale:.6g}, at which its bound {value:g} does not fit 32 bits"
    return None


def clamps_to(*bounds: float | None) -> Limit:
    """Return the limit that these real bounds, the lower and the upper one, fit 32 bits as steps of the output's
    scale."""
    return limit(
        "bounds that fit 32 bits at the output's scale",
        lambda graph, node: bounds_reason(bounds, result_quant(graph, node).scale),
    )


def fused_activation() -> Limit:
    """Return the limit that the node's activation is known and its bounds fit 32 bits at the output's scale."""

    def rule(graph: Graph, node: Node) -> str | None:
        activation = node.attrs.get("activation")
        if activation not in FUSED_BOUNDS:
            return f"activation is {activation}; what there is: {', '.join(FUSED_BOUNDS)}"
        return bounds_reason(FUSED_BOUNDS[activation], result_quant(graph, node).scale)

    return limit(f"activation among {', '.join(FUSED_BOUNDS)}", rule)


INT8_MIN, INT8_MAX = -128, 127
STORED_BOUNDS = {DType.INT8: (INT8_MIN, INT8_MAX), DType.INT16: (-(2**15), 2**15 - 1)}
"""The lowest and the highest stored value of each type of activations that kernels compute."""


def activation_range(
    activation: str, scale: float, zero_point: int, low: int = INT8_MIN, high: int = INT8_MAX
) -> tuple[int, int]:
    """Return the stored bounds (lowest, highest) of a fused activation on an output of this scale and zero point.

    Follows CalculateActivationRangeQuantized of LiteRT's kernel_util.cc. As in LiteRT, the zero point may put the lower
    bound above the upper one.
    """
    smallest, largest = FUSED_BOUNDS[activation]
    stored_low = low if smallest is None else max(low, zero_point + int(steps_of(smallest, scale)))
    stored_high = high if largest is None else min(high, zero_point + int(steps_of(largest, scale)))
    return stored_low, stored_high


def fitted_for_single_rounding(graph: Graph, node: Node) -> str | None:
    """Return a reason if a FULLY_CONNECTED can't get LiteRT's results from a kernel that multiplies and rounds once
    (``fit_multipliers``); None if it can. The result is also None for an int16 output, because that kernel multiplies
    doubles."""
    if graph[node.outputs[0]].dtype is DType.INT16:
        return None  # the kernel multiplies doubles
    factors = of_convolution(0, 1)(graph, node)
    if fit_multipliers(factors, *single_rounding_range(graph, node)) is not None:
        return None
    return "no multiplier of 51 bits rounds as LiteRT does with one of its rescaling factors"


def single_rounding_range(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the stored bounds of a fused activation minus the output's zero point."""
    quant = result_quant(graph, node)
    low, high = activation_range(node.attrs.get("activation", "NONE"), quant.scale, quant.zero_point)
    return low - quant.zero_point, high - quant.zero_point
