# SPDX-License-Identifier: BSD-3-Clause
"""Replace each direction of each recurrent layer by a single operator, and unrolled loops of cells by layers over all steps."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import arguments_of, is_functional
from openneutron.pytorch.graph.rewriting import NodePass, Pass, add_call, add_constant, constant_of, finished, replace
from openneutron.pytorch.operators import recurrent as layers

_aten = torch.ops.aten


_own = getattr(torch.ops, layers.NAMESPACE)

assert layers.NAMESPACE == "openneutron"


CELLS = (_aten.lstm_cell.default, _aten.gru_cell.default, _aten.rnn_tanh_cell.default, _aten.rnn_relu_cell.default)
"""The operators of a single step. Their inputs and states have no axis of steps."""


Param: TypeAlias = torch.Tensor | Node
"""A parameter of a layer: its value, or in training the node that reads it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """The parameters of one direction of one layer: weights, both biases, and the projection."""

    of_input: Param
    of_hidden: Param
    biases: tuple[Param, Param] | None
    projection: Param | None


@dataclass(frozen=True, slots=True)
class WholeLayers(NodePass):
    """Replace each call of an LSTM, GRU, RNN or one of their cells by one operator for each direction of each stacked
    layer. The weights must be constant.

    training: the weights of the gates are slices of the layer's parameters instead of copies, so that training
    updates the parameters.
    """

    training: bool = False

    targets = (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input, *CELLS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        call = _Call.of(module, node, self.training)
        if call is None:
            return False
        call.replace()
        return True


@dataclass(slots=True, eq=False)
class _Call:
    """A call of a layer. The operators that replace it are inserted before it."""

    module: GraphModule
    node: Node
    given: dict[str, Any]
    directions: list[_Direction]
    initial: tuple[Node | None, ...]
    """The initial hidden state, and for an LSTM the initial cell state. None: the state is 0."""

    @classmethod
    def of(cls, module: GraphModule, node: Node, training: bool) -> _Call | None:
        """Return the call if it can be replaced, else None.

        Its parameters must be constant. Its input must be a float32 tensor of fixed shape that has elements. A call
        with dropout in training can't be replaced.
        """
        given = _as_layer(arguments_of(node)) if node.target in CELLS else arguments_of(node)
        x = given["input"].meta.get("val")
        states = given["hx"] if isinstance(given["hx"], (list, tuple)) else [given["hx"]]
        found = [constant_of(module, param) for param in given["params"]]
        if any(param is None for param in found) or not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return None
        fixed = all(isinstance(extent, int) and extent > 0 for extent in x.shape)
        if not fixed or (given["train"] and given["dropout"] > 0):
            return None
        widths = {state.meta["val"].shape[-1] for state in states}
        initial = tuple(None if _is_zero(module, state) else state for state in states)
        params = given["params"] if training else found
        return cls(module, node, given, _directions(params, given["has_biases"], len(widths) > 1), initial)

    def _add(self, target: Any, *args: object) -> Node:
        return add_call(self.module, self.node, target, *args)

    def _constants(self, stem: str, values: Sequence[torch.Tensor]) -> list[Node]:
        return [
            add_constant(self.module, self.node, f"{self.node.name}_{stem}{number}", value.contiguous())
            for number, value in enumerate(values)
        ]

    def _gates(self, stem: str, param: Param, gates: int) -> list[Node]:
        """Return the slice of a parameter for each gate."""
        if not isinstance(param, Node):
            return self._constants(stem, param.chunk(gates))
        rows = param.meta["val"].shape[0] // gates
        places = [(gate * rows, (gate + 1) * rows) for gate in range(gates)]
        return [self._add(_aten.slice.Tensor, param, 0, first, end) for first, end in places]

    def replace(self) -> None:
        """Replace the call by the operators."""
        if self.node.target in CELLS:
            self._replace_cell()
            return
        alone = self.given["input"].meta["val"].dim() == 2
        batch_first = self.given["batch_first"] and not alone
        x = self.given["input"]
        if alone:
            x = self._add(_aten.unsqueeze.default, x, 1)
        both = 1 + self.given["bidirectional"]
        last: list[tuple[Node, ...]] = []
        for place in range(0, len(self.directions), both):
            outputs = []
            for turned, direction in enumerate(self.directions[place : place + both]):
                last.append(self._direction(place + turned, x, direction, batch_first, bool(turned)))
                outputs.append(last[-1][0])
            x = outputs[0] if both == 1 else self._add(_aten.cat.default, outputs, 2)
        results = [self._add(_aten.squeeze.dim, x, 1) if alone else x]
        if self._reads(1):
            results.append(self._joined(self._last(each, batch_first, at, both) for at, each in enumerate(last)))
        results += results[-1:] * (2 - len(results))
        results.append(self._joined(each[2] for each in last) if self._reads(2) else results[0])
        replace(self.node, results)

    def _reads(self, place: int) -> bool:
        """Return whether another node reads the result at index ``place`` of the call."""
        return any(user.args[1] == place and user.users for user in self.node.users)

    def _joined(self, parts: Iterable[Node]) -> Node:
        """Return the final states of all directions and layers as one tensor with the shape of the call's result."""
        states = list(parts)
        final = states[0] if len(states) == 1 else self._add(_aten.cat.default, states, 0)
        alone = self.given["input"].meta["val"].dim() == 2
        return self._add(_aten.squeeze.dim, final, 1) if alone and final.meta["val"].dim() == 3 else final

    def _replace_cell(self) -> None:
        x = self._add(_aten.unsqueeze.default, self.given["input"], 0)
        if self.node.target is _aten.lstm_cell.default:
            _, *states = self._direction(0, x, self.directions[0], False, False)
            replace(self.node, [self._in_place_of(each) for each in states])
            return
        if self.initial[0] is not None:
            self.initial = (self._add(_aten.unsqueeze.default, self.initial[0], 0),)
        (result,) = self._direction(0, x, self.directions[0], False, False)
        replace(self.node, self._add(_aten.squeeze.dim, result, 0))

    def _in_place_of(self, state: Node) -> Node:
        """Return a cell's state as [sequence, unit]. A state that begins with zeros has an axis of layers, which is removed."""
        return self._add(_aten.squeeze.dim, state, 0) if state.meta["val"].dim() == 3 else state

    def _direction(
        self, number: int, x: Node, direction: _Direction, batch_first: bool, backwards: bool
    ) -> tuple[Node, ...]:
        """Return a tuple of nodes for one direction of one layer. The first node has the hidden states after all
        steps.

        For an LSTM cell, and for an LSTM whose cell state is read or whose initial states are not all 0, the hidden
        state and the cell state after the last step follow.
        """
        kind = str(self.node.target).split(".")[1].removesuffix("_cell")
        gates = {"lstm": 4, "gru": 3}.get(kind, 1)
        of_input = self._gates(f"{number}_w", direction.of_input, gates)
        of_hidden = self._gates(f"{number}_r", direction.of_hidden, gates)
        added, hidden_added = self._biases(f"{number}_b", direction, kind, gates)
        operands: list[object] = [x, of_input, of_hidden, added]
        if kind == "lstm":
            projected = direction.projection
            operands.append(None if projected is None else self._gates(f"{number}_p", projected, 1)[0])
            is_cell = self.node.target is _aten.lstm_cell.default
            if is_cell or self._reads(2) or any(state is not None for state in self.initial):
                states = [self._of_direction(state, number) for state in self.initial]
                call = self._add(_own.lstm_states.default, *operands, *states, batch_first, backwards)
                return tuple(self._add(operator.getitem, call, place) for place in range(3))
            target = _own.lstm.default
        elif kind == "gru":
            operands += [hidden_added, self._initial(number)]
            target = _own.gru.default
        else:
            operands += [kind == "rnn_relu", self._initial(number)]
            target = _own.rnn.default
        return (self._add(target, *operands, batch_first, backwards),)

    def _initial(self, number: int) -> Node | None:
        """Return the state of a direction before its first step, as [1, sequence, unit]; None if it is 0."""
        (state,) = self.initial
        if state is not None and state.meta["val"].dim() == 2:
            state = self._add(_aten.unsqueeze.default, state, 1)
        return self._of_direction(state, number)

    def _of_direction(self, state: Node | None, number: int) -> Node | None:
        """Return the part of a state that belongs to one direction of one layer; None if the state is None."""
        if state is None or len(self.directions) == 1:
            return state
        return self._add(_aten.slice.Tensor, state, 0, number, number + 1)

    def _biases(self, stem: str, direction: _Direction, kind: str, gates: int) -> tuple[list[Node], list[Node]]:
        """Return two lists with one bias for each gate: those added to the products with the input, and those added
        to the products with the hidden state.

        PyTorch has two biases for each gate. The first list has their sums, and the second list is empty. For a GRU,
        the second list is 0 except for the last gate, whose two biases stay separate: another gate multiplies the
        product with the hidden state together with its bias. Both lists are empty for a layer without biases.
        """
        if direction.biases is None:
            return [], []
        one, other = direction.biases
        if isinstance(one, Node) or isinstance(other, Node):
            return self._trained_biases(stem, self._gates(stem, one, gates), self._gates(stem, other, gates), kind)
        if kind != "gru":
            return self._constants(stem, (one + other).chunk(gates)), []
        alone = other.clone()
        alone[: -one.numel() // gates] = 0
        added, hidden = (one + other - alone).chunk(gates), alone.chunk(gates)
        return self._constants(stem, added), self._constants(f"{stem}_hidden", hidden)

    def _trained_biases(
        self, stem: str, ones: list[Node], others: list[Node], kind: str
    ) -> tuple[list[Node], list[Node]]:
        added = [self._add(_aten.add.Tensor, *pair) for pair in zip(ones, others, strict=True)]
        if kind != "gru":
            return added, []
        zeros = self._constants(f"{stem}_hidden", [torch.zeros(ones[0].meta["val"].shape)] * 2)
        return [*added[:2], ones[2]], [*zeros, others[2]]

    def _last(self, results: tuple[Node, ...], batch_first: bool, number: int, both: int) -> Node:
        """Return the hidden state of a direction after the last step as [1, sequence, unit]."""
        if len(results) > 1:
            return results[1]
        (outputs,) = results
        axis = 1 if batch_first else 0
        step = 0 if number % both else outputs.meta["val"].shape[axis] - 1
        state = self._add(_aten.slice.Tensor, outputs, axis, step, step + 1)
        return self._add(_aten.transpose.int, state, 0, 1) if batch_first else state


def _as_layer(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a cell as arguments of a layer."""
    biases = [bias for bias in (given["b_ih"], given["b_hh"]) if bias is not None]
    params = [given["w_ih"], given["w_hh"], *biases]
    plain = {"train": False, "dropout": 0.0, "bidirectional": False, "batch_first": False}
    return {**given, **plain, "params": params, "has_biases": bool(biases)}


def _is_zero(module: GraphModule, node: Node) -> bool:
    if node.target is _aten.zeros.default:
        return True
    value = constant_of(module, node)
    return value is not None and not bool(value.any())


def _directions(params: Sequence[Any], has_biases: bool, has_projection: bool) -> list[_Direction]:
    each = (4 if has_biases else 2) + has_projection
    found = []
    for place in range(0, len(params), each):
        own = params[place : place + each]
        biases = (own[2], own[3]) if has_biases else None
        found.append(_Direction(own[0], own[1], biases, own[-1] if has_projection else None))
    return found


LAYERS = dict(zip(CELLS, (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input), strict=True))
"""The layer that replaces each cell."""


@dataclass(frozen=True, slots=True)
class CellLoops(Pass):
    """Replace a chain of calls of one cell by a layer over all steps. Each call of the chain reads the states that the previous call
    returns.

    The inputs of the cell must not depend on its results, and no other node may read a cell state between two steps.
    """

    targets = CELLS

    def __call__(self, module: GraphModule) -> PassResult:
        calls = (node for node in module.graph.nodes if node.op == "call_function" and node.target in CELLS)
        cells = [node for node in calls if not self.is_kept(node)]
        changed = False
        for chain in _chains(cells):
            changed |= _replace(module, chain)
        return finished(module, changed)


def _states(cell: Node) -> list[Any]:
    """Return the arguments of a cell that are its states before the step."""
    given = arguments_of(cell)["hx"]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _weights(cell: Node) -> list[object]:
    """Return a key for the weights of a cell call. Calls with the same weights have equal keys."""
    given = arguments_of(cell)
    params = [given[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    return [cell.target, *(param.target if isinstance(param, Node) else param for param in params)]


def _results(cell: Node) -> list[list[Node]]:
    """Return for each state of a cell the nodes that have its value after the step. For a cell with one state this is the call itself."""
    if cell.target is not _aten.lstm_cell.default:
        return [[cell]]
    return [[user for user in cell.users if user.args[1] == place] for place in range(2)]


def _follows(later: Node, earlier: Node) -> bool:
    """Return whether ``later`` is the step after ``earlier``, and nothing else reads the cell state between them."""
    states, results = _states(later), _results(earlier)
    if len(states) != len(results) or _weights(later) != _weights(earlier):
        return False
    if not all(state in nodes for state, nodes in zip(states, results, strict=True)):
        return False
    if len(results) > 1 and any(user is not later for node in results[1] for user in node.users):
        return False
    return bool(later.args[0].meta["val"].shape == earlier.args[0].meta["val"].shape)


def _chains(cells: Sequence[Node]) -> Iterable[list[Node]]:
    """Yield the longest chains of steps, each of at least two."""
    next_of: dict[Node, Node] = {}
    for place, earlier in enumerate(cells):
        found = [later for later in cells[place + 1 :] if earlier in _sources(later) and _follows(later, earlier)]
        if len(found) == 1:
            next_of[earlier] = found[0]
    later_ones = set(next_of.values())
    for first in cells:
        if first in later_ones:
            continue
        chain = [first]
        while chain[-1] in next_of:
            chain.append(next_of[chain[-1]])
        if len(chain) > 1:
            yield chain


def _sources(cell: Node) -> list[Node]:
    """Return the nodes that compute the states of a cell, past getitem nodes."""
    states = [state for state in _states(cell) if isinstance(state, Node)]
    return [state.all_input_nodes[0] if state.target is operator.getitem else state for state in states]


def _replace(module: GraphModule, chain: Sequence[Node]) -> bool:
    """Replace the cells of a chain by one layer over all steps, and return True.

    Change nothing and return False if a step's input depends on a result of these cells, or on an operator after the
    first cell that changes a tensor in place. Such nodes can't be moved before the layer.
    """
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    inputs = [cell.args[0] for cell in chain]
    moved = _needed_earlier(inputs, chain, order)
    if moved is None:
        return False
    first = chain[0]
    for node in moved:
        first.prepend(node)
    steps, batch_first = _sequence(module, first, inputs)
    given, states = arguments_of(first), _states(first)
    stacked = [_of_layer(module, first, state) for state in states]
    biases = [bias for bias in (given["b_ih"], given["b_hh"]) if bias is not None]
    params = [given["w_ih"], given["w_hh"], *biases]
    options = (bool(biases), 1, 0.0, False, False, batch_first)
    hx = stacked if len(stacked) > 1 else stacked[0]
    layer = add_call(module, first, LAYERS[first.target], steps, hx, params, *options)
    outputs, *last = (add_call(module, first, operator.getitem, layer, place) for place in range(1 + len(states)))
    _hand_over(module, chain, outputs, last, batch_first)
    return True


def _of_layer(module: GraphModule, before: Node, state: Node) -> Node:
    """Return a cell's state with an axis of layers before its own axes."""
    value = constant_of(module, state)
    if value is not None:
        return add_constant(module, before, f"{state.name}_first", value.unsqueeze(0))
    return add_call(module, before, _aten.unsqueeze.default, state, 0)


def _needed_earlier(inputs: Iterable[Any], chain: Sequence[Node], order: Mapping[Node, int]) -> list[Node] | None:
    """Return, in execution order, the nodes on which the inputs of the chain depend and which come after the chain's
    first cell.

    Return None if one of them reads a result of the chain or changes a tensor in place.
    """
    found: set[Node] = set()
    waiting = [node for node in inputs if isinstance(node, Node)]
    while waiting:
        node = waiting.pop()
        if node in found or order[node] < order[chain[0]]:
            continue
        if node in chain or (node.op == "call_function" and not is_functional(node)):
            return None
        found.add(node)
        waiting += node.all_input_nodes
    return sorted(found, key=order.__getitem__)


def _sequence(module: GraphModule, before: Node, inputs: Sequence[Any]) -> tuple[Node, bool]:
    """Return the inputs of all steps as one tensor, and whether its first axis is the batch."""
    tensor, dim, first = inputs[0].args if inputs[0].target is _aten.select.int else (None, None, -1)
    steps = [(tensor, dim, first + place) for place in range(len(inputs))]
    are_steps = all(
        node.target is _aten.select.int and node.args == step for node, step in zip(inputs, steps, strict=True)
    )
    if isinstance(tensor, Node) and tensor.meta["val"].dim() == 3 and dim in (0, 1) and first >= 0 and are_steps:
        end = first + len(inputs)
        is_whole = first == 0 and end == tensor.meta["val"].shape[dim]
        return tensor if is_whole else add_call(module, before, _aten.slice.Tensor, tensor, dim, first, end), dim == 1
    return add_call(module, before, _aten.stack.default, list(inputs), 0), False


def _hand_over(
    module: GraphModule, chain: Sequence[Node], outputs: Node, last: Sequence[Node], batch_first: bool
) -> None:
    """Make the readers of the cells' results read the results of the layer, and remove the cells."""
    axis = 1 if batch_first else 0
    hidden = [_results(cell)[0] for cell in chain]
    for user in {user: None for nodes in hidden for node in nodes for user in node.users}:
        dim = _joined_along(user, hidden)
        if dim is not None:
            whole = outputs if dim == axis else add_call(module, chain[0], _aten.transpose.int, outputs, 0, 1)
            replace(user, whole)
    final = [add_call(module, chain[0], _aten.squeeze.dim, state, 0) for state in last]
    for place, cell in reversed(list(enumerate(chain))):
        step = add_call(module, chain[0], _aten.select.int, outputs, axis, place)
        for number, nodes in enumerate(_results(cell)):
            for node in nodes:
                # The layer can update a kept state in place. The state has the bytes of the last step.
                node.replace_all_uses_with(
                    final[number], lambda user, number=number: number > 0 or user.target is _aten.copy_.default
                )
                node.replace_all_uses_with(step)
                if node is not cell:
                    module.graph.erase_node(node)
        module.graph.erase_node(cell)


def _joined_along(user: Node, hidden: Sequence[Sequence[Node]]) -> int | None:
    """Return the axis along which a call stacks the results of all steps in their order; None for any other call."""
    if user.target is not _aten.stack.default:
        return None
    joined, dim = arguments_of(user)["tensors"], arguments_of(user)["dim"]
    if len(joined) != len(hidden) or dim not in (0, 1):
        return None
    return dim if all(node in nodes for node, nodes in zip(joined, hidden, strict=True)) else None
