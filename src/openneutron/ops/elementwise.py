# SPDX-License-Identifier: BSD-3-Clause
"""Declare operators that compute each element alike: arithmetic, functions that become tables, and operators on values without a scale
(casts, comparisons, boolean operators, selections by booleans), with the positions of extrema.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from openneutron.ir import DType, Graph, Node, QuantParams
from openneutron.ops.conv import ACTIVATION
from openneutron.ops.limits import (
    STORED,
    Limit,
    axes_of,
    broadcasts,
    extent_reason,
    int8_inputs,
    int8_reason,
    limit,
    unquantized,
)
from openneutron.ops.reductions import RUNS_OF_AXES, named_axes, reducing
from openneutron.ops.rescaling import (
    WIDE_EXPONENT,
    clamps_to,
    fused_activation,
    leaky_slope,
    of_one,
    of_two,
    product_in_float,
    quant_of,
    ratio,
    ratio_in_float,
    rescales,
    result_quant,
    rsqrt_factor,
)
from openneutron.ops.table import (
    INPUT,
    Attribute,
    Op,
    Operand,
    Parts,
    Quantization,
    Role,
    broadcast,
    broadcast_shape,
    moving,
    parameter,
    stated_shape,
)


def _is_power_of_two(scale: float) -> bool:
    """Return whether LiteRT takes the scale for a power of two (CheckedLog2 of kernel_util.cc)."""
    exponent = math.log2(scale)
    return abs(exponent - round(exponent)) < 1e-3


def _general_scales(graph: Graph, node: Node) -> str | None:
    if graph[node.name].dtype is not DType.INT16 or not node.attrs.get("pot_scale_int16", True):
        return None
    quants = quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node)
    if not all(_is_power_of_two(quant.scale) for quant in quants):
        return None
    return (
        "its scales are powers of two and its option pot_scale_int16 is true, for which LiteRT has another arithmetic"
    )


GENERAL_SCALES = limit("int16: option pot_scale_int16 false, or a scale that is no power of two", _general_scales)


def _narrow_slopes(graph: Graph, node: Node) -> str | None:
    source, slopes, result = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    if slopes.dtype is not DType.INT8:
        return f"its slopes '{slopes.name}' are {slopes.dtype}; LiteRT has int8 slopes alone"
    if source.dtype is result.dtype:
        return None
    return f"its input '{source.name}' is {source.dtype}, its output {result.dtype}; they must have one type"


INT8_SLOPES = limit("int8 slopes, output of the input's type", _narrow_slopes)


def has_falling_slope(graph: Graph, node: Node) -> bool:
    """Return whether a LEAKY_RELU on int16 has a slope below 0. It is then composed of other operators."""
    return graph[node.name].dtype is DType.INT16 and node["alpha"] < 0


def magnitude_of_rising_slope(parts: Parts, graph: Graph, node: Node) -> None:
    """Compose a LEAKY_RELU whose alpha is negative as ABS of the LEAKY_RELU with -alpha.

    LiteRT rescales the magnitude of a negative value and then negates the result. A single kernel call with a
    negative factor would round halves in the other direction. ABS changes no positive value. It rounds nothing,
    because its input and output have the same scale.
    """
    (source, result) = (str(node.inputs[0]), node.name)
    rising = parts.new(graph[result].shape, DType.INT16, graph[result].quant)
    parts.add("abs", [parts.add("leaky_relu", [source], rising, alpha=-node["alpha"])], result)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether a node's output is int16."""
    return graph[node.name].dtype is DType.INT16


def wrapped_negative(parts: Parts, graph: Graph, node: Node) -> None:
    """Compose NEG as 0 minus the operand, for all values but the lowest.

    The subtraction saturates. LiteRT's NEG wraps around, so that the lowest value stays as it is.
    """
    (source, result) = (str(node.inputs[0]), node.name)
    quant, shape = graph[source].quant, graph[source].shape
    zero, lowest = (parts.constant(np.full(1, value, np.int16), quant) for value in (0, -(2**15)))
    difference = parts.new(shape, DType.INT16, quant)
    parts.add("sub", [zero, source], difference, activation="NONE", pot_scale_int16=False)
    is_lowest = parts.add("less_equal", [source, lowest], parts.new(shape, DType.BOOL, None))
    parts.add("select_v2", [is_lowest, source, difference], result)


def narrowing_reason(graph: Graph, node: Node) -> str | None:
    """Return the reason why LiteRT has no QUANTIZE between these types, or None."""
    source, result = graph.given(node, 0), graph[node.name]
    if (source.dtype, result.dtype) != (DType.INT16, DType.UINT8):
        return None
    return f"input '{source.name}' is int16, its output uint8; LiteRT has QUANTIZE from int16 to int8 and int16 alone"


def _converted(graph: Graph, node: Node) -> str | None:
    # The graphs of partitions have int8 in the place of uint8; only QUANTIZE between the two is left.
    source, result = graph.given(node, 0), graph[node.name]
    if (source.dtype, result.dtype) == (DType.UINT8, DType.INT16):
        return f"input '{source.name}' is uint8, its output int16; kernels convert int8 to int16 alone"
    return narrowing_reason(graph, node)


CONVERTED = limit("types among int8 and uint8, or among int8 and int16", _converted)


def wide_sigmoid_factor(source: QuantParams, doubled: bool) -> tuple[int, int]:
    """Return the multiplier and the right shift that rescale an int16 value to steps of 1 / (3 * 2^12) (TanhPrepare,
    SigmoidPrepare of activations.cc).

    LiteRT has a special case without a right shift: for a scale of 2^-12, and for TANH (``doubled``) also for 2^-11.
    """
    places = 12 + round(math.log2(source.scale))
    if _is_power_of_two(source.scale) and (places == 0 or (doubled and places == 1)):
        return 3 << places, 0
    multiplier, shift = source.scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    return int(multiplier), shift


MOST_SIGMOID_SCALE = 16 / 3
"""The smallest input scale with which LiteRT's LOGISTIC and TANH overflow 32 bits."""


def _sigmoid_scale(graph: Graph, node: Node) -> str | None:
    scale = quant_of(graph, node, 0).scale
    if graph.given(node, 0).dtype is not DType.INT16 or scale < MOST_SIGMOID_SCALE:
        return None
    return f"its input has scale {scale:.6g}; it must be below 16/3, or LiteRT's product overflows 32 bits"


SIGMOID_SCALE = limit("int16: input scale below 16/3", _sigmoid_scale)


def _exponential(graph: Graph, node: Node) -> str | None:
    source, result = quant_of(graph, node, 0), result_quant(graph, node)
    largest = source.scale * 2.0**15 - math.log(result.scale)
    if graph.given(node, 0).dtype is not DType.INT16 or largest < LARGEST_EXPONENT:
        return None
    return (
        f"its output has scale {result.scale:.6g}, its input {source.scale:.6g}; its largest result over the output's scale is "
        f"exp({largest:.6g}), and LiteRT's float32 holds exp({LARGEST_EXPONENT})"
    )


LARGEST_EXPONENT = 87
"""The largest argument for which float32 holds both the exponential and twice the exponential."""

EXPONENTIAL = limit(
    f"int16: exp of the largest input over the output's scale below exp({LARGEST_EXPONENT})", _exponential
)


_TWO = (Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b"))


def _hard_swish_scales(graph: Graph, node: Node) -> str | None:
    source, result = quant_of(graph, node, 0), result_quant(graph, node)
    if source.scale / 128 < result.scale:
        return None
    return (
        f"its output has scale {result.scale:.6g}, its input {source.scale:.6g}; "
        "LiteRT demands an output scale above 1/128 of the input's"
    )


def _negated_quantization(graph: Graph, node: Node) -> str | None:
    source, result = quant_of(graph, node, 0), result_quant(graph, node)
    if source.scale == result.scale and source.zero_point == -result.zero_point:
        return None
    return (
        f"its input has {source}, its output {result}; LiteRT turns the sign of stored values, which is right "
        "for the same scale and a zero point of the other sign alone"
    )


def _rsqrt_scales(graph: Graph, node: Node) -> str | None:
    source, result = quant_of(graph, node, 0), result_quant(graph, node)
    if graph.given(node, 0).dtype is DType.INT16 or math.sqrt(source.scale) * result.scale < RSQRT_MOST:
        return None
    return (
        f"its output has scale {result.scale:.6g}, its input {source.scale:.6g}; "
        f"the root of the input's times the output's must be below {RSQRT_MOST}, or LiteRT shifts by more than 31 bits"
    )


RSQRT_MOST = 2**11
"""The bound of sqrt(input scale) * output scale for RSQRT. LiteRT shifts its result right by 20 bits plus the exponent
of this product, which must be at most 31 bits in all."""


ADDED_SHIFTS = {DType.INT8: 20, DType.INT16: 15}
"""The number of bits by which LiteRT shifts both operands of ADD and SUB left (add.cc, sub.cc)."""


def sum_factor(a: QuantParams, b: QuantParams, result: QuantParams, dtype: DType) -> float:
    """Return the factor by which LiteRT's ADD and SUB rescale the sum, in double. The operands are first rescaled to
    twice the larger of their scales."""
    return 2.0 * max(a.scale, b.scale) / (2.0 ** ADDED_SHIFTS[dtype] * result.scale)


def _sum_scales(graph: Graph, node: Node) -> str | None:
    a, b, result = quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node)
    dtype = graph[node.name].dtype
    if sum_factor(a, b, result, dtype) < 1:
        return None
    return (
        f"its output has scale {result.scale:.6g}, an input {max(a.scale, b.scale):.6g}; "
        f"LiteRT demands an output scale above 1/2^{ADDED_SHIFTS[dtype] - 1} of the larger input's"
    )


_SUM_SCALES = limit("output scale above 1/2^19 of the larger input's (int16: 1/2^14)", _sum_scales)


_POT_SCALE = Attribute("pot_scale_int16", "potScaleInt16", True, unstated=True)


def prelu_factors(data: QuantParams, slope: QuantParams, result: QuantParams) -> tuple[float, float]:
    """Return the two factors of PRELU in float32: that of positive values, and that of the products of negative values
    (PreluPrepare of activations.cc)."""
    return ratio_in_float(data, result), product_in_float(data, slope, result)


def _positive_factor(graph: Graph, node: Node) -> float:
    return prelu_factors(quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node))[0]


def _negative_factor(graph: Graph, node: Node) -> float:
    return prelu_factors(quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node))[1]


def _leaky_slope(graph: Graph, node: Node) -> float:
    return leaky_slope(quant_of(graph, node, 0), result_quant(graph, node), node["alpha"])


def hard_swish_factors(source: QuantParams, result: QuantParams) -> tuple[np.float32, np.float32]:
    """Return the two factors by which HARD_SWISH multiplies its input, after the input has been shifted left by 7
    bits (hard_swish.cc).

    The first factor rescales the input to the output's scale. The second factor rescales it to the scale at which 3.0
    is 2^15.
    """
    with np.errstate(all="ignore"):
        fine = np.float32(1 / 128) * np.float32(source.scale)
        return fine / np.float32(result.scale), fine / (np.float32(3) / np.float32(32768))


def _reluish_factor(graph: Graph, node: Node) -> float:
    return float(hard_swish_factors(quant_of(graph, node, 0), result_quant(graph, node))[1])


HARD_SWISH_EXPONENT = 15
"""The bound of the factor's exponent. LiteRT shifts a 16-bit value left by the exponent less one, and the result must
fit 32 bits."""


def squared_difference_factor(a: QuantParams, b: QuantParams, result: QuantParams) -> float:
    """Return the factor by which SQUARED_DIFFERENCE rescales the square, in double. The operands of the square have 7
    bits of fraction."""
    twice = 2.0 * max(a.scale, b.scale)
    return twice * twice / (2.0**14 * result.scale)


def _squared_difference_scales(graph: Graph, node: Node) -> str | None:
    a, b, result = quant_of(graph, node, 0), quant_of(graph, node, 1), result_quant(graph, node)
    # A factor that rounds to 1 in 31 bits is refused too.
    if squared_difference_factor(a, b, result) < 1 - 2.0**-32:
        return None
    return (
        f"its output has scale {result.scale:.6g}, an input {max(a.scale, b.scale):.6g}; "
        "LiteRT demands an output scale above 1/2^12 of the larger input's square"
    )


def _keeps_shape(graph: Graph, node: Node) -> str | None:
    a, b = graph.given(node, 0), graph.given(node, 1)
    if broadcast_shape(a.shape, b.shape) == a.shape:
        return None
    return f"its input has shape {list(a.shape)}, its slopes {list(b.shape)}; the slopes must broadcast to the input"


def _two(
    name: str,
    kernels: str | tuple[str, ...],
    doc: str,
    limits: tuple[Limit, ...] = (),
    options: str = "",
    quantization: Quantization = Quantization.FREE,
    fused: bool = True,
    version: int = 2,
    unsigned: bool = True,
    attributes: tuple[Attribute, ...] = (),
    converts: bool = False,
) -> Op:
    if fused:
        limits = (fused_activation(), *limits)
    kernels = (kernels,) if isinstance(kernels, str) else kernels
    return Op(
        name,
        operands=_TWO,
        shape=broadcast,
        kernels=kernels,
        types=STORED if len(kernels) > 1 else (DType.INT8,),
        options=options,
        attributes=(ACTIVATION, *attributes) if fused else attributes,
        quantization=quantization,
        limits=(broadcasts(6), *limits),
        version=version,
        unsigned=unsigned,
        converts=converts,
        doc=doc,
    )


def _extremum(name: str, doc: str) -> Op:
    # LiteRT compares stored values whatever they stand for.
    kernels = ("maximum_s8", "maximum_s16")
    return _two(name, kernels, doc, (), "MaximumMinimumOptions", Quantization.SHARED, fused=False)


_table = partial(Op, kernels=("lookup_s8",), version=2, unsigned=True)
"""Makes the row of a function of one operand."""


def _whole_table(graph: Graph, node: Node) -> str | None:
    entries = graph.given(node, 1)
    dtype = graph.given(node, 0).dtype
    if entries.dtype is dtype and entries.shape == (TABLE_ENTRIES[dtype],):
        return None
    return f"its table '{entries.name}' is {entries.dtype} {list(entries.shape)}; it must be {dtype} [{TABLE_ENTRIES[dtype]}]"


TABLE_ENTRIES = {DType.INT8: 256, DType.INT16: 513}

LOOKUP = Op(
    "lookup",
    in_litert=False,
    operands=(INPUT, Operand(Role.VALUE, "table")),
    kernels=("lookup_s8", "lookup_s16"),
    types=STORED,
    limits=(limit("a table of 256 int8 or 513 int16 values", _whole_table),),
    doc="Any function of one value, as a table: entry i is the result for stored value i - 128. Of int16, entry i is that of value "
    "128 * i - 32768, with straight lines between these. LiteRT has no operator for it; files state it as CAST, ADD and GATHER. Float operators between "
    "int8 operators of a file that compute each value from one stored value become one (how-to/tflite.md).",
)

_RESCALED = rescales(of_one(ratio_in_float), wide=WIDE_EXPONENT)

_wide_table = partial(_table, types=STORED)
"""Makes the row of a function that LiteRT also has for int16."""

_BY_FACTORS = ("lookup_s8", "rescale_s16")
_BY_TABLES = ("lookup_s8", "lookup_s16")
_BY_SIGMOID = ("lookup_s8", "logistic_s16")
_SUMS = ("add_s8", "add_s16")

_COMPUTED = (
    LOOKUP,
    _two("add", _SUMS, "Sum, with broadcasting.", (GENERAL_SCALES, _SUM_SCALES), attributes=(_POT_SCALE,)),
    _two("sub", _SUMS, "Difference, with broadcasting.", (GENERAL_SCALES, _SUM_SCALES), attributes=(_POT_SCALE,)),
    _two(
        "mul",
        ("mul_s8", "mul_s16"),
        "Product, with broadcasting.",
        # A product of two int16 values has 31 bits already: none is left for a shift.
        (rescales(of_two(product_in_float), wide=0),),
    ),
    _extremum("maximum", "The larger of two, with broadcasting."),
    _extremum("minimum", "The smaller of two, with broadcasting."),
    _two(
        "prelu",
        ("prelu_s8", "prelu_s16"),
        "x where x is positive, x times its slope elsewhere; slopes broadcast.",
        limits=(
            INT8_SLOPES,
            limit("slopes that broadcast to the input's shape", _keeps_shape),
            rescales(_positive_factor, wide=WIDE_EXPONENT),
            # A product of an int16 value and a slope has 24 bits.
            rescales(_negative_factor, wide=7),
        ),
        converts=True,
        fused=False,
        version=1,
    ),
    _two(
        "squared_difference",
        "squared_difference_s8",
        "Square of the difference, with broadcasting.",
        limits=(limit("output scale above 1/2^12 of the larger input's square", _squared_difference_scales),),
        fused=False,
        unsigned=False,
    ),
    _wide_table("relu", kernels=_BY_FACTORS, doc="max(x, 0).", limits=(_RESCALED,)),
    _wide_table("relu6", kernels=_BY_FACTORS, doc="min(max(x, 0), 6).", limits=(_RESCALED, clamps_to(0.0, 6.0))),
    _table("relu_n1_to_1", doc="min(max(x, -1), 1).", version=1, limits=(_RESCALED, clamps_to(-1.0, 1.0))),
    _table("relu_0_to_1", doc="min(max(x, 0), 1).", version=1, limits=(_RESCALED, clamps_to(0.0, 1.0))),
    _table(
        "quantize",
        kernels=("lookup_s8", "rescale_s16", "rescale_s8s16", "rescale_s16s8"),
        doc="The same values at another scale and zero point, or of another type.",
        limits=(
            CONVERTED,
            rescales(of_one(ratio), wide=WIDE_EXPONENT),
        ),
        types=(DType.INT8, DType.UINT8, DType.INT16),
        converts=True,
    ),
    _wide_table("abs", kernels=_BY_FACTORS, doc="The magnitude.", limits=(_RESCALED,), unsigned=False),
    _wide_table("exp", kernels=_BY_TABLES, doc="exp(x).", unsigned=False, limits=(EXPONENTIAL,)),
    _wide_table("log", kernels=_BY_TABLES, doc="Natural logarithm.", unsigned=False),
    _wide_table(
        "logistic", kernels=_BY_SIGMOID, doc="1 / (1 + exp(-x)).", fixed_output=(1 / 256, -128), limits=(SIGMOID_SCALE,)
    ),
    _wide_table(
        "tanh", kernels=_BY_SIGMOID, doc="Hyperbolic tangent.", fixed_output=(1 / 128, 0), limits=(SIGMOID_SCALE,)
    ),
    _wide_table(
        "neg",
        kernels=("lookup_s8", "add_s16", "compare_s16", "select_s8"),
        doc="-x; the lowest stored value stays as it is.",
        unsigned=False,
        version=1,
        made_of=wrapped_negative,
        composed=is_wide,
        limits=(limit("input and output of one scale, with zero points of opposite sign", _negated_quantization),),
    ),
    _wide_table(
        "rsqrt",
        kernels=_BY_TABLES,
        doc="1 / sqrt(x); the largest stored value where x is 0 or below, for which LiteRT has no result.",
        unsigned=False,
        limits=(
            limit(f"root of the input scale times the output scale below {RSQRT_MOST}", _rsqrt_scales),
            rescales(of_one(rsqrt_factor), wide=64),
        ),
    ),
    _table(
        "sqrt",
        doc="Square root, rounded down; of what is below 0, for which LiteRT has no result, that of 0.",
        unsigned=False,
    ),
    _table(
        "elu",
        doc="x where x is positive, exp(x) - 1 elsewhere; the reference kernels of LiteRT leave it out, its optimized ones have it.",
        version=1,
        unsigned=False,
    ),
    _wide_table(
        "gelu",
        kernels=_BY_TABLES,
        doc="x times the normal distribution's function of x, or its approximation with tanh.",
        attributes=(Attribute("approximate", "approximate", False),),
    ),
    _table(
        "hard_swish",
        doc="x * min(max(x + 3, 0), 6) / 6.",
        version=1,
        limits=(
            limit("output scale above 1/128 of the input's", _hard_swish_scales),
            rescales(_reluish_factor, exponent=HARD_SWISH_EXPONENT),
        ),
    ),
    _wide_table(
        "leaky_relu",
        kernels=_BY_FACTORS,
        doc="x where x is positive, alpha * x elsewhere.",
        attributes=(Attribute("alpha", "alpha", 0.0),),
        limits=(rescales(of_one(ratio_in_float), _leaky_slope, wide=WIDE_EXPONENT),),
        made_of=magnitude_of_rising_slope,
        composed=has_falling_slope,
    ),
)


WHOLE = (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL)
"""The integer types that CAST accepts on either side; each is stored with its low byte first."""


def _whole_numbers(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    for what, tensor in (("input", source), ("output", result)):
        if tensor.dtype not in WHOLE:
            return f"{what} '{tensor.name}' is {tensor.dtype}; it must be int8, int16, int32, int64 or bool"
        if reason := extent_reason(tensor, what):
            return reason
    if result.dtype is DType.BOOL and source.dtype not in (DType.INT8, DType.BOOL):
        return f"it turns {source.dtype} into bool; of several bytes no kernel tells whether one is not 0"
    return None


def _same_bytes(graph: Graph, node: Node) -> str | None:
    source, result = graph.given(node, 0), graph[node.outputs[0]]
    if source.size_bytes == result.size_bytes:
        return None
    return f"its input has {source.size_bytes} bytes, its output {result.size_bytes}"


_TYPES = limit("int8, int16, int32, int64 or bool; to bool from int8 or bool alone", _whole_numbers)


MOST_BROADCAST = {"compare": 4, "logical": 4, "select": 5}
"""The largest rank at which LiteRT broadcasts the operators of each family."""


def _comparable(graph: Graph, node: Node) -> str | None:
    """Return the reason why the operands of a comparison can't be compared; None if they can.

    LiteRT rescales both operands by their scales, which must be below 1. For int16 operands this is checked for EQUAL
    and NOT_EQUAL only. EQUAL and NOT_EQUAL also compare booleans, which have no scale.
    """
    for index in (0, 1):
        tensor = graph.given(node, index)
        if tensor.dtype is DType.BOOL and node.op in EQUALITIES:
            continue
        if reason := int8_reason(tensor, "input", (DType.INT8, DType.INT16)):
            return reason
        assert tensor.quant is not None
        if tensor.dtype is DType.INT16 and node.op not in EQUALITIES:
            continue
        if tensor.quant.scale >= 1:
            return f"input '{tensor.name}' has scale {tensor.quant.scale:.6g}; LiteRT compares for scales below 1"
    return None


def _one_type(graph: Graph, node: Node) -> str | None:
    a, b = graph.given(node, 0), graph.given(node, 1)
    return None if a.dtype is b.dtype else f"its inputs are {a.dtype} and {b.dtype}; they must be of one type"


_COMPARED = {
    "equal": "True where two values are equal",
    "not_equal": "True where two values differ",
    "less": "True where one value is below another",
    "less_equal": "True where one value is not above another",
    "greater": "True where one value is above another",
    "greater_equal": "True where one value is not below another",
}
COMPARISONS = tuple(_COMPARED)
"""The names of the comparisons. Their order is that of the numbers by which compare_s8 selects them."""

EQUALITIES = ("equal", "not_equal")
"""The comparisons that LiteRT also has for booleans. On int16, only these rescale: the others compare the stored
values."""


def _comparison(name: str) -> Op:
    kinds = "int8 or int16 of scales below 1, or bool" if name in EQUALITIES else "int8 of scales below 1, or int16"
    return Op(
        name,
        operands=(Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=broadcast,
        kernels=("compare_s8", "compare_s16"),
        quantization=Quantization.NONE,
        limits=(
            limit(f"inputs {kinds}", _comparable),
            limit("inputs of one type", _one_type),
            unquantized([], True, DType.BOOL),
            broadcasts(MOST_BROADCAST["compare"]),
        ),
        version=2,
        unsigned=True,
        doc=f"{_COMPARED[name]}, with broadcasting; LiteRT rounds both to 1/256 first, so that values nearer than that may count as "
        + ("equal." if name in EQUALITIES else "equal. Of int16 it compares the stored values, whatever their scales."),
    )


def _logical(name: str, doc: str, kernel: str = "maximum_s8", operands: int = 2) -> Op:
    return Op(
        name,
        operands=tuple(Operand(Role.CONDITION, place) for place in ("a", "b")[:operands]),
        shape=broadcast,
        kernels=(kernel,),
        quantization=Quantization.NONE,
        limits=(unquantized([], True, DType.BOOL), broadcasts(MOST_BROADCAST["logical"])),
        doc=doc,
    )


def _condition_of_rows(graph: Graph, node: Node) -> str | None:
    condition, a, b = (graph.operand(node, index) for index in range(3))
    assert condition is not None and a is not None and b is not None
    if a.shape == b.shape and condition.shape in ((), a.shape, a.shape[:1]):
        return None
    return (
        f"its condition has shape {list(condition.shape)}, its inputs {list(a.shape)} and {list(b.shape)}; the inputs must be "
        "of one shape, the condition of theirs, of their first extent or a single one"
    )


def _select_of_rows(parts: Parts, graph: Graph, node: Node) -> None:
    """Lower SELECT_V2. If the condition has one value for each row of the first axis, broadcast it along the other
    axes."""
    (condition, *others), (result,) = (str(name) for name in node.inputs), node.outputs
    shape, own = graph[result].shape, graph[condition].shape
    if own != shape:
        condition = parts.reshape(condition, (*own, *(1,) * (len(shape) - len(own))))
    parts.add("select_v2", [condition, *others], result)


def arg_axis(graph: Graph, node: Node) -> int:
    """Return the axis that an ARG_MAX or ARG_MIN searches, counted from 0. Raises ValueError if the node names several
    axes."""
    data, (axis,) = graph.given(node, 0), named_axes(graph, node)
    return axis % len(data.shape)


def _arg_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    data, axis = graph.given(node, 0), arg_axis(graph, node)
    return ((*data.shape[:axis], *data.shape[axis + 1 :]),)


def _stated_type(graph: Graph, node: Node) -> str | None:
    output = graph[node.outputs[0]]
    if str(output.dtype) == node["output_type"].lower():
        return None
    return f"its output is {output.dtype}; its option says {node['output_type']}"


def _arg(name: str, doc: str) -> Op:
    return Op(
        name,
        operands=(INPUT, parameter("axis")),
        shape=_arg_shape,
        kernels=("arg_max_s8",),
        attributes=(Attribute("output_type", "outputType", "INT64", {2: "INT32", 4: "INT64"}),),
        quantization=Quantization.NONE,
        limits=(
            int8_inputs(0),
            axes_of(0, named_axes),
            unquantized([], True, DType.INT32, DType.INT64),
            limit("an output of the type its option says", _stated_type),
        ),
        version=2,
        unsigned=True,
        doc=doc,
    )


def _over_axes(name: str, doc: str) -> Op:
    return reducing(
        name,
        operands=(Operand(Role.CONDITION, "input"), parameter("list of axes")),
        kernels=("reduce_max_s8",),
        quantization=Quantization.NONE,
        limits=(unquantized([], True, DType.BOOL), axes_of(0, named_axes), RUNS_OF_AXES),
        doc=doc,
    )


OPS = (
    *_COMPUTED,
    Op(
        "cast",
        kernels=("copy_s8", "lookup_s8"),
        quantization=Quantization.NONE,
        limits=(_TYPES,),
        doc="The stored numbers in another type; where that is narrower, their low bytes.",
    ),
    Op(
        "bitcast",
        shape=stated_shape,
        kernels=("copy_s8",),
        quantization=Quantization.NONE,
        limits=(_TYPES, limit("as many bytes as the input", _same_bytes)),
        doc="The same bytes as another type.",
    ),
    *(_comparison(name) for name in COMPARISONS),
    _logical("logical_and", "True where both are true, with broadcasting."),
    _logical("logical_or", "True where one of them is true, with broadcasting."),
    _logical("logical_not", "True where the input is false.", "lookup_s8", 1),
    moving(
        "select_v2",
        operands=(Operand(Role.CONDITION, "condition"), Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=broadcast,
        kernels=("select_s8",),
        types=(DType.INT8, DType.INT16),
        limits=(broadcasts(MOST_BROADCAST["select"]),),
        doc="One value where a condition holds, another elsewhere, with broadcasting.",
    ),
    moving(
        "select",
        operands=(Operand(Role.CONDITION, "condition"), Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
        shape=lambda graph, node: (graph[str(node.inputs[1])].shape,),
        kernels=("select_s8",),
        types=(DType.INT8, DType.INT16),
        limits=(limit("inputs of one shape; a condition of that, of its first extent, or one", _condition_of_rows),),
        doc="One value where a condition holds, another elsewhere.",
        made_of=_select_of_rows,
    ),
    _over_axes("reduce_any", "True where one of the values along some axes is true."),
    _over_axes("reduce_all", "True where all values along some axes are true."),
    _arg("arg_max", "The position of the largest value along an axis; the first of several."),
    _arg("arg_min", "The position of the smallest value along an axis; the first of several."),
)
