# SPDX-License-Identifier: BSD-3-Clause
"""Declare layers with a state: LSTMs of one and of two directions, SVDF, and PyTorch's GRU and RNN, which LiteRT does
not have."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.limits import STORED, attr_among, int8_reason, limit, rank
from openneutron.ops.rescaling import MOST_WIDE_SUM, WIDE_SUM_EXPONENT, rescales
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Parts, Role

GATES = ("input", "forget", "cell", "output")
FIRST_INPUT_WEIGHTS, FIRST_HIDDEN_WEIGHTS, FIRST_PEEPHOLE, FIRST_BIAS = 1, 5, 9, 12
PROJECTION, PROJECTION_BIAS, HIDDEN, CELL, FIRST_NORM = 16, 17, 18, 19, 20
SEEING = (0, 1, 3)
"""The gates that can have a peephole. Their order is that of the peepholes among the operands."""

HIGHEST_CELL_BITS = 15
LOWEST_CELL_BITS = {DType.INT8: 9, DType.INT16: 0}
"""The smallest allowed number of fractional bits of a cell state, by the type of activations.

The scale of a cell state is 2 to the power of minus this number. LiteRT's tanh on int8 takes 0 to 6 integer bits.
"""

GATE_SCALE = 2.0**-12
"""The scale of a gate before its activation function, if the layer has no normalization."""


def gates_of(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the gates of an LSTM. A layer without weights for the input gate (CIFG) has all gates but this one."""
    return (0, 1, 2, 3) if graph.operand(node, FIRST_INPUT_WEIGHTS) is not None else (1, 2, 3)


def is_wide(graph: Graph, node: Node) -> bool:
    """Return whether the layer's activations are int16."""
    return graph.given(node, 0).dtype is DType.INT16


def has_peephole(graph: Graph, node: Node) -> bool:
    """Return whether the layer has peepholes: gates that read the cell state."""
    return graph.operand(node, FIRST_PEEPHOLE + 2) is not None


def has_layer_norm(graph: Graph, node: Node) -> bool:
    """Return whether the layer normalizes its gates."""
    return graph.operand(node, FIRST_NORM + 3) is not None


def is_projected(graph: Graph, node: Node) -> bool:
    """Return whether the layer projects its hidden state."""
    return graph.operand(node, PROJECTION) is not None


@np.errstate(all="ignore")
def gate_factors(graph: Graph, node: Node) -> dict[int, tuple[float, float]]:
    """Return two rescaling factors for each gate: that of the products of the input, and that of the products of the
    hidden state. Both are rounded to float32, as in LiteRT."""
    scales = _gate_scales(graph, node)
    found = {}
    for gate in gates_of(graph, node):
        pairs = ((FIRST_INPUT_WEIGHTS + gate, 0), (FIRST_HIDDEN_WEIGHTS + gate, HIDDEN))
        products = [scale_of(graph, node, weights) * scale_of(graph, node, vector) for weights, vector in pairs]
        found[gate] = (float(products[0] / scales[gate]), float(products[1] / scales[gate]))
    return found


def scale_of(graph: Graph, node: Node, index: int) -> np.float32:
    """Return the scale of the operand at ``index``, which must have one."""
    quant = graph.given(node, index).quant
    assert quant is not None
    return np.float32(quant.scale)


def _gate_scales(graph: Graph, node: Node) -> list[np.float32]:
    if not has_layer_norm(graph, node):
        return [np.float32(GATE_SCALE)] * 4
    return [np.float32(scale) for scale, _ in node["intermediates"][:4]]


def peephole_factors(graph: Graph, node: Node) -> dict[int, float]:
    """Return the rescaling factor of the peephole products of each gate with a peephole; empty for a layer without
    peepholes. As in LiteRT, it is computed in double from float32 scales, and rounded to float32."""
    if not has_peephole(graph, node):
        return {}
    scales, cell = _gate_scales(graph, node), 2.0 ** cell_shift(graph, node)
    places = [(place, gate) for place, gate in enumerate(SEEING) if gate in gates_of(graph, node)]
    return {
        gate: float(np.float32(cell * float(scale_of(graph, node, FIRST_PEEPHOLE + place)) / float(scales[gate])))
        for place, gate in places
    }


def norm_scales(graph: Graph, node: Node) -> dict[int, float]:
    """Return the scale of the normalization's coefficients for each gate; empty for a layer without normalization."""
    if not has_layer_norm(graph, node):
        return {}
    return {gate: float(scale_of(graph, node, FIRST_NORM + gate)) for gate in gates_of(graph, node)}


def hidden_factor(graph: Graph, node: Node) -> float:
    """Return the factor that rescales (output gate) * tanh(cell state) to the scale of the hidden state.

    For a layer with a projection, this is the hidden state before the projection.
    """
    if is_wide(graph, node):
        return 2.0**-30 / float(scale_of(graph, node, HIDDEN))
    return float(np.float32(2.0**-15 / float(np.float32(node["intermediates"][4][0])) * 2.0**-15))


def hidden_zero_point(graph: Graph, node: Node) -> int:
    """Return the zero point of the hidden state before its projection. For a layer with a projection, LiteRT stores
    it with the opposite sign."""
    stated = int(node["intermediates"][4][1])
    return -stated if is_projected(graph, node) else stated


@np.errstate(all="ignore")
def projection_factor(graph: Graph, node: Node) -> float:
    """Return the factor that rescales the products of the projection to the scale of the output."""
    unprojected = np.float32(node["intermediates"][4][0])
    return float(scale_of(graph, node, PROJECTION) * unprojected / scale_of(graph, node, HIDDEN))


def cell_shift(graph: Graph, node: Node) -> int:
    """Return the exponent of the cell state's scale, which is a power of two."""
    return round(math.log2(scale_of(graph, node, CELL)))


def quantized_clips(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the bounds of the magnitudes of a stored cell state and of a stored projected hidden state; 0 stands for
    no bound."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    cell, projected = node["cell_clip"], node["proj_clip"]
    most_cell = float(np.float32(cell) / scale_of(graph, node, CELL)) if cell > 0 else 0.0
    most_projected = float(np.float32(projected) / np.float32(quant.scale)) if projected > 0 else 0.0
    return int(min(most_cell, 32767.0)), int(min(most_projected, 127.0))


def steps_and_sequences(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the number of steps of a sequence, and the number of sequences."""
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
    """Yield the index, the allowed types and the shape of each constant operand that this form of the layer demands."""
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
    """Return whether a tensor has a single scale, which is above 0 and finite, and a zero point of 0."""
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
    """Return the declaration of a constant operand."""
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
    checks_outputs=False,
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


FIRST = (1, 18)
"""The index of the first weights of each direction."""

VALUES = 17
"""The number of constant operands of a direction: weights, peepholes, biases, and last the projection with its bias."""

STATES = (35, 37)
"""The index of the hidden state of each direction. The cell state follows it."""

AUXILIARY = 39
"""The index of the first operand that only stacked layers have."""

DIRECTIONS = ("forward", "backward")


def _units(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the number of units of each direction, which is the number of columns of the hidden weights of its last
    gate."""
    forward, backward = (graph.given(node, first + 2 * len(GATES) - 1).shape[1] for first in FIRST)
    return forward, backward


def _shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    states = tuple(graph.given(node, place + own).shape for place in STATES for own in (0, 1))
    merged = (*graph.given(node, 0).shape[:2], sum(_units(graph, node)))
    return (merged, *states)[: len(node.outputs)]


def _form(graph: Graph, node: Node) -> str | None:
    if not node["merge_outputs"]:
        return "its directions have outputs of their own. Merge the outputs, and slice the result"
    if any(graph.operand(node, first + place) is not None for first in FIRST for place in (VALUES - 2, VALUES - 1)):
        return (
            "it has a projection; no file states the quantization in front of it. Use two UNIDIRECTIONAL_SEQUENCE_LSTM"
        )
    if len(node.inputs) > AUXILIARY:
        return "it has an auxiliary input. Concatenate both inputs, and their weights"
    output = graph[node.outputs[0]]
    for place, direction in zip(STATES, DIRECTIONS, strict=True):
        state = graph.given(node, place)
        if state.quant is None or (state.dtype, state.quant) != (output.dtype, output.quant):
            return f"its {direction} hidden state '{state.name}' and its output are quantized in different ways"
    return None


def _apart(parts: Parts, graph: Graph, node: Node) -> None:
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    pieces = []
    for turned, (first, state, units) in enumerate(zip(FIRST, STATES, _units(graph, node), strict=True)):
        values = [node.inputs[first + place] for place in range(VALUES)]
        operands = (node.inputs[0], *values, *node.inputs[state : state + 2])
        shape = (*graph.given(node, 0).shape[:2], units)
        outputs = parts.new(shape, graph[node.outputs[0]].dtype, quant), *node.outputs[1 + 2 * turned : 3 + 2 * turned]
        attrs = {name: node[name] for name in ("activation", "cell_clip", "proj_clip", "time_major")}
        attrs["intermediates"] = (*((GATE_SCALE, 0),) * len(GATES), (quant.scale, quant.zero_point))
        attrs["backwards"] = bool(turned)
        pieces.append(parts.add_several("unidirectional_sequence_lstm", operands, outputs, attrs))
    parts.concatenate(pieces, 2, node.outputs[0])


def _operands(direction: str) -> tuple[Operand, ...]:
    return (
        *(value_operand(f"{direction} input weights of the {gate} gate", gate == "input") for gate in GATES),
        *(value_operand(f"{direction} hidden weights of the {gate} gate", gate == "input") for gate in GATES),
        *(value_operand(f"{direction} peephole of the {GATES[gate]} gate") for gate in SEEING),
        *(value_operand(f"{direction} bias of the {gate} gate", gate == "input") for gate in GATES),
        value_operand(f"{direction} projection"),
        value_operand(f"bias of the {direction} projection"),
    )


BIDIRECTIONAL_SEQUENCE_LSTM = Op(
    "bidirectional_sequence_lstm",
    operands=(
        INPUT,
        *(operand for direction in DIRECTIONS for operand in _operands(direction)),
        *(Operand(Role.STATE, f"{direction} {name} state") for direction in DIRECTIONS for name in ("hidden", "cell")),
    ),
    shape=_shape,
    kernels=("unidirectional_sequence_lstm_s8", "unidirectional_sequence_lstm_s16"),
    types=STORED,
    options="BidirectionalSequenceLSTMOptions",
    attributes=(
        Attribute("activation", "fusedActivationFunction", "TANH", {0: "NONE", 1: "RELU", 3: "RELU6", 4: "TANH"}),
        Attribute("cell_clip", "cellClip", 0.0),
        Attribute("proj_clip", "projClip", 0.0),
        Attribute("merge_outputs", "mergeOutputs", True),
        Attribute("time_major", "timeMajor", True),
    ),
    checks_outputs=False,
    several_outputs=True,
    limits=(
        rank(0, 3, 3),
        attr_among("activation", "TANH"),
        limit("merged outputs, no projection, no auxiliary input, hidden states quantized as the output", _form),
    ),
    doc="LSTM over a sequence in both directions, each with the arithmetic of UNIDIRECTIONAL_SEQUENCE_LSTM, which no interpreter of "
    "LiteRT has for this operator.",
    made_of=_apart,
)


GRU_GATES = ("reset", "update", "new")
FRACTION_BITS, STEP_BITS, MOST_STATE_BITS = 20, 12, 15
"""FRACTION_BITS are the fractional bits of a gate's products. STEP_BITS are those of an output that is clamped at 0, in
steps of its scale. MOST_STATE_BITS is the most fractional bits of the units' state."""


def places_of(node: Node) -> dict[str, range | int]:
    """Return the indices of the operands of a GRU or RNN, by kind.

    Input weights, hidden weights, input biases and hidden biases have one operand for each gate. ``hidden`` and
    ``cell`` are the states.
    """
    gates = len(GRU_GATES) if node.op == "gru" else 1
    ends = [1 + gates * part for part in range(5)]
    names = ("input_weights", "hidden_weights", "input_biases", "hidden_biases")
    found: dict[str, range | int] = {name: range(*ends[place : place + 2]) for place, name in enumerate(names)}
    return found | {"hidden": ends[-1], "cell": ends[-1] + 1}


def places(node: Node, name: str) -> range:
    """Return the indices of a layer's operands of one kind."""
    found = places_of(node)[name]
    assert isinstance(found, range)
    return found


def state_places(node: Node) -> tuple[int, int]:
    """Return the indices of the hidden state and of the units' state."""
    if node.op == "unidirectional_sequence_lstm":
        return HIDDEN, CELL
    found = places_of(node)
    hidden, cell = found["hidden"], found["cell"]
    assert isinstance(hidden, int) and isinstance(cell, int)
    return hidden, cell


def product_factors(graph: Graph, node: Node) -> list[tuple[float, float]]:
    """Return two rescaling factors for each gate: one for the products of the input, and one for the products of the
    hidden state.

    Each factor rescales a sum of products to fixed point. The kernel's fixed point has ``FRACTION_BITS`` fractional
    bits of the real value. If the activation is RELU, it has ``STEP_BITS`` fractional bits of a step of the output
    instead.
    """
    hidden, _ = state_places(node)
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    unit = quant.scale * 2.0**-STEP_BITS if node.attrs.get("activation") == "RELU" else 2.0**-FRACTION_BITS
    pairs = zip(places(node, "input_weights"), places(node, "hidden_weights"), strict=True)
    vectors = float(scale_of(graph, node, 0)), float(scale_of(graph, node, hidden))
    return [
        (float(scale_of(graph, node, one)) * vectors[0] / unit, float(scale_of(graph, node, other)) * vectors[1] / unit)
        for one, other in pairs
    ]


def state_factor(graph: Graph, node: Node) -> float:
    """Return the factor that rescales the units' state to the scale of the output."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    return 2.0 ** -state_bits(graph, node) / quant.scale


def state_bits(graph: Graph, node: Node) -> int:
    """Return the number of fractional bits of the units' state."""
    return -round(math.log2(scale_of(graph, node, state_places(node)[1])))


def units_of(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the number of units and the number of outputs of a recurrent layer."""
    is_lstm = node.op == "unidirectional_sequence_lstm"
    place = FIRST_HIDDEN_WEIGHTS + 3 if is_lstm else places(node, "hidden_weights")[0]
    units, outputs = graph.given(node, place).shape
    return units, outputs


def _gated_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    sequences, (cells, outputs) = steps_and_sequences(graph, node)[1], units_of(graph, node)
    shapes = ((*graph.given(node, 0).shape[:2], outputs), (sequences, outputs), (sequences, cells))
    return shapes[: len(node.outputs)]


def _gated_operands(graph: Graph, node: Node) -> str | None:
    reason = int8_reason(graph.given(node, 0), "input") or int8_reason(graph[node.outputs[0]], "output")
    if reason is not None:
        return reason
    inputs, (cells, outputs) = graph.given(node, 0).shape[-1], units_of(graph, node)
    for kind, columns in (("input_weights", inputs), ("hidden_weights", outputs)):
        for place in places(node, kind):
            weights = graph.given(node, place)
            if weights.data is None or weights.dtype is not DType.INT8 or not is_symmetric(weights):
                return (
                    f"its weights '{weights.name}' must be constant int8, quantized per tensor with a zero point of 0"
                )
            if weights.shape != (cells, columns):
                return f"its weights '{weights.name}' have shape {list(weights.shape)}; it must be {[cells, columns]}"
    for place in (*places(node, "input_biases"), *places(node, "hidden_biases")):
        bias = graph.given(node, place)
        if bias.data is None or bias.dtype is not DType.INT32 or bias.elements != cells:
            return f"its bias '{bias.name}' must be constant int32, one value for each unit"
    hidden, cell = (graph.given(node, place) for place in state_places(node))
    if hidden.quant != graph[node.outputs[0]].quant:
        return "its hidden state and its output are quantized in different ways"
    for tensor, dtype in ((hidden, DType.INT8), (cell, DType.INT16)):
        count = steps_and_sequences(graph, node)[1] * cells
        if tensor.dtype is not dtype or tensor.elements != count:
            return (
                f"its state '{tensor.name}' is {tensor.dtype}{list(tensor.shape)}; it must be {dtype} of {count} values"
            )
    if cells != outputs:
        return f"it has {cells} units and {outputs} outputs; the two must be equal"
    if not is_symmetric(cell) or math.frexp(scale_of(graph, node, state_places(node)[1]))[0] != 0.5:
        return f"its state '{cell.name}' must have a scale that is a power of two, and a zero point of 0"
    least = 0 if node.op == "gru" else MOST_STATE_BITS
    if not least <= state_bits(graph, node) <= MOST_STATE_BITS:
        return (
            f"its state '{cell.name}' has {state_bits(graph, node)} fractional bits; a layer of its form has up to 15"
        )
    return None


def _gated_factors(graph: Graph, node: Node) -> list[float]:
    own = state_factor(graph, node)
    return [*(factor for pair in product_factors(graph, node) for factor in pair), own, 1 / own]


def _gated(name: str, gates: tuple[str, ...], doc: str) -> Op:
    def each(kind: str) -> tuple[Operand, ...]:
        return tuple(value_operand(f"{kind} of the {gate} gate", False) for gate in gates)

    return Op(
        name,
        operands=(
            INPUT,
            *(operand for kind in ("input weights", "hidden weights", "bias", "hidden bias") for operand in each(kind)),
            Operand(Role.STATE, "hidden state"),
            Operand(Role.STATE, "units' state"),
        ),
        shape=_gated_shape,
        kernels=("recurrent_s8",),
        attributes=(Attribute("time_major", "timeMajor", False),),
        checks_outputs=False,
        in_litert=False,
        several_outputs=True,
        limits=(
            rank(0, 3, 3),
            limit("constant int8 weights with one scale each", _gated_operands),
            rescales(_gated_factors),
        ),
        doc=doc,
    )


GRU = _gated("gru", GRU_GATES, "PyTorch's GRU over a sequence, with one rounding for each gate and an int16 state.")
RNN = _gated("rnn", ("only",), "PyTorch's RNN over a sequence, with tanh or with ReLU, and one rounding for each step.")

# -- filters ----------------------------------------------------------------------------------------------------------------

FEATURES, TIME, FILTER_BIAS, RESULTS = 1, 2, 3, 4
"""The indices of SVDF's operands: weights of the input, weights of the kept results, bias, and the kept results."""


def filter_factors(graph: Graph, node: Node) -> tuple[float, float]:
    """Return the two rescaling factors of an SVDF: that of the products of a filter, and that of the sum of a unit.
    As in LiteRT, both are computed in float32."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    state = scale_of(graph, node, RESULTS)
    with np.errstate(all="ignore"):  # a file may have any scales; the limits refuse what is too far apart
        first = float(scale_of(graph, node, 0) * scale_of(graph, node, FEATURES) / state)
        return first, float(state * scale_of(graph, node, TIME) / np.float32(quant.scale))


def _svdf_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    filters, sequences = graph.given(node, FEATURES).shape[0], graph.given(node, 0).shape[0]
    return ((sequences, filters // node["rank"]), graph.given(node, RESULTS).shape)[: len(node.outputs)]


def _filters(graph: Graph, node: Node) -> str | None:
    data, output = graph.given(node, 0), graph[node.outputs[0]]
    reason = int8_reason(data, "input") or int8_reason(output, "output")
    if reason is not None:
        return reason
    features, time, kept = graph.given(node, FEATURES), graph.given(node, TIME), graph.given(node, RESULTS)
    if len(features.shape) != 2 or len(time.shape) != 2 or node["rank"] < 1 or features.shape[0] % node["rank"]:
        return f"its weights have {features.shape[0]} filters of rank {node['rank']}; whole units are needed"
    filters = features.shape[0]
    for tensor, types, shape in (
        (features, (DType.INT8,), (filters, data.shape[-1])),
        (time, (kept.dtype,), (filters, time.shape[1])),
    ):
        if tensor.data is None or tensor.dtype not in types or tensor.shape != shape or not is_symmetric(tensor):
            return f"its weights '{tensor.name}' must be constant {types[0]}{list(shape)}, with one scale and a zero point of 0"
    if kept.dtype not in (DType.INT8, DType.INT16) or not is_symmetric(kept):
        return f"its state '{kept.name}' is {kept.dtype}; it must be int8 or int16 with a zero point of 0"
    if kept.elements != data.shape[0] * time.elements:
        return f"its state '{kept.name}' has {kept.elements} values for {data.shape[0]} sequences of {time.elements}"
    bias = graph.operand(node, FILTER_BIAS)
    if bias is not None and (bias.data is None or bias.dtype is not DType.INT32 or bias.elements != output.shape[-1]):
        return f"its bias '{bias.name}' must be constant int32, one value for each unit"
    return None


SVDF = Op(
    "svdf",
    operands=(
        INPUT,
        value_operand("weights of the input", False),
        value_operand("weights of the kept results", False),
        value_operand("bias"),
        Operand(Role.STATE, "kept results"),
    ),
    shape=_svdf_shape,
    kernels=("svdf_s8",),
    options="SVDFOptions",
    attributes=(
        Attribute("rank", "rank", 1),
        Attribute("activation", "fusedActivationFunction", "RELU", {0: "NONE", 1: "RELU"}),
    ),
    checks_outputs=False,
    several_outputs=True,
    limits=(
        rank(0, 2, 2),
        attr_among("activation", "RELU"),
        limit("constant int8 weights, states and their weights both int8 or both int16", _filters),
        rescales(lambda graph, node: list(filter_factors(graph, node))),
    ),
    version=3,
    doc="A layer of filters that keep their newest results, with a state of int8 or int16.",
)

OPS = (UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM, GRU, RNN, SVDF)

_ROWS = {row.name: row for row in OPS}


def state_operands(node: Node) -> list[str]:
    """Return the names of the operands that are a node's states, in the order of the results that are their new values;
    empty for operators without a state."""
    row = _ROWS.get(node.op)
    pairs = zip(node.inputs, row.operands if row is not None else (), strict=False)
    return [name for name, operand in pairs if name is not None and operand.role is Role.STATE]
