# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers as LiteRT's operators over sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch.fx import Node

from openneutron.ir import QuantParams, per_tensor
from openneutron.ops.lstm import GATE_SCALE, HIGHEST_CELL_BITS
from openneutron.ops.recurrent import MOST_STATE_BITS
from openneutron.pytorch.graph.program import Reject, arguments_of, shape_of
from openneutron.pytorch.operators.convolution.lower import bias_of
from openneutron.pytorch.operators.recurrent import layers
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.results import Value, plain
from openneutron.pytorch.operators.rules.tables import Layout, always, lowers

LARGEST_CELL = 16
"""The magnitude at which a cell state saturates: its tanh is 1 from 6 on, as far as int16 holds it."""

_UNPROJECTED = (2.0**-7, 0)
"""The quantization of the hidden state in front of a projection: a gate times a tanh, from -1 to 1."""


def _cell_quant(steps: int) -> QuantParams:
    """Return the quantization of a cell state, a power of two: a step adds at most 1, so that few steps need few integer bits."""
    bits = HIGHEST_CELL_BITS - math.ceil(math.log2(min(steps, LARGEST_CELL)))
    return per_tensor(2.0**-bits, 0)


def _constants(context: Context, nodes: Any) -> list[str]:
    """Return the tensors of weights, row by row as PyTorch has them."""
    values = [context.value(node) for node in nodes]
    return [context.arranged(value, tuple(range(len(value.shape)))) for value in values]


@lowers(f"{layers.NAMESPACE}.lstm.default", preserve=always, layout=Layout.OWN)
def lstm(node: Node, context: Context) -> Value | Reject:
    given, shape = arguments_of(node), shape_of(node)
    quant = context.result_quant(node)
    value = context.value(given["x"])
    source = context.arranged(value, (0, 1, 2))
    of_input, of_hidden = _constants(context, given["input_weights"]), _constants(context, given["hidden_weights"])
    cells = context.tensors[of_hidden[0]].shape[0]
    biases = given["biases"] or [None] * len(of_input)
    added = [bias_of(context, bias, source, of, cells) for bias, of in zip(biases, of_input, strict=True)]
    projection = None if given["projection"] is None else _constants(context, [given["projection"]])[0]
    time_axis = 1 if given["batch_first"] else 0
    sequences = shape[1 - time_axis]
    dtype = context.tensors[source].dtype
    zero = np.full((sequences, shape[-1]), quant.zero_point, dtype.numpy)
    hidden = context.add_constant(f"{node.name}_hidden", zero, quant)
    empty = np.zeros((sequences, cells), np.int16)
    cell = context.add_constant(f"{node.name}_cell", empty, _cell_quant(shape[time_axis]))
    unprojected = _UNPROJECTED if projection is not None else (quant.scale, quant.zero_point)
    name = context.emit(
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
    return plain(name, shape)


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
