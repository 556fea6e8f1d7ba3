# SPDX-License-Identifier: BSD-3-Clause
"""Replace unrolled loops of recurrent cells by layers over all steps."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import arguments_of, is_functional
from openneutron.pytorch.graph.rewriting import add_call, add_constant, constant_of, finished
from openneutron.pytorch.quantizer.passes.recurrent import CELLS

_aten = torch.ops.aten

LAYERS = dict(zip(CELLS, (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input), strict=True))
"""The layer that replaces each cell."""


@dataclass(frozen=True, slots=True)
class CellLoops:
    """Replace a chain of calls of one cell, each of which takes the states of the previous call, by a layer over all steps.

    The cell's inputs must not depend on its results, and nothing else may read a cell state between two steps. keep: calls to
    leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets: ClassVar[Sequence[object]] = CELLS

    def __call__(self, module: GraphModule) -> PassResult:
        cells = [node for node in module.graph.nodes if node.op == "call_function" and node.target in CELLS]
        if self.keep is not None:
            cells = [node for node in cells if not self.keep(node)]
        changed = False
        for chain in _chains(cells):
            changed |= _replace(module, chain)
        return finished(module, changed)


def _states(cell: Node) -> list[Any]:
    """Return the states before the step."""
    given = arguments_of(cell)["hx"]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _weights(cell: Node) -> list[object]:
    """Return a key that the calls of one cell share."""
    given = arguments_of(cell)
    params = [given[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    return [cell.target, *(param.target if isinstance(param, Node) else param for param in params)]


def _results(cell: Node) -> list[list[Node]]:
    """Return the nodes of each state after the step; the node of a cell with one state is the cell itself."""
    if cell.target is not _aten.lstm_cell.default:
        return [[cell]]
    return [[user for user in cell.users if user.args[1] == place] for place in range(2)]


def _follows(later: Node, earlier: Node) -> bool:
    """Return whether a cell is the next step of another one, whose cell state nothing else reads."""
    states, results = _states(later), _results(earlier)
    if len(states) != len(results) or _weights(later) != _weights(earlier):
        return False
    if not all(state in nodes for state, nodes in zip(states, results, strict=True)):
        return False
    if len(results) > 1 and any(user is not later for node in results[1] for user in node.users):
        return False
    return bool(later.args[0].meta["val"].shape == earlier.args[0].meta["val"].shape)


def _chains(cells: Sequence[Node]) -> Iterable[list[Node]]:
    """Yield the longest chains of two steps or more."""
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
    """Return the nodes that compute the cell's states, without getitem nodes."""
    states = [state for state in _states(cell) if isinstance(state, Node)]
    return [state.all_input_nodes[0] if state.target is operator.getitem else state for state in states]


def _replace(module: GraphModule, chain: Sequence[Node]) -> bool:
    """Replace the cells by a layer; return False where an input depends on a result of the cells."""
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
    """Return a cell's state with the axis of layers in front."""
    value = constant_of(module, state)
    if value is not None:
        return add_constant(module, before, f"{state.name}_first", value.unsqueeze(0))
    return add_call(module, before, _aten.unsqueeze.default, state, 0)


def _needed_earlier(inputs: Iterable[Any], chain: Sequence[Node], order: Mapping[Node, int]) -> list[Node] | None:
    """Return the nodes behind the first cell that the inputs are computed by, in order; None where one reads a cell of the chain or
    changes a tensor."""
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
    """Return the inputs as one tensor, and whether its first axis is that of the sequences."""
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
    """Let the readers of the cells' results read the layer's, and remove the cells."""
    axis = 1 if batch_first else 0
    hidden = [_results(cell)[0] for cell in chain]
    for user in {user: None for nodes in hidden for node in nodes for user in node.users}:
        dim = _joined_along(user, hidden)
        if dim is not None:
            whole = outputs if dim == axis else add_call(module, chain[0], _aten.transpose.int, outputs, 0, 1)
            user.replace_all_uses_with(whole)
            module.graph.erase_node(user)
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
    """Return the axis along which a call stacks the results of all steps in their order; None where it does something else."""
    if user.target is not _aten.stack.default:
        return None
    joined, dim = arguments_of(user)["tensors"], arguments_of(user)["dim"]
    if len(joined) != len(hidden) or dim not in (0, 1):
        return None
    return dim if all(node in nodes for node, nodes in zip(joined, hidden, strict=True)) else None
