# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers as single operators: one direction of one layer, all steps.

``initial`` is the state before the first step; None means 0. Each operator is a function of PyTorch's own operators, so that PyTorch
decomposes a call that stays on the CPU. Its weights are lists with a tensor for each gate, and each tensor gets a quantization of its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Node

from openneutron.ops.recurrent import HIGHEST_CELL_BITS
from openneutron.pytorch.graph.program import arguments_of

NAMESPACE = "openneutron"

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_LIBRARY.define(
    "lstm(Tensor x, Tensor[] input_weights, Tensor[] hidden_weights, Tensor[] biases, Tensor? projection, "
    "bool batch_first, bool backwards) -> Tensor"
)
_LIBRARY.define(
    "lstm_states(Tensor x, Tensor[] input_weights, Tensor[] hidden_weights, Tensor[] biases, Tensor? projection, "
    "Tensor? hidden, Tensor? cell, bool batch_first, bool backwards) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "gru(Tensor x, Tensor[] input_weights, Tensor[] hidden_weights, Tensor[] biases, Tensor[] hidden_biases, "
    "Tensor? initial, bool batch_first, bool backwards) -> Tensor"
)
_LIBRARY.define(
    "rnn(Tensor x, Tensor[] input_weights, Tensor[] hidden_weights, Tensor[] biases, bool relu, "
    "Tensor? initial, bool batch_first, bool backwards) -> Tensor"
)


LARGEST_CELL = 16
"""A cell state saturates at this magnitude: in int16 its tanh is 1 from 6 on."""


def cell_scale(call: Node) -> float:
    """Return the scale of the int16 cell state of an LSTM's call, a power of two.

    A cell is 0 before the first step, and each step adds at most 1, so that few steps need few integer bits.
    """
    given = arguments_of(call)
    largest = LARGEST_CELL
    if given.get("cell") is None:
        steps = given["x"].meta["val"].shape[1 if given["batch_first"] else 0]
        largest = min(steps, LARGEST_CELL)
    return 2.0 ** (math.ceil(math.log2(largest)) - HIGHEST_CELL_BITS)


def _lstm(
    x: Tensor,
    input_weights: Sequence[Tensor],
    hidden_weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection: Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> Tensor:
    """Return the hidden state after each step. Gates: input, forget, cell, output."""
    layer = input_weights, hidden_weights, biases, projection
    return _lstm_states(x, *layer, None, None, batch_first, backwards)[0]


def _lstm_states(
    x: Tensor,
    input_weights: Sequence[Tensor],
    hidden_weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection: Tensor | None,
    hidden: Tensor | None,
    cell: Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hidden state after each step, and the hidden state and the cell state after the last one.

    The last two have the shapes of the states before the first step, or [1, sequence, unit].
    """
    params = [torch.cat([*input_weights]), torch.cat([*hidden_weights])]
    if biases:
        bias = torch.cat([*biases])
        params += [bias, torch.zeros_like(bias)]
    sequences, units = x.shape[0 if batch_first else 1], hidden_weights[0].shape[0]
    outputs = hidden_weights[0].shape[1]
    if projection is not None:
        params.append(projection)
    shapes = [(1, sequences, outputs), (1, sequences, units)]
    given = list(zip((hidden, cell), shapes, strict=True))
    states = [x.new_zeros(shape) if state is None else state.reshape(shape) for state, shape in given]
    axis = 1 if batch_first else 0
    with warnings.catch_warnings():
        # PyTorch warns that another library would be faster.
        warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN", UserWarning)
        steps = x.flip(axis) if backwards else x
        found, *last = torch.lstm(steps, states, params, bool(biases), 1, 0.0, False, False, batch_first)
    # Delegates pass results without gaps in the order of their axes.
    found = (found.flip(axis) if backwards else found).contiguous()
    after = [
        each.reshape(shape if state is None else state.shape).contiguous()
        for each, (state, shape) in zip(last, given, strict=True)
    ]
    return found, after[0], after[1]


def _gru(
    x: Tensor,
    input_weights: Sequence[Tensor],
    hidden_weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    hidden_biases: Sequence[Tensor],
    initial: Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> Tensor:
    """Return the hidden state after each step. Gates: reset, update, new."""
    params = [torch.cat([*input_weights]), torch.cat([*hidden_weights])]
    if biases:
        params += [torch.cat([*biases]), torch.cat([*hidden_biases])]
    state = _initial(x, initial, batch_first, hidden_weights[0].shape[0])
    return _directed(
        x,
        batch_first,
        backwards,
        lambda x: torch.gru(x, state, params, bool(biases), 1, 0.0, False, False, batch_first)[0],
    )


def _rnn(
    x: Tensor,
    input_weights: Sequence[Tensor],
    hidden_weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    relu: bool,
    initial: Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> Tensor:
    """Return the hidden state after each step."""
    params = [input_weights[0], hidden_weights[0]]
    if biases:
        params += [biases[0], torch.zeros_like(biases[0])]
    state = _initial(x, initial, batch_first, hidden_weights[0].shape[0])
    layer = torch.rnn_relu if relu else torch.rnn_tanh
    return _directed(
        x, batch_first, backwards, lambda x: layer(x, state, params, bool(biases), 1, 0.0, False, False, batch_first)[0]
    )


def _initial(x: Tensor, given: Tensor | None, batch_first: bool, units: int) -> Tensor:
    """Return the state [1, sequence, unit] before the first step: ``given``, or zeros for None."""
    return x.new_zeros(1, x.shape[0 if batch_first else 1], units) if given is None else given


def _directed(x: Tensor, batch_first: bool, backwards: bool, layer: object) -> Tensor:
    axis = 1 if batch_first else 0
    assert callable(layer)
    found = layer(x.flip(axis)).flip(axis) if backwards else layer(x)
    assert isinstance(found, Tensor)
    # Delegates pass results without gaps in the order of their axes.
    return found.contiguous()


for _name, _function in (("lstm", _lstm), ("lstm_states", _lstm_states), ("gru", _gru), ("rnn", _rnn)):
    _LIBRARY.impl(_name, _function, "CompositeImplicitAutograd")
