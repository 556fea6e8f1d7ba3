# SPDX-License-Identifier: BSD-3-Clause
"""Softmax, its logarithm, and L2 normalization."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node
from openneutron.ops.limits import Limit, limit, rank
from openneutron.ops.rescaling import quant_of
from openneutron.ops.table import Attribute, Op, shape_of

MOST_ADDED = 2**12 - 1
"""The number of exponentials whose sum LiteRT's LOG_SOFTMAX and int16 SOFTMAX hold: 12 integer bits."""

LEAST_SCALE = 2.0**-24
"""The smallest output scale of a softmax that has its own: 1/256 of a step of its probabilities."""

LARGEST_SCALE = 1.0
"""The largest output scale of such a softmax: a step is no more than the largest probability."""

WIDE = (1 / 65536, -32768)
"""Scale and zero point of LiteRT's SOFTMAX from int8 to int16."""


def _has_axes(graph: Graph, node: Node) -> str | None:
    return None if shape_of(graph, node) else "its input is a single number"


def _addable(most: int, what: str) -> Limit:
    """Return the limit on the values along the last axis, of which LiteRT makes a sum."""

    def rule(graph: Graph, node: Node) -> str | None:
        shape = shape_of(graph, node)
        if not shape or shape[-1] <= most:
            return _has_axes(graph, node)
        return f"it adds {shape[-1]} {what}; LiteRT's sum holds {most}"

    return limit(f"at most {most} values along the last axis", rule)


INTEGER_BITS = 5
"""Integer bits of a rescaled difference: kScaledDiffIntegerBits of LiteRT's reference/softmax.h."""


def difference_factor(scale: float, beta: float) -> float:
    """Return the factor of a difference of stored values, with all bits fractional; beta is a float32."""
    return float(np.float32(beta)) * scale * 2.0 ** (31 - INTEGER_BITS)


def _steep(graph: Graph, node: Node) -> str | None:
    scale, beta = quant_of(graph, node, 0).scale, node.attrs.get("beta", 1.0)
    if difference_factor(scale, beta) > 1.0:
        return None
    return (
        f"beta {beta:g} times the input's scale {scale:g} is too small for a fixed-point exponential; it must be above "
        f"2^-{31 - INTEGER_BITS}"
    )


_STEEP = limit(f"beta times the input's scale above 2^-{31 - INTEGER_BITS}", _steep)

MOST_SQUARED = (2**31 - 1) // 255**2
"""The number of values whose squares LiteRT's L2_NORMALIZATION adds in 32 bits."""


def _own_scale(graph: Graph, node: Node) -> str | None:
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    if LEAST_SCALE <= quant.scale <= LARGEST_SCALE:
        return None
    return f"its output's scale is {quant.scale:g}; it must be 2^-24 to 1"


_ADDABLE = _addable(MOST_ADDED, "exponentials")

OPS = (
    Op(
        "softmax",
        kernels=("softmax_s8",),
        attributes=(Attribute("beta", "beta", 1.0),),
        fixed_output=(1 / 256, -128),
        limits=(limit("at least one axis", _has_axes), _STEEP),
        version=2,
        unsigned=True,
        doc="exp(beta * x) over its sum along the last axis.",
    ),
    Op(
        "softmax_rescaled",
        in_litert=False,
        kernels=("softmax_s8",),
        attributes=(Attribute("beta", "beta", 1.0),),
        limits=(_ADDABLE, _STEEP, limit("an output scale of 2^-24 to 1", _own_scale)),
        doc="exp(beta * x) over its sum along the last axis, at a scale of its own, for probabilities that are all small. "
        "Files state it as SOFTMAX from int8 to int16, whose steps are 1/65536, and QUANTIZE to int8.",
    ),
    Op(
        "log_softmax",
        kernels=("log_softmax_s8",),
        fixed_output=(16 / 256, 127),
        limits=(_ADDABLE, _STEEP),
        version=2,
        unsigned=True,
        doc="x less the logarithm of the sum of exp(x) along the last axis.",
    ),
    Op(
        "l2_normalization",
        kernels=("l2_normalization_s8",),
        options="L2NormOptions",
        fixed_output=(1 / 128, 0),
        limits=(rank(0, 1, 4), _addable(MOST_SQUARED, "squares")),
        version=2,
        doc="x over the root of the sum of the squares along the last axis.",
    ),
)
