# SPDX-License-Identifier: BSD-3-Clause
"""Fuse SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND into one convolution with a dilation.

TensorFlow writes every dilated convolution in this form. SPACE_TO_BATCH_ND makes each position in a block a batch, so
that neighbours in a batch are one block size apart in the input. In one dimension, reshapes that add and drop an axis
of extent 1 stand between the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from openneutron import ops
from openneutron.compiler.graph.legalize.fuse import read_once
from openneutron.compiler.graph.legalize.simplify import VIEWS
from openneutron.ir import Graph, Node, Tensor
from openneutron.ops.blocks import amounts_of, block_of
from openneutron.ops.conv import Padding, explicit_padding

_CONVOLUTIONS = ("conv_2d", "depthwise_conv_2d")


@dataclass(frozen=True, slots=True)
class _Chain:
    """The five nodes of the pattern; ``before`` and ``behind`` are views or None, ``axes`` the rank-4 axes that the
    block divides."""

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
    """Return the graph with such chains as one convolution, where one padding expresses the pads and crops of the
    blocks."""
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
    """Return the view that computes the node's first operand, or None, and the node that computes the tensor before the
    view."""
    made = producers.get(node.inputs[0] or "")
    if made is None or made.op not in VIEWS:
        return None, made
    return made, producers.get(made.inputs[0] or "")


def _along(graph: Graph, sequence: str | None, image: str | None, axis: int) -> bool:
    """Return whether an image is a sequence [batch, length, channels] with its length along ``axis``: 1 for rows, 2 for
    columns."""
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
    for axis, added, cropped in blocks:
        # The convolution pads each batch by itself, which padding of the whole input can't express.
        if strides[axis - 1] != 1 or dilations[axis - 1] != 1 or any(padding[axis - 1]):
            return None
        padding[axis - 1] = [first - last for first, last in zip(added, cropped, strict=True)]
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
