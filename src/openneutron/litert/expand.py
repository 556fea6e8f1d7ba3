# SPDX-License-Identifier: BSD-3-Clause
"""Replace operators and forms that LiteRT does not have by LiteRT's operators."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.ops import BY_NAME
from openneutron.ops.reductions import WIDE


def expanded(graph: Graph) -> Graph:
    """Return the graph with only LiteRT's operators. A graph that has no other operators is returned as it is."""
    if all(BY_NAME[node.op].litert and not node.attrs.get("backwards") for node in graph.nodes):
        return graph
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.attrs.get("backwards") and BY_NAME[node.op].litert:
            nodes += _backwards(tensors, node)
        elif node.op in _EXPANSIONS:
            nodes += _EXPANSIONS[node.op](tensors, node)
        else:
            assert BY_NAME[node.op].litert, f"LiteRT has no operator for {node.op}"
            nodes.append(node)
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


def unstated(graph: Graph) -> Node | None:
    """Return the first node that no file can hold: LiteRT has neither the operator nor operators that compute the same.
    Return None where there is no such node."""
    return next((node for node in graph.nodes if not BY_NAME[node.op].litert and node.op not in _EXPANSIONS), None)


def _lookup(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    """Lower a table lookup to CAST, ADD and GATHER: the index is the stored value minus the lowest one of its type.

    An int16 table has 513 entries, with interpolation between them. It is first expanded to a table of the results of
    all 65536 stored values.
    """
    data, table = node.inputs
    assert data is not None and table is not None
    name = node.outputs[0]
    shape, entries = tensors[data].shape, tensors[table]
    lowest = -int(np.iinfo(entries.dtype.numpy).min)
    if entries.dtype is DType.INT16:
        assert entries.data is not None
        results = constant(f"{name}/results", interpolated(entries.data), entries.quant)
        tensors[results.name], table = results, results.name
    wide, index, offset = (f"{name}/{piece}" for piece in ("wide", "index", "offset"))
    for tensor in (
        Tensor(wide, shape, DType.INT32),
        Tensor(index, shape, DType.INT32),
        constant(offset, np.array(lowest, np.int32)),
    ):
        assert tensor.name not in tensors, f"{tensor.name} is there already"
        tensors[tensor.name] = tensor
    return [
        Node("cast", (data,), (wide,), {}, node.source),
        Node("add", (wide, offset), (index,), {}, node.source),
        Node("gather", (table, index), (name,), {}, node.source),
    ]


def interpolated(entries: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return the results of an int16 table of 513 entries for all stored values, as LUTLookup of LiteRT's
    internal/common.h computes them."""
    stored = np.arange(-(2**15), 2**15)
    place, offset = (stored >> 7) + 256, stored & 127
    first, next_one = (entries[place + more].astype(np.int64) for more in (0, 1))
    return (first + (((next_one - first).astype(np.int16) * offset + 64) >> 7)).astype(np.int16)


def _softmax(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    """Lower a softmax whose output scale is not LiteRT's fixed one to a SOFTMAX to int16 and a QUANTIZE to int8."""
    (data,), (name,) = node.inputs, node.outputs
    assert data is not None
    wide = Tensor(f"{name}/wide", tensors[name].shape, DType.INT16, per_tensor(*WIDE))
    assert wide.name not in tensors, f"{wide.name} is there already"
    tensors[wide.name] = wide
    return [
        Node("softmax", (data,), (wide.name,), node.attrs, node.source),
        Node("quantize", (wide.name,), (name,), {}, node.source),
    ]


def _backwards(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    """Lower a backward recurrent layer to a forward layer between two REVERSE_V2."""
    data, name = node.inputs[0], node.outputs[0]
    assert data is not None
    axis = constant(f"{name}/time", np.array([0 if node["time_major"] else 1], np.int32))
    turned = dataclasses.replace(tensors[data], name=f"{name}/reversed", data=None)
    result = dataclasses.replace(tensors[name], name=f"{name}/backwards")
    for tensor in (axis, turned, result):
        assert tensor.name not in tensors, f"{tensor.name} is there already"
        tensors[tensor.name] = tensor
    attrs = {key: value for key, value in node.attrs.items() if key != "backwards"}
    return [
        Node("reverse_v2", (data, axis.name), (turned.name,), {}, node.source),
        Node(node.op, (turned.name, *node.inputs[1:]), (result.name, *node.outputs[1:]), attrs, node.source),
        Node("reverse_v2", (result.name, axis.name), (name,), {}, node.source),
    ]


_EXPANSIONS = {"lookup": _lookup, "softmax_rescaled": _softmax}
"""The functions that replace an operator by several of LiteRT's operators with the same result."""
