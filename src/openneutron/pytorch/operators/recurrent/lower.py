# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers as LiteRT's operators over sequences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.ir import DType, QuantParams, Tensor, per_tensor
from openneutron.ops.lstm import CELL, GATE_SCALE, HIDDEN
from openneutron.ops.recurrent import MOST_STATE_BITS
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.graph.rewriting import results_of
from openneutron.pytorch.operators.convolution.lower import bias_of
from openneutron.pytorch.operators.recurrent import layers
from openneutron.pytorch.operators.recurrent.layers import cell_scale
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.results import Shape, Value, plain
from openneutron.pytorch.operators.rules.tables import Layout, always, lowers

_UNPROJECTED = (2.0**-7, 0)
"""The quantization of the hidden state in front of a projection: a gate times a tanh, from -1 to 1."""


def _constants(context: Context, nodes: Any) -> list[str]:
    """Return the tensors of weights, row by row as PyTorch has them."""
    values = [context.value(node) for node in nodes]
    return [context.arranged(value, tuple(range(len(value.shape)))) for value in values]


@lowers(f"{layers.NAMESPACE}.lstm.default", preserve=always, layout=Layout.OWN)
def lstm(node: Node, context: Context) -> Value | Reject:
    quant = context.result_quant(node)
    return plain(_lstm(node, context, shape_of(node), quant, None, None), shape_of(node))


@lowers(f"{layers.NAMESPACE}.lstm_states.default", preserve=always, layout=Layout.OWN)
def lstm_states(node: Node, context: Context) -> Value | Reject:
    # The results are the values of the getitem nodes behind the call.
    given, results = arguments_of(node), results_of(node)
    quant = _hidden_quant(node, context)
    states: list[str | None] = []
    for place, held in (("hidden", quant), ("cell", _cell_quant(node))):
        if given[place] is None:
            states.append(None)
            continue
        dtype = DType.INT16 if place == "cell" else DType.INT8
        value = context.requantized(context.value(given[place]), held, f"{node.name}_{place}", dtype)
        states.append(context.arranged(value, tuple(range(len(value.shape)))))
    shapes = [tuple(int(extent) for extent in value.shape) for value in node.meta["val"]]
    name = _lstm(node, context, shapes[0], quant, *states)
    made = context.nodes[-1]
    own = (context.tensors[made.inputs[HIDDEN] or ""], context.tensors[made.inputs[CELL] or ""])
    after = [
        context.add_tensor(Tensor(context.unique(f"{node.name}_last_{stem}"), shape, like.dtype, like.quant))
        for stem, shape, like in zip(("hidden", "cell"), shapes[1:], own, strict=True)
    ]
    context.nodes[-1] = replace(made, outputs=(name, *after))
    for number, tensor in enumerate((name, *after)):
        for result in results.get(number, ()):
            context.values[result] = plain(tensor, shapes[number])
    return plain(name, shapes[0])


def _lstm(node: Node, context: Context, shape: Shape, quant: QuantParams, hidden: str | None, cell: str | None) -> str:
    """Add the layer and return its output. ``hidden`` and ``cell``: the tensors before the first step; None means 0."""
    given = arguments_of(node)
    value = context.value(given["x"])
    source = context.arranged(value, (0, 1, 2))
    of_input, of_hidden = _constants(context, given["input_weights"]), _constants(context, given["hidden_weights"])
    cells = context.tensors[of_hidden[0]].shape[0]
    biases = given["biases"] or [None] * len(of_input)
    added = [bias_of(context, bias, source, of, cells) for bias, of in zip(biases, of_input, strict=True)]
    projection = None if given["projection"] is None else _constants(context, [given["projection"]])[0]
    sequences, dtype = shape[0 if given["batch_first"] else 1], context.tensors[source].dtype
    if hidden is None:
        zero = np.full(_state_shape(node, 1, (sequences, shape[-1])), quant.zero_point, dtype.numpy)
        hidden = context.add_constant(f"{node.name}_hidden", zero, quant)
    if cell is None:
        empty = np.zeros(_state_shape(node, 2, (sequences, cells)), np.int16)
        cell = context.add_constant(f"{node.name}_cell", empty, _cell_quant(node))
    unprojected = _UNPROJECTED if projection is not None else (quant.scale, quant.zero_point)
    return context.emit(
        "unidirectional_sequence_lstm",
        (source, *of_input, *of_hidden, None, None, None, *added, projection, None, hidden, cell),
        shape,
        quant,
        node.name,
        dtype,
        time_major=not given["batch_first"],
        intermediates=(*((GATE_SCALE, 0),) * 4, unprojected),
        backwards=given["backwards"],
    )


def _hidden_quant(node: Node, context: Context) -> QuantParams:
    """Return the quantization of a hidden state: that of its readers, or that of the state before the first step where only the cell
    state is read."""
    given, results = arguments_of(node), results_of(node)
    read = next((results[place][0] for place in (0, 1) if place in results), None)
    if read is not None:
        return context.result_quant(read)
    if given["hidden"] is not None:
        return context.quant(context.value(given["hidden"]))
    if given["projection"] is not None:
        raise Rejected("its projected hidden state has no reader, so that the scale of this state is unknown")
    return per_tensor(*_UNPROJECTED)


def _state_shape(node: Node, place: int, usual: Shape) -> Shape:
    """Return the shape of a state, which is that of the call's result with the state after the last step."""
    value = node.meta["val"]
    return tuple(int(extent) for extent in value[place].shape) if isinstance(value, (list, tuple)) else usual


def _cell_quant(node: Node) -> QuantParams:
    """Return the quantization of a layer's cell state."""
    return per_tensor(cell_scale(node), 0)


def _state_quant(op: str, quant: QuantParams) -> QuantParams:
    """Return the quantization of the state of a GRU's units, a power of two that holds what the output holds."""
    largest = max(127 - quant.zero_point, 128 + quant.zero_point) * quant.scale
    integer_bits = max(0, math.ceil(math.log2(largest))) if op == "gru" else 0
    return per_tensor(2.0 ** -max(0, MOST_STATE_BITS - integer_bits), 0)


def _gated(op: str, node: Node, context: Context, hidden_biases: Any, **attrs: Any) -> Value:
    given, shape = arguments_of(node), shape_of(node)
    quant = context.result_quant(node)
    source = context.arranged(context.value(given["x"]), (0, 1, 2))
    of_input, of_hidden = _constants(context, given["input_weights"]), _constants(context, given["hidden_weights"])
    units, time_axis = shape[-1], 1 if given["batch_first"] else 0
    sequences = shape[1 - time_axis]
    zero = np.full((sequences, units), quant.zero_point, np.int8)
    hidden = context.add_constant(f"{node.name}_zero", zero, quant)
    empty = np.zeros((sequences, units), np.int16)
    cell = context.add_constant(f"{node.name}_cell", empty, _state_quant(op, quant))
    nothing = [None] * len(of_input)
    added = [
        bias_of(context, bias, vector, of, units)
        for vector, biases, weights in ((source, given["biases"], of_input), (hidden, hidden_biases, of_hidden))
        for bias, of in zip(biases or nothing, weights, strict=True)
    ]
    if given["initial"] is not None:
        value = context.requantized(context.value(given["initial"]), quant, f"{node.name}_initial")
        hidden = context.arranged(value, (0, 1, 2))
        attrs["from_hidden"] = op == "gru"
    operands = (source, *of_input, *of_hidden, *added, hidden, cell)
    attrs |= {"time_major": not given["batch_first"], "backwards": given["backwards"]}
    dtype = context.tensors[source].dtype
    return plain(context.emit(op, operands, shape, quant, node.name, dtype, **attrs), shape)


@lowers(f"{layers.NAMESPACE}.gru.default", preserve=always, layout=Layout.OWN)
def gru(node: Node, context: Context) -> Value | Reject:
    return _gated("gru", node, context, arguments_of(node)["hidden_biases"])


@lowers(f"{layers.NAMESPACE}.rnn.default", preserve=always, layout=Layout.OWN)
def rnn(node: Node, context: Context) -> Value | Reject:
    activation = "RELU" if arguments_of(node)["relu"] else "TANH"
    return _gated("rnn", node, context, (), activation=activation)
