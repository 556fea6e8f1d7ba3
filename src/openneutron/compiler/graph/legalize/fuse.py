# SPDX-License-Identifier: BSD-3-Clause
"""Fuse activations, pads and slices into the operators beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from openneutron.ir import Graph, Node, Tensor, constant
from openneutron.ops import BY_NAME
from openneutron.ops.conv import Padding, explicit_padding
from openneutron.ops.shape import pads, slice_window
from openneutron.ops.table import constant_values
from openneutron.ops.transposed import INPUT, OUTPUT_SHAPE, WEIGHTS, cropped

FUSED_NAME = {"relu": "RELU", "relu6": "RELU6", "relu_n1_to_1": "RELU_N1_TO_1"}


def fuse_activation(graph: Graph) -> Graph:
    """Return the graph with RELU and its kin in the clamp of the operator before them, where that changes no bit.

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
        if not read_once(graph, consumers, producer) or graph[producer.name].quant != graph[node.name].quant:
            continue
        changed = producer.with_attrs(activation=activation)
        renamed[producer.name] = Node(producer.op, producer.inputs, node.outputs, changed.attrs, producer.source)
        gone.add(node.name)
    return graph.rebuilt(renamed.get(node.name, node) for node in graph.nodes if node.name not in gone)


def read_once(graph: Graph, consumers: Mapping[str, Sequence[Node]], node: Node) -> bool:
    """Return whether one node alone reads the result of this node, which is no output of the graph."""
    return len(consumers[node.name]) == 1 and node.name not in graph.outputs


_CONVOLUTIONS = ("conv_2d", "depthwise_conv_2d")
_LOWEST = -128


def fuse_padding(graph: Graph) -> Graph:
    """Return the graph with each pad that a window can take turned into the window's explicit padding.

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
        if pad is None or not read_once(graph, consumers, pad) or not _fits(graph, pad, node):
            continue
        changed = node.with_attrs(padding=_total_padding(graph, pad, node))
        fused[node.name] = Node(node.op, (pad.inputs[0], *node.inputs[1:]), node.outputs, changed.attrs, node.source)
        gone.add(pad.name)
    return graph.rebuilt(fused.get(node.name, node) for node in graph.nodes if node.name not in gone)


def _total_padding(graph: Graph, pad: Node, node: Node) -> Padding:
    _, rows, cols, _ = pads(graph, pad)
    _, height, width, _ = graph[pad.name].shape
    top, bottom, left, right = explicit_padding(node, height, width, *_kernel(graph, node))
    return rows[0] + top, rows[1] + bottom, cols[0] + left, cols[1] + right


def _kernel(graph: Graph, node: Node) -> tuple[int, int]:
    if node.op == "max_pool_2d":
        return node["kernel_h"], node["kernel_w"]
    return graph.given(node, 1).shape[1], graph.given(node, 1).shape[2]


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


def fuse_crop(graph: Graph) -> Graph:
    """Return the graph with transposed convolutions that do not compute the rows and columns that the slice behind them drops."""
    consumers, producers = graph.consumers(), graph.producers()
    renamed: dict[str, Node] = {}
    gone: set[str] = set()
    shapes: dict[str, Tensor] = {}
    for node in graph.nodes:
        producer = producers.get(node.inputs[0] or "") if node.op == "slice" else None
        if producer is None or producer.op != "transpose_conv" or producer.name in renamed:
            continue
        if not read_once(graph, consumers, producer):
            continue
        padding = _total_crop(graph, producer, node)
        if padding is None:
            continue
        name = graph.free_name(f"{node.name}_shape")
        shapes[name] = constant(name, np.asarray(graph[node.name].shape, np.int32))
        inputs = (*producer.inputs[:OUTPUT_SHAPE], name, *producer.inputs[OUTPUT_SHAPE + 1 :])
        changed = producer.with_attrs(padding=padding)
        renamed[producer.name] = Node(producer.op, inputs, node.outputs, changed.attrs, producer.source)
        gone.add(node.name)
    nodes = (renamed.get(node.name, node) for node in graph.nodes if node.name not in gone)
    return graph.rebuilt(nodes, shapes.values())


def _total_crop(graph: Graph, node: Node, after: Node) -> Padding | None:
    """Return the rows and columns that the slice and the convolution crop; None where the slice takes batches or channels away."""
    whole, part = graph[node.name].shape, graph[after.name].shape
    if (whole[0], whole[3]) != (part[0], part[3]):
        return None
    begin, _ = slice_window(graph, after)
    top, bottom, left, right = cropped(node, graph.given(node, INPUT).shape, graph.given(node, WEIGHTS).shape, whole)
    rows, columns = (whole[axis] - part[axis] - begin[axis] for axis in (1, 2))
    return top + begin[1], bottom + rows, left + begin[2], right + columns


_PADS = ("pad", "padv2")
_WINDOWS = ("conv_2d", "depthwise_conv_2d", "max_pool_2d")


def view_before_pad(graph: Graph) -> Graph:
    """Return the graph with PAD behind the reshape that only gives its result axes of one, so that a window can take the pad.

    A convolution in one dimension that is padded by hand has this form: PAD, reshape to one row, CONV_2D.
    """
    consumers = graph.consumers()
    padding_of = {node.name: node for node in graph.nodes if node.op in _PADS}
    swapped: dict[str, tuple[Node, ...]] = {}
    tensors: dict[str, Tensor] = {}
    for view in graph.nodes:
        pad = padding_of.get(view.inputs[0] or "") if view.op == "reshape" else None
        if pad is None or not read_once(graph, consumers, pad) or view.name in graph.outputs:
            continue
        if any(user.op not in _WINDOWS for user in consumers.get(view.name, ())):
            continue
        source = graph[str(pad.inputs[0])]
        axes = _axes(graph[pad.name].shape, graph[view.name].shape)
        if axes is None or source.is_constant:
            continue
        amounts = pads(graph, pad)
        shape = tuple(1 if axis is None else source.shape[axis] for axis in axes)
        # The pad's name is free: nobody but the reshape read it.
        narrow = replace(source, name=pad.name, shape=shape)
        name = graph.free_name(f"{pad.name}_of_view")
        widths = [(0, 0) if axis is None else amounts[axis] for axis in axes]
        tensors |= {pad.name: narrow, name: constant(name, np.asarray(widths, np.int32))}
        inputs = (pad.name, name, *pad.inputs[2:])
        swapped[pad.name] = (Node("reshape", (source.name,), (pad.name,), {"new_shape": shape}, view.source),)
        swapped[view.name] = (replace(pad, inputs=inputs, outputs=view.outputs),)
    nodes = (node for old in graph.nodes for node in swapped.get(old.name, (old,)))
    return graph.rebuilt(nodes, tensors.values())


def _axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[int | None] | None:
    """Return for each axis of ``after`` the same axis of ``before``, or None where the axis has one element; None where the
    shapes differ in more than axes of one."""
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    if [before[axis] for axis in left] != [extent for extent in after if extent != 1]:
        return None
    return [left.pop(0) if extent != 1 else None for extent in after]
