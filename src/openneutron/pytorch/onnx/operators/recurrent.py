# SPDX-License-Identifier: BSD-3-Clause
"""LSTM, GRU and RNN.

Where PyTorch's own layer computes the same, the node becomes this layer. Otherwise the steps are written one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts, integers

_GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}
"""The place of each of PyTorch's gates among those of ONNX: input, forget, cell, output; reset, update, new."""

_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softsign": F.softsign,
    "softplus": F.softplus,
}

Array = np.ndarray[Any, Any]


@converts("LSTM", "GRU", "RNN", structure=(1, 2, 3, 4, 7))
def _recurrent(
    node: NodeView,
    x: Tensor,
    weights: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    peepholes: Array | None = None,
) -> Values:
    """Return the outputs of all steps, the last hidden state, and for an LSTM also the last cell state. ``x`` is
    (time, batch, inputs), or (batch, time, inputs) with layout 1."""
    batch_first, directions, hidden = node.get("layout", 0) == 1, weights.shape[0], recurrence.shape[2]
    if batch_first:
        x = x.transpose(0, 1)
        h0, c0 = (None if s is None else s.transpose(0, 1) for s in (h0, c0))
    time, batch = x.shape[:2]
    if lengths is not None and any(length != time for length in integers(lengths)):
        raise Refused("has sequences of different lengths")
    gates = len(_GATES[node.operator])
    if bias is None:
        bias = np.zeros((directions, 2 * gates * hidden), np.float32)
    direction = node.get("direction", "forward")
    given = [name.lower() for name in node.get("activations", _DEFAULTS[node.operator] * directions)]
    usual = given == [name.lower() for name in _DEFAULTS[node.operator]] * directions
    if node.operator == "RNN" and set(given) == {"relu"}:
        usual = True
    plain = usual and peepholes is None and not node.get("clip", 0) and not node.get("input_forget", 0)
    plain = plain and (node.operator != "GRU" or node.get("linear_before_reset", 0) == 1)
    x = x.flip(0) if direction == "reverse" else x
    if plain:
        zeros = torch.zeros(directions, batch, hidden)
        states = zeros if h0 is None else h0, zeros if c0 is None else c0
        outputs, last, cells = _layer(node, given[0], x, weights, recurrence, bias, *states)
        outputs = outputs.reshape(time, batch, directions, hidden).transpose(1, 2)
    else:
        outputs, last, cells = _steps(node, given, x, weights, recurrence, bias, h0, c0, peepholes)
    outputs = outputs.flip(0) if direction == "reverse" else outputs
    if batch_first:
        outputs = outputs.permute(2, 0, 1, 3)
        last, cells = last.transpose(0, 1), None if cells is None else cells.transpose(0, 1)
    return (outputs, last) if cells is None else (outputs, last, cells)


@converts("DynamicQuantizeLSTM", structure=(1, 2, 3, 4, 7, 8, 9, 10, 11), domain="com.microsoft")
def _dynamic_lstm(node: NodeView, x: Tensor, weights: Array, recurrence: Array, *others: Any) -> Values:
    """Return the results of an LSTM with the real values of its weights, which are (directions, inputs, gates) here."""
    bias, lengths, h0, c0, peepholes = others[:5]
    real = [
        ((values.astype(np.float32) - zero.reshape(len(zero), 1, -1)) * scale.reshape(len(scale), 1, -1)).transpose(
            0, 2, 1
        )
        for values, scale, zero in ((weights, *others[5:7]), (recurrence, *others[7:9]))
    ]
    return _recurrent(replace(node, operator="LSTM"), x, *real, bias, lengths, h0, c0, peepholes)


def _in_order(operator: str, array: Array) -> Array:
    """Return an array whose first axis has a part for each gate, with the gates in PyTorch's order."""
    parts = np.split(array, len(_GATES[operator]))
    return np.concatenate([parts[place] for place in _GATES[operator]])


def _layer(
    node: NodeView, activation: str, x: Tensor, weights: Array, recurrence: Array, bias: Array, h0: Tensor, c0: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    operator, parameters = node.operator, []
    for place in range(len(weights)):
        first, second = np.split(bias[place], 2)
        parameters += [
            node.constant(f"{name}_{place}", _in_order(operator, array))
            for name, array in (("w", weights[place]), ("r", recurrence[place]), ("wb", first), ("rb", second))
        ]
    others = (parameters, True, 1, 0.0, False, len(weights) == 2, False)
    if operator == "LSTM":
        outputs, last, cells = torch.lstm(x, (h0, c0), *others)
        return outputs, last, cells
    function = torch.gru if operator == "GRU" else torch.rnn_relu if activation == "relu" else torch.rnn_tanh
    outputs, last = function(x, h0, *others)
    return outputs, last, None


def _plus(value: Tensor, factor: Tensor, state: Tensor | None) -> Tensor:
    """Return ``value`` plus ``factor`` times ``state``, which None states to be zero."""
    return value if state is None else value + factor * state


def _steps(
    node: NodeView,
    given: list[str],
    x: Tensor,
    weights: Array,
    recurrence: Array,
    bias: Array,
    h0: Tensor | None,
    c0: Tensor | None,
    peepholes: Array | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the outputs (time, directions, batch, hidden), the last hidden states, and the last cell states,
    computed step by step.

    If ``h0`` or ``c0`` is None, that state begins at zero. The first step then has no products with it, which would
    only add a rounding.
    """
    if unknown := [name for name in given if name not in _ACTIVATIONS]:
        raise Refused(f"has the activation {unknown[0]}")
    clip, each = node.get("clip", 0.0), len(given) // len(weights)

    def clipped(value: Tensor) -> Tensor:
        return torch.clamp(value, -clip, clip) if clip else value

    rows, lasts, ends = [], [], []
    for place in range(len(weights)):
        f, *rest = (_ACTIVATIONS[name] for name in given[place * each : (place + 1) * each])
        h, c = (None if state is None else state[place] for state in (h0, c0))
        w, r = node.constant(f"w_{place}", weights[place]), node.constant(f"r_{place}", recurrence[place])
        hidden = r.shape[1]
        # Products with the state add no bias: it is part of the product with the input, except behind a GRU's reset gate.
        of_input, of_state = np.split(bias[place], 2)
        behind = 2 * hidden if node.operator == "GRU" and node.get("linear_before_reset", 0) else None
        joined = of_input.copy()
        joined[:behind] += of_state[:behind]
        wb, rb = node.constant(f"wb_{place}", joined), node.constant(f"rb_{place}", of_state[2 * hidden :])
        made: list[Tensor] = []

        def plus_state(value: Tensor, state: Tensor | None, r: Tensor = r) -> Tensor:
            return value if state is None else value + F.linear(state, r)

        order = range(x.shape[0] - 1, -1, -1) if place == 1 else range(x.shape[0])
        for step in order:
            a = F.linear(x[step], w, wb)
            if node.operator == "RNN":
                h = f(clipped(plus_state(a, h)))
            elif node.operator == "GRU":
                g = rest[0]
                gates = plus_state(a.narrow(-1, 0, 2 * hidden), h, r[: 2 * hidden])
                update, reset = (f(clipped(part)) for part in gates.split(hidden, -1))
                new = a.narrow(-1, 2 * hidden, hidden)
                if behind:
                    new = new + reset * (rb if h is None else F.linear(h, r[behind:], rb))
                else:
                    new = plus_state(new, None if h is None else reset * h, r[2 * hidden :])
                h = _plus((1 - update) * g(clipped(new)), update, h)
            else:
                g, k = rest
                ai, ao, af, ac = plus_state(a, h).split(hidden, -1)
                if peepholes is not None:
                    pi, po, pf = (
                        node.constant(f"p_{place}_{number}", part)
                        for number, part in enumerate(np.split(peepholes[place], 3))
                    )
                    ai, af = _plus(ai, pi, c), _plus(af, pf, c)
                i = f(clipped(ai))
                forget = 1 - i if node.get("input_forget", 0) else f(clipped(af))
                c = _plus(i * g(clipped(ac)), forget, c)
                o = f(clipped(ao + po * c if peepholes is not None else ao))
                h = o * k(c)
            made.append(h)
        assert h is not None
        rows.append(torch.stack(made[::-1] if place == 1 else made))
        lasts.append(h)
        ends.append(c)
    cells = torch.stack(ends) if node.operator == "LSTM" else None
    return torch.stack(rows, 1), torch.stack(lasts), cells
