# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and their cells, unrolled over the steps of the sequence.

The contribution of the inputs to all gates of all steps is one linear layer in front of the steps (with both biases). A
step is a linear layer of the hidden state, a sum, and the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.operators.rules.tables import KEPT, Keep, decomposes

MOST_STEPS = 256
"""The limit on unrolled steps, over all directions and layers of a sequence, with about 14 operators each. Longer
layers stay on the CPU: ExecuTorch and the compiler take about 50 ms for each operator."""

State = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A layer's weights in one direction: of the input, of the hidden state, their biases, and of the projection."""

    of_input: Tensor
    of_hidden: Tensor
    bias: Tensor | None = None
    hidden_bias: Tensor | None = None
    projection: Tensor | None = None


Step = Callable[[Tensor, State, Weights], State]
"""A function from the input's contribution to the gates, the state and the weights to the next state. The first part of
the state is the output."""


def _lstm_step(gates: Tensor, state: State, weights: Weights) -> State:
    """Compute the sigmoid of all gates together and ignore that of the cell's gate; this takes fewer calls."""
    hidden, cell = state
    gates = gates + F.linear(hidden, weights.of_hidden)
    extent = cell.shape[-1]
    opened = torch.sigmoid(gates)
    inward, forget, outward = (opened.narrow(-1, place * extent, extent) for place in (0, 1, 3))
    cell = forget * cell + inward * torch.tanh(gates.narrow(-1, 2 * extent, extent))
    hidden = outward * torch.tanh(cell)
    return hidden if weights.projection is None else F.linear(hidden, weights.projection), cell


def _gru_step(gates: Tensor, state: State, weights: Weights) -> State:
    """The hidden state's bias stays with the hidden state, since a gate is multiplied with their sum."""
    (hidden,) = state
    extent = hidden.shape[-1]
    own = F.linear(hidden, weights.of_hidden, weights.hidden_bias)
    opened = torch.sigmoid(gates.narrow(-1, 0, 2 * extent) + own.narrow(-1, 0, 2 * extent))
    reset, update = opened.split(extent, -1)
    new = torch.tanh(gates.narrow(-1, 2 * extent, extent) + reset * own.narrow(-1, 2 * extent, extent))
    return (new + update * (hidden - new),)


def _plain_step(function: Callable[[Tensor], Tensor]) -> Step:
    return lambda gates, state, weights: (function(gates + F.linear(state[0], weights.of_hidden)),)


STEPS: dict[str, Step] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _plain_step(torch.tanh),
    "rnn_relu": _plain_step(torch.relu),
}
"""The cells by the layer's name."""


def _gates(kind: str, x: Tensor, weights: Weights) -> Tensor:
    """Return the input's contribution to the gates, with both biases where the step adds none."""
    bias = weights.bias
    if bias is not None and weights.hidden_bias is not None and kind != "gru":
        bias = bias + weights.hidden_bias
    return F.linear(x, weights.of_input, bias)


def _layer(kind: str, x: Tensor, state: State, weights: Weights, backwards: bool) -> tuple[Tensor, State]:
    """Run one direction of one layer on x [steps, batch, values]; return the outputs and the last state [1, batch,
    values]."""
    gates = _gates(kind, x, weights).split(1)
    outputs: list[Tensor] = []
    for here in reversed(gates) if backwards else gates:
        state = STEPS[kind](here, state, weights)
        outputs.append(state[0])
    return torch.cat(outputs[::-1] if backwards else outputs), state


def _layers(
    kind: str, x: Tensor, states: Sequence[Tensor], params: Sequence[Weights], bidirectional: bool
) -> tuple[Tensor, ...]:
    """Run all layers on x [steps, batch, values]; states: [layers * directions, batch, values] each."""
    first = list(zip(*(state.split(1) for state in states), strict=True))
    last: list[State] = []
    for place in range(0, len(params), 1 + bidirectional):
        results = []
        for direction in range(1 + bidirectional):
            one = place + direction
            outputs, state = _layer(kind, x, first[one], params[one], bool(direction))
            results.append(outputs)
            last.append(state)
        x = torch.cat(results, -1) if bidirectional else results[0]
    return x, *(torch.cat(parts) for parts in zip(*last, strict=True))


def _weights(params: Sequence[Tensor], has_biases: bool, has_projection: bool) -> list[Weights]:
    each = (4 if has_biases else 2) + has_projection
    found = []
    for place in range(0, len(params), each):
        own = params[place : place + each]
        bias, hidden_bias = (own[2], own[3]) if has_biases else (None, None)
        found.append(Weights(own[0], own[1], bias, hidden_bias, own[-1] if has_projection else None))
    return found


def _unrolled(
    kind: str,
    input: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...] | Keep:
    alone = input.dim() == 2
    runs = input.shape[1 if batch_first and not alone else 0] * states[0].shape[0]
    if runs > MOST_STEPS:
        return Keep(
            f"it has {runs} steps, over all its layers and directions; up to {MOST_STEPS} are unrolled",
            "Give it shorter sequences, and its state from call to call.",
        )
    if train or not runs or input.dtype != torch.float32:
        return KEPT
    if alone:
        input, states = input.unsqueeze(1), [state.unsqueeze(1) for state in states]
    elif batch_first:
        input = input.transpose(0, 1)
    has_projection = len({state.shape[-1] for state in states}) > 1
    output, *last = _layers(kind, input, states, _weights(params, has_biases, has_projection), bidirectional)
    if alone:
        return output.squeeze(1), *(state.squeeze(1) for state in last)
    return output.transpose(0, 1) if batch_first else output, *last


def _sequence(kind: str) -> Callable[..., tuple[Tensor, ...] | Keep]:
    def rule(
        input: Tensor,
        hx: Tensor | Sequence[Tensor],
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...] | Keep:
        del num_layers
        states = [hx] if isinstance(hx, Tensor) else hx
        return _unrolled(kind, input, states, params, has_biases, train and dropout > 0, bidirectional, batch_first)

    return rule


def _cell(kind: str) -> Callable[..., Tensor | State]:
    def rule(
        input: Tensor,
        hx: Tensor | Sequence[Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
    ) -> Tensor | State:
        weights = Weights(w_ih, w_hh, b_ih, b_hh)
        state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        following = STEPS[kind](_gates(kind, input, weights), state, weights)
        return following[0] if len(following) == 1 else following

    return rule


for _kind in STEPS:
    decomposes(f"aten.{_kind}.input")(_sequence(_kind))
    decomposes(f"aten.{_kind}_cell.default")(_cell(_kind))
