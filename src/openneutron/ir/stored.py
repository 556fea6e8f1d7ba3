# SPDX-License-Identifier: BSD-3-Clause
"""Graphs as data: a value for JSON, and the bytes of the constants. Reading returns an equal graph.

JSON has no tuples. A tuple is a list here, as no attribute is a list.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from openneutron.ir.graph import AttrValue, DType, Graph, Node, QuantParams, State, Tensor


def written(graph: Graph) -> tuple[dict[str, Any], list[bytes]]:
    """Return the graph as a value for JSON, and the bytes of its constants in the order of their tensors.

    Raises TypeError for an attribute that JSON would return as something else.
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
    """Return the graph of ``written``. Its constants can't be written to.

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
