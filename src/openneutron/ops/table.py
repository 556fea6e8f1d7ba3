# SPDX-License-Identifier: BSD-3-Clause
"""Declare the columns of the operator table.

The rows are in the other files of this folder, one file for each family. Everything that differs between operators is
in a row, or in a table of rules with the row's name as its key. A row has the names for reader and writer (``litert``,
``options``, ``attributes``), the rules for shapes (``shape``) and quantization (``quantization``), limits, and the
kernels that the operator can become (``kernels``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant
from openneutron.ir.graph import AttrValue
from openneutron.ops.limits import (
    SHARED_QUANTIZATION,
    STORED,
    Limit,
    alike,
    constant_at,
    fixed_output,
    int8_weight,
    movable_at,
    stored_at,
    typed_bias,
    unquantized,
)

INT8_OR_INT16 = (DType.INT8, DType.INT16)

ShapeRule = Callable[[Graph, Node], tuple[tuple[int, ...], ...]]
"""A function that returns the shapes of all outputs, from the operands' shapes and values and the attributes."""


def shape_of(graph: Graph, node: Node, index: int = 0) -> tuple[int, ...]:
    """Return the shape of the operand at ``index``. The node must have this operand."""
    return graph.given(node, index).shape


def same_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the first operand's shape. This is the shape rule of operators whose elements each come from the same
    position."""
    return (shape_of(graph, node),)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape to which NumPy broadcasts these shapes; None if they do not broadcast."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def broadcast(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the shape to which all operands broadcast. This is the shape rule of operators with several operands of
    one kind."""
    shape = broadcast_shape(*(graph[name].shape for name in node.inputs if name is not None))
    assert shape is not None
    return (shape,)


def stated_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the shape that the file states. This is the shape rule of operators for which any shape with the same
    number of bytes is right."""
    return (graph[node.outputs[0]].shape,)


def shape_given_by(index: int) -> ShapeRule:
    """Return the shape rule of operators whose operand at ``index`` holds the output's shape."""
    return lambda graph, node: (constant_values(graph, node, index),)


def shape_reason(graph: Graph, node: Node, *shapes: tuple[int, ...]) -> str | None:
    """Return the reason why the outputs can't have the shapes that the file states, or None."""
    for name, shape in zip(node.outputs, shapes, strict=True):
        stated = graph[name].shape
        if shape != stated:
            return f"its output is said to have shape {list(stated)}; its operands make it {list(shape)}"
    return None


def constant_values(graph: Graph, node: Node, index: int) -> tuple[int, ...]:
    """Return the values of a parameter operand; asserts that it is a constant."""
    data = graph.given(node, index).data
    assert data is not None
    return tuple(int(value) for value in np.asarray(data).reshape(-1))


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """A list of nodes that together compute what one other node computes, and the tensors between them."""

    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]

    def within(self, graph: Graph) -> Graph:
        """Return a graph of these nodes only, with all tensors of ``graph``."""
        tensors = {**graph.tensors, **{tensor.name: tensor for tensor in self.tensors}}
        return replace(graph, tensors=tensors, nodes=self.nodes)


class Parts:
    """A builder for the nodes that together replace ``node``, a node of ``graph``.

    Tensors are given by name. A method that adds a node returns the name of the node's output. If the method gets
    ``output``, the new node computes that tensor. Otherwise the output is a new tensor with the type and quantization
    of the source.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node
        self._nodes: list[Node] = []
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors.get(name) or self._graph[name]

    def _name(self) -> str:
        name = f"{self._node.name}/{len(self._tensors)}"
        while name in self._graph.tensors:
            name += "_"
        return name

    def constant(self, data: npt.ArrayLike, quant: QuantParams | None = None) -> str:
        """Add a constant tensor."""
        tensor = constant(self._name(), data, quant)
        self._tensors[tensor.name] = tensor
        return tensor.name

    def integers(self, values: Sequence[int]) -> str:
        """Add a constant int32 vector."""
        return self.constant(np.array(values, np.int32).reshape(-1))

    def new(self, shape: Sequence[int], dtype: DType, quant: QuantParams | None) -> str:
        """Add a tensor that a node computes."""
        tensor = Tensor(self._name(), tuple(shape), dtype, quant)
        self._tensors[tensor.name] = tensor
        return tensor.name

    def add(self, op: str, inputs: Sequence[str], output: str, **attrs: AttrValue) -> str:
        """Add a node that computes ``output``."""
        return self.add_several(op, inputs, (output,), attrs)

    def add_several(
        self, op: str, inputs: Sequence[str | None], outputs: Sequence[str], attrs: Mapping[str, AttrValue]
    ) -> str:
        """Add a node that computes these tensors, and return the first tensor."""
        self._nodes.append(Node(op, tuple(inputs), tuple(outputs), attrs, self._node.source))
        return outputs[0]

    def _result(self, output: str | None, shape: Sequence[int], source: str) -> str:
        return output or self.new(shape, self[source].dtype, self[source].quant)

    def reshape(self, source: str, shape: Sequence[int], output: str | None = None) -> str:
        """Add a RESHAPE to this shape."""
        result = self._result(output, shape, source)
        return self.add("reshape", [source, self.integers(shape)], result, new_shape=tuple(shape))

    def transpose(self, source: str, order: Sequence[int], output: str | None = None) -> str:
        """Add a TRANSPOSE to this order of axes."""
        shape = [self[source].shape[axis] for axis in order]
        return self.add("transpose", [source, self.integers(order)], self._result(output, shape, source))

    def pad(self, source: str, amounts: npt.NDArray[np.int32], output: str | None = None) -> str:
        """Add a PAD with the zero point; ``amounts`` has a row (before, after) for each axis."""
        shape = [extent + int(sum(pair)) for extent, pair in zip(self[source].shape, amounts, strict=True)]
        return self.add("pad", [source, self.constant(amounts)], self._result(output, shape, source))

    def slice(self, source: str, begin: Sequence[int], size: Sequence[int], output: str | None = None) -> str:
        """Add a SLICE of the box of this size that starts at ``begin``."""
        operands = [source, self.integers(begin), self.integers(size)]
        return self.add("slice", operands, self._result(output, size, source))

    def concatenate(self, pieces: Sequence[str], axis: int, output: str | None = None) -> str:
        """Add a CONCATENATION of the pieces along an axis."""
        shape = list(self[pieces[0]].shape)
        shape[axis] = sum(self[piece].shape[axis] for piece in pieces)
        result = self._result(output, shape, pieces[0])
        return self.add("concatenation", pieces, result, axis=axis, activation="NONE")

    def gather(self, source: str, indices: str, output: str | None = None) -> str:
        """Add a GATHER of the slices of axis 0 at ``indices``."""
        shape = (*self[indices].shape, *self[source].shape[1:])
        return self.add("gather", [source, indices], self._result(output, shape, source), axis=0, batch_dims=0)

    def rows(self, source: str, row: Sequence[int]) -> str:
        """Add a RESHAPE to a matrix. Each row has as many elements as the shape ``row``."""
        width = math.prod(row)
        return self.reshape(source, (self[source].elements // max(width, 1), width))

    def done(self) -> Composition:
        """Return the composition: the nodes in order, and the tensors that they use in addition to those of the graph."""
        return Composition(tuple(self._nodes), tuple(self._tensors.values()))


Compose = Callable[[Parts, Graph, Node], None]
"""A function that adds the parts of a node's composition. It is called only for a node that breaks no limit."""


class Role(Enum):
    """The role of an operand."""

    ACTIVATION = "activation"
    WEIGHT = "weight"
    BIAS = "bias"
    PARAMETER = "parameter"
    """A constant int32 tensor that LiteRT keeps as an operand: axes, paddings, a shape, a permutation."""
    INDICES = "indices"
    """Positions along an axis: int32 or int64, constant or computed."""
    CONDITION = "condition"
    """Booleans, constant or computed."""
    VALUE = "value"
    """Constant int8 values, such as those of a table or the value that a pad fills in."""
    STATE = "state"
    """The state before the first step: a variable of the file, or a computed tensor."""


class Quantization(Enum):
    """The rule by which the output's quantization follows from the inputs'."""

    FREE = "its own"
    SHARED = "the same as the input's"
    FIXED = "fixed"
    """The output has the scale and zero point of the row's ``fixed_output``."""
    NONE = "none: its values are no reals"


@dataclass(frozen=True, slots=True)
class Operand:
    role: Role
    name: str
    optional: bool = False
    repeated: bool = False
    channel_axis: int = 0
    """The axis of the output channels, for weights."""
    types: tuple[DType, ...] = (DType.INT32, DType.INT64)
    """The allowed types, for indices."""


INPUT = Operand(Role.ACTIVATION, "input")


def parameter(name: str) -> Operand:
    """Return the declaration of a parameter that every node must have."""
    return Operand(Role.PARAMETER, name)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a node, and the field of LiteRT's options that holds it. ``values`` maps LiteRT's enumerators to
    the values used here if the field is an enum."""

    name: str
    litert_field: str
    default: int | float | bool | str | tuple[int, ...]
    values: Mapping[int, str] | None = None
    unstated: bool = False
    """Whether a node leaves out the attribute if it has the default value."""


@dataclass(frozen=True, slots=True)
class Op:
    """The declaration of an operator: its row of the table."""

    name: str
    """LiteRT's name in lower case, or a name of our own if LiteRT has no such operator."""
    kernels: tuple[str, ...]
    """The microcode kernels that the operator may become."""
    operands: tuple[Operand, ...] = (INPUT,)
    shape: ShapeRule = same_shape
    options: str = ""
    """The name of LiteRT's options table, if it does not follow from the operator's name. An example is
    ``Conv2DOptions``."""
    attributes: tuple[Attribute, ...] = ()
    quantization: Quantization = Quantization.FREE
    fixed_output: tuple[float, int] | None = None
    """The scale and zero point of an int8 output; those of int16 outputs are ``limits.WIDE_FIXED``."""
    types: tuple[DType, ...] = (DType.INT8,)
    """The allowed types of activations and outputs. All activations and outputs of a node have one of them (but see
    ``converts``)."""
    converts: bool = False
    """Whether the activations and outputs of one node may have different types out of ``types``."""
    movable: bool = False
    """Whether activations and outputs may also have a type without a scale, whose values are moved unchanged."""
    rescales_inputs: bool = False
    """Whether inputs may have another quantization than the output. A limit of the row then bounds their scales."""
    limits: tuple[Limit, ...] = ()
    """The limits of the row. Limits that follow from the operands' roles and from the quantization are checked before
    them."""
    version: int = 1
    """The operator version that LiteRT requires for the int8 form."""
    unsigned: bool = False
    """True where LiteRT's uint8 kernel computes the same as its int8 kernel, on stored values that are 128 higher.
    Where the two round differently, kernel selection reads the node's attribute ``unsigned``."""
    in_litert: bool = True
    """Whether LiteRT has this operator. If not, ``litert.write`` writes several others for it."""
    checks_outputs: bool = True
    """Whether all outputs have the type of the activations. If not, only the row's own limits check the outputs."""
    intermediates: bool = False
    """True where a file states the quantization of intermediate tensors; the node's attribute ``intermediates`` then has a
    pair (scale, zero point) for each of them."""
    several_outputs: bool = False
    """Whether a node has several outputs, one for each shape that the shape rule returns. Otherwise a node has one output."""
    doc: str = ""
    made_of: Compose | None = None
    """The function that composes the operator of others, if kernel selection has no rule for it."""
    composed: Callable[[Graph, Node], bool] | None = None
    """Whether the composition replaces a given node. It is needed if kernel selection has a rule for the other nodes;
    None: all nodes are composed."""

    def __post_init__(self) -> None:
        if self.fixed_output is not None:
            object.__setattr__(self, "quantization", Quantization.FIXED)
        object.__setattr__(self, "limits", (*self._limits_of_roles(), *self.limits))

    def _limits_of_roles(self) -> Iterator[Limit]:
        places = {role: [i for i, operand in enumerate(self.operands) if operand.role is role] for role in Role}
        activations = places[Role.ACTIVATION]
        if self.movable:
            yield movable_at(None if self.operands[activations[0]].repeated else activations[0])
        elif self.quantization is not Quantization.NONE:
            yield stored_at(activations, self.types, self.checks_outputs)
            if DType.INT16 in self.types and not self.converts and self.checks_outputs:
                yield alike(activations)
        if places[Role.CONDITION]:
            yield unquantized(places[Role.CONDITION], False, DType.BOOL)
        for index, operand in enumerate(self.operands):
            if operand.role in (Role.PARAMETER, Role.VALUE) and not operand.optional:
                yield constant_at(index, operand.name)
            elif operand.role is Role.INDICES:
                yield unquantized([index], False, *operand.types)
            elif operand.role is Role.WEIGHT:
                yield int8_weight(index, operand.channel_axis)
            elif operand.role is Role.BIAS:
                yield typed_bias(index)
        if self.quantization is Quantization.SHARED and not self.rescales_inputs:
            yield SHARED_QUANTIZATION
        if self.fixed_output is not None:
            yield fixed_output(*self.fixed_output, self.types)

    @property
    def litert(self) -> str:
        """Return LiteRT's name of the operator; empty where LiteRT has no such operator."""
        return self.name.upper() if self.in_litert else ""

    @property
    def options_table(self) -> str:
        """Return the name that LiteRT's options table for the operator has. LiteRT need not have such a table: its schema says so."""
        return self.options or "".join(word.capitalize() for word in self.name.split("_")) + "Options"

    def is_composed(self, graph: Graph, node: Node) -> bool:
        """Return whether the composition replaces this node, which breaks no limit."""
        return self.made_of is not None and (self.composed is None or self.composed(graph, node))

    def composition(self, graph: Graph, node: Node) -> Composition:
        """Return the nodes that together compute what ``node`` computes, and the tensors between them.

        Only for rows with ``made_of``. ``is_composed`` says whether these nodes replace the node.
        """
        assert self.made_of is not None
        parts = Parts(graph, node)
        self.made_of(parts, graph, node)
        return parts.done()

    def reject(self, graph: Graph, node: Node) -> str | None:
        """Return the first reason why a node can't be compiled: a missing operand, a broken limit, or an impossible
        shape. Return None if there is none."""
        required = [index for index, operand in enumerate(self.operands) if not operand.optional]
        missing = [index for index in required if index >= len(node.inputs) or node.inputs[index] is None]
        if missing or not node.outputs or (len(node.outputs) != 1 and not self.several_outputs):
            given = f"it has {len(node.inputs)} inputs and {len(node.outputs)} outputs"
            return f"{given}; it takes {len(required)} and gives {'1 or more' if self.several_outputs else '1'}"
        try:
            return self._unsound_constant(graph, node) or self._broken_limit(graph, node)
        except (ArithmeticError, LookupError, ValueError) as error:
            # Limits and shape rules take operands as LiteRT allows them. A damaged file may hold anything.
            return f"its operands do not fit together ({error})"

    def _unsound_constant(self, graph: Graph, node: Node) -> str | None:
        for operand, name in zip(self.operands, node.inputs, strict=False):
            tensor = None if name is None else graph[name]
            if tensor is None or not tensor.is_constant:
                continue
            if operand.role in (Role.PARAMETER, Role.INDICES) and tensor.dtype not in (DType.INT32, DType.INT64):
                return f"its {operand.name} '{name}' is {tensor.dtype}; it must be int32"
            if operand.role in (Role.WEIGHT, Role.BIAS) and not tensor.elements:
                return f"its {operand.name} '{name}' has shape {list(tensor.shape)}; every extent must be above 0"
        return None

    def _broken_limit(self, graph: Graph, node: Node) -> str | None:
        for limit in self.limits:
            reason = limit(graph, node)
            if reason is not None:
                return reason
        return shape_reason(graph, node, *self.shape(graph, node))


moving = partial(Op, kernels=("copy_s8",), quantization=Quantization.SHARED, unsigned=True)
"""Makes the row of an operator that only moves stored values, so that int8 and uint8 are treated alike."""

moving_bytes = partial(moving, kernels=("copy_s8", "copy_s16"), types=STORED)
"""Makes the row of an operator that only moves stored values, and moves int16 as it moves int8."""
