# SPDX-License-Identifier: BSD-3-Clause
"""Declare normalizations by statistics of the input: layer norm, RMS norm and group norm, which LiteRT does not have.

docs/quantization.md states the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node
from openneutron.ops.limits import STORED, limit, rank
from openneutron.ops.rescaling import quant_of
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Role

GAIN, BIAS = 1, 2

MOST_NORMALIZED = 2**15
"""The most elements that may share statistics, so that the scaled variance fits 62 bits."""

NORMAL_BITS = 20
"""The number of fractional bits of a normalized value."""

VARIANCE_BITS = {DType.INT8: 8, DType.INT16: 0}
"""The number of fractional bits of a scaled variance, by the type of the activations."""

MOST_EPSILON_BITS = 62

_FACTOR_BITS, _OFFSET_BITS, _MOST_FRACTION = 31, 61, 42
"""A channel's factor has a magnitude below 2^_FACTOR_BITS, and its offset one below 2^_OFFSET_BITS. An output has at
most _MOST_FRACTION fractional bits before rounding."""


def elements_normalized(graph: Graph, node: Node) -> int:
    """Return the number of elements that share statistics."""
    shape = graph.given(node, 0).shape
    if node.op == "layer_norm":
        return shape[-1]
    return math.prod(shape[1:]) // int(node["groups"])


def scaled_epsilon(graph: Graph, node: Node) -> int:
    """Return epsilon as a whole number in units of the scaled variance, n^2 * 2^bits to the square of an input step."""
    source = graph.given(node, 0)
    steps = elements_normalized(graph, node) / quant_of(graph, node, 0).scale
    return round(float(node["epsilon"]) * steps * steps * 2.0 ** VARIANCE_BITS[source.dtype])


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """The factor (int32) and the offset (int64) of each channel. ``shift`` is the number of fractional bits of factor
    * value + offset."""

    factors: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    shift: int


def _steps(graph: Graph, node: Node, place: int, absent: float) -> npt.NDArray[np.float64]:
    """Return gain or bias of each channel in steps of the output; ``absent`` if the node has none."""
    given, channels = graph.operand(node, place), graph.given(node, 0).shape[-1]
    scale = graph[node.outputs[0]].quant
    assert scale is not None
    real = np.full(channels, absent) if given is None else np.asarray(given.data, np.float64).reshape(-1)
    return np.asarray(real / scale.scale)


def _least_exponent(values: npt.NDArray[np.float64]) -> int:
    """Return the smallest exponent of a power of two above all magnitudes; 0 if all values are 0."""
    return math.frexp(float(np.abs(values).max(initial=0.0)))[1]


def coefficients(graph: Graph, node: Node) -> Coefficients:
    """Return the coefficients of a node: gain and bias over the output's scale, with as many fractional bits as fit."""
    output = graph[node.outputs[0]]
    assert output.quant is not None
    gains, biases = _steps(graph, node, GAIN, 1.0), _steps(graph, node, BIAS, 0.0)
    biases = biases + output.quant.zero_point
    bits = min(
        _FACTOR_BITS - 1 - _least_exponent(gains) + NORMAL_BITS,
        _OFFSET_BITS - 1 - _least_exponent(biases),
        _MOST_FRACTION + NORMAL_BITS - 11,
    )
    half = (1 << bits) >> 1
    factors = np.rint(gains * 2.0 ** (bits - NORMAL_BITS)).astype(np.int64)
    offsets = np.array([round(bias * 2.0**bits) + half for bias in biases.tolist()], np.int64)
    return Coefficients(factors, offsets, bits)


def _affine(graph: Graph, node: Node) -> str | None:
    channels = graph.given(node, 0).shape[-1]
    for place, name in ((GAIN, "gain"), (BIAS, "bias")):
        given = graph.operand(node, place)
        if given is None:
            continue
        if given.data is None or given.dtype is not DType.FLOAT32 or given.elements != channels:
            return f"its {name} '{given.name}' must be constant float32, one value for each of {channels} channels"
        if not np.isfinite(given.data).all():
            return f"its {name} '{given.name}' has values that are not finite"
    return None


def _counted(graph: Graph, node: Node) -> str | None:
    if node.op == "group_norm" and graph.given(node, 0).shape[-1] % node["groups"]:
        return f"it has {node['groups']} groups for {graph.given(node, 0).shape[-1]} channels; whole groups are needed"
    count = elements_normalized(graph, node)
    if count > MOST_NORMALIZED:
        return f"it normalizes {count} elements at once; at most {MOST_NORMALIZED} share statistics"
    if not 0 <= node["epsilon"] < math.inf:
        return f"its epsilon is {node['epsilon']:g}; it must be at least 0 and finite"
    return None


def _scales(graph: Graph, node: Node) -> str | None:
    scale = quant_of(graph, node, 0).scale
    if scaled_epsilon(graph, node) >= 1 << MOST_EPSILON_BITS:
        return f"its epsilon {node['epsilon']:g} is too large for the input's scale {scale:g}; their quotient has at most {MOST_EPSILON_BITS} bits"
    if coefficients(graph, node).shift < 0:
        return "its gain or bias over the output's scale is 2^50 or more"
    return None


_OPERANDS = (INPUT, Operand(Role.VALUE, "gain", optional=True), Operand(Role.VALUE, "bias", optional=True))
_EPSILON = Attribute("epsilon", "epsilon", 1e-5)
_LIMITS = (
    limit("constant float32 gain and bias, one value for each channel", _affine),
    limit(f"at most {MOST_NORMALIZED} elements that share statistics", _counted),
    limit("epsilon, gain and bias that fit 64 bits in steps of input and output", _scales),
)

OPS = (
    Op(
        "layer_norm",
        in_litert=False,
        operands=_OPERANDS,
        kernels=("layer_norm_s8", "layer_norm_s16"),
        types=STORED,
        attributes=(_EPSILON, Attribute("centred", "centred", True)),
        limits=(rank(0, 1, 8), *_LIMITS),
        doc="(x - mean) / sqrt(variance + epsilon) over the last axis, or x / sqrt(mean(x^2) + epsilon) (RMS norm); times a gain and plus "
        "a bias for each channel, with one rounding.",
    ),
    Op(
        "group_norm",
        in_litert=False,
        operands=_OPERANDS,
        kernels=("group_norm_s8", "group_norm_s16"),
        types=STORED,
        attributes=(_EPSILON, Attribute("groups", "groups", 1)),
        limits=(rank(0, 4, 4), *_LIMITS),
        doc="(x - mean) / sqrt(variance + epsilon) over each group of channels of a batch; times a gain and plus a bias for each channel, "
        "with one rounding.",
    ),
)
