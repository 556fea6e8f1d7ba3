# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite a graph of LiteRT operators so that the kernels compute it in as few calls as possible. No bit of a result changes.

The passes replace composed operators by their parts, and fuse activations, pads, slices and dilations into neighbouring operators.
They also merge equal nodes, such as the attention mask that several layers compute.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openneutron import ops
from openneutron.compiler.legalize.quantize import ENLARGING, join_slices, rescale_before_enlarging, tables_before_join
from openneutron.ir import Graph, Node, QuantParams, Tensor, constant
from openneutron.ir.graph import read_once
from openneutron.ops import BY_NAME, recurrent
from openneutron.ops.conv import DATA, OUTPUT_SHAPE, WEIGHTS, Padding, cropped, explicit_padding
from openneutron.ops.limits import STORED
from openneutron.ops.rescaling import STORED_BOUNDS, steps_of
from openneutron.ops.shape import VIEWS, amounts_of, block_of, pads, slice_window
from openneutron.ops.table import constant_values

FUSED_NAME = {"relu": "RELU", "relu6": "RELU6", "relu_n1_to_1": "RELU_N1_TO_1"}


def fuse_activation(graph: Graph) -> Graph:
    """Return the graph with RELU, RELU6 and RELU_N1_TO_1 fused into the operators before them, where that changes no
    bit.

    The input and the result of the activation must have equal scales and zero points. LiteRT then requantizes by
    exactly 1, and the activation only clamps the stored values, as a fused activation does. The operator before must
    be able to have an activation and have none yet, must be no CONCATENATION, and must have no other reader.
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


_CONVOLUTIONS = ("conv_2d", "depthwise_conv_2d")


def fuse_padding(graph: Graph) -> Graph:
    """Return the graph with PAD and PADV2 fused into the explicit padding of the convolution or max pool that reads
    them.

    The pad must be of an image, along rows and columns only, and have no other reader. A convolution can absorb a pad
    whose value is the zero point of its input (real 0), as its own padding has this value. A max pool can absorb a
    pad of the lowest stored value, which is never the largest of a window, if each window has a value outside the
    padding. An average pool would count padded values, so a pad before it stays.
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
    # A window that is entirely inside the padding would have no value of which to take the largest.
    lowest, _ = STORED_BOUNDS[graph[pad.name].dtype]
    return value == lowest and max(top, bottom) < node["kernel_h"] and max(left, right) < node["kernel_w"]


def fuse_crop(graph: Graph) -> Graph:
    """Return the graph with each SLICE after a TRANSPOSE_CONV fused into it: the convolution crops the rows and columns itself.

    A SLICE stays if it drops batches or channels, or if the whole result of the convolution has another reader.
    """
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
    """Return the rows and columns that the transposed convolution ``node`` crops if it also does the work of the slice
    ``after``. Return None if the slice drops batches or channels."""
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
    """Return the graph with each PAD moved behind the reshape that reads it, so that ``fuse_padding`` can fuse the
    PAD.

    The reshape may only add and remove axes of one element. No other node may read the PAD, and only convolutions and
    max pools may read the reshape. An example is a convolution in one dimension with a separate pad: PAD, reshape to
    an image of one row, CONV_2D.
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
        # The reshape can have the pad's name, since no other node reads the pad.
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
    """Match the axes of two shapes that differ only in axes of one element. Return for each axis of ``after`` the index
    of the same axis in ``before``, or None for an axis of one element. Return None if the shapes differ in other
    axes."""
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    if [before[axis] for axis in left] != [extent for extent in after if extent != 1]:
        return None
    return [left.pop(0) if extent != 1 else None for extent in after]


@dataclass(frozen=True, slots=True)
class _Chain:
    """The nodes of a dilated convolution, in order: SPACE_TO_BATCH_ND, view, convolution, view, BATCH_TO_SPACE_ND.

    ``before`` and ``behind`` are None if the chain has no views. ``axes`` are the axes of the rank-4 image that the blocks divide.
    """

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
    """Return the graph with each chain of SPACE_TO_BATCH_ND, convolution and BATCH_TO_SPACE_ND fused into one dilated convolution.

    TensorFlow writes every dilated convolution in this form. SPACE_TO_BATCH_ND makes each position in a block a batch, so that
    neighbours in a batch are one block size apart in the input. In one dimension the chain also has a reshape before and after the
    convolution, which add and drop an axis of one element. A chain stays if one convolution can't express its pads and crops as
    padding, or if no kernel has the dilation.
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
            continue  # No kernel has this dilation.
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
    """Return the view that computes the node's first operand, and the node that computes the input of that view.

    If no view computes the operand, return None and the node that computes the operand itself. Either node is None if
    no node computes the tensor, as for a graph input.
    """
    made = producers.get(node.inputs[0] or "")
    if made is None or made.op not in VIEWS:
        return None, made
    return made, producers.get(made.inputs[0] or "")


def _along(graph: Graph, sequence: str | None, image: str | None, axis: int) -> bool:
    """Return whether ``image`` [batch, rows, columns, channels] is a reshape of ``sequence`` [batch, length, channels],
    with the length as its rows (``axis`` 1) or as its columns (``axis`` 2)."""
    shape = graph[str(sequence)].shape
    return len(shape) == 3 and graph[str(image)].shape == _image_shape(shape, axis)


def _image_shape(sequence: tuple[int, ...], axis: int) -> tuple[int, ...]:
    batch, length, channels = sequence
    return (batch, length, 1, channels) if axis == 1 else (batch, 1, length, channels)


def _padding(graph: Graph, chain: _Chain) -> Padding | None:
    """Return the padding of the dilated convolution that replaces a chain. Return None if padding can't express the
    chain's pads and crops, or if the convolution has a stride, a dilation or padding of its own along an axis of the
    blocks."""
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
    """Return the nodes that replace a chain, and by name the tensors that have another shape after the replacement."""
    attrs = {
        f"dilation_{'hw'[axis - 1]}": size for axis, size in zip(chain.axes, block_of(graph, chain.spread), strict=True)
    }
    convolution = chain.convolution.with_attrs(padding=padding, **attrs)
    source, result = str(chain.spread.inputs[0]), chain.gathered.name
    if chain.before is None or chain.behind is None:
        return [replace(convolution, inputs=(source, *convolution.inputs[1:]), outputs=(result,))], {}
    # The tensors between the chain's nodes have no other readers, so their names can be used again.
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


Key = tuple[object, ...]


def merge_equal(graph: Graph) -> Graph:
    """Return the graph with equal nodes merged: nodes of the same operator with equal attributes, operands and type of result.

    Constant operands are equal if their types and values are. A node stays if its result is a graph output or the new value of a
    state, if it has several results, or if all its operands are constant.
    """
    kept = set(graph.kept_tensors)
    first_of: dict[Key, list[Node]] = defaultdict(list)
    instead: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(None if name is None else instead.get(name, name) for name in node.inputs))
        if len(node.outputs) == 1 and any(name is not None and not graph[name].is_constant for name in node.inputs):
            alike = first_of[_key(graph, node)]
            equal = next((other for other in alike if _same_constants(graph, node, other)), None)
            if equal is not None and node.name not in kept:
                instead[node.name] = equal.name
                continue
            if equal is None:
                alike.append(node)
        nodes.append(node)
    return graph.rebuilt(nodes) if instead else graph


def _key(graph: Graph, node: Node) -> Key:
    """Return a hashable key that is equal for equal nodes. It does not include the values of constant operands, which
    ``_same_values`` compares."""
    operands = tuple(
        _type(graph[name]) if name is not None and graph[name].is_constant else name for name in node.inputs
    )
    return node.op, repr(sorted(node.attrs.items())), operands, _type(graph[node.name])


def _type(tensor: Tensor) -> Key:
    return tensor.shape, tensor.dtype, tensor.quant


def _same_constants(graph: Graph, node: Node, other: Node) -> bool:
    pairs = zip(node.inputs, other.inputs, strict=True)
    return all(a == b or _same_values(graph[str(a)], graph[str(b)]) for a, b in pairs)


def _same_values(a: Tensor, b: Tensor) -> bool:
    """Return whether two constants have the same values. A constant of several elements whose strides are all 0 stands
    for unknown values, so the result is then False."""
    if a.data is None or b.data is None:
        return False
    known = all(data.size == 1 or any(data.strides) for data in (a.data, b.data))
    return known and np.array_equal(a.data, b.data)


def rename_identities(graph: Graph) -> Graph:
    """Return the graph with a reshape in place of every operator that moves and changes no byte. A reshape needs no kernel call."""
    return graph.rebuilt(
        _view(graph, node, node.inputs[0]) if node.op in VIEWS or _moves_nothing(graph, node) else node
        for node in graph.nodes
    )


def _view(graph: Graph, node: Node, source: str | None) -> Node:
    """Return the reshape of the tensor ``source`` that replaces ``node``: it has the node's result and shape."""
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
        # With both attributes LiteRT adds 0.5 to each position and rounds halves up: values shift by one even if the sizes are equal.
        shifted = node["align_corners"] and node["half_pixel_centers"]
        return data.shape == graph[node.name].shape and not shifted
    return False


def drop_zero_sums(graph: Graph) -> Graph:
    """Return the graph with every ADD and SUB of zeros that changes no value replaced by a reshape of its other operand."""
    kept = ((node, unchanged_operand(graph, node)) for node in graph.nodes)
    return graph.rebuilt(node if name is None else _view(graph, node, name) for node, name in kept)


def unchanged_operand(graph: Graph, node: Node) -> str | None:
    """Return the name of the operand of an ADD or SUB that passes unchanged: the other operand is a constant of
    zeros, and the stored result equals this operand's stored values. Return None if there is no such operand.

    LiteRT (add.cc, sub.cc) shifts each stored value, minus its zero point, left by 20 bits (int16: by 15). It
    multiplies the shifted value by (operand scale) / (2 * larger scale), and the sum by (2 * larger scale) / (2^20 *
    output scale) (int16: 2^15). If the output's scale equals the operand's, and the scale of the zeros is not larger,
    these factors are 1/2 and 1/2^19 (1/2^14). Both are exact, and so is the result. If the scale of the zeros is
    larger, the first factor is rounded.
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
    """Return the graph with every composed operator replaced by the operators of its composition, recursively.

    The row of an operator in the operator table states the composition.
    """
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
    """Return the graph with table lookups before uint8 CONCATENATIONs: one for each input whose scale or zero point
    differs from the output's.

    The lookup rescales the input. LiteRT's int8 kernel copies bytes, while its uint8 kernel rescales such inputs in
    float32 (ConcatenationWithScaling of reference/concatenation.h).
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
    """Return the graph with more outputs of recurrent layers: the new value of each state, and an LSTM's scratch memory for its gates."""
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
    """Return the graph in which readers of an LSTM's new hidden state read the layer's output instead, if the LSTM
    has one step.

    With one step, the output and the new state have the same bytes. Once no node reads the new state, the layer can
    update the state in place (``select/calls.py``).
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
    """Return the graph with symmetric weights only: weights with a zero point are split into sets of int8 weights.

    A weight minus its zero point is between -255 and 255. This difference is the sum of one to three int8 numbers
    (three for 255), so the weights are the sum of that many sets. The pass concatenates the sets along the input
    channels, and the input's channels occur once for each set. Products are added modulo 2^32, so that the new order
    of the sum changes no result.

    A filter of a depthwise convolution has a single input channel. There each row of the input occurs once for each
    set, and the kernel has the rows of the sets in turn: row 0 of each set, row 1 of each set, and so on.
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
    """Return the fewest int8 arrays, at least one, whose sum is ``differences``."""
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
        """Make a tensor from the layer's input, and return its name. Each group of ``channels`` channels of the input
        occurs in it once for each set of int8 weights, side by side."""
        copies, shape = len(self._parts), self._data.shape
        if len(shape) == 4 and shape[-1] == channels:
            return self._joined(self._data.name, shape, 3)
        groups = (math.prod(shape) // channels, channels)
        wide = self._joined(self._reshaped(self._data.name, groups, "groups"), groups, 1)
        if self._node.op == "fully_connected" and not self._node["keep_num_dims"]:
            return wide
        return self._reshaped(wide, (*shape[:-1], copies * shape[-1]), "input")

    def _doubled_rows(self) -> tuple[str, Weights]:
        """Make a tensor from the layer's input, in which each row occurs once for each set of int8 weights. Return
        its name, and the weights with the rows of the sets interleaved.

        The kernel's dilation along the rows becomes rows of zeros in the weights.
        """
        copies, (batches, height, width, channels) = len(self._parts), self._data.shape
        # A row that is repeated along the width has the same bytes as two equal rows.
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
    (rescale_before_enlarging, ENLARGING),
    (join_slices, ("concatenation",)),
    (tables_before_join, ("concatenation",)),
    (view_before_pad, ("pad", "padv2")),
    (fuse_padding, ("pad", "padv2")),
    (fuse_crop, ("slice",)),
    (fuse_activation, FUSED_NAME),
    (split_weights, ()),
    (read_single_steps, ("unidirectional_sequence_lstm",)),
    (add_states, STATEFUL),
)
"""The passes in the order they run. Beside each are operator names: the pass runs only if the graph has one of them;
without names it always runs."""


def legalize(graph: Graph) -> Graph:
    """Return the graph after ``PASSES``, each of which runs at most once."""
    for rewrite, operators in PASSES:
        if not operators or any(node.op in operators for node in graph.nodes):
            graph = rewrite(graph)
            graph.verify()
    return graph
