# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of LiteRT operators to graphs the kernels can take with as few calls as possible; no bit changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.legalize.fuse import (
    FUSED_NAME,
    fuse_activation,
    fuse_crop,
    fuse_dilation,
    fuse_padding,
    view_before_pad,
)
from openneutron.compiler.legalize.merge_equal import merge_equal
from openneutron.ir import Graph, Node, QuantParams, Tensor, constant
from openneutron.ops import BY_NAME, recurrent
from openneutron.ops.conv import DATA, WEIGHTS, explicit_padding
from openneutron.ops.limits import STORED
from openneutron.ops.rescaling import steps_of
from openneutron.ops.shape import VIEWS, pads, slice_window
from openneutron.ops.table import constant_values


def rename_identities(graph: Graph) -> Graph:
    """Return the graph with every operator that leaves all bytes in place turned into a reshape, which costs nothing."""
    return graph.rebuilt(
        _view(graph, node, node.inputs[0]) if node.op in VIEWS or _moves_nothing(graph, node) else node
        for node in graph.nodes
    )


def _view(graph: Graph, node: Node, source: str | None) -> Node:
    """Return the reshape of a tensor in the place of a node."""
    return Node("reshape", (source,), node.outputs, {"new_shape": graph[node.name].shape}, node.source)


def _moves_nothing(graph: Graph, node: Node) -> bool:
    data = graph.given(node, 0)
    if node.op == "transpose":
        permutation = constant_values(graph, node, 1)
        moved = [axis for axis in permutation if data.shape[axis] != 1]
        return moved == sorted(moved)
    if node.op == "slice":
        return slice_window(graph, node)[1] == data.shape
    if node.op in ("pad", "padv2"):
        return not any(amount for pair in pads(graph, node) for amount in pair)
    if node.op == "concatenation":
        return len(node.inputs) == 1
    if node.op == "quantize":
        return (data.dtype, data.quant) == (graph[node.name].dtype, graph[node.name].quant)
    if node.op == "resize_nearest_neighbor":
        # With both, every position is rounded up by a half: a shift by one.
        shifted = node["align_corners"] and node["half_pixel_centers"]
        return data.shape == graph[node.name].shape and not shifted
    return False


def drop_zero_sums(graph: Graph) -> Graph:
    """Return the graph with every ADD and SUB that changes no value turned into a reshape of its other operand."""
    kept = ((node, unchanged_operand(graph, node)) for node in graph.nodes)
    return graph.rebuilt(node if name is None else _view(graph, node, name) for node, name in kept)


def unchanged_operand(graph: Graph, node: Node) -> str | None:
    """Return the operand of an ADD or SUB that equals the result for all values; None where neither operand does.

    LiteRT (add.cc, sub.cc) shifts each stored value, less its zero point, left by 20 bits (int16: by 15). It multiplies
    the result by the operand's scale over twice the larger scale, and the sum by twice the larger scale over 2^20 (2^15)
    times the output's scale. Where the output's scale equals the operand's, and the zeros' scale is not larger, these
    factors are 1/2 and 1/2^19 (1/2^14). Both are exact, and so is the result. Where the zeros' scale is larger, the first
    factor is rounded.
    """
    if node.op not in ("add", "sub") or node.attrs.get("activation", "NONE") != "NONE":
        return None
    result = graph[node.name]
    for data, zeros in ((0, 1), (1, 0))[: 2 if node.op == "add" else 1]:
        kept, other = graph.operand(node, data), graph.operand(node, zeros)
        if kept is None or other is None or kept.data is not None or not _is_zero(other):
            continue
        assert kept.quant is not None and other.quant is not None
        alike = kept.dtype in STORED and kept.shape == result.shape and kept.quant == result.quant
        if alike and np.float32(other.quant.scale) <= np.float32(kept.quant.scale):
            return kept.name
    return None


def _is_zero(tensor: Tensor) -> bool:
    quant = tensor.quant
    if tensor.data is None or tensor.dtype not in STORED or quant is None or quant.per_channel:
        return False
    return bool(np.all(tensor.data == quant.zero_point))


def take_apart(graph: Graph) -> Graph:
    """Replace every node that its row composes (``made_of``) by its parts, recursively, and return the graph."""
    nodes: list[Node] = []
    for node in graph.nodes:
        row = BY_NAME[node.op]
        if not row.is_composed(graph, node):
            nodes.append(node)
            continue
        parts = row.composition(graph, node).within(graph)
        inner = take_apart(parts)
        graph = replace(graph, tensors={**parts.tensors, **inner.tensors})
        nodes += inner.nodes
    return graph.rebuilt(nodes)


_OFFSET = 128


def rescale_joined(graph: Graph) -> Graph:
    """Return the graph with all inputs of uint8 CONCATENATIONs quantized as their outputs, each by a table.

    LiteRT's int8 kernel copies bytes; its uint8 kernel rescales such inputs in float32 (ConcatenationWithScaling of
    reference/concatenation.h).
    """
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    for node in graph.nodes:
        inputs = list(node.inputs)
        for place, name in enumerate(inputs):
            result = graph[node.name]
            if node.op != "concatenation" or not node.attrs.get("unsigned") or name is None:
                break
            if graph[name].quant == result.quant:
                continue
            source = graph[name]
            assert source.quant is not None and result.quant is not None
            made, entries = (graph.free_name(f"{node.name}/{part}{place}") for part in ("rescaled", "table"))
            tensors[made] = replace(source, name=made, quant=result.quant, data=None)
            tensors[entries] = constant(entries, _table(source.quant, result.quant), result.quant)
            nodes.append(Node("lookup", (name, entries), (made,), {}, node.source))
            inputs[place] = made
        nodes.append(replace(node, inputs=tuple(inputs)))
    return graph.rebuilt(nodes, tensors.values()) if tensors else graph


def _table(source: QuantParams, result: QuantParams) -> npt.NDArray[np.int8]:
    """Return the int8 result for each int8 input from -128 on, in the float32 arithmetic of LiteRT's uint8 kernel."""
    scale = np.float32(source.scale) * (np.float32(1) / np.float32(result.scale))
    bias = np.float32(-(source.zero_point + _OFFSET)) * scale
    reals = np.arange(256, dtype=np.float32) * scale + bias
    steps = np.array([steps_of(float(real), 1.0) for real in reals]) + (result.zero_point + _OFFSET)
    return np.asarray(np.clip(steps, 0, 255) - _OFFSET, np.int8)


STATEFUL = ("unidirectional_sequence_lstm", "gru", "rnn", "svdf")


def add_states(graph: Graph) -> Graph:
    """Return the graph with a result for each state of a recurrent layer, and for the memory that its gates take while it runs."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for node in graph.nodes:
        if node.op in STATEFUL:
            states = [graph[name] for name in recurrent.state_operands(node)]
            forms = [(f"state{number}", state.shape, state) for number, state in enumerate(states)]
            if node.op == "unidirectional_sequence_lstm":
                gates = (len(recurrent.GATES) * recurrent.units_of(graph, node)[0],)
                forms.append(("gates", gates, states[-1]))
            own = [
                replace(like, name=graph.free_name(f"{node.name}/{part}"), shape=shape, data=None)
                for part, shape, like in forms[len(node.outputs) - 1 :]
            ]
            tensors += own
            node = replace(node, outputs=(*node.outputs, *(tensor.name for tensor in own)))
        nodes.append(node)
    return graph.rebuilt(nodes, tensors)


def read_single_steps(graph: Graph) -> Graph:
    """Return the graph in which the new hidden state of an LSTM of one step is read from the layer's output, which has the same bytes.

    Only the next run then reads the state, and the layer updates the state in place (``select/states.py``).
    """
    readers, kept = graph.consumers(), {state.update for state in graph.states}
    other_name: dict[str, str] = {}
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for node in graph.nodes:
        nodes.append(replace(node, inputs=tuple(name and other_name.get(name, name) for name in node.inputs)))
        if node.op != "unidirectional_sequence_lstm" or len(node.outputs) < 2:
            continue
        hidden = node.outputs[1]
        if recurrent.steps_and_sequences(graph, node)[0] == 1 and hidden in kept and hidden in readers:
            name = other_name[hidden] = graph.free_name(f"{hidden}/read")
            tensors.append(replace(graph[hidden], name=name))
            nodes.append(Node("reshape", node.outputs[:1], (name,), {"new_shape": graph[hidden].shape}, node.source))
    return graph.rebuilt(nodes, tensors)


Weights = npt.NDArray[np.int8]

_OPERANDS = {
    "conv_2d": (0, 1),
    "depthwise_conv_2d": (0, 1),
    "fully_connected": (0, 1),
    "transpose_conv": (DATA, WEIGHTS),
}
"""The operand positions of the input and the weights."""


def split_weights(graph: Graph) -> Graph:
    """Return the graph with symmetric weights alone; those with a zero point become sets of int8 weights over copies of the input.

    A weight less its zero point is between -255 and 255. This difference is a sum of two int8 numbers, or of three where it is 255;
    the sum of the products stays the same modulo 2^32 in any order. The pass therefore repeats the input's channels once for each
    set and concatenates the sets along the channels. A depthwise convolution has one channel for each output, so there the rows of
    the input and of the kernel are repeated.
    """
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for node in graph.nodes:
        weights = graph.operand(node, _OPERANDS[node.op][1]) if node.op in _OPERANDS else None
        if weights is None or weights.quant is None or not any(weights.quant.zero_points):
            nodes.append(node)
            continue
        more_nodes, more_tensors = _Split(graph, node).done()
        nodes += more_nodes
        tensors += more_tensors
    return graph.rebuilt(nodes, tensors) if tensors else graph


def parts_of(differences: npt.NDArray[np.int16]) -> list[Weights]:
    """Return int8 arrays whose sum equals the values, as few arrays as possible, at least one."""
    parts: list[Weights] = []
    while not parts or differences.any():
        part = np.clip(differences, -128, 127)
        parts.append(part.astype(np.int8))
        differences = differences - part
    return parts


class _Split:
    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node
        self._data_place, self._weights_place = _OPERANDS[node.op]
        self._data, weights = graph.given(node, self._data_place), graph.given(node, self._weights_place)
        assert weights.data is not None and weights.quant is not None
        self._weights = weights
        self._parts = parts_of(weights.data.astype(np.int16) - weights.quant.zero_point)
        self._nodes: list[Node] = []
        self._tensors: list[Tensor] = []

    def done(self) -> tuple[list[Node], list[Tensor]]:
        node, copies = self._node, len(self._parts)
        if copies == 1:
            source, weights = self._data.name, self._parts[0]
        elif node.op == "depthwise_conv_2d":
            source, weights = self._doubled_rows()
            _, height, width, _ = self._data.shape
            padding = explicit_padding(node, height, width, *self._weights.shape[1:3])
            node = node.with_attrs(
                padding=(copies * padding[0], copies * padding[1], *padding[2:]),
                stride_h=copies * node["stride_h"],
                dilation_h=1,
            )
        else:
            source = self._beside_itself(self._weights.shape[-1])
            weights = np.concatenate(self._parts, axis=-1)
        assert self._weights.quant is not None
        quant = QuantParams(self._weights.quant.scales, (0,))
        name = self._name("weights")
        self._tensors.append(constant(name, weights, quant))
        inputs = list(node.inputs)
        inputs[self._data_place], inputs[self._weights_place] = source, name
        return [*self._nodes, replace(node, inputs=tuple(inputs))], self._tensors

    def _beside_itself(self, channels: int) -> str:
        """Return the input with each group of ``channels`` channels repeated once for each part."""
        copies, shape = len(self._parts), self._data.shape
        if len(shape) == 4 and shape[-1] == channels:
            return self._joined(self._data.name, shape, 3)
        groups = (math.prod(shape) // channels, channels)
        wide = self._joined(self._reshaped(self._data.name, groups, "groups"), groups, 1)
        if self._node.op == "fully_connected" and not self._node["keep_num_dims"]:
            return wide
        return self._reshaped(wide, (*shape[:-1], copies * shape[-1]), "input")

    def _doubled_rows(self) -> tuple[str, Weights]:
        """Return the input with each row once for each part, and the kernel with a row of each part for each row."""
        copies, (batches, height, width, channels) = len(self._parts), self._data.shape
        # In memory, rows repeated along the width equal repeated rows.
        wide = self._joined(self._data.name, self._data.shape, 2)
        _, kernel_h, kernel_w, filters = self._weights.shape
        dilation = self._node["dilation_h"]
        taps = np.zeros((1, (kernel_h - 1) * dilation + 1, copies, kernel_w, filters), np.int8)
        taps[:, ::dilation] = np.stack(self._parts, axis=2)
        return (
            self._reshaped(wide, (batches, copies * height, width, channels), "input"),
            taps.reshape(1, -1, kernel_w, filters),
        )

    def _joined(self, source: str, shape: tuple[int, ...], axis: int) -> str:
        copies = len(self._parts)
        name = self._tensor("copies", (*shape[:axis], copies * shape[axis], *shape[axis + 1 :]))
        attrs = {"axis": axis, "activation": "NONE"}
        self._nodes.append(Node("concatenation", (source,) * copies, (name,), attrs, self._node.source))
        return name

    def _reshaped(self, source: str, shape: tuple[int, ...], part: str) -> str:
        name = self._tensor(part, shape)
        self._nodes.append(Node("reshape", (source,), (name,), {"new_shape": shape}, self._node.source))
        return name

    def _tensor(self, part: str, shape: tuple[int, ...]) -> str:
        name = self._name(part)
        self._tensors.append(replace(self._data, name=name, shape=shape))
        return name

    def _name(self, part: str) -> str:
        return self._graph.free_name(f"{self._node.name}/{part}")


PASSES: tuple[tuple[Callable[[Graph], Graph], Collection[str]], ...] = (
    (fuse_dilation, ("batch_to_space_nd",)),
    (take_apart, ()),
    (drop_zero_sums, ("add", "sub")),
    (rescale_joined, ("concatenation",)),
    (rename_identities, ()),
    (merge_equal, ()),
    (view_before_pad, ("pad", "padv2")),
    (fuse_padding, ("pad", "padv2")),
    (fuse_crop, ("slice",)),
    (fuse_activation, FUSED_NAME),
    (split_weights, ()),
    (read_single_steps, ("unidirectional_sequence_lstm",)),
    (add_states, STATEFUL),
)
"""Each pass with the operators of which it rewrites one at least; none: it may rewrite any."""


def legalize(graph: Graph) -> Graph:
    """Return the graph after every pass that applies, once, in order."""
    for rewrite, operators in PASSES:
        if not operators or any(node.op in operators for node in graph.nodes):
            graph = rewrite(graph)
            graph.verify()
    return graph
