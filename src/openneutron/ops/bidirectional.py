# SPDX-License-Identifier: BSD-3-Clause
"""Compose an LSTM in both directions of two layers, each with the arithmetic of UNIDIRECTIONAL_SEQUENCE_LSTM.

No interpreter of LiteRT computes BIDIRECTIONAL_SEQUENCE_LSTM on quantized activations (bidirectional_sequence_lstm.cc: float32, and
weights of int8 for activations of float32).
"""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.limits import STORED, attr_among, limit, rank
from openneutron.ops.lstm import GATE_SCALE, GATES, SEEING, value_operand
from openneutron.ops.table import INPUT, Attribute, Op, Operand, Parts, Role

FIRST = (1, 18)
"""The indices of the first weights of both directions."""

VALUES = 17
"""The weights, peepholes and biases of a direction, the projection and its bias behind them."""

STATES = (35, 37)
"""The indices of the hidden states; the cell state follows each of them."""

AUXILIARY = 39
"""The index of the first operand of stacked layers."""

DIRECTIONS = ("forward", "backward")


def _units(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the units of both directions: the columns of the hidden weights of the last gate."""
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
    activations=0,
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

OPS = (BIDIRECTIONAL_SEQUENCE_LSTM,)
