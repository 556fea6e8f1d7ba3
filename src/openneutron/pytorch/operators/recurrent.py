# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and their cells.

A layer is one of LiteRT's operators over sequences, or it is unrolled over the steps of the sequence. Unrolled, the contribution of the
inputs to all gates of all steps is one linear layer in front of the steps (with both biases), and a step is a linear layer of
the hidden state, a sum, and the gates.
Each weight of each gate has a scale. A bias has the scale of the product that it is added to.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.fx import Node

from openneutron.ir import DType, QuantParams, Tensor, per_tensor
from openneutron.ops.recurrent import CELL, GATE_SCALE, HIDDEN, HIGHEST_CELL_BITS, MOST_STATE_BITS
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.graph.rewriting import results_of
from openneutron.pytorch.operators.annotations import AnnotationRule, Kept, annotates
from openneutron.pytorch.operators.convolution import bias_of
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, plain
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, always, decomposes, lowers

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
"""The magnitude at which a cell state saturates. In int16, its tanh is 1 from 6 on."""


def cell_scale(call: Node) -> float:
    """Return the scale of the int16 cell state of an LSTM call, a power of two.

    A call with an initial cell state gets the range up to ``LARGEST_CELL``. Without one, the state begins at 0 and
    each step adds at most 1, so that the range goes up to min(steps, ``LARGEST_CELL``).
    """
    given = arguments_of(call)
    largest = LARGEST_CELL
    if given.get("cell") is None:
        steps = given["x"].meta["val"].shape[1 if given["batch_first"] else 0]
        largest = min(steps, LARGEST_CELL)
    return 2.0 ** (math.ceil(math.log2(largest)) - HIGHEST_CELL_BITS)


def _lstm_layer(
    x: torch.Tensor,
    input_weights: Sequence[torch.Tensor],
    hidden_weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    projection: torch.Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> torch.Tensor:
    """Return the hidden state after each step. Gates: input, forget, cell, output."""
    layer = input_weights, hidden_weights, biases, projection
    return _lstm_states(x, *layer, None, None, batch_first, backwards)[0]


def _lstm_states(
    x: torch.Tensor,
    input_weights: Sequence[torch.Tensor],
    hidden_weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    projection: torch.Tensor | None,
    hidden: torch.Tensor | None,
    cell: torch.Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the hidden state after each step, the final hidden state and the final cell state.

    A final state has the shape of the initial state (``hidden`` or ``cell``). If that is None, the shape is [1,
    sequences, units].
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
    x: torch.Tensor,
    input_weights: Sequence[torch.Tensor],
    hidden_weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    hidden_biases: Sequence[torch.Tensor],
    initial: torch.Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> torch.Tensor:
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
    x: torch.Tensor,
    input_weights: Sequence[torch.Tensor],
    hidden_weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    relu: bool,
    initial: torch.Tensor | None,
    batch_first: bool,
    backwards: bool,
) -> torch.Tensor:
    """Return the hidden state after each step."""
    params = [input_weights[0], hidden_weights[0]]
    if biases:
        params += [biases[0], torch.zeros_like(biases[0])]
    state = _initial(x, initial, batch_first, hidden_weights[0].shape[0])
    layer = torch.rnn_relu if relu else torch.rnn_tanh
    return _directed(
        x, batch_first, backwards, lambda x: layer(x, state, params, bool(biases), 1, 0.0, False, False, batch_first)[0]
    )


def _initial(x: torch.Tensor, given: torch.Tensor | None, batch_first: bool, units: int) -> torch.Tensor:
    """Return the state [1, sequence, unit] before the first step: ``given``, or zeros for None."""
    return x.new_zeros(1, x.shape[0 if batch_first else 1], units) if given is None else given


def _directed(x: torch.Tensor, batch_first: bool, backwards: bool, layer: object) -> torch.Tensor:
    axis = 1 if batch_first else 0
    assert callable(layer)
    found = layer(x.flip(axis)).flip(axis) if backwards else layer(x)
    assert isinstance(found, torch.Tensor)
    # Delegates pass results without gaps in the order of their axes.
    return found.contiguous()


for _name, _function in (("lstm", _lstm_layer), ("lstm_states", _lstm_states), ("gru", _gru), ("rnn", _rnn)):
    _LIBRARY.impl(_name, _function, "CompositeImplicitAutograd")


def _products(node: Node) -> Iterator[tuple[Node, Node | None]]:
    """Yield each weight of the layer with its bias, or with None. The scale of a bias is (input scale * weight scale)."""
    _, of_input, of_hidden, biases, *_ = node.args
    yield from zip(of_input, biases or [None] * len(of_input), strict=True)
    yield from ((weight, None) for weight in of_hidden)


def _lstm_products(node: Node) -> Iterator[tuple[Node, Node | None]]:
    yield from _products(node)
    if _is_projected(node):
        yield node.args[4], None


def _is_projected(node: Node) -> bool:
    return isinstance(node.args[4], Node)


def _any(_node: Node) -> bool:
    return True


annotates(
    {
        f"{NAMESPACE}.lstm.default": AnnotationRule(products=_lstm_products, int8_alone=_is_projected),
        f"{NAMESPACE}.lstm_states.default": AnnotationRule(
            (0, 5),
            products=_lstm_products,
            state=5,
            int8_alone=_any,
            kept=Kept(argument=6, result=2, scale=cell_scale),
        ),
        f"{NAMESPACE}.gru.default": AnnotationRule((0, 5), products=_products, state=5, int8_alone=_any),
        f"{NAMESPACE}.rnn.default": AnnotationRule((0, 5), products=_products, state=5, int8_alone=_any),
    }
)


MOST_STEPS = 256
"""The limit on unrolled steps, over all directions and layers of a sequence, with about 14 operators each. Longer
layers stay on the CPU: ExecuTorch and the compiler take about 50 ms for each operator."""

State = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A layer's weights in one direction: of the input, of the hidden state, their biases, and of the projection."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection: torch.Tensor | None = None


Step = Callable[[torch.Tensor, State, Weights], State]
"""A function from the input's contribution to the gates, the state and the weights to the next state. The first part of
the state is the output."""


def _lstm_step(gates: torch.Tensor, state: State, weights: Weights) -> State:
    """Compute the sigmoid of all gates together and ignore that of the cell's gate; this takes fewer calls."""
    hidden, cell = state
    gates = gates + F.linear(hidden, weights.of_hidden)
    extent = cell.shape[-1]
    opened = torch.sigmoid(gates)
    inward, forget, outward = (opened.narrow(-1, place * extent, extent) for place in (0, 1, 3))
    cell = forget * cell + inward * torch.tanh(gates.narrow(-1, 2 * extent, extent))
    hidden = outward * torch.tanh(cell)
    return hidden if weights.projection is None else F.linear(hidden, weights.projection), cell


def _gru_step(gates: torch.Tensor, state: State, weights: Weights) -> State:
    """Compute the next state. The hidden bias is added to the product of the hidden state, since the reset gate multiplies
    that sum."""
    (hidden,) = state
    extent = hidden.shape[-1]
    own = F.linear(hidden, weights.of_hidden, weights.hidden_bias)
    opened = torch.sigmoid(gates.narrow(-1, 0, 2 * extent) + own.narrow(-1, 0, 2 * extent))
    reset, update = opened.split(extent, -1)
    new = torch.tanh(gates.narrow(-1, 2 * extent, extent) + reset * own.narrow(-1, 2 * extent, extent))
    return (new + update * (hidden - new),)


def _plain_step(function: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    return lambda gates, state, weights: (function(gates + F.linear(state[0], weights.of_hidden)),)


STEPS: dict[str, Step] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _plain_step(torch.tanh),
    "rnn_relu": _plain_step(torch.relu),
}
"""The cells by the layer's name."""


def _gates(kind: str, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Return the input's contribution to the gates, with both biases where the step adds none."""
    bias = weights.bias
    if bias is not None and weights.hidden_bias is not None and kind != "gru":
        bias = bias + weights.hidden_bias
    return F.linear(x, weights.of_input, bias)


def _layer(kind: str, x: torch.Tensor, state: State, weights: Weights, backwards: bool) -> tuple[torch.Tensor, State]:
    """Run one direction of one layer on x [steps, batch, values]; return the outputs and the last state [1, batch,
    values]."""
    gates = _gates(kind, x, weights).split(1)
    outputs: list[torch.Tensor] = []
    for here in reversed(gates) if backwards else gates:
        state = STEPS[kind](here, state, weights)
        outputs.append(state[0])
    return torch.cat(outputs[::-1] if backwards else outputs), state


def _layers(
    kind: str, x: torch.Tensor, states: Sequence[torch.Tensor], params: Sequence[Weights], bidirectional: bool
) -> tuple[torch.Tensor, ...]:
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


def _weights(params: Sequence[torch.Tensor], has_biases: bool, has_projection: bool) -> list[Weights]:
    each = (4 if has_biases else 2) + has_projection
    found = []
    for place in range(0, len(params), each):
        own = params[place : place + each]
        bias, hidden_bias = (own[2], own[3]) if has_biases else (None, None)
        found.append(Weights(own[0], own[1], bias, hidden_bias, own[-1] if has_projection else None))
    return found


def _unrolled(
    kind: str,
    input: torch.Tensor,
    states: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...] | Keep:
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


def _sequence(kind: str) -> Callable[..., tuple[torch.Tensor, ...] | Keep]:
    def rule(
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...] | Keep:
        del num_layers
        states = [hx] if isinstance(hx, torch.Tensor) else hx
        return _unrolled(kind, input, states, params, has_biases, train and dropout > 0, bidirectional, batch_first)

    return rule


def _cell(kind: str) -> Callable[..., torch.Tensor | State]:
    def rule(
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None,
        b_hh: torch.Tensor | None,
    ) -> torch.Tensor | State:
        weights = Weights(w_ih, w_hh, b_ih, b_hh)
        state = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        following = STEPS[kind](_gates(kind, input, weights), state, weights)
        return following[0] if len(following) == 1 else following

    return rule


for _kind in STEPS:
    decomposes(f"aten.{_kind}.input")(_sequence(_kind))
    decomposes(f"aten.{_kind}_cell.default")(_cell(_kind))


_UNPROJECTED = (2.0**-7, 0)
"""The quantization of the hidden state in front of a projection: a gate times a tanh, from -1 to 1."""


def _constants(context: Context, nodes: Any) -> list[str]:
    """Return the tensors of weights, row by row as PyTorch has them."""
    values = [context.value(node) for node in nodes]
    return [context.arranged(value, tuple(range(len(value.shape)))) for value in values]


@lowers(f"{NAMESPACE}.lstm.default", preserve=always, layout=Layout.OWN, emits=("unidirectional_sequence_lstm",))
def lstm(node: Node, context: Context) -> Value | Reject:
    quant = context.results.quant(node)
    return plain(_lstm(node, context, shape_of(node), quant, None, None), shape_of(node))


@lowers(
    f"{NAMESPACE}.lstm_states.default",
    preserve=always,
    layout=Layout.OWN,
    emits=("unidirectional_sequence_lstm",),
)
def lstm_states(node: Node, context: Context) -> Value | Reject:
    # The results are the values of the getitem nodes that read the call.
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
    """Return the quantization of an LSTM's hidden state: that of the nodes that read it. If none does, it is that of
    the initial hidden state. If there is no initial state either, it is ``_UNPROJECTED``, and Rejected is raised for
    a projected state."""
    given, results = arguments_of(node), results_of(node)
    read = next((results[place][0] for place in (0, 1) if place in results), None)
    if read is not None:
        return context.results.quant(read)
    if given["hidden"] is not None:
        return context.quant(context.value(given["hidden"]))
    if given["projection"] is not None:
        raise Rejected("its projected hidden state has no reader, so that the scale of this state is unknown")
    return per_tensor(*_UNPROJECTED)


def _state_shape(node: Node, place: int, usual: Shape) -> Shape:
    """Return the shape of a state: that of result ``place`` of the call, or ``usual`` if the call has a single result."""
    value = node.meta["val"]
    return tuple(int(extent) for extent in value[place].shape) if isinstance(value, (list, tuple)) else usual


def _cell_quant(node: Node) -> QuantParams:
    """Return the quantization of a layer's cell state."""
    return per_tensor(cell_scale(node), 0)


def _state_quant(op: str, quant: QuantParams) -> QuantParams:
    """Return the quantization of the int16 state of a GRU or RNN, whose scale is a power of two.

    For a GRU, its range includes that of the output, which has the quantization ``quant``.
    """
    largest = max(127 - quant.zero_point, 128 + quant.zero_point) * quant.scale
    integer_bits = max(0, math.ceil(math.log2(largest))) if op == "gru" else 0
    return per_tensor(2.0 ** -max(0, MOST_STATE_BITS - integer_bits), 0)


def _gated(op: str, node: Node, context: Context, hidden_biases: Any, **attrs: Any) -> Value:
    given, shape = arguments_of(node), shape_of(node)
    quant = context.results.quant(node)
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


@lowers(f"{NAMESPACE}.gru.default", preserve=always, layout=Layout.OWN, emits=("gru",))
def gru(node: Node, context: Context) -> Value | Reject:
    return _gated("gru", node, context, arguments_of(node)["hidden_biases"])


@lowers(f"{NAMESPACE}.rnn.default", preserve=always, layout=Layout.OWN, emits=("rnn",))
def rnn(node: Node, context: Context) -> Value | Reject:
    activation = "RELU" if arguments_of(node)["relu"] else "TANH"
    return _gated("rnn", node, context, (), activation=activation)
