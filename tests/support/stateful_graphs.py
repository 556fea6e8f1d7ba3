# SPDX-License-Identifier: BSD-3-Clause
"""Graphs with states, and the same graphs with the states as inputs and outputs: what they compute, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.ir import DType, Graph, Node, State, Tensor, constant, per_channel, per_tensor

QUANT = per_tensor(0.1, 3)


def streaming_convolution(channels: int = 8, outputs: int = 16, kernel: int = 4) -> Graph:
    """Return a convolution in one dimension of the newest ``kernel`` frames, of which the state holds all but the newest one."""
    generator = np.random.default_rng(0)
    weights = generator.integers(-127, 128, (outputs, 1, kernel, channels)).astype(np.int8)
    held = (1, 1, kernel - 1, channels)
    window = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    tensors = [
        Tensor("frame", (1, 1, 1, channels), DType.INT8, QUANT),
        Tensor("ring", held, DType.INT8, QUANT),
        Tensor("frames", (1, 1, kernel, channels), DType.INT8, QUANT),
        Tensor("next", held, DType.INT8, QUANT),
        Tensor("y", (1, 1, 1, outputs), DType.INT8, QUANT),
        constant("weights", weights, per_channel([0.01] * outputs, 0)),
        constant("bias", np.zeros(outputs, np.int32)),
        constant("begin", np.array([0, 0, 1, 0], np.int32)),
        constant("size", np.array(held, np.int32)),
    ]
    nodes = (
        Node("concatenation", ("ring", "frame"), ("frames",), {"axis": 2, "activation": "NONE"}),
        Node("conv_2d", ("frames", "weights", "bias"), ("y",), {**window, "activation": "NONE"}),
        Node("slice", ("frames", "begin", "size"), ("next",)),
    )
    states = (State("ring", "next", np.full(held, QUANT.zero_point, np.int8)),)
    return Graph("stream", {tensor.name: tensor for tensor in tensors}, nodes, ("frame",), ("y",), states)


def small(nodes: Sequence[Node], outputs: Sequence[str], states: Sequence[State], names: str = "abxyz") -> Graph:
    """Return a graph over tensors of one shape and quantization, each named by a letter; x is the input."""
    tensors = {name: Tensor(name, (1, 2, 2, 8), DType.INT8, QUANT) for name in names}
    return Graph("small", tensors, tuple(nodes), ("x",), tuple(outputs), tuple(states))


def without_states(graph: Graph) -> Graph:
    """Return the graph with its states as further inputs, and their new values as further outputs."""
    outputs = tuple(dict.fromkeys(graph.kept_tensors))
    return replace(graph, inputs=graph.given_tensors, outputs=outputs, states=())


def delayed(graph: Graph, seed: int) -> Graph | None:
    """Return the graph in which some nodes read the value that a tensor had in the run before; None where no tensor suits."""
    generator = np.random.default_rng(seed)
    consumers = graph.consumers()
    suitable = [
        name
        for node in graph.nodes
        for name in node.outputs
        if name in consumers and graph[name].dtype is DType.INT8 and graph[name].quant is not None
    ]
    states: list[State] = []
    tensors, nodes = dict(graph.tensors), list(graph.nodes)
    for name in suitable:
        if generator.random() < 0.5 and states:
            continue
        late = f"{name}@before"
        tensors[late] = replace(graph[name], name=late)
        readers = [node for node in consumers[name] if generator.random() < 0.7] or consumers[name][:1]
        for reader in readers:
            place = next(at for at, node in enumerate(nodes) if node.outputs == reader.outputs)
            nodes[place] = replace(nodes[place], inputs=tuple(late if n == name else n for n in nodes[place].inputs))
        first = generator.integers(-128, 128, graph[name].shape).astype(np.int8) if generator.random() < 0.5 else None
        states.append(State(late, name, first))
    return replace(graph, tensors=tensors, nodes=tuple(nodes), states=tuple(states)) if states else None
