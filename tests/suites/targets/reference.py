# SPDX-License-Identifier: BSD-3-Clause
"""The outputs that every target must have: those of LiteRT's kernels, node by node where LiteRT lacks an operator."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler import compile_graph
from openneutron.ir import DType, Graph, Node
from tests.support import oracle
from tests.support.random_recurrent import WITHOUT_REFERENCE
from tests.support.stateful_graphs import without_states

RUNS = 3
"""The runs of a graph with states, one after the other; a graph without states has one run."""

Runs = list[list[np.ndarray]]


def inputs_of(graph: Graph) -> Runs:
    """Return random inputs for each run."""
    return [oracle.random_inputs(graph, seed) for seed in range(RUNS if graph.states else 1)]


def is_alone(graph: Graph, node: Node) -> bool:
    """Return whether LiteRT does not compute a node: a layer without an operator in LiteRT, or an LSTM that takes or gives its states
    or computes on int16."""
    if node.op in WITHOUT_REFERENCE:
        return True
    is_lstm = node.op == "unidirectional_sequence_lstm"
    return is_lstm and (len(node.outputs) > 1 or graph.given(node, 0).dtype is DType.INT16)


def outputs_of(graph: Graph, runs: Runs) -> Runs:
    """Return the outputs of each run. A state has the value that its update had in the run before."""
    whole = without_states(graph)
    states = [
        np.zeros(tensor.shape, tensor.dtype.numpy) if state.initial is None else state.initial
        for state in graph.states
        for tensor in (graph[state.tensor],)
    ]
    found = []
    for inputs in runs:
        known = _computed(whole, [*inputs, *states])
        found.append([known[name] for name in graph.outputs])
        states = [known[state.update] for state in graph.states]
    return found


def _computed(graph: Graph, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the results of a graph without states by name. The driver computes each node of ``is_alone`` in a program of its own."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for alone, nodes in itertools.groupby(graph.nodes, lambda node: is_alone(graph, node)):
        for run in ((node,) for node in nodes) if alone else (tuple(nodes),):
            piece = _piece(graph, run, known)
            given = [known[name] for name in piece.inputs]
            if alone:
                results = oracle.simulated_outputs(compile_graph(piece, oracle.TARGET), given)
            else:
                results = oracle.reference_outputs(piece, given)
            known |= dict(zip(piece.outputs, results, strict=True))
    return known


def _piece(graph: Graph, nodes: tuple[Node, ...], known: dict[str, np.ndarray]) -> Graph:
    """Return the graph of these nodes; its outputs are the tensors that other nodes or the graph read."""
    written = {name for node in nodes for name in node.outputs}
    inside = {name for node in nodes for name in node.inputs if name is not None}
    consumers = graph.consumers()
    outside = set(graph.outputs) | {
        name for name in written if any(reader not in nodes for reader in consumers.get(name, ()))
    }
    read = tuple(dict.fromkeys(name for node in nodes for name in node.inputs if name in known))
    outputs = tuple(name for node in nodes for name in node.outputs if name in outside)
    kept = written | inside
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in kept}
    return replace(graph, tensors=tensors, nodes=nodes, inputs=tuple(map(str, read)), outputs=outputs)
