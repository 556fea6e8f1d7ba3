# SPDX-License-Identifier: BSD-3-Clause
"""Declare limits that several operators share.

A limit is a function that returns None or the reason against a node. Its docstring is the wording of the
documentation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor

Limit = Callable[[Graph, Node], str | None]
"""A function that returns None, or the reason in words why this node can't be compiled. The documentation shows its
``__doc__``."""


def limit(doc: str, rule: Callable[[Graph, Node], str | None]) -> Limit:
    """Return ``rule`` with the wording that the documentation uses."""
    check = partial(rule)  # an object of its own, since several limits may share a rule
    check.__doc__ = doc
    return check


ZERO_POINTS = {DType.INT8: (-128, 127), DType.UINT8: (0, 255), DType.INT16: (0, 0)}
"""The lowest and the highest zero point of each type of stored activations. LiteRT's int16 has no zero point other
than 0."""


def int8_reason(tensor: Tensor, what: str, types: Sequence[DType] = (DType.INT8,)) -> str | None:
    """Return the reason why this tensor is no activation of one of these types with per-tensor quantization and a
    static shape, or None. Scale and zero point must be valid for the type."""
    if tensor.dtype is DType.INT16 and tensor.dtype not in types:
        return f"{what} '{tensor.name}' is int16; this operator computes on {' or '.join(map(str, types))}"
    if tensor.dtype not in types:
        suggestion = ". Quantize the model" if str(tensor.dtype).startswith("float") else ""
        return f"{what} '{tensor.name}' is {tensor.dtype}; the NPU computes on int8{suggestion}"
    if tensor.quant is None:
        return f"{what} '{tensor.name}' has no quantization parameters"
    if tensor.quant.per_channel:
        return f"{what} '{tensor.name}' is quantized per channel; activations must be per tensor"
    if not 0 < tensor.quant.scale < math.inf:
        return f"{what} '{tensor.name}' has scale {tensor.quant.scale:g}; a scale is above 0 and finite"
    lowest, highest = ZERO_POINTS[tensor.dtype]
    if not lowest <= tensor.quant.zero_point <= highest:
        stated = f"{tensor.dtype} has {lowest} to {highest}" if lowest < highest else f"{tensor.dtype} has 0 alone"
        return f"{what} '{tensor.name}' has zero point {tensor.quant.zero_point}; {stated}"
    return extent_reason(tensor, what)


def extent_reason(tensor: Tensor, what: str) -> str | None:
    """Return the reason why the tensor's extents do not make a static shape, or None."""
    if any(extent <= 0 for extent in tensor.shape):
        return f"{what} '{tensor.name}' has shape {list(tensor.shape)}; every extent must be known and above 0"
    return None


Places = Sequence[int] | None
"""The indices of some operands of a node; None for all operands."""


def _given_at(operands: Places, graph: Graph, node: Node) -> list[Tensor]:
    """Return those of the operands that the node has."""
    found = (graph.operand(node, index) for index in (range(len(node.inputs)) if operands is None else operands))
    return [tensor for tensor in found if tensor is not None]


def _each(doc: str, operands: Places, outputs: bool, reason: Callable[[Tensor, str], str | None]) -> Limit:
    """Return a limit that holds if ``reason`` returns None for these operands and, with ``outputs``, for all outputs."""

    def rule(graph: Graph, node: Node) -> str | None:
        inputs = ((tensor, "input") for tensor in _given_at(operands, graph, node))
        results = ((graph[name], "output") for name in node.outputs if outputs)
        found = (reason(tensor, what) for tensor, what in itertools.chain(inputs, results))
        return next(filter(None, found), None)

    return limit(doc, rule)


def stored_at(operands: Places, types: Sequence[DType], outputs: bool = True) -> Limit:
    """The operands, and with ``outputs`` all outputs, have one of these types, per-tensor quantization and
    known extents."""
    words = "int8 or int16" if DType.INT16 in types else "int8"
    doc = f"inputs and outputs {words}, quantized per tensor, static shapes"
    return _each(doc, operands, outputs, lambda tensor, what: int8_reason(tensor, what, types))


def alike(operands: Places) -> Limit:
    """The operands at these places, and all outputs, have one type."""

    def rule(graph: Graph, node: Node) -> str | None:
        tensors = [*_given_at(operands, graph, node), *(graph[name] for name in node.outputs)]
        other = next((tensor for tensor in tensors if tensor.dtype is not tensors[0].dtype), None)
        if other is None:
            return None
        first = tensors[0]
        return f"'{first.name}' is {first.dtype}, '{other.name}' is {other.dtype}; its inputs and output must have one type"

    return limit("inputs and outputs of one type", rule)


def unquantized_reason(tensor: Tensor, what: str, dtypes: Sequence[DType]) -> str | None:
    """Return the reason why this tensor has none of these integer or boolean types, or no static shape; None if it
    has both."""
    if tensor.dtype not in dtypes:
        words = " or ".join(str(dtype) for dtype in dtypes)
        return f"{what} '{tensor.name}' is {tensor.dtype}; it must be {words}"
    return extent_reason(tensor, what)


def unquantized(operands: Sequence[int], outputs: bool, *dtypes: DType) -> Limit:
    """The operands at these places, and with ``outputs`` all outputs, have one of these types, which need no scale."""
    subjects = [f"input {index}" for index in operands] + ["the output"] * outputs
    doc = f"{' and '.join(subjects)} {' or '.join(str(dtype) for dtype in dtypes)}"
    return _each(doc, operands, outputs, lambda tensor, what: unquantized_reason(tensor, what, dtypes))


def int8_inputs(*operands: int) -> Limit:
    """The operands at these places are int8, per tensor, with known extents."""
    doc = f"{' and '.join(f'input {index}' for index in operands)} int8, quantized per tensor"
    return _each(doc, operands, False, int8_reason)


STORED = (DType.INT8, DType.INT16)
"""The types of activations that operators move."""

MOVABLE = (DType.INT32, DType.INT64, DType.BOOL)
"""The types without a scale that operators move unchanged."""


def movable_at(index: int | None = None) -> Limit:
    """The operand (every operand where None) and all outputs are activations of one type, or all of one type that is moved as it is."""
    operands = None if index is None else (index,)
    stored, of_one_type = stored_at(operands, STORED), alike(operands)
    unchanged = {kind: _each("", operands, True, partial(unquantized_reason, dtypes=(kind,))) for kind in MOVABLE}

    def rule(graph: Graph, node: Node) -> str | None:
        kind = graph.given(node, index or 0).dtype
        if kind in unchanged:
            return unchanged[kind](graph, node)
        return stored(graph, node) or of_one_type(graph, node)

    return limit("int8 or int16, or int32, int64 or bool as they are", rule)


def constant_at(index: int, what: str) -> Limit:
    """The operand at ``index`` is absent or a constant."""

    def rule(graph: Graph, node: Node) -> str | None:
        tensor = graph.operand(node, index)
        if tensor is None or tensor.is_constant:
            return None
        return f"its {what} '{tensor.name}' is computed at run time; it must be a constant"

    return limit(f"constant {what}", rule)


SYMMETRIC = "Quantize them as int8 with the zero point 0 (as uint8 it is 128)"
"""What makes weights symmetric. onnxruntime does it with ``weight_type=QuantType.QInt8``."""


def int8_weight(index: int, channel_axis: int) -> Limit:
    """Return the limit that the weights are constant int8 and symmetric, with a single scale or one scale for each
    output channel. ``index`` is the operand of the weights.

    A node with the attribute ``unsigned`` has uint8 weights in the file. Such weights may have a zero point, but only
    a single scale.
    """

    def rule(graph: Graph, node: Node) -> str | None:
        tensor = graph.given(node, index)
        if not tensor.is_constant:
            return f"its weights '{tensor.name}' are computed at run time; they must be constant"
        if tensor.dtype is not DType.INT8:
            return f"its weights '{tensor.name}' are {tensor.dtype}; the NPU multiplies int8. Quantize the model"
        if tensor.quant is None:
            return f"its weights '{tensor.name}' have no quantization parameters"
        if not all(-128 <= zero <= 127 for zero in tensor.quant.zero_points):
            return f"its weights '{tensor.name}' have zero points that 8 bits do not hold"
        if any(tensor.quant.zero_points) and not node.attrs.get("unsigned"):
            return f"its weights '{tensor.name}' have a zero point; weights must be symmetric. {SYMMETRIC}"
        if not all(0 < scale < math.inf for scale in tensor.quant.scales):
            return f"its weights '{tensor.name}' have a scale that is not above 0 and finite"
        if node.attrs.get("unsigned") and len(tensor.quant.scales) > 1:
            return "its weights are uint8 with a scale for each channel; LiteRT has that for int8 alone"
        channels = tensor.shape[channel_axis]
        # LiteRT applies the scales to the output channels, whichever axis of that extent they name.
        if len(tensor.quant.scales) not in (1, channels):
            return f"its weights have {len(tensor.quant.scales)} scales; there must be 1 or {channels}, one for each output channel"
        return None

    return limit("weights constant, int8, symmetric, per tensor or per output channel", rule)


BIAS_TYPE = "quantized_bias_type"
"""The attribute with the type of accumulators and bias for int16 activations, with LiteRT's name. FLOAT32, its
default, means int64."""


def has_wide_sums(graph: Graph, node: Node) -> bool:
    """Return whether LiteRT adds the node's products in int64. It does for int16 activations, unless the option says
    int32."""
    return graph[node.outputs[0]].dtype is DType.INT16 and node.attrs.get(BIAS_TYPE) != "INT32"


def typed_bias(index: int) -> Limit:
    """The bias is absent, or a constant of the accumulators' type with one value for each output channel."""

    def rule(graph: Graph, node: Node) -> str | None:
        tensor = graph.operand(node, index)
        if tensor is None:
            return None
        wanted = DType.INT64 if has_wide_sums(graph, node) else DType.INT32
        if not tensor.is_constant or tensor.dtype is not wanted:
            state = "constant" if tensor.is_constant else "computed at run time"
            return f"its bias '{tensor.name}' is {tensor.dtype} and {state}; it must be constant {wanted}{_why(graph, node)}"
        channels = graph[node.outputs[0]].shape[-1]
        if tensor.elements != channels:
            return f"its bias '{tensor.name}' has {tensor.elements} values for {channels} output channels"
        return None

    return limit(
        "bias absent or constant int32 (int16: int64, or the option's type), one value for each output channel", rule
    )


def _why(graph: Graph, node: Node) -> str:
    if graph[node.outputs[0]].dtype is not DType.INT16:
        return ""
    option = node.attrs.get(BIAS_TYPE)
    return " with int16 activations" + ("" if option is None else f" and option {BIAS_TYPE} {option}")


def axes_of(index: int, axes: Callable[[Graph, Node], Iterable[int]]) -> Limit:
    """The axes that the node names are axes of the operand at ``index``."""

    def rule(graph: Graph, node: Node) -> str | None:
        tensor = graph.given(node, index)
        own = len(tensor.shape)
        wrong = [axis for axis in axes(graph, node) if not -own <= axis < own]
        return f"it names axis {wrong[0]} of a tensor of rank {own}" if wrong else None

    return limit("axes that the input has", rule)


def _shared(graph: Graph, node: Node) -> str | None:
    for index, name in itertools.product(range(len(node.inputs)), node.outputs):
        tensor, output = graph.operand(node, index), graph[name]
        if tensor is None or tensor.dtype not in STORED or tensor.quant is None:
            continue
        if tensor.quant != output.quant:
            return f"input '{tensor.name}' has {tensor.quant}, the output {output.quant}; they must be the same"
    return None


SHARED_QUANTIZATION = limit("inputs and output of the same scale and zero point", _shared)
"""The limit that all activations have the same scale and zero point."""


WIDE_FIXED = (2.0**-15, 0)
"""The scale and zero point of an int16 output, for each operator of which LiteRT demands fixed ones."""


def fixed_output(scale: float, zero_point: int, types: Sequence[DType] = (DType.INT8,)) -> Limit:
    """The output has the scale and zero point that LiteRT demands of its type."""

    def rule(graph: Graph, node: Node) -> str | None:
        output = graph[node.outputs[0]]
        assert output.quant is not None
        demanded = WIDE_FIXED if output.dtype is DType.INT16 else (scale, zero_point)
        if (output.quant.scale, output.quant.zero_point) != demanded:
            return f"its output has {output.quant}; LiteRT demands scale={demanded[0]:.6g} zp={demanded[1]}"
        return None

    wide = f" (int16: 1/{round(1 / WIDE_FIXED[0])}, zero point 0)" if DType.INT16 in types else ""
    return limit(f"output scale 1/{round(1 / scale)}, zero point {zero_point}{wide}", rule)


def rank(index: int, low: int, high: int) -> Limit:
    """The operand's rank lies in [low, high]."""
    words = f"{low}" if low == high else f"{low} to {high}"

    def rule(graph: Graph, node: Node) -> str | None:
        tensor = graph.given(node, index)
        if low <= len(tensor.shape) <= high:
            return None
        return f"input '{tensor.name}' has rank {len(tensor.shape)}; it must be {words}"

    return limit(f"rank {words}" if index == 0 else f"input {index} of rank {words}", rule)


def broadcasts(most: int) -> Limit:
    """The operands broadcast, up to the largest rank at which LiteRT broadcasts them."""

    def rule(graph: Graph, node: Node) -> str | None:
        shapes = [graph[name].shape for name in node.inputs if name is not None]
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            return (
                f"its inputs have shapes {' and '.join(str(list(shape)) for shape in shapes)}, which do not broadcast"
            )
        longest = max(len(shape) for shape in shapes)
        if len(set(shapes)) > 1 and longest > most:
            return f"it broadcasts at rank {longest}; at most {most}, as in LiteRT"
        return None

    return limit(f"shapes that broadcast, up to rank {most} where they differ", rule)


def attr_among(name: str, *allowed: object) -> Limit:
    """The attribute has one of these values."""
    words = ", ".join(str(value) for value in allowed)

    def rule(graph: Graph, node: Node) -> str | None:
        value = node.attrs.get(name)
        return None if value in allowed else f"{name} is {value}; what there is: {words}"

    return limit(f"{name} among {words}", rule)


LARGEST_WINDOW_WORD = 32767
"""The largest kernel, stride or dilation that the kernels accept (convolution_check.c)."""

MOST_PARTS_OF_WEIGHTS = 3
"""The largest factor by which a kernel's rows and stride grow where uint8 weights have a zero point (split_weights)."""


def window_numbers() -> Limit:
    """Return the limit that strides, dilations and kernel extents are between 1 and LARGEST_WINDOW_WORD, and that a
    padding that is given by name is SAME or VALID.

    With uint8 weights the largest number is LARGEST_WINDOW_WORD // MOST_PARTS_OF_WEIGHTS.
    """
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w")

    def rule(graph: Graph, node: Node) -> str | None:
        most = LARGEST_WINDOW_WORD // (MOST_PARTS_OF_WEIGHTS if node.attrs.get("unsigned") else 1)
        for name in names:
            if node.attrs.get(name, 1) < 1:
                return f"its {name} is {node[name]}; it must be at least 1"
            if node.attrs.get(name, 1) > most:
                return f"its {name} is {node[name]}; it must be at most {most}"
        weights = graph.operand(node, 1)
        if weights is not None and len(weights.shape) == 4 and max(weights.shape[1:3]) > most:
            return f"its weights have shape {list(weights.shape)}; a kernel has at most {most} rows and columns"
        padding = node["padding"]
        if isinstance(padding, str) and padding not in ("SAME", "VALID"):
            return f"its padding is {padding}; what there is: SAME, VALID"
        return None

    return limit(f"kernel, stride and dilation of 1 to {LARGEST_WINDOW_WORD}", rule)
