# SPDX-License-Identifier: BSD-3-Clause
"""Layers with a state beside LiteRT's LSTM: PyTorch's GRU and RNN, which LiteRT does not have, and SVDF."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Graph, Node
from openneutron.ops import bidirectional, lstm
from openneutron.ops.limits import attr_among, int8_reason, limit, rank
from openneutron.ops.lstm import is_symmetric, scale_of, steps_and_sequences, value_operand
from openneutron.ops.rescaling import rescales
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Role

GRU_GATES = ("reset", "update", "new")
FRACTION_BITS, STEP_BITS, MOST_STATE_BITS = 20, 12, 15
"""Fractional bits of a layer's products: of a gate, and of an output that is clamped at 0 in steps of its scale; the most of its
units' state."""


def places_of(node: Node) -> dict[str, range | int]:
    """Return the places of the operands of a GRU or RNN: weights and biases of the input, then of the hidden state, by gates."""
    gates = len(GRU_GATES) if node.op == "gru" else 1
    ends = [1 + gates * part for part in range(5)]
    names = ("input_weights", "hidden_weights", "input_biases", "hidden_biases")
    found: dict[str, range | int] = {name: range(*ends[place : place + 2]) for place, name in enumerate(names)}
    return found | {"hidden": ends[-1], "cell": ends[-1] + 1}


def places(node: Node, name: str) -> range:
    """Return the places of a layer's operands of one kind."""
    found = places_of(node)[name]
    assert isinstance(found, range)
    return found


def state_places(node: Node) -> tuple[int, int]:
    """Return the places of the hidden state and of the units' state."""
    if node.op == "unidirectional_sequence_lstm":
        return lstm.HIDDEN, lstm.CELL
    found = places_of(node)
    hidden, cell = found["hidden"], found["cell"]
    assert isinstance(hidden, int) and isinstance(cell, int)
    return hidden, cell


def product_factors(graph: Graph, node: Node) -> list[tuple[float, float]]:
    """Return for each gate the factors of its input's and its hidden state's products, in double."""
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
    """Return the factor from the units' state to the output."""
    quant = graph[node.outputs[0]].quant
    assert quant is not None
    return 2.0 ** -state_bits(graph, node) / quant.scale


def state_bits(graph: Graph, node: Node) -> int:
    """Return the fractional bits of the units' state."""
    return -round(math.log2(scale_of(graph, node, state_places(node)[1])))


def units_of(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the units and the outputs of a recurrent layer."""
    is_lstm = node.op == "unidirectional_sequence_lstm"
    place = lstm.FIRST_HIDDEN_WEIGHTS + 3 if is_lstm else places(node, "hidden_weights")[0]
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
        activations=0,
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
"""The operands of SVDF: weights of the input, weights of the kept results, bias, and these results."""


def filter_factors(graph: Graph, node: Node) -> tuple[float, float]:
    """Return the factors of a filter's products and of a unit's sum, in double of products in float32 as LiteRT computes them."""
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
    activations=0,
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

OPS = (GRU, RNN, SVDF)

_ROWS = {row.name: row for row in (*OPS, *lstm.OPS, *bidirectional.OPS)}


def state_operands(node: Node) -> list[str]:
    """Return the operands that a node takes as its states, in the order of its results for them; none of other operators."""
    row = _ROWS.get(node.op)
    pairs = zip(node.inputs, row.operands if row is not None else (), strict=False)
    return [name for name, operand in pairs if name is not None and operand.role is Role.STATE]
