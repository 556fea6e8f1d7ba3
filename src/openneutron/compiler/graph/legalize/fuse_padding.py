# SPDX-License-Identifier: BSD-3-Clause
"""PAD and PADV2 into the sliding window behind them."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.conv import Padding, explicit_padding
from openneutron.ops.shape import pads
from openneutron.ops.table import constant_values

_CONVOLUTIONS = ("conv_2d", "depthwise_conv_2d")
_LOWEST = -128


def fuse_padding(graph: Graph) -> Graph:
    """The graph with each pad that a window can take turned into the window's explicit padding.

    A convolution takes padding of its input's zero point (real 0, what its own padding is worth); a max pool takes
    padding of the lowest value, which never wins. An average pool counts padded values and takes none.
    """
    consumers = graph.consumers()
    padding_of = {node.name: node for node in graph.nodes if node.op in ("pad", "padv2")}
    fused: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        pad = padding_of.get(source or "")
        if pad is None or len(consumers[pad.name]) > 1 or pad.name in graph.outputs or not _fits(graph, pad, node):
            continue
        changed = node.with_attrs(padding=_total_padding(graph, pad, node))
        fused[node.name] = Node(node.op, (pad.inputs[0], *node.inputs[1:]), node.outputs, changed.attrs, node.source)
        gone.add(pad.name)
    return graph.rebuilt(fused.get(node.name, node) for node in graph.nodes if node.name not in gone)


def _total_padding(graph: Graph, pad: Node, node: Node) -> Padding:
    """The pad's rows and columns and the window's own, together."""
    _, rows, cols, _ = pads(graph, pad)
    _, height, width, _ = graph[pad.name].shape
    top, bottom, left, right = explicit_padding(node, height, width, *_kernel(graph, node))
    return rows[0] + top, rows[1] + bottom, cols[0] + left, cols[1] + right


def _kernel(graph: Graph, node: Node) -> tuple[int, int]:
    if node.op == "max_pool_2d":
        return node["kernel_h"], node["kernel_w"]
    weights = graph.operand(node, 1)
    assert weights is not None
    return weights.shape[1], weights.shape[2]


def _fits(graph: Graph, pad: Node, node: Node) -> bool:
    if node.op not in (*_CONVOLUTIONS, "max_pool_2d") or len(graph[pad.name].shape) != 4:
        return False
    amounts = pads(graph, pad)
    if any(amounts[0]) or any(amounts[3]):
        return False
    quant = graph[pad.name].quant
    assert quant is not None
    value = quant.zero_point if pad.op == "pad" else constant_values(graph, pad, 2)[0]
    if node.op in _CONVOLUTIONS:
        return value == quant.zero_point
    top, bottom, left, right = _total_padding(graph, pad, node)
    # A window wholly inside the padding would have nothing to choose from.
    return value == _LOWEST and max(top, bottom) < node["kernel_h"] and max(left, right) < node["kernel_w"]
