# SPDX-License-Identifier: BSD-3-Clause
"""The graph that lowering rules build: its tensors and nodes so far, and the values of edge nodes in it.

A value of the edge program has its dimensions in PyTorch's order. The tensor that holds it may have the dimensions in another order, such
as NHWC. Elementwise operators accept any order. An operator that needs a certain order asks for it, and only then a transpose is added. A
permute adds no node, and neither does a view that the stored order can express.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from openneutron import ops
from openneutron.ir import DType, Graph, QuantParams, Tensor, constant, per_tensor
from openneutron.ir import Node as IrNode
from openneutron.pytorch.graph.program import (
    CHANNELS_LAST,
    GETITEM,
    QUANTIZE_FIRST,
    WITH_INTEGERS,
    Constants,
    Rejected,
    activation_params,
    is_compute,
    is_dequantize,
    is_exact,
    is_number,
    is_quantize,
    model_name,
    op_name,
    quant_params,
    shape_of,
    short_name,
    stored_type,
)
from openneutron.pytorch.operators.rules.tables import LOWER_RULES

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the edge program with the shape ``shape``, held by the tensor ``tensor`` of the graph.

    The tensor holds the value with its axes in another order: axis i of the tensor is axis ``order[i]`` of ``base``.
    ``base`` is ``shape``, except after a view that no order of axes can express. Then the value has the elements of
    ``base``, taken in row-major order and reshaped to ``shape``.
    """

    tensor: str
    shape: Shape
    order: Shape
    base: Shape

    @property
    def is_settled(self) -> bool:
        """Return whether the tensor has the dimensions of ``shape``, in any order, so that ``base`` equals ``shape``."""
        return self.base == self.shape

    @property
    def stored(self) -> Shape:
        """Return the tensor's shape."""
        return tuple(self.base[axis] for axis in self.order)

    def verify(self) -> None:
        """Assert that order and shapes fit each other."""
        assert sorted(self.order) == list(range(len(self.base))), f"{self.tensor}: order {self.order} of {self.base}"
        assert math.prod(self.base) == math.prod(self.shape), f"{self.tensor}: {self.base} is no view of {self.shape}"


def plain(tensor: str, shape: Shape) -> Value:
    """Return a value whose tensor has its dimensions in their own order."""
    return Value(tensor, shape, tuple(range(len(shape))), shape)


def without_ones(order: Shape, base: Shape) -> Shape:
    """Return the order without axes of extent 1. Two orders that are equal without these axes have the same memory layout."""
    return tuple(axis for axis in order if base[axis] != 1)


def lies_as(base: Shape, order: Shape, other: Shape) -> bool:
    """Return whether a tensor of shape ``base`` has the same bytes in the axis orders ``order`` and ``other``."""
    return without_ones(order, base) == without_ones(other, base)


def permuted(value: Value, dims: Shape) -> Value:
    """Return the value after a permute by ``dims``. The tensor does not change. ``value`` must be settled."""
    assert value.is_settled
    base = tuple(value.base[dim] for dim in dims)
    place = {dim: new for new, dim in enumerate(dims)}
    return Value(value.tensor, base, tuple(place[axis] for axis in value.order), base)


def groups_of(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of consecutive axes of ``before``, each with the axes of ``after`` that have the same elements.

    Example: (2, 3, 4) and (6, 4) give axes 0 and 1 with axis 0, and axis 2 with axis 1. The shapes must have equal numbers of elements.
    Axes of extent 1 are left out.
    """
    left = [axis for axis, extent in enumerate(before) if extent != 1]
    right = [axis for axis, extent in enumerate(after) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        first, second = [left.pop(0)], [right.pop(0)]
        a, b = before[first[0]], after[second[0]]
        while a != b:
            if a < b:
                first.append(left.pop(0))
                a *= before[first[-1]]
            else:
                second.append(right.pop(0))
                b *= after[second[-1]]
        groups.append((first, second))
    assert not left and not right, f"{before} and {after} have not as many elements"
    return groups


def order_for_view(base: Shape, order: Shape, shape: Shape) -> Shape:
    """Return an axis order of ``base`` in which a tensor can be viewed as ``shape`` without a copy. It is the one
    closest to ``order``, the present axis order.

    The axes of each group (``groups_of``) become neighbours in ascending order, at the place of the group's last axis
    in ``order``.
    """
    place = {axis: index for index, axis in enumerate(order)}
    gathered = [(max(place[axis] for axis in run), run) for run, _ in groups_of(base, shape)]
    loose = [(place[axis], [axis]) for axis in order if base[axis] == 1]
    return tuple(axis for _, run in sorted(gathered + loose) for axis in run)


def order_after_view(base: Shape, order: Shape, shape: Shape) -> Shape | None:
    """Return the axis order of ``shape`` after a view of a tensor, whose bytes in memory do not change. Return None
    if no axis order describes these bytes.

    The axes of each group (``groups_of``) must be consecutive and ascending in ``order``, the tensor's axis order
    before the view.
    """
    place = {axis: index for index, axis in enumerate(without_ones(order, base))}
    runs = []
    for old, new in groups_of(base, shape):
        first = place[old[0]]
        if [place[axis] for axis in old] != list(range(first, first + len(old))):
            return None
        runs.append((first, new))
    result = [axis for _, run in sorted(runs) for axis in run]
    # An axis of extent 1 may have any place; directly after the axis before it, a plain order stays plain.
    for axis, extent in enumerate(shape):
        if extent == 1:
            result.insert(result.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(result)


def is_clamp(node: Node) -> bool:
    return op_name(node) in ACTIVATIONS


def is_fused_clamp(node: Node) -> bool:
    """Return whether a node clamps to the bounds of one of LiteRT's fused activations."""
    try:
        return is_clamp(node) and clamp_bounds(node) in FUSED.values()
    except Rejected:
        return False


def clamp_bounds(node: Node) -> Bounds:
    """Return the bounds of a clamp. Raises Rejected if a bound is a tensor."""
    defaults = ACTIVATIONS[op_name(node)]
    names = ("min_val", "max_val") if op_name(node).startswith("aten.hardtanh") else ("min", "max")
    found: list[float | None] = []
    for place, (name, default) in enumerate(zip(names, defaults, strict=True), start=1):
        bound = node.args[place] if place < len(node.args) else node.kwargs.get(name, default)
        if bound is not None and not isinstance(bound, (int, float)):
            raise Rejected("its bounds are computed at run time")
        found.append(None if bound is None else float(bound))
    return Bounds(*found)


def moves(node: Node) -> bool:
    """Return whether the node only moves values."""
    name = op_name(node)
    return name == GETITEM or (name in LOWER_RULES and LOWER_RULES[name].moves)


Stored = tuple[QuantParams, DType]
"""The quantization and the type of a result."""


class Results:
    """Finds the quantization of results: a search forward from a node to the quantize nodes that read its result. For
    a node that only moves values, the search also goes back to its input."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def quant(self, node: Node) -> QuantParams:
        """Return the quantization of a node's result, from the quantize nodes that read it directly or through
        operators that only move values.

        A node that only moves values has the quantization of its input if no quantize node follows, or if the one
        that follows has another type. Raises Rejected for a result with no quantization, or with two different ones.
        """
        return self._stored(node)[0]

    def dtype(self, node: Node) -> DType:
        """Return the stored type of a node's result. It comes from the same node as the quantization that ``quant``
        returns."""
        return self._stored(node)[1]

    def _stored(self, node: Node) -> Stored:
        found = self._ahead(node)
        if moves(node):
            # A move keeps the type of its input. A quantize node of another type converts the result afterwards.
            before = self._behind(node)
            found = before if found is None or (before is not None and before[1] is not found[1]) else found
        if found is None:
            raise Rejected(self._why_float(node), QUANTIZE_FIRST)
        return found

    def is_quantized(self, node: Node) -> bool:
        """Return whether the node's result is quantized before any operator computes with it."""
        return self._ahead(node) is not None

    def fused(self, node: Node) -> Node | None:
        """Return the clamp that is fused into ``node``, or None. It is the only reader of a node whose rule can fuse clamps."""
        rule = LOWER_RULES.get(op_name(node))
        if rule is None or not rule.fuses or len(node.users) != 1:
            return None
        user = next(iter(node.users))
        return user if is_clamp(user) else None

    def bounds(self, node: Node) -> Bounds:
        """Return the bounds of the clamp that is fused into ``node``, or UNBOUNDED if there is none."""
        clamp = self.fused(node)
        return UNBOUNDED if clamp is None else clamp_bounds(clamp)

    def _ahead(self, node: Node) -> Stored | None:
        clamp = self.fused(node)
        if clamp is not None:
            return self._ahead(clamp)
        found: Stored | None = None
        for user in node.users:
            if is_quantize(user):
                stored = activation_params(user, self._constants), stored_type(user)
            elif moves(user):
                further = self._ahead(user)
                if further is None:
                    return None
                stored = further
            else:
                return None
            if found is not None and stored != found:
                raise Rejected(f"its result is quantized in two ways, {found[0]} and {stored[0]}")
            found = stored
        return found

    def _behind(self, node: Node) -> Stored | None:
        while moves(node):
            source = node.args[0]
            if isinstance(source, (list, tuple)):
                source = source[0]
            if not isinstance(source, Node):
                return None
            node = source
        return (quant_params(node, self._constants), stored_type(node)) if is_dequantize(node) else None

    def _why_float(self, node: Node) -> str:
        for user in node.users:
            if is_compute(user):
                return f"{short_name(user)} '{model_name(user)}' reads its result before it is quantized"
            if user.op == "output":
                return "its result leaves the model before it is quantized"
        return "its result is not quantized"


def ends_of(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest value that a type of activations stores."""
    ends = np.iinfo(dtype.numpy)
    return int(ends.min), int(ends.max)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Real numbers between which values are clamped; None is no bound."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        low = "-inf" if self.low is None else f"{self.low:g}"
        return f"[{low}, {'inf' if self.high is None else f'{self.high:g}'}]"


UNBOUNDED = Bounds()

FUSED = {"NONE": UNBOUNDED, "RELU": Bounds(0.0), "RELU6": Bounds(0.0, 6.0), "RELU_N1_TO_1": Bounds(-1.0, 1.0)}
"""LiteRT's fused activations."""

ALONE = {
    "relu": Bounds(0.0),
    "relu6": Bounds(0.0, 6.0),
    "relu_n1_to_1": Bounds(-1.0, 1.0),
    "relu_0_to_1": Bounds(0.0, 1.0),
}
"""LiteRT's operators that only clamp, with their bounds."""


SATURATING = 2.0**16
"""A multiple of the scale that saturates int8 with any zero point, and int16 with the zero point 0."""

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "aten.relu.default": (0.0, None),
        "aten.relu6.default": (0.0, 6.0),
        "aten.hardtanh.default": (-1.0, 1.0),
        "aten.clamp.default": (None, None),
        "aten.clamp_min.default": (None, None),
    }
)
"""Operators that only clamp, with their bounds where the arguments 1 and 2 do not state them. Each can be fused into the operator before.
"""


def stored_bounds(bounds: Bounds, quant: QuantParams, dtype: DType) -> tuple[int, int]:
    """Return the bounds as stored values, as LiteRT computes them: zero point + round(bound / scale), half away from zero,
    saturated."""
    least, most = ends_of(dtype)

    def stored(real: float | None, absent: int) -> int:
        if real is None or math.isinf(real):
            return absent
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / np.float32(quant.scale))
        steps = min(SATURATING, max(-SATURATING, steps))
        away = math.copysign(math.floor(abs(steps) + 0.5), steps)
        return int(min(most, max(least, quant.zero_point + away)))

    return stored(bounds.low, least), stored(bounds.high, most)


def fused_activation(bounds: Bounds, quant: QuantParams, dtype: DType = DType.INT8) -> str | None:
    """Return LiteRT's name of the first activation in ``FUSED`` that clamps results of this quantization to ``bounds``, or None."""
    wanted = stored_bounds(bounds, quant, dtype)
    return next((name for name, own in FUSED.items() if stored_bounds(own, quant, dtype) == wanted), None)


def clamp_operator(bounds: Bounds, quant: QuantParams, dtype: DType = DType.INT8) -> str | None:
    """Return the name of the operator in ``ALONE``, such as a ReLU, that clamps results of this quantization to
    ``bounds``.

    Return ``""`` if the bounds change no value, and None if no operator clamps to them.
    """
    wanted = stored_bounds(bounds, quant, dtype)
    if wanted == ends_of(dtype):
        return ""
    return next((name for name, own in ALONE.items() if stored_bounds(own, quant, dtype) == wanted), None)


FACTOR_STEPS = 2**14

NARROWER = "Give its module int8 activations with layer_activations."
"""The suggestion for an operator without an int16 form."""


class Context:
    """The tensors and nodes of the graph so far, and the value of each edge node that is lowered.

    ``mark`` and ``back_to`` undo additions, so that a node that can't be lowered leaves nothing in the graph.
    """

    def __init__(self, constants: Constants, results: Results) -> None:
        self.constants = constants
        self.results = results
        self.nodes: list[IrNode] = []
        self.tensors: dict[str, Tensor] = {}
        self.values: dict[Node, Value] = {}
        self.inputs: dict[Node, Value] = {}
        """The values from outside of the partition, each in the layout of its tensor."""
        self.enter: Callable[[Node], Value] | None = None
        """A function that returns the value of integers or booleans that are constant or from outside of the partition."""
        self._moved: dict[tuple[str, str, Shape], str] = {}
        self._view_of: dict[str, str] = {}
        self._tables: tuple[dict[Any, Any], ...] = (self.tensors, self.values, self.inputs, self._moved, self._view_of)
        self._source = ""
        self._node: Node | None = None
        self.owners: dict[str, Node] = {}
        """The edge node that each result was added for."""

    # Taking back

    def mark(self) -> tuple[int, ...]:
        """Return the current state, for ``back_to``."""
        return (len(self.nodes), *(len(table) for table in self._tables))

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Remove all nodes, tensors and values that were added since ``mark`` returned this value. ``owners`` keeps
        its entries."""
        del self.nodes[mark[0] :]
        for table, size in zip(self._tables, mark[1:], strict=True):
            while len(table) > size:
                table.popitem()

    # Reading

    def begin(self, node: Node) -> None:
        """Set the edge node for which the next nodes of the graph are added."""
        self._source = model_name(node)
        self._node = node

    def value(self, node: object) -> Value:
        """Return the value of an operand. Raises Rejected if it is neither quantized nor of integers or booleans."""
        if not isinstance(node, Node):
            raise Rejected(f"its operand {node!r} is a number", QUANTIZE_FIRST)
        if node not in self.values and (is_exact(node) or is_number(node)) and self.enter is not None:
            self.values[node] = self.enter(node)
        if node not in self.values:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.dtype != torch.float32:
                raise Rejected(
                    f"its input '{model_name(node)}' is {value.dtype}; what can be quantized is torch.float32"
                )
            raise Rejected(f"its input '{model_name(node)}' is not quantized", QUANTIZE_FIRST)
        return self.values[node]

    def quant(self, value: Value) -> QuantParams:
        """Return the quantization of a value's tensor. Raises Rejected if it has none."""
        quant = self.tensors[value.tensor].quant
        if quant is None:
            here = self.tensors[value.tensor]
            raise Rejected(
                f"its input '{self._title(here.name)}' is {here.dtype}; the NPU computes on int8 and int16",
                WITH_INTEGERS,
            )
        return quant

    def dtype(self, value: Value) -> DType:
        """Return the type of a value's tensor."""
        return self.tensors[value.tensor].dtype

    def activation(self, node: Node, quant: QuantParams) -> str:
        """Return LiteRT's name of the activation that is fused into ``node``. Raises Rejected if LiteRT has no such activation."""
        bounds = self.results.bounds(node)
        name = fused_activation(bounds, quant, self.results.dtype(node))
        if name is None:
            raise Rejected(
                f"the clamp to {bounds} behind it is none of LiteRT's fused activations",
                "ReLU, ReLU6 and Hardtanh(-1, 1) are.",
            )
        return name

    def _title(self, tensor: str) -> str:
        """Return the name of a tensor in messages."""
        return model_name(self.owners[tensor]) if tensor in self.owners else tensor

    # Adding

    def unique(self, stem: str) -> str:
        """Return a tensor name that is not taken yet."""
        name, number = stem, 1
        while name in self.tensors:
            name, number = f"{stem}_{number}", number + 1
        return name

    def add_tensor(self, tensor: Tensor) -> str:
        assert tensor.name not in self.tensors, f"{tensor.name} is there already"
        self.tensors[tensor.name] = tensor
        return tensor.name

    def add_constant(self, stem: str, data: np.ndarray, quant: QuantParams | None = None) -> str:
        """Add a constant and return its name. Data with strides 0, which stands for a known shape with unknown values, is not expanded."""
        name = self.unique(stem)
        if 0 in data.strides and data.size > 1:
            return self.add_tensor(Tensor(name, data.shape, DType(data.dtype.name), quant, data))
        return self.add_tensor(constant(name, data, quant))

    def add_factor(self, stem: str, factor: float, dtype: DType) -> str:
        """Add the constant operand of a MUL by ``factor``, a number other than 0, and return its name.

        LiteRT's int16 MUL can only scale down, so that an int16 factor is stored as a large integer with a small scale.
        """
        steps = int(math.copysign(FACTOR_STEPS if dtype is DType.INT16 else 1, factor))
        return self.add_constant(stem, np.array(steps, dtype.numpy), per_tensor(factor / steps, 0))

    def add_integers(self, stem: str, numbers: Sequence[int]) -> str:
        """Add a constant int32 operand, such as axes, paddings or a shape, and return its name."""
        return self.add_constant(stem, np.asarray(numbers, np.int32))

    def emit(
        self,
        op: str,
        inputs: Sequence[str | None],
        shape: Shape,
        quant: QuantParams | None,
        stem: str,
        dtype: DType | None = None,
        **attrs: Any,
    ) -> str:
        """Add a node with one result and return the result's name.

        ``dtype``: the result's type; None means int16 if an input is int16, else int8. Raises Rejected if the node breaks a limit
        of its row in the operator table.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if dtype is None:
            given_types = {self.tensors[key].dtype for key in inputs if key is not None}
            dtype = DType.INT16 if DType.INT16 in given_types else DType.INT8
        name = self.add_tensor(Tensor(self.unique(stem), tuple(shape), dtype, quant))
        row = ops.BY_NAME[op]
        attributes = {attribute.name: attribute.default for attribute in row.attributes} | attrs
        node = IrNode(op, tuple(inputs), (name,), attributes, self._source)
        used = {key: self.tensors[key] for key in (*node.inputs, name) if key is not None}
        piece = Graph(op, used, (node,), (), (name,))
        reason = ops.reject(piece, node)
        if reason is not None:
            # The same reason once more, with the names that messages use.
            piece = replace(piece, tensors={key: replace(item, name=self._title(key)) for key, item in used.items()})
            reason = ops.reject(piece, node)
            assert reason is not None
            raise Rejected(reason, NARROWER if dtype is DType.INT16 and dtype not in row.types else "")
        self.nodes.append(node)
        if self._node is not None:
            self.owners[name] = self._node
        return name

    # Layouts

    def arranged(self, value: Value, order: Shape) -> str:
        """Return a tensor that has the value's dimensions in the order ``order``.

        A TRANSPOSE is added only if the bytes are in another order, and only once for all readers.
        """
        shape = tuple(value.shape[axis] for axis in order)
        if not value.is_settled:
            beneath = order_after_view(value.shape, order, value.base)
            if beneath is not None:
                base = Value(value.tensor, value.base, value.order, value.base)
                return self.reshaped(self.arranged(base, beneath), shape)
            value = self.settled(value)
        if value.order == order:
            return value.tensor
        if lies_as(value.base, value.order, order):
            return self.reshaped(value.tensor, shape)
        place = {axis: index for index, axis in enumerate(value.order)}
        return self.transposed(value.tensor, tuple(place[axis] for axis in order))

    def nhwc(self, value: Value) -> str:
        """Return the NHWC tensor of a rank-4 value. Raises Rejected for another rank."""
        if len(value.shape) != 4:
            raise Rejected(f"its input has rank {len(value.shape)}; it must be 4")
        return self.arranged(value, CHANNELS_LAST)

    def from_nhwc(self, tensor: str, shape: Shape) -> Value:
        """Return the value of NCHW shape ``shape`` that the NHWC tensor ``tensor`` holds."""
        return Value(tensor, shape, CHANNELS_LAST, shape)

    def settled(self, value: Value) -> Value:
        """Return the value in a tensor that has the value's own dimensions; see ``Value.is_settled``."""
        if value.is_settled:
            return value
        order = order_for_view(value.base, value.order, value.shape)
        whole = self.arranged(Value(value.tensor, value.base, value.order, value.base), order)
        settled = self.viewed(Value(whole, value.base, order, value.base), value.shape)
        assert settled.is_settled
        return settled

    def viewed(self, value: Value, shape: Shape) -> Value:
        """Return the value after a view to ``shape``. No bytes move until an operator needs another order."""
        order = order_after_view(value.base, value.order, shape)
        if order is None:
            return Value(value.tensor, shape, value.order, value.base)
        stored = tuple(shape[axis] for axis in order)
        return Value(self.reshaped(value.tensor, stored), shape, order, shape)

    def holders(self, tensor: str) -> Sequence[str]:
        """Return the tensors with the bytes of this one: the tensor itself, and the tensor of which it is a view."""
        return tensor, self._view_of.get(tensor, tensor)

    def reshaped(self, tensor: str, shape: Shape) -> str:
        """Return a tensor with the same bytes and the shape ``shape``."""
        tensor = self._view_of.get(tensor, tensor)
        here = self.tensors[tensor]
        if here.shape == shape:
            return tensor
        name = self._once("reshape", tensor, shape, lambda: self._reshape(here, shape))
        if not here.is_constant:
            self._view_of[name] = tensor
        return name

    def _reshape(self, here: Tensor, shape: Shape) -> str:
        if here.data is not None:
            quant = viewed_axis(here.quant, here.shape, shape)
            return self.add_constant(f"{here.name}_view", _reshaped(here.data, shape), quant)
        operand, stem = self.add_integers(f"{here.name}_shape", shape), f"{here.name}_view"
        return self.emit("reshape", (here.name, operand), shape, here.quant, stem, here.dtype, new_shape=shape)

    def transposed(self, tensor: str, permutation: Shape) -> str:
        """Return the tensor after a transpose of its axes by ``permutation``."""
        here = self.tensors[tensor]
        return self._once("transpose", tensor, permutation, lambda: self._transpose(here, permutation))

    def _transpose(self, here: Tensor, permutation: Shape) -> str:
        stem = f"{here.name}_{'nhwc' if permutation == CHANNELS_LAST else 'transposed'}"
        shape = tuple(here.shape[axis] for axis in permutation)
        if here.data is not None:
            quant = here.quant
            if quant is not None and quant.axis is not None:
                quant = QuantParams(quant.scales, quant.zero_points, permutation.index(quant.axis))
            return self.add_constant(stem, here.data.transpose(permutation), quant)
        operand = self.add_integers(f"{here.name}_permutation", permutation)
        return self.emit("transpose", (here.name, operand), shape, here.quant, stem, here.dtype)

    def _once(self, how: str, tensor: str, parameter: Shape, make: Any) -> str:
        key = (how, tensor, parameter)
        if key not in self._moved:
            self._moved[key] = make()
        return self._moved[key]

    def requantized(self, value: Value, quant: QuantParams, stem: str, dtype: DType | None = None) -> Value:
        """Return the value with this scale and zero point, and with the type ``dtype`` unless that is None.

        A value that has them already is returned unchanged. Raises Rejected for a constant that does not have them.
        """
        here = self.tensors[value.tensor]
        if here.quant == quant and dtype in (None, here.dtype):
            return value
        if here.data is not None:
            raise Rejected("its constant input is quantized twice")
        name = self.emit("quantize", (here.name,), here.shape, quant, stem, dtype)
        return Value(name, value.shape, value.order, value.base)

    def pad_value(self, quant: QuantParams, real: float, dtype: DType) -> int:
        """Return the stored integer for a real number in this quantization, saturated. The number may be infinite."""
        low, high = stored_bounds(Bounds(real, real), quant, dtype)
        return high if real > 0 else low

    def add_number(self, stem: str, stored: int, quant: QuantParams, dtype: DType) -> Value:
        """Add a constant of rank 0 with one stored integer and return its value."""
        return plain(self.add_constant(stem, np.array(stored, dtype.numpy), quant), ())


def viewed_axis(quant: QuantParams | None, before: Shape, after: Shape) -> QuantParams | None:
    """Return the quantization of a tensor after a reshape from ``before`` to ``after``.

    Raises Rejected for per-channel scales if the reshape splits the channel axis or merges it with another one.
    """
    if quant is None or quant.axis is None:
        return quant
    if before[quant.axis] == 1:
        # One scale is that of the whole tensor, whatever its shape.
        return QuantParams(quant.scales, quant.zero_points)
    for old, new in groups_of(before, after):
        if old == [quant.axis] and len(new) == 1:
            return QuantParams(quant.scales, quant.zero_points, new[0])
    raise Rejected("its constant is quantized per channel and read in a shape without that axis")


def _reshaped(data: np.ndarray, shape: Shape) -> np.ndarray:
    if data.size > 1 and not any(data.strides):
        return np.broadcast_to(data.reshape(-1)[:1].reshape(()), shape)
    return data.reshape(shape)


def broadcasting(
    node: Node,
    context: Context,
    op: str,
    values: Sequence[Value],
    quant: QuantParams | None,
    dtype: DType | None = None,
    **attrs: Any,
) -> Value:
    """Add an elementwise operator on values that broadcast to the node's shape, and return its result.

    Operands whose tensors have different axis orders are transposed to a common order.
    """
    shape, first = shape_of(node), values[0]
    if all((value.shape, value.base, value.order) == (shape, first.base, first.order) for value in values):
        tensors, order, base = [value.tensor for value in values], first.order, first.base
    else:
        order, base = _common_order(context, values, shape), shape
        padded = (context.viewed(value, (1,) * (len(shape) - len(value.shape)) + value.shape) for value in values)
        tensors = [context.arranged(value, order) for value in padded]
    stored = tuple(base[axis] for axis in order)
    return Value(context.emit(op, tensors, stored, quant, node.name, dtype, **attrs), shape, order, base)


def _common_order(context: Context, values: Sequence[Value], shape: Shape) -> Shape:
    """Return the axis order for an elementwise operator on these values.

    It is the order of a computed operand with this shape, or else of a computed operand with this rank. If several
    qualify, one that differs from PyTorch's order, such as NHWC, is preferred.
    """
    computed = [value for value in values if value.is_settled and not context.tensors[value.tensor].is_constant]
    orders = [value.order for value in computed if value.shape == shape]
    orders = orders or [value.order for value in computed if len(value.shape) == len(shape)]
    plain = tuple(range(len(shape)))
    return next((order for order in orders if order != plain), plain)


def take(context: Context, source: str, axis: int, positions: Sequence[int], stem: str) -> str:
    """Return a tensor of the given positions along an axis, in the given order. It is the source itself for all
    positions in their order, a SLICE if they are consecutive, else a GATHER."""
    here = context.tensors[source]
    assert here.quant is not None
    positions = list(positions)
    shape = (*here.shape[:axis], len(positions), *here.shape[axis + 1 :])
    if positions == list(range(here.shape[axis])):
        return source
    if positions == list(range(positions[0], positions[0] + len(positions))):
        begin = context.add_integers(f"{stem}_begin", [positions[0] if i == axis else 0 for i in range(len(shape))])
        size = context.add_integers(f"{stem}_size", shape)
        return context.emit("slice", (source, begin, size), shape, here.quant, stem)
    indices = context.add_integers(f"{stem}_positions", positions)
    return context.emit("gather", (source, indices), shape, here.quant, stem, axis=axis)
