# SPDX-License-Identifier: BSD-3-Clause
"""RELU and its kin into the clamp of the operator before them."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops import BY_NAME

FUSED_NAME = {"relu": "RELU", "relu6": "RELU6", "relu_n1_to_1": "RELU_N1_TO_1"}


def fuse_activation(graph: Graph) -> Graph:
    """The graph with activations fused where that changes no bit.

    Between tensors of one scale and zero point, LiteRT's requantization multiplies by exactly 1, so the activation is
    the clamp that the producer applies anyway.
    """
    consumers, producers = graph.consumers(), graph.producers()
    renamed: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        activation = FUSED_NAME.get(node.op)
        source = node.inputs[0] if node.inputs else None
        producer = producers.get(source or "")
        if activation is None or producer is None or producer.name in renamed:
            continue
        takes = any(attribute.name == "activation" for attribute in BY_NAME[producer.op].attributes)
        if not takes or producer.op == "concatenation" or producer["activation"] != "NONE":
            continue
        if len(consumers[producer.name]) > 1 or producer.name in graph.outputs:
            continue
        if graph[producer.name].quant != graph[node.name].quant:
            continue
        changed = producer.with_attrs(activation=activation)
        renamed[producer.name] = Node(producer.op, producer.inputs, node.outputs, changed.attrs, producer.source)
        gone.add(node.name)
    return graph.rebuilt(renamed.get(node.name, node) for node in graph.nodes if node.name not in gone)
