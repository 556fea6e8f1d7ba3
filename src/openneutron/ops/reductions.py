# SPDX-License-Identifier: BSD-3-Clause
"""Declare pools, reductions and sums, softmax and its logarithm, and normalizations.

L2 normalization is LiteRT's. LiteRT has no normalizations by statistics of the input (layer norm, RMS norm, group norm);
docs/quantization.md states their arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node
from openneutron.ops.conv import ACTIVATION, PADDING, STRIDES, explicit_padding, window_output
from openneutron.ops.limits import STORED, Limit, axes_of, limit, rank, window_numbers
from openneutron.ops.rescaling import (
    STORED_BOUNDS,
    WIDE_EXPONENT,
    fused_activation,
    of_one,
    quant_of,
    ratio,
    rescales,
    result_quant,
)
from openneutron.ops.table import (
    INPUT,
    INT8_OR_INT16,
    Attribute,
    Op,
    Operand,
    Parts,
    Quantization,
    Role,
    constant_values,
    moving,
    parameter,
    shape_of,
)

_KERNEL = (Attribute("kernel_h", "filterHeight", 1), Attribute("kernel_w", "filterWidth", 1))


def _pool_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data = graph.given(node, 0)
    batches, height, width, channels = data.shape
    return ((batches, *window_output(node, height, width, node["kernel_h"], node["kernel_w"]), channels),)


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the axes of a reduction in ascending order, counted from 0."""
    rank_of_input = len(shape_of(graph, node))
    return tuple(sorted({axis % rank_of_input for axis in named_axes(graph, node)}))


def named_axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the axes of a reduction as the node names them: in any order, negative ones counted from the end."""
    return constant_values(graph, node, 1)


def reduce_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data = graph.given(node, 0)
    axes = reduced_axes(graph, node)
    if node["keep_dims"]:
        return (tuple(1 if axis in axes else extent for axis, extent in enumerate(data.shape)),)
    return (tuple(extent for axis, extent in enumerate(data.shape) if axis not in axes),)


def runs_of_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[tuple[bool, tuple[int, ...]]]:
    """Return the runs of neighbouring axes that are all reduced (True) or all kept (False). Axes of extent 1 are left
    out."""
    runs: list[tuple[bool, tuple[int, ...]]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        reduced = axis in axes
        if runs and runs[-1][0] == reduced:
            runs[-1] = (reduced, (*runs[-1][1], axis))
        else:
            runs.append((reduced, (axis,)))
    return runs


MOST_ADDED = 2**23
"""The largest number of elements of int8 that the kernel can sum in its 32-bit accumulator. It sums differences of
stored values."""

MOST_WIDE_ADDED = 2**16 - 2
"""The largest number of int16 elements that the kernel can sum in its 32-bit accumulator, to which it adds half of that
number for rounding."""


def _most_added(graph: Graph, node: Node) -> int:
    return MOST_WIDE_ADDED if graph.given(node, 0).dtype is DType.INT16 else MOST_ADDED


MOST_RUNS = 4
"""The largest number of runs of reduced and kept axes: a view has four axes."""


def _reducible(graph: Graph, node: Node) -> str | None:
    data = graph.given(node, 0)
    axes = reduced_axes(graph, node)
    runs = runs_of_axes(data.shape, axes)
    if len(runs) <= MOST_RUNS:
        return None
    return f"it reduces axes {list(axes)} of rank {len(data.shape)}, {len(runs)} separate runs of axes; at most {MOST_RUNS}"


RUNS_OF_AXES = limit(f"at most {MOST_RUNS} runs of reduced and kept axes", _reducible)


def added(graph: Graph, node: Node) -> int:
    """Return the number of elements that a reduction combines into one result."""
    shape = shape_of(graph, node)
    return math.prod(shape[axis] for axis in reduced_axes(graph, node))


def _addable(graph: Graph, node: Node) -> str | None:
    count, most = added(graph, node), _most_added(graph, node)
    return None if count <= most else f"it adds {count} values to one; at most {most}"


FEW_ADDED = limit(f"at most {MOST_ADDED} values into one (int16: {MOST_WIDE_ADDED})", _addable)


@dataclass(frozen=True, slots=True)
class WindowRun:
    """A run of ``count`` neighbouring outputs of a pool along an axis, from output ``first`` on, whose windows all have
    ``size`` inputs. The first window begins at input ``begin``."""

    first: int
    count: int
    begin: int
    size: int


def window_runs(graph: Graph, node: Node) -> tuple[list[WindowRun], list[WindowRun]]:
    """Return the rows and the columns of a pool's output, each divided into runs of neighbours whose windows have equal
    size.

    A window that reaches over an edge of the input has only the rows and columns inside.
    """
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    _, height, width, _ = source.shape
    top, _, left, _ = explicit_padding(node, height, width, node["kernel_h"], node["kernel_w"])
    return (
        _runs(result.shape[1], height, node["kernel_h"], node["stride_h"], top),
        _runs(result.shape[2], width, node["kernel_w"], node["stride_w"], left),
    )


def _runs(outputs: int, inputs: int, kernel: int, stride: int, before: int) -> list[WindowRun]:
    runs: list[WindowRun] = []
    for place in range(outputs):
        start = place * stride - before
        begin, end = max(0, start), min(inputs, start + kernel)
        last = runs[-1] if runs else None
        if last is not None and last.size == end - begin and last.begin + last.count * stride == begin:
            runs[-1] = replace(last, count=last.count + 1)
        else:
            runs.append(WindowRun(place, 1, begin, end - begin))
    return runs


def rounds_halves(graph: Graph, node: Node) -> bool:
    """Return whether an average of the pool can be exactly between two integers and is rounded up: for uint8, with an
    even number of elements."""
    return bool(node.attrs.get("unsigned")) and any(
        run.size % 2 == 0 for runs in window_runs(graph, node) for run in runs
    )


MOST_PARTS = 64
"""The most kernel calls for one uint8 average pool; a number of our own choice that bounds the microcode."""


def _few_parts(graph: Graph, node: Node) -> str | None:
    # Checked before the rows are listed one by one: a damaged file may state billions.
    if not node.attrs.get("unsigned") or _pool_shape(graph, node) != (graph[node.outputs[0]].shape,):
        return None
    rows, columns = window_runs(graph, node)
    parts = len(rows) * len(columns)
    if parts <= MOST_PARTS or not rounds_halves(graph, node):
        return None
    return f"its windows have {parts} different shapes and places at the edges, each a kernel call in uint8; at most {MOST_PARTS}"


def _small_window(graph: Graph, node: Node) -> str | None:
    area, most = node["kernel_h"] * node["kernel_w"], _most_added(graph, node)
    return None if area <= most else f"its window has {area} elements; at most {most}"


def _pool(name: str, kernels: tuple[str, ...], doc: str, *limits: Limit) -> Op:
    return moving(
        name,
        shape=_pool_shape,
        kernels=kernels,
        types=INT8_OR_INT16,
        options="Pool2DOptions",
        attributes=(PADDING, *STRIDES, *_KERNEL, ACTIVATION),
        limits=(rank(0, 4, 4), window_numbers(), fused_activation(), *limits),
        version=2,
        doc=doc,
    )


AVERAGE_POOL_2D = _pool(
    "average_pool_2d",
    ("average_pool_2d_s8", "depthwise_conv_2d_s8", "average_pool_2d_s16"),
    "Average over a window; padding does not count.",
    limit(f"a window of at most {MOST_ADDED} elements (int16: {MOST_WIDE_ADDED})", _small_window),
    limit(f"in uint8 at most {MOST_PARTS} kernel calls, one for each shape that windows have at the edges", _few_parts),
)
MAX_POOL_2D = _pool("max_pool_2d", ("max_pool_2d_s8", "max_pool_2d_s16"), "Largest value in a window.")


reducing = partial(
    Op,
    operands=(INPUT, parameter("list of axes")),
    shape=reduce_shape,
    options="ReducerOptions",
    attributes=(Attribute("keep_dims", "keepDims", False),),
)
"""Makes the row of a reduction over some axes."""


def _reduction(name: str, kernel: str, doc: str, adds: bool) -> Op:
    own = (FEW_ADDED, rescales(of_one(ratio))) if adds else ()
    return reducing(
        name,
        kernels=(f"{kernel}_s8", f"{kernel}_s16"),
        types=INT8_OR_INT16,
        quantization=Quantization.FREE if adds else Quantization.SHARED,
        limits=(axes_of(0, named_axes), RUNS_OF_AXES, *own),
        version=2,
        unsigned=True,
        doc=doc,
    )


MEAN = _reduction("mean", "mean", "Mean over some axes.", adds=True)
REDUCE_MAX = _reduction("reduce_max", "reduce_max", "Largest value over some axes.", adds=False)
REDUCE_MIN = _reduction("reduce_min", "reduce_max", "Smallest value over some axes.", adds=False)


MOST_EXPONENTIALS = 2**12 - 1
"""The number of exponentials whose sum LiteRT's LOG_SOFTMAX and int16 SOFTMAX hold: 12 integer bits."""

LEAST_SCALE = 2.0**-24
"""The smallest output scale of a softmax with a scale of its own: 1/256 of a step of the probabilities that it
computes."""

LARGEST_SCALE = 1.0
"""The largest output scale of a softmax with a scale of its own: the largest probability, 1."""

WIDE = (1 / 65536, -32768)
"""The scale and zero point of the output of LiteRT's SOFTMAX from int8 to int16."""


def _has_axes(graph: Graph, node: Node) -> str | None:
    return None if shape_of(graph, node) else "its input is a single number"


def _added_along_last(most: int, what: str) -> Limit:
    """Return the limit on the number of values along the last axis, which LiteRT adds."""

    def rule(graph: Graph, node: Node) -> str | None:
        shape = shape_of(graph, node)
        if not shape or shape[-1] <= most:
            return _has_axes(graph, node)
        return f"it adds {shape[-1]} {what}; LiteRT's sum holds {most}"

    return limit(f"at most {most} values along the last axis", rule)


INTEGER_BITS = 5
"""Integer bits of a rescaled difference: kScaledDiffIntegerBits of LiteRT's reference/softmax.h."""


def difference_factor(scale: float, beta: float) -> float:
    """Return the factor that rescales a difference of stored values, times ``beta``, to fixed point with INTEGER_BITS
    integer bits and 31 - INTEGER_BITS fractional bits. ``beta`` is rounded to float32."""
    return float(np.float32(beta)) * scale * 2.0 ** (31 - INTEGER_BITS)


def _steep(graph: Graph, node: Node) -> str | None:
    scale, beta = quant_of(graph, node, 0).scale, node.attrs.get("beta", 1.0)
    if graph.given(node, 0).dtype is DType.INT16:
        return None
    if difference_factor(scale, beta) > 1.0:
        return None
    return (
        f"beta {beta:g} times the input's scale {scale:g} is too small for a fixed-point exponential; it must be above "
        f"2^-{31 - INTEGER_BITS}"
    )


def wide_softmax_factor(scale: float, beta: float) -> float:
    """Return the factor that rescales a difference of stored int16 values so that a real difference of 10, after the
    multiplication by ``beta``, is 65535. Scale and beta are multiplied in float32 (activations.cc)."""
    with np.errstate(all="ignore"):
        return float(np.float32(scale) * np.float32(beta)) / (10.0 / 65535.0)


MOST_WIDE_EXPONENTIALS = 2**16
"""The number of int16 exponentials that LiteRT's SOFTMAX adds in 32 bits."""


def _wide_softmax(graph: Graph, node: Node) -> str | None:
    if graph.given(node, 0).dtype is not DType.INT16:
        return None
    scale, beta, count = quant_of(graph, node, 0).scale, node["beta"], shape_of(graph, node)[-1]
    if count > MOST_WIDE_EXPONENTIALS:
        return f"it adds {count} exponentials; LiteRT's sum holds {MOST_WIDE_EXPONENTIALS}"
    if 0 <= wide_softmax_factor(scale, beta) < 2.0**WIDE_EXPONENT * (1 - 2.0**-32):
        return None
    return f"beta {beta:g} times the input's scale {scale:g} must be at least 0 and below 5"


_WIDE_SOFTMAX = limit(
    "int16: beta times the input's scale from 0 to 5, at most 65536 values along the last axis", _wide_softmax
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


_ADDABLE = _added_along_last(MOST_EXPONENTIALS, "exponentials")

_REDUCTIONS = (
    *(AVERAGE_POOL_2D, MAX_POOL_2D, MEAN, REDUCE_MAX, REDUCE_MIN),
    Op(
        "softmax",
        kernels=("softmax_s8", "softmax_s16"),
        types=STORED,
        attributes=(Attribute("beta", "beta", 1.0),),
        fixed_output=(1 / 256, -128),
        limits=(limit("at least one axis", _has_axes), _STEEP, _WIDE_SOFTMAX),
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
        limits=(rank(0, 1, 4), _added_along_last(MOST_SQUARED, "squares")),
        version=2,
        doc="x over the root of the sum of the squares along the last axis.",
    ),
)


def sum_singles(graph: Graph, node: Node) -> tuple[np.float32, np.float32]:
    """Return the two float32 numbers of a SUM: the factor of the sum of stored values, and the bias that removes the
    input's zero point from it. Both are computed as in LiteRT's optimized kernel (reduce.h)."""
    source = quant_of(graph, node, 0)
    count = added(graph, node)
    with np.errstate(all="ignore"):
        scale = np.float32(source.scale) / np.float32(result_quant(graph, node).scale)
        return scale, np.float32(-source.zero_point) * scale * np.float32(count)


def _castable(graph: Graph, node: Node) -> str | None:
    data = graph.given(node, 0)
    scale, _ = sum_singles(graph, node)
    low, high = (value - quant_of(graph, node, 0).zero_point for value in STORED_BOUNDS[data.dtype])
    largest = float(scale) * max(-low, high) * added(graph, node)
    if largest < LARGEST_CAST:
        return None
    return f"its scales make a sum of up to {largest:.6g} steps, which LiteRT casts to 32 bits; it must be below 2^31"


LARGEST_CAST = 2.0**31 - 2.0**9
"""The bound of a sum, in steps of the output, below which it fits int32 even after two roundings to float32."""


def _has_many_runs(graph: Graph, node: Node) -> bool:
    return len(runs_of_axes(shape_of(graph, node), reduced_axes(graph, node))) > MOST_RUNS


def _in_lines(parts: Parts, graph: Graph, node: Node) -> None:
    """Transpose so that the summed elements of each result are contiguous, and sum these lines."""
    (result,) = node.outputs
    source = str(node.inputs[0])
    axes = reduced_axes(graph, node)
    kept = [axis for axis in range(len(graph[source].shape)) if axis not in axes]
    count = added(graph, node)
    turned = parts.transpose(source, (*kept, *axes))
    lines = parts.reshape(turned, (graph[source].elements // count, count))
    sums = parts.new((graph[source].elements // count,), graph[result].dtype, graph[result].quant)
    parts.reshape(parts.add("sum", [lines, parts.integers([1])], sums, keep_dims=False), graph[result].shape, result)


SUM = reducing(
    "sum",
    kernels=("sum_s8", "sum_s16"),
    types=INT8_OR_INT16,
    limits=(
        axes_of(0, named_axes),
        FEW_ADDED,
        limit("a largest sum below 2^31 steps of the output", _castable),
    ),
    version=2,
    doc=(
        "Sum over some axes, in float32 as LiteRT's own optimized kernel computes it; the reference kernel of LiteRT 2.3.0 takes "
        "int8 and int16 tensors for uint8."
    ),
    made_of=_in_lines,
    composed=_has_many_runs,
)

_SUMMED = (*_REDUCTIONS, SUM)


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
    """Return epsilon as an integer in the unit of the scaled variance, which is n^2 * 2^bits per square of an input
    step."""
    source = graph.given(node, 0)
    steps = elements_normalized(graph, node) / quant_of(graph, node, 0).scale
    return round(float(node["epsilon"]) * steps * steps * 2.0 ** VARIANCE_BITS[source.dtype])


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """The coefficients of a normalization for each channel: output = (factor * value + offset) >> shift, where value
    is the normalized value with NORMAL_BITS fractional bits.

    An offset includes the output's zero point, and a half for the rounding. ``factors`` are int32 values and
    ``offsets`` int64 values, both as int64 [channels].
    """

    factors: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    shift: int


def _steps(graph: Graph, node: Node, place: int, absent: float) -> npt.NDArray[np.float64]:
    """Return the gain or the bias of each channel, which is operand ``place``, as float64 [channels] in steps of the
    output. If the node lacks this operand, each channel has the real value ``absent``."""
    given, channels = graph.operand(node, place), graph.given(node, 0).shape[-1]
    scale = graph[node.outputs[0]].quant
    assert scale is not None
    real = np.full(channels, absent) if given is None else np.asarray(given.data, np.float64).reshape(-1)
    return np.asarray(real / scale.scale)


def _least_exponent(values: npt.NDArray[np.float64]) -> int:
    """Return the smallest e with which 2^e is above all magnitudes; 0 if all values are 0."""
    return math.frexp(float(np.abs(values).max(initial=0.0)))[1]


def coefficients(graph: Graph, node: Node) -> Coefficients:
    """Return the coefficients of a normalization: its gain and bias, divided by the output's scale, with as many
    fractional bits as fit. The output's zero point and a half for the rounding are added to the bias."""
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

_NORMALIZATIONS = (
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

OPS = (*_SUMMED, *_NORMALIZATIONS)
