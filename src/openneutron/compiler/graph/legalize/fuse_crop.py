# SPDX-License-Identifier: BSD-3-Clause
"""SLICE into the transposed convolution before it."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node, Tensor, constant
from openneutron.ops.conv import Padding
from openneutron.ops.shape import slice_window
from openneutron.ops.transposed import INPUT, OUTPUT_SHAPE, WEIGHTS, cropped


def fuse_crop(graph: Graph) -> Graph:
    """The graph with transposed convolutions that do not compute the rows and columns that the slice behind them drops."""
    consumers, producers = graph.consumers(), graph.producers()
    renamed: dict[str, Node] = {}
    gone: set[str] = set()
    shapes: dict[str, Tensor] = {}
    for node in graph.nodes:
        producer = producers.get(node.inputs[0] or "") if node.op == "slice" else None
        if producer is None or producer.op != "transpose_conv" or producer.name in renamed:
            continue
        if len(consumers[producer.name]) > 1 or producer.name in graph.outputs:
            continue
        padding = _total_crop(graph, producer, node)
        if padding is None:
            continue
        name = f"{node.name}_shape"
        while name in graph.tensors or name in shapes:
            name += "_"
        shapes[name] = constant(name, np.asarray(graph[node.name].shape, np.int32))
        inputs = (*producer.inputs[:OUTPUT_SHAPE], name, *producer.inputs[OUTPUT_SHAPE + 1 :])
        changed = producer.with_attrs(padding=padding)
        renamed[producer.name] = Node(producer.op, inputs, node.outputs, changed.attrs, producer.source)
        gone.add(node.name)
    nodes = (renamed.get(node.name, node) for node in graph.nodes if node.name not in gone)
    return graph.rebuilt(nodes, shapes.values())


def _total_crop(graph: Graph, node: Node, after: Node) -> Padding | None:
    """What the slice and the convolution together leave out; None where the slice takes batches or channels away."""
    whole, part = graph[node.name].shape, graph[after.name].shape
    if (whole[0], whole[3]) != (part[0], part[3]):
        return None
    begin, _ = slice_window(graph, after)
    data, weights = graph.operand(node, INPUT), graph.operand(node, WEIGHTS)
    assert data is not None and weights is not None
    top, bottom, left, right = cropped(node, data.shape, weights.shape, whole)
    rows, columns = (whole[axis] - part[axis] - begin[axis] for axis in (1, 2))
    return top + begin[1], bottom + rows, left + begin[2], right + columns
