# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of nodes and tensors, with the meaning of LiteRT's operators: the input of every stage before kernel
selection."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt


class DType(Enum):
    """Element types, named as LiteRT names them; ``value`` is the NumPy name."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    BOOL = "bool"
    OPAQUE = "V1"
    """A type of LiteRT that no operator here reads (strings, complex numbers, packed 4-bit integers)."""

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.value)

    @property
    def size_bytes(self) -> int:
        return self.numpy.itemsize

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class QuantParams:
    """The quantization parameters of a tensor: real = scale * (stored - zero_point), per tensor, or per slice along
    ``axis``.

    Scales are float32 values, held as Python floats. If there is more than one scale, ``axis`` is set.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(np.asarray(self.scales, np.float32).tolist()))
        object.__setattr__(self, "zero_points", tuple(map(int, self.zero_points)))

    @property
    def per_channel(self) -> bool:
        return self.axis is not None

    @property
    def scale(self) -> float:
        """Return the one scale; asserts that there is exactly one."""
        assert len(self.scales) == 1, "per-channel parameters have no single scale"
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Return the one zero point; asserts that there is exactly one."""
        assert len(self.zero_points) == 1, "per-channel parameters have no single zero point"
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.axis is not None:
            return f"scale[{len(self.scales)}] axis={self.axis}"
        return f"scale={self.scale:.6g} zp={self.zero_point}"


def per_tensor(scale: float, zero_point: int) -> QuantParams:
    """Return the quantization parameters of a tensor with one scale and one zero point."""
    return QuantParams((scale,), (zero_point,))


def per_channel(scales: npt.ArrayLike, axis: int) -> QuantParams:
    """Return quantization parameters with one scale for each index along ``axis``, and zero points of 0."""
    flat = tuple(np.asarray(scales, np.float32).reshape(-1).tolist())
    return QuantParams(flat, (0,) * len(flat), axis)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the graph, such as an int8 activation in NHWC, or a constant.

    ``data`` is an array of shape ``shape`` and of the NumPy type of ``dtype`` for a constant. It is None for a value
    that is computed at run time.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quant: QuantParams | None = None
    data: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * self.dtype.size_bytes

    def __str__(self) -> str:
        extents = ",".join(str(extent) for extent in self.shape)
        quant = f" {self.quant}" if self.quant else ""
        return f"{self.dtype}[{extents}]{quant}"

    def verify(self) -> None:
        """Assert that data, shape, type and quantization parameters agree."""
        if self.data is not None:
            assert self.data.shape == self.shape, f"{self.name}: data is {self.data.shape}, shape is {self.shape}"
            assert self.data.dtype == self.dtype.numpy, f"{self.name}: data is {self.data.dtype}, type is {self.dtype}"
        if self.quant is not None and self.quant.axis is not None:
            count = self.shape[self.quant.axis]
            assert len(self.quant.scales) == count, f"{self.name}: {len(self.quant.scales)} scales for {count} channels"


def constant(name: str, data: npt.ArrayLike, quant: QuantParams | None = None) -> Tensor:
    """Return a constant tensor with the values of ``data``. The NumPy type of ``data`` decides the element type."""
    array = np.ascontiguousarray(data)
    array = array.reshape(np.shape(data))
    return Tensor(name, tuple(array.shape), DType(array.dtype.name), quant, array)


AttrValue = Any
"""int, float, bool, str, or a tuple of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator. ``op`` is the name of a row in the operator table, or LiteRT's name of an operator without a row.

    ``inputs`` and ``outputs`` are tensor names. An absent optional operand is None. ``source`` is the node's origin for
    messages: a PyTorch module path, or the operator's index in a file.
    """

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))

    @property
    def name(self) -> str:
        """Return the first output's name, which is unique in a graph."""
        return self.outputs[0]

    def __getitem__(self, attr: str) -> AttrValue:
        return self.attrs[attr]

    def with_attrs(self, **changes: AttrValue) -> Node:
        return replace(self, attrs={**self.attrs, **changes})

    def __str__(self) -> str:
        operands = ", ".join("-" if name is None else f"%{name}" for name in self.inputs)
        attrs = "".join(f" {key}={_attr_text(value)}" for key, value in self.attrs.items())
        return f"{', '.join(f'%{name}' for name in self.outputs)} = {self.op}({operands}){attrs}"


def _attr_text(value: AttrValue) -> str:
    if isinstance(value, tuple):
        return "(" + ",".join(_attr_text(item) for item in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A value that lasts from one run to the next, such as a recurrent layer's hidden state or a ring buffer.

    Nodes read ``tensor``, which is neither an input nor computed. It has the value that ``update`` had at the end of
    the run before. ``update`` is any tensor of the graph with the same shape, type and quantization. If ``tensor`` and
    ``update`` are the same tensor, the state never changes. ``initial`` is the value before the first run and after a
    reset: an array of the tensor's shape and type, as stored, or None for zero in every byte.

    Two states may have the same ``update``. The ``update`` of a state may be the ``tensor`` of another state (a delay
    line). Some LiteRT operators compute a state in place, such as an LSTM its cell state in a variable tensor. Their
    nodes here have one more output: the new value. The compiler writes ``update`` to the memory of ``tensor`` if no
    node reads the old value any more; otherwise it copies ``update`` there at the end of the run.

    Example, a sum over all runs::

        states=(State("total", "total'"),)   nodes=(Node("add", ("total", "x"), ("total'",)),)
    """

    tensor: str
    update: str
    initial: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in execution order, and the tensors by name.

    ``tensors`` has every tensor that a node, an input, an output or a state names, in any order. ``states`` are the
    values that last between runs.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))

    @property
    def given_tensors(self) -> tuple[str, ...]:
        """Return the names of the tensors that have values at the start of a run: the inputs and the states."""
        return (*self.inputs, *(state.tensor for state in self.states))

    @property
    def kept_tensors(self) -> tuple[str, ...]:
        """Return the names of the tensors whose values are used after a run: the outputs and the states' new values."""
        return (*self.outputs, *(state.update for state in self.states))

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def operand(self, node: Node, index: int) -> Tensor | None:
        """Return the node's operand at ``index``; None where the operand is absent or the node has fewer operands."""
        if index >= len(node.inputs):
            return None
        name = node.inputs[index]
        return None if name is None else self.tensors[name]

    def given(self, node: Node, index: int) -> Tensor:
        """Return the node's operand at ``index``. Asserts that the operand is present."""
        tensor = self.operand(node, index)
        assert tensor is not None
        return tensor

    def producers(self) -> dict[str, Node]:
        """Return the node that computes each tensor, by the tensor's name."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each tensor, in order, by the tensor's name. Tensors without readers have no
        entry."""
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(name for name in node.inputs if name is not None):
                users.setdefault(name, []).append(node)
        return users

    def free_name(self, name: str) -> str:
        """Return the name, followed by as many underscores as make it unused in the graph."""
        while name in self.tensors:
            name += "_"
        return name

    def rebuilt(self, nodes: Iterable[Node], new_tensors: Iterable[Tensor] = ()) -> Graph:
        """Return the graph with these nodes. ``new_tensors`` are added, and replace tensors of the same names. Tensors
        that nothing names are dropped."""
        nodes = tuple(nodes)
        table = {**self.tensors, **{tensor.name: tensor for tensor in new_tensors}}
        used = {*self.given_tensors, *self.kept_tensors}
        for node in nodes:
            used.update(name for name in node.inputs if name is not None)
            used.update(node.outputs)
        return replace(self, nodes=nodes, tensors={name: tensor for name, tensor in table.items() if name in used})

    def verify(self) -> None:
        """Assert single assignment, execution order, and that every name is known. The tensors are verified too, and
        each state must have the same shape, type and quantization as its new value."""
        known = set(self.given_tensors) | {name for name, tensor in self.tensors.items() if tensor.is_constant}
        for name, tensor in self.tensors.items():
            assert name == tensor.name, f"tensor {tensor.name!r} is filed as {name!r}"
            tensor.verify()
        assigned = set(self.given_tensors)
        states = {state.tensor for state in self.states}
        assert len(states) == len(self.states), "a tensor is two states"
        assert not states.intersection(self.inputs), "a state is an input too"
        for node in self.nodes:
            for operand in node.inputs:
                known_by_now = operand is None or operand in known
                assert known_by_now, f"{node.op} {node.name!r} reads {operand!r} before it is computed"
            for output in node.outputs:
                assert output in self.tensors, f"{node.op} {node.name!r} writes unknown tensor {output!r}"
                assert output not in assigned, f"{output!r} is computed twice"
                assigned.add(output)
                known.add(output)
        for name in self.outputs:
            assert name in known, f"output {name!r} is never computed"
        for state in self.states:
            self._verify_state(state, known)

    def _verify_state(self, state: State, known: set[str]) -> None:
        assert state.update in known, f"{state.update!r}, the new value of state {state.tensor!r}, is never computed"
        kept, update = self.tensors[state.tensor], self.tensors[state.update]
        same = (kept.shape, kept.dtype, kept.quant) == (update.shape, update.dtype, update.quant)
        assert same, f"state {state.tensor!r} is {kept}, its new value {state.update!r} is {update}"
        if state.initial is not None:
            fits = (state.initial.shape, state.initial.dtype) == (kept.shape, kept.dtype.numpy)
            assert fits, f"state {state.tensor!r} is {kept}, its first value {state.initial.dtype}{state.initial.shape}"

    def __str__(self) -> str:
        inputs = ", ".join(f"%{name}: {self.tensors[name]}" for name in self.inputs)
        lines = [f"graph {self.name}({inputs}) {{"]
        for name, tensor in sorted(self.tensors.items()):
            if tensor.is_constant:
                lines.append(f"  const %{name}: {tensor}")
        for state in self.states:
            lines.append(f"  state %{state.tensor}: {self.tensors[state.tensor]}, then %{state.update}")
        for node in self.nodes:
            lines.append(f"  {node} : {', '.join(str(self.tensors[name]) for name in node.outputs)}")
        lines.append(f"  return {', '.join(f'%{name}' for name in self.outputs)}")
        lines.append("}")
        return "\n".join(lines)


def read_once(graph: Graph, consumers: Mapping[str, Sequence[Node]], node: Node) -> bool:
    """Return whether exactly one node reads the node's first result, which is neither a graph output nor the new value of a state."""
    return len(consumers.get(node.name, ())) == 1 and node.name not in graph.kept_tensors


@dataclass(frozen=True, slots=True)
class Fallback:
    """The cost of a group of connected operators that stay on the CPU.

    ``calls`` is the number of the model's delegate calls, and ``calls_without`` that number if the group ran on the
    NPU. ``border_bytes`` are the bytes that one inference transfers between the group and the NPU.
    """

    calls: int
    calls_without: int
    border_bytes: int


@dataclass(frozen=True, slots=True)
class OnCpu:
    """An operator that stays on the CPU, with the reason.

    ``operator`` is the kind of operator in the words of its source (``RESIZE_BILINEAR``, ``aten.convolution.default``),
    and ``name`` the name of this one. ``reason`` states the fact and the bound, and ``suggestion`` a remedy, if there
    is one. ``line`` is the line of the model's source, where it is known, and ``fallback`` the cost. ``call`` is the
    name of the user's call that the operator is a part of, and ``written`` what the user wrote there. ``converts`` is
    True where the operator only converts the model's inputs for the NPU, or its results back. ``macs`` are the
    operator's multiply-accumulates. ``computes`` is False for an operator that changes no value: a view, an identity, a
    dropout in eval mode. ``kernels`` is the backend of ExecuTorch that computes the operator, such as ``xnnpack``; empty where the runtime's
    own kernel does. ``kind`` and ``amount`` are the kind of work (a key of ``compiler/cost/executorch_kernels.json``) and how many
    multiply-accumulates or values there are; empty and 0 where they are not known.
    """

    operator: str
    name: str
    reason: str
    suggestion: str = ""
    line: str = ""
    written: str = ""
    call: str = ""
    fallback: Fallback | None = None
    converts: bool = False
    macs: int = 0
    computes: bool = True
    kernels: str = ""
    kind: str = ""
    amount: int = 0

    def __str__(self) -> str:
        text = f"{self.operator} '{self.name}' stays on the CPU: {self.reason}."
        return f"{text} {self.suggestion}" if self.suggestion else text


def written(graph: Graph) -> tuple[dict[str, Any], list[bytes]]:
    """Serialize a graph: return a value for JSON, and the bytes of each constant, in the order of the tensors. ``read``
    is the inverse.

    Raises TypeError for an attribute that JSON would not return as it is.
    """
    tensors = list(graph.tensors.values())
    facts = {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "tensors": [_tensor(tensor) for tensor in tensors],
        "nodes": [_node(node) for node in graph.nodes],
    }
    if graph.states:
        facts["states"] = [_state(state) for state in graph.states]
    return facts, [tensor.data.tobytes() for tensor in tensors if tensor.data is not None]


def _tensor(tensor: Tensor) -> list[Any]:
    quant = None if tensor.quant is None else [tensor.quant.scales, tensor.quant.zero_points, tensor.quant.axis]
    return [tensor.name, [int(extent) for extent in tensor.shape], tensor.dtype.value, quant, tensor.is_constant]


def _state(state: State) -> list[Any]:
    initial = None if state.initial is None else base64.b64encode(state.initial.tobytes()).decode()
    return [state.tensor, state.update, initial]


def _node(node: Node) -> list[Any]:
    attrs = {key: _plain(value) for key, value in node.attrs.items()}
    return [node.op, list(node.inputs), list(node.outputs), attrs, node.source]


def _plain(value: AttrValue) -> Any:
    if type(value) is tuple:
        return [_plain(item) for item in value]
    if value is not None and type(value) not in (int, float, bool, str):
        raise TypeError(f"an attribute is a {type(value).__name__}, which a graph's data has no form for")
    return value


def read(facts: dict[str, Any], constants: Iterable[bytes]) -> Graph:
    """Return the graph from the two results of ``written``. The arrays of its constants are read-only.

    Raises ValueError, TypeError, KeyError or StopIteration for data of another form.
    """
    rest = iter(constants)
    tensors = {item[0]: _read_tensor(item, rest) for item in facts["tensors"]}
    return Graph(
        facts["name"],
        tensors,
        tuple(_read_node(*item) for item in facts["nodes"]),
        tuple(facts["inputs"]),
        tuple(facts["outputs"]),
        tuple(_read_state(tensors[item[0]], *item) for item in facts.get("states", ())),
    )


def _read_state(tensor: Tensor, name: str, update: str, initial: str | None) -> State:
    if initial is None:
        return State(name, update)
    data = np.frombuffer(base64.b64decode(initial, validate=True), tensor.dtype.numpy)
    return State(name, update, data.reshape(tensor.shape))


def _read_tensor(facts: list[Any], rest: Iterator[bytes]) -> Tensor:
    name, shape, dtype, quant, is_constant = facts
    kind = DType(dtype)
    params = None if quant is None else QuantParams(tuple(quant[0]), tuple(quant[1]), quant[2])
    data = np.frombuffer(next(rest), kind.numpy).reshape(shape) if is_constant else None
    return Tensor(name, tuple(shape), kind, params, data)


def _read_node(op: str, inputs: list[str | None], outputs: list[str], attrs: dict[str, Any], source: str) -> Node:
    return Node(op, tuple(inputs), tuple(outputs), {key: _tuples(value) for key, value in attrs.items()}, source)


def _tuples(value: Any) -> AttrValue:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
