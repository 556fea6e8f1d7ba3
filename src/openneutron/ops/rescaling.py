# SPDX-License-Identifier: BSD-3-Clause
"""The factors by which LiteRT's kernels rescale stored values, computed in LiteRT's arithmetic, and their bounds.

Kernel selection turns the same factors into fixed-point multipliers, so a node whose factors are within these bounds
always compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from openneutron.ir import Graph, Node, QuantParams
from openneutron.ops.fixed_point import LARGEST_SHIFT, fit_multipliers
from openneutron.ops.table import Limit

Factors = Callable[[Graph, Node], npt.ArrayLike]
"""Return all factors of a node whose quantization satisfies its other limits."""


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
    """Return input scale / output scale in double."""
    return source.scale / result.scale


def ratio_in_float(source: QuantParams, result: QuantParams) -> float:
    """Return input scale / output scale, rounded to float32; infinite on overflow of float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(source.scale) / np.float32(result.scale))


def product_in_float(a: QuantParams, b: QuantParams, result: QuantParams) -> float:
    """Return a's scale * b's scale / output scale, each step rounded to float32; infinite or NaN on overflow."""
    with np.errstate(all="ignore"):
        return float(np.float32(a.scale) * np.float32(b.scale) / np.float32(result.scale))


def matmul_factor(a: QuantParams, b: QuantParams, result: QuantParams) -> float:
    """Return the operands' product in float32, divided by the output scale in double (GetQuantizedConvolutionMultipler
    of kernel_util.cc)."""
    with np.errstate(all="ignore"):
        return float(np.float32(a.scale) * np.float32(b.scale)) / result.scale


def rsqrt_factor(source: QuantParams, result: QuantParams) -> float:
    """Return 1 / (root of the input scale * output scale), the divisor in float32 (elementwise.cc)."""
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
    """Return a rule that computes a factor for each of the weights' scales; the operands are at these indices.

    LiteRT's uint8 convolutions multiply both scales in float32, as BATCH_MATMUL does; its FULLY_CONNECTED does not.
    """

    def factors(graph: Graph, node: Node) -> npt.ArrayLike:
        if node.attrs.get("unsigned") and node.op != "fully_connected":
            sources = quant_of(graph, node, data), quant_of(graph, node, weights)
            return matmul_factor(*sources, result_quant(graph, node))
        scales = quant_of(graph, node, weights).scales
        return convolution_scales(quant_of(graph, node, data).scale, scales, result_quant(graph, node).scale)

    return factors


def of_one(factor: Callable[[QuantParams, QuantParams], float]) -> Factors:
    """Return a rule that computes one factor from the input's and the output's parameters."""
    return lambda graph, node: factor(quant_of(graph, node, 0), result_quant(graph, node))


def of_two(factor: Callable[[QuantParams, QuantParams, QuantParams], float]) -> Factors:
    """Return a rule that computes one factor from both inputs' and the output's parameters."""
    return lambda graph, node: factor(quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node))


def rescales(*factors: Factors, exponent: int = LARGEST_SHIFT) -> Limit:
    """Return the limit that every factor is below 2^exponent. A factor that rounds to it in 31 bits is refused too."""

    def check(graph: Graph, node: Node) -> str | None:
        found = np.concatenate([np.atleast_1d(np.asarray(each(graph, node), np.float64)) for each in factors])
        large = found[~(np.abs(found) < 2.0**exponent * (1 - 2.0**-32))]
        return (
            f"its scales make a rescaling factor of {large[0]:.6g}; it must be below 2^{exponent}"
            if large.size
            else None
        )

    check.__doc__ = f"rescaling factors below 2^{exponent}"
    return check


FUSED_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}
"""The real bounds of each fused activation."""

_INT32_MAX_AS_FLOAT = np.float32(2**31 - 1)


def steps_of(value: float, scale: float) -> float:
    """Return a real value in steps of a scale, divided in float32 and rounded half away from zero; infinite on
    overflow."""
    with np.errstate(all="ignore"):
        quotient = np.float32(value) / np.float32(scale)
    magnitude = np.abs(quotient)
    # From 2^23 on a float32 is an integer already, and adding a half would round it again.
    rounded = magnitude if magnitude >= 2.0**23 else np.float32(np.floor(np.float64(magnitude) + 0.5))
    return float(np.copysign(rounded, quotient))


def bounds_reason(bounds: tuple[float | None, float | None], scale: float) -> str | None:
    """Return the reason why an activation's real bounds can't be stored at this scale, or None."""
    for value in bounds:
        if value is not None and not abs(steps_of(value, scale)) <= _INT32_MAX_AS_FLOAT:
            return f"its output has scale {scale:.6g}, at which its bound {value:g} does not fit 32 bits"
    return None


def clamps_to(*bounds: float | None) -> Limit:
    """Return the limit that these real bounds, lower and upper, fit 32 bits in steps of the output's scale."""
    low, high = bounds

    def check(graph: Graph, node: Node) -> str | None:
        return bounds_reason((low, high), result_quant(graph, node).scale)

    check.__doc__ = "bounds that fit 32 bits at the output's scale"
    return check


def fused_activation() -> Limit:
    """Return the limit that the node's activation is known and its bounds fit 32 bits at the output's scale."""

    def check(graph: Graph, node: Node) -> str | None:
        activation = node.attrs.get("activation")
        if activation not in FUSED_BOUNDS:
            return f"activation is {activation}; what there is: {', '.join(FUSED_BOUNDS)}"
        return bounds_reason(FUSED_BOUNDS[activation], result_quant(graph, node).scale)

    check.__doc__ = f"activation among {', '.join(FUSED_BOUNDS)}"
    return check


INT8_MIN, INT8_MAX = -128, 127


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
    """Return the reason why FULLY_CONNECTED's factors have no exact single rounding, or None."""
    factors = of_convolution(0, 1)(graph, node)
    if fit_multipliers(factors, *single_rounding_range(graph, node)) is not None:
        return None
    return "no multiplier of 51 bits rounds as LiteRT does with one of its rescaling factors"


def single_rounding_range(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the bounds of a fused activation, less the output's zero point."""
    quant = result_quant(graph, node)
    low, high = activation_range(node.attrs.get("activation", "NONE"), quant.scale, quant.zero_point)
    return low - quant.zero_point, high - quant.zero_point
