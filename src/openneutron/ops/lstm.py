# SPDX-License-Identifier: BSD-3-Clause
"""Declare the LSTM over a sequence: on int8 with an int16 cell state as in LiteRT, on int16 as in LiteRT for Microcontrollers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.limits import STORED, attr_among, int8_reason, limit, rank
from openneutron.ops.rescaling import MOST_WIDE_SUM, WIDE_SUM_EXPONENT, rescales
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Role

GATES = ("input", "forget", "cell", "output")
FIRST_INPUT_WEIGHTS, FIRST_HIDDEN_WEIGHTS, FIRST_PEEPHOLE, FIRST_BIAS = 1, 5, 9, 12
PROJECTION, PROJECTION_BIAS, HIDDEN, CELL, FIRST_NORM = 16, 17, 18, 19, 20
SEEING = (0, 1, 3)
"""The gates that peepholes lead to, in the order of their operands."""

HIGHEST_CELL_BITS = 15
LOWEST_CELL_BITS = {DType.INT8: 9, DType.INT16: 0}
"""The scale of a cell state is 2 to minus one of these, by the type of activations: LiteRT's tanh on int8 takes 0 to 6 integer
bits."""

GATE_SCALE = 2.0**-12
"""The scale of a gate in front of its function, without a normalization."""


def gates_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the gates that the layer has: without weights for the input gate, all others."""
    return (0, 1, 2, 3) if graph.operand(node, FIRST_INPUT_WEIGHTS) is not None else (1, 2, 3)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether the layer's activations are int16."""
    return graph.given(node, 0).dtype is DType.INT16


def has_peephole(graph: Graph, node: Node) -> bool:
    """Return whether gates see the cell state."""
    return graph.operand(node, FIRST_PEEPHOLE + 2) is not None


def has_layer_norm(graph: Graph, node: Node) -> bool:
    """Return whether gates are normalized."""
    return graph.operand(node, FIRST_NORM + 3) is not None


def is_projected(graph: Graph, node: Node) -> bool:
    """Return whether the hidden state is projected."""
    return graph.operand(node, PROJECTION) is not None


@np.errstate(all="ignore")
def gate_factors(graph: Graph, node: Node) -> dict[int, tuple[float, float]]:
    """Return for each gate the factors of its input's and its hidden state's products, rounded to float32 as LiteRT does."""
    scales = _gate_scales(graph, node)
    found = {}
    for gate in gates_of(graph, node):
        pairs = ((FIRST_INPUT_WEIGHTS + gate, 0), (FIRST_HIDDEN_WEIGHTS + gate, HIDDEN))
        products = [scale_of(graph, node, weights) * scale_of(graph, node, vector) for weights, vector in pairs]
        found[gate] = (float(products[0] / scales[gate]), float(products[1] / scales[gate]))
    return found


def scale_of(graph: Graph, node: Node, index: int) -> np.float32:
    """Return the scale of an operand, which has one."""
    quant = graph.given(node, index).quant
    assert quant is not None
    return np.float32(quant.scale)


def _gate_scales(graph: Graph, node: Node) -> list[np.float32]:
    if not has_layer_norm(graph, node):
        return [np.float32(GATE_SCALE)] * 4
    return [np.float32(scale) for scale, _ in node["intermediates"][:4]]


def peephole_factors(graph: Graph, node: Node) -> dict[int, float]:
    """Return the factor of each peephole's products by its gate: powers of two in double, the rest as LiteRT multiplies."""
    if not has_peephole(graph, node):
        return {}
    scales, cell = _gate_scales(graph, node), 2.0 ** cell_shift(graph, node)
    places = [(place, gate) for place, gate in enumerate(SEEING) if gate in gates_of(graph, node)]
    return {
        gate: float(np.float32(cell * float(scale_of(graph, node, FIRST_PEEPHOLE + place)) / float(scales[gate])))
        for place, gate in places
    }


def norm_scales(graph: Graph, node: Node) -> dict[int, float]:
    """Return the scale of each normalization's coefficients by its gate."""
    if not has_layer_norm(graph, node):
        return {}
    return {gate: float(scale_of(graph, node, FIRST_NORM + gate)) for gate in gates_of(graph, node)}


def hidden_factor(graph: Graph, node: Node) -> float:
    """Return the factor from the product of a gate and a cell's tanh to the hidden state before its projection."""
    if is_wide(graph, node):
        return 2.0**-30 / float(scale_of(graph, node, HIDDEN))
    return float(np.float32(2.0**-15 / float(np.float32(node["intermediates"][4][0])) * 2.0**-15))


def hidden_zero_point(graph: Graph, node: Node) -> int:
    """Return the zero point of the hidden state before its projection; LiteRT stores it with the sign reversed where there is one."""
    stated = int(node["intermediates"][4][1])
    return -stated if is_projected(graph, node) else stated


@np.errstate(all="ignore")
def projection_factor(graph: Graph, node: Node) -> float:
    """Return the factor of the projection's products."""
    unprojected = np.float32(node["intermediates"][4][0])
    return float(scale_of(graph, node, PROJECTION) * unprojected / scale_of(graph, node, HIDDEN))


def cell_shift(graph: Graph, node: Node) -> int:
    """Return the power of two that is the cell state's scale."""
    return round(math.log2(scale_of(graph, node, CELL)))


def quantized_clips(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the largest magnitudes of a cell and of a projection's result, stored; 0 where any is allowed."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    cell, projected = node["cell_clip"], node["proj_clip"]
    most_cell = float(np.float32(cell) / scale_of(graph, node, CELL)) if cell > 0 else 0.0
    most_projected = float(np.float32(projected) / np.float32(quant.scale)) if projected > 0 else 0.0
    return int(min(most_cell, 32767.0)), int(min(most_projected, 127.0))


def steps_and_sequences(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the steps of a sequence, and how many sequences there are."""
    first, second, _ = graph.given(node, 0).shape
    return (first, second) if node["time_major"] else (second, first)


def _factors(graph: Graph, node: Node) -> list[float]:
    found = [factor for pair in gate_factors(graph, node).values() for factor in pair]
    found += [*peephole_factors(graph, node).values(), hidden_factor(graph, node)]
    # A normalization shifts its result 12 bits further.
    found += [scale * 2.0**12 for scale in norm_scales(graph, node).values()]
    return [*found, projection_factor(graph, node)] if is_projected(graph, node) else found


def _lstm_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    lead, outputs = graph.given(node, 0).shape[:2], graph.given(node, FIRST_HIDDEN_WEIGHTS + 3).shape[-1]
    shapes = ((*lead, outputs), graph.given(node, HIDDEN).shape, graph.given(node, CELL).shape)
    return shapes[: len(node.outputs)]


def _expected(graph: Graph, node: Node) -> Iterator[tuple[int, tuple[DType, ...], tuple[int, ...]]]:
    """Yield the types and the shape of each constant operand that the form of the layer demands, by its place."""
    inputs = graph.given(node, 0).shape[-1]
    cells, outputs = graph.given(node, FIRST_HIDDEN_WEIGHTS + 3).shape
    gates, bias = gates_of(graph, node), DType.INT64 if is_wide(graph, node) else DType.INT32
    for gate in gates:
        yield FIRST_INPUT_WEIGHTS + gate, (DType.INT8,), (cells, inputs)
        yield FIRST_HIDDEN_WEIGHTS + gate, (DType.INT8,), (cells, outputs)
        yield FIRST_BIAS + gate, (bias,), (cells,)
        if has_layer_norm(graph, node):
            yield FIRST_NORM + gate, (DType.INT16,), (cells,)
    for place, gate in enumerate(SEEING):
        if has_peephole(graph, node) and gate in gates:
            yield FIRST_PEEPHOLE + place, (DType.INT16,), (cells,)
    if is_projected(graph, node):
        yield PROJECTION, (DType.INT8,), (outputs, cells)


def _constants(graph: Graph, node: Node) -> str | None:
    names = UNIDIRECTIONAL_SEQUENCE_LSTM.operands
    expected = {place: (types, shape) for place, types, shape in _expected(graph, node)}
    for place, (types, shape) in expected.items():
        tensor, what = graph.operand(node, place), names[place].name
        if tensor is None:
            return f"it has no {what}, which a layer of its form needs"
        if tensor.data is None or tensor.dtype not in types or tensor.shape != shape:
            state = "constant" if tensor.is_constant else "computed at run time"
            wanted = f"constant {types[0]}{list(shape)}" + (" with int16 activations" if is_wide(graph, node) else "")
            return f"its {what} '{tensor.name}' is {state} {tensor.dtype}{list(tensor.shape)}; it must be {wanted}"
        if types[0] in (DType.INT8, DType.INT16) and not is_symmetric(tensor):
            return f"its {what} '{tensor.name}' must be quantized per tensor with a zero point of 0"
    if graph.operand(node, PROJECTION_BIAS) is not None and not is_projected(graph, node):
        return "it has a projection bias and no projection"
    outputs, cells = graph.given(node, FIRST_HIDDEN_WEIGHTS + 3).shape[::-1]
    if outputs != cells and (not is_projected(graph, node) or has_peephole(graph, node)):
        subject = "peepholes" if is_projected(graph, node) else "no projection"
        return f"it has {cells} units, {outputs} outputs and {subject}; the two must be equal"
    return None


def is_symmetric(tensor: Tensor) -> bool:
    """Return whether a tensor has one scale and a zero point of 0."""
    quant = tensor.quant
    return quant is not None and len(quant.scales) == 1 and not any(quant.zero_points) and 0 < quant.scale < math.inf


def _states(graph: Graph, node: Node) -> str | None:
    data, hidden, cell = (graph.given(node, place) for place in (0, HIDDEN, CELL))
    for tensor, what in ((graph[node.outputs[0]], "output"), (hidden, "hidden state")):
        if tensor.dtype is not data.dtype:
            return f"its {what} '{tensor.name}' is {tensor.dtype}, and its input '{data.name}' {data.dtype}; both must have one type"
        reason = int8_reason(tensor, what, STORED)
        if reason is not None:
            return reason
    if cell.dtype is not DType.INT16:
        return f"its cell state '{cell.name}' is {cell.dtype}; it must be int16"
    reason = int8_reason(cell, "cell state", STORED)
    if reason is not None:
        return reason
    assert cell.quant is not None
    fraction, exponent = math.frexp(cell.quant.scale)
    lowest = LOWEST_CELL_BITS[data.dtype]
    if fraction != 0.5 or not lowest <= 1 - exponent <= HIGHEST_CELL_BITS:
        bounds = f"a power of two from 2^{-HIGHEST_CELL_BITS} to 2^{-lowest}"
        return f"its cell state has scale {cell.quant.scale:.6g}; it must be {bounds}"
    sequences = steps_and_sequences(graph, node)[1]
    cells, outputs = graph.given(node, FIRST_HIDDEN_WEIGHTS + 3).shape
    for tensor, units in ((hidden, outputs), (cell, cells)):
        if tensor.elements != sequences * units:
            return f"its state '{tensor.name}' has {tensor.elements} values for {sequences} sequences of {units} units"
    return None


def _wide_form(graph: Graph, node: Node) -> str | None:
    if not is_wide(graph, node):
        return None
    forms = {
        "coupled gates": len(gates_of(graph, node)) < len(GATES),
        "peepholes": has_peephole(graph, node),
        "normalized gates": has_layer_norm(graph, node),
        "a projection": is_projected(graph, node),
    }
    found = " and ".join(name for name, there in forms.items() if there)
    if not found:
        return None
    return (
        f"it has {found}; LiteRT for Microcontrollers, whose int16 LSTM the NPU computes, has none of them. "
        "Quantize the layer with int8 activations"
    )


def _sums(graph: Graph, node: Node) -> str | None:
    if not is_wide(graph, node):
        return None
    largest = 0.0
    for first, biased in ((FIRST_INPUT_WEIGHTS, True), (FIRST_HIDDEN_WEIGHTS, False)):
        for gate in range(len(GATES)):
            sums = np.abs(np.asarray(graph.given(node, first + gate).data, np.float64)).sum(axis=1) * 2.0**15
            if biased:
                sums += np.abs(np.asarray(graph.given(node, FIRST_BIAS + gate).data, np.float64))
            largest = max(largest, float(sums.max()))
    if largest < MOST_WIDE_SUM:
        return None
    return f"its accumulator may reach {largest:.6g}; with int16 activations LiteRT rescales those below 2^47"


def _intermediates(graph: Graph, node: Node) -> str | None:
    if is_wide(graph, node):
        return None
    found = node.attrs.get("intermediates", ())
    if len(found) != 5:
        return f"it states the quantization of {len(found)} intermediate tensors; it must be 5"
    needed = found if has_layer_norm(graph, node) else found[4:]
    if all(0 < scale < math.inf for scale, _ in needed) and -128 <= hidden_zero_point(graph, node) <= 127:
        return None
    return "the quantization of its intermediate tensors is no scale above 0 with a zero point of their type"


def value_operand(name: str, optional: bool = True) -> Operand:
    """Return a constant operand."""
    return Operand(Role.VALUE, name, optional=optional)


UNIDIRECTIONAL_SEQUENCE_LSTM = Op(
    "unidirectional_sequence_lstm",
    operands=(
        INPUT,
        *(value_operand(f"input weights of the {gate} gate", gate == "input") for gate in GATES),
        *(value_operand(f"hidden weights of the {gate} gate", gate == "input") for gate in GATES),
        *(value_operand(f"peephole of the {GATES[gate]} gate") for gate in SEEING),
        *(value_operand(f"bias of the {gate} gate", gate == "input") for gate in GATES),
        value_operand("projection"),
        value_operand("bias of the projection"),
        Operand(Role.STATE, "hidden state"),
        Operand(Role.STATE, "cell state"),
        *(value_operand(f"normalization of the {gate} gate") for gate in GATES),
    ),
    shape=_lstm_shape,
    kernels=("unidirectional_sequence_lstm_s8", "unidirectional_sequence_lstm_s16"),
    types=STORED,
    options="UnidirectionalSequenceLSTMOptions",
    attributes=(
        Attribute("activation", "fusedActivationFunction", "TANH", {0: "NONE", 1: "RELU", 3: "RELU6", 4: "TANH"}),
        Attribute("cell_clip", "cellClip", 0.0),
        Attribute("proj_clip", "projClip", 0.0),
        Attribute("time_major", "timeMajor", False),
    ),
    activations=0,
    intermediates=True,
    several_outputs=True,
    limits=(
        rank(0, 3, 3),
        attr_among("activation", "TANH"),
        limit("int16 activations: four gates, no peephole, normalization or projection", _wide_form),
        limit(
            "the hidden state as the activations, an int16 cell state, its scale a power of two from 2^-15 to 2^-9 (int16: 2^0)",
            _states,
        ),
        limit("constant weights, peepholes and normalizations, each for all gates or none", _constants),
        limit("int16 activations: accumulators below 2^47", _sums),
        limit("int8 activations: the quantization of 5 intermediate tensors", _intermediates),
        rescales(_factors, wide=WIDE_SUM_EXPONENT),
    ),
    doc="LSTM over a sequence with an int16 cell state; on int8 also with peepholes, normalization, projection, coupled gates.",
)

OPS = (UNIDIRECTIONAL_SEQUENCE_LSTM,)
