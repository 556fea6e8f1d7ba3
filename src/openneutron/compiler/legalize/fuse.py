# SPDX-License-Identifier: BSD-3-Clause
"""Fuse activations, pads, slices and dilations into the operators beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from openneutron import ops
from openneutron.ir import Graph, Node, Tensor, constant
from openneutron.ops import BY_NAME
from openneutron.ops.conv import DATA, OUTPUT_SHAPE, WEIGHTS, Padding, cropped, explicit_padding
from openneutron.ops.pieces import amounts_of, block_of
from openneutron.ops.rescaling import STORED_BOUNDS
from openneutron.ops.shape import VIEWS, pads, slice_window
from openneutron.ops.table import constant_values

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
    return len(consumers[node.name]) == 1 and node.name not in graph.kept_tensors


_CONVOLUTIONS = ("conv_2d", "depthwise_conv_2d")


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
    lowest, _ = STORED_BOUNDS[graph[pad.name].dtype]
    return value == lowest and max(top, bottom) < node["kernel_h"] and max(left, right) < node["kernel_w"]


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
    top, bottom, left, right = cropped(node, graph.given(node, DATA).shape, graph.given(node, WEIGHTS).shape, whole)
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
        if pad is None or not read_once(graph, consumers, pad) or view.name in graph.kept_tensors:
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


@dataclass(frozen=True, slots=True)
class _Chain:
    """The five nodes of the pattern. ``axes``: the rank-4 axes that the block divides."""

    spread: Node
    before: Node | None
    convolution: Node
    behind: Node | None
    gathered: Node
    axes: tuple[int, ...]

    @property
    def nodes(self) -> list[Node]:
        return [node for node in (self.spread, self.before, self.convolution, self.behind, self.gathered) if node]


def fuse_dilation(graph: Graph) -> Graph:
    """Return the graph with SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND as one convolution with a dilation.

    TensorFlow writes every dilated convolution in this form. SPACE_TO_BATCH_ND makes each position in a block a batch, so that
    neighbours in a batch are one block size apart in the input. In one dimension, reshapes that add and drop an axis of extent 1
    stand between the three. A chain stays where no padding of one convolution expresses the pads and crops of the blocks.
    """
    producers, consumers = graph.producers(), graph.consumers()
    replaced: dict[str, list[Node]] = {}
    gone: set[str] = set()
    tensors: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.op != "batch_to_space_nd":
            continue
        chain = _chain(graph, node, producers)
        if chain is None or not all(read_once(graph, consumers, inner) for inner in chain.nodes[:-1]):
            continue
        padding = _padding(graph, chain)
        if padding is None:
            continue
        nodes, images = _convolution(graph, chain, padding)
        whole = replace(graph, tensors={**graph.tensors, **images})
        if any(new.op in _CONVOLUTIONS and ops.reject(whole, new) is not None for new in nodes):
            continue  # a dilation that no kernel takes
        replaced[node.name] = nodes
        tensors |= images
        gone.update(other.name for other in chain.nodes[:-1])
    kept = [new for node in graph.nodes if node.name not in gone for new in replaced.get(node.name, [node])]
    return graph.rebuilt(kept, tensors.values())


def _chain(graph: Graph, gathered: Node, producers: Mapping[str, Node]) -> _Chain | None:
    behind, convolution = _through_view(producers, gathered)
    if convolution is None or convolution.op not in _CONVOLUTIONS:
        return None
    before, spread = _through_view(producers, convolution)
    if spread is None or spread.op != "space_to_batch_nd" or block_of(graph, spread) != block_of(graph, gathered):
        return None
    count = len(block_of(graph, spread))
    if before is None and behind is None:
        return _Chain(spread, before, convolution, behind, gathered, (1, 2)[:count])
    if before is None or behind is None or count != 1:
        return None
    views = ((before.inputs[0], before.name), (behind.name, behind.inputs[0]))
    axes = [axis for axis in (1, 2) if all(_along(graph, view[0], view[1], axis) for view in views)]
    return _Chain(spread, before, convolution, behind, gathered, (axes[0],)) if axes else None


def _through_view(producers: Mapping[str, Node], node: Node) -> tuple[Node | None, Node | None]:
    """Return the view that computes the node's first operand, or None, and the producer of the tensor before the view."""
    made = producers.get(node.inputs[0] or "")
    if made is None or made.op not in VIEWS:
        return None, made
    return made, producers.get(made.inputs[0] or "")


def _along(graph: Graph, sequence: str | None, image: str | None, axis: int) -> bool:
    """Return whether an image is a sequence [batch, length, channels] with its length along ``axis``."""
    shape = graph[str(sequence)].shape
    return len(shape) == 3 and graph[str(image)].shape == _image_shape(shape, axis)


def _image_shape(sequence: tuple[int, ...], axis: int) -> tuple[int, ...]:
    batch, length, channels = sequence
    return (batch, length, 1, channels) if axis == 1 else (batch, 1, length, channels)


def _padding(graph: Graph, chain: _Chain) -> Padding | None:
    """Return the padding of the dilated convolution, or None where no padding expresses the pads and crops."""
    convolution = chain.convolution
    shapes = graph.given(convolution, 0).shape, graph.given(convolution, 1).shape
    own = explicit_padding(convolution, *shapes[0][1:3], *shapes[1][1:3])
    strides, dilations = ([convolution[f"{kind}_{side}"] for side in "hw"] for kind in ("stride", "dilation"))
    padding = [list(own[:2]), list(own[2:])]
    blocks = zip(chain.axes, amounts_of(graph, chain.spread), amounts_of(graph, chain.gathered), strict=True)
    for axis, added, less in blocks:
        # The convolution pads each batch by itself, which padding of the whole input can't express.
        if strides[axis - 1] != 1 or dilations[axis - 1] != 1 or any(padding[axis - 1]):
            return None
        padding[axis - 1] = [first - last for first, last in zip(added, less, strict=True)]
    (top, bottom), (left, right) = padding
    return (top, bottom, left, right) if min(top, bottom, left, right) >= 0 else None


def _convolution(graph: Graph, chain: _Chain, padding: Padding) -> tuple[list[Node], dict[str, Tensor]]:
    """Return the nodes in the chain's place, and the tensors of the graph that then have another shape."""
    attrs = {
        f"dilation_{'hw'[axis - 1]}": size for axis, size in zip(chain.axes, block_of(graph, chain.spread), strict=True)
    }
    convolution = chain.convolution.with_attrs(padding=padding, **attrs)
    source, result = str(chain.spread.inputs[0]), chain.gathered.name
    if chain.before is None or chain.behind is None:
        return [replace(convolution, inputs=(source, *convolution.inputs[1:]), outputs=(result,))], {}
    # The names between the five are free: no other node reads them.
    wide, narrow = chain.before.name, chain.convolution.name
    tensors = {
        name: replace(like, name=name, shape=_image_shape(like.shape, chain.axes[0]))
        for name, like in ((wide, graph[source]), (narrow, graph[result]))
    }
    nodes = [
        _reshape(source, tensors[wide], chain.before.source),
        replace(convolution, inputs=(wide, *convolution.inputs[1:]), outputs=(narrow,)),
        _reshape(narrow, graph[result], chain.behind.source),
    ]
    return nodes, tensors


def _reshape(source: str, result: Tensor, origin: str) -> Node:
    return Node("reshape", (source,), (result.name,), {"new_shape": result.shape}, origin)
