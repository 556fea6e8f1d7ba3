# SPDX-License-Identifier: BSD-3-Clause
"""PAD behind the reshape that only gives its result axes of one, so that the window behind the reshape can take it.

A convolution in one dimension that is padded by hand comes as that: PAD, reshape to one row, CONV_2D.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openneutron.ir import Graph, Node, Tensor, constant
from openneutron.ops.shape import pads

_PADS = ("pad", "padv2")
_WINDOWS = ("conv_2d", "depthwise_conv_2d", "max_pool_2d")


def view_before_pad(graph: Graph) -> Graph:
    """The graph with each such pair in the other order; no value moves."""
    consumers = graph.consumers()
    padding_of = {node.name: node for node in graph.nodes if node.op in _PADS}
    swapped: dict[str, tuple[Node, ...]] = {}
    tensors: dict[str, Tensor] = {}
    for view in graph.nodes:
        pad = padding_of.get(view.inputs[0] or "") if view.op == "reshape" else None
        if pad is None or len(consumers[pad.name]) > 1 or pad.name in graph.outputs or view.name in graph.outputs:
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
        name = f"{pad.name}_of_view"
        while name in graph.tensors or name in tensors:
            name += "_"
        widths = [(0, 0) if axis is None else amounts[axis] for axis in axes]
        tensors |= {pad.name: narrow, name: constant(name, np.asarray(widths, np.int32))}
        inputs = (pad.name, name, *pad.inputs[2:])
        swapped[pad.name] = (Node("reshape", (source.name,), (pad.name,), {"new_shape": shape}, view.source),)
        swapped[view.name] = (replace(pad, inputs=inputs, outputs=view.outputs),)
    nodes = (node for old in graph.nodes for node in swapped.get(old.name, (old,)))
    return graph.rebuilt(nodes, tensors.values())


def _axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[int | None] | None:
    """For each axis of ``after`` the axis of ``before`` it is, or None where it has one element; None where the shapes
    differ in more than axes of one."""
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    if [before[axis] for axis in left] != [extent for extent in after if extent != 1]:
        return None
    return [left.pop(0) if extent != 1 else None for extent in after]
