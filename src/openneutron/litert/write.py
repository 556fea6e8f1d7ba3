# SPDX-License-Identifier: BSD-3-Clause
"""Graphs to LiteRT flatbuffers, which every LiteRT interpreter runs."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.litert.read import DTYPE_OF_LITERT, FILE_IDENTIFIER
from openneutron.ops import BY_NAME, Attribute
from openneutron.ops.reductions import WIDE

LITERT_OF_DTYPE = {dtype: code for code, dtype in DTYPE_OF_LITERT.items()}
SCHEMA_VERSION = 3
BUFFER_ALIGNMENT = 16
DESCRIPTION = b"OpenNeutron"


def write(graph: Graph) -> bytes:
    """Return the graph as a ``.tflite`` file. Every node must be a row of the operator table; what LiteRT does not have
    is said with several of its operators.

    The same graph gives the same bytes.
    """
    graph = expanded(graph)
    model = schema.ModelT()
    model.version = SCHEMA_VERSION
    model.description = DESCRIPTION
    model.buffers = [schema.BufferT()]
    model.operatorCodes = []
    model.metadata = None
    model.signatureDefs = None
    subgraph = schema.SubGraphT()
    subgraph.name = graph.name.encode()
    order = tensor_order(graph)
    index = {name: i for i, name in enumerate(order)}
    subgraph.tensors = [tensor_object(model, graph[name]) for name in order]
    subgraph.inputs = np.array([index[name] for name in graph.inputs], np.int32)
    subgraph.outputs = np.array([index[name] for name in graph.outputs], np.int32)
    codes: dict[str, int] = {}
    subgraph.operators = [_operator(model, codes, node, index) for node in graph.nodes]
    model.subgraphs = [subgraph]
    return pack(model)


class _Builder(flatbuffers.Builder):
    """Aligns bytes as LiteRT's schema demands of buffers, which the generated Python code forgets."""

    def StartVector(self, elemSize: int, numElems: int, alignment: int) -> int:
        return super().StartVector(elemSize, numElems, BUFFER_ALIGNMENT if elemSize == 1 else alignment)


def pack(model: Any) -> bytes:
    """Return a model's flatbuffer objects as bytes."""
    builder = _Builder(1 << 16)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    return bytes(builder.Output())


def tensor_order(graph: Graph) -> list[str]:
    """Return tensor names in a fixed order: inputs, then each node's operands and outputs, then outputs."""
    order: dict[str, None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        order.update(dict.fromkeys(name for name in node.inputs if name is not None))
        order.update(dict.fromkeys(node.outputs))
    order.update(dict.fromkeys(graph.outputs))
    return list(order)


def tensor_object(model: Any, tensor: Tensor) -> Any:
    """Return the flatbuffer object of a tensor; a constant's data becomes a new buffer of the model."""
    item = schema.TensorT()
    item.name = tensor.name.encode()
    item.shape = np.array(tensor.shape, np.int32)
    item.type = LITERT_OF_DTYPE[tensor.dtype]
    item.buffer = 0
    if tensor.data is not None:
        item.buffer = _new_buffer(model, tensor.data)
    if tensor.quant is not None:
        quant = schema.QuantizationParametersT()
        quant.scale = np.array(tensor.quant.scales, np.float32)
        quant.zeroPoint = np.array(tensor.quant.zero_points, np.int64)
        quant.quantizedDimension = tensor.quant.axis or 0
        item.quantization = quant
    return item


def stored(model: Any, item: Any, data: np.ndarray) -> Any:
    """Return the flatbuffer object of a tensor with constant values, which become a new buffer of the model."""
    twin = copy.copy(item)
    twin.buffer = _new_buffer(model, data)
    return twin


def _new_buffer(model: Any, data: np.ndarray) -> int:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def _operator(model: Any, codes: dict[str, int], node: Node, index: dict[str, int]) -> Any:
    row = BY_NAME[node.op]
    if row.litert not in codes:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, row.litert)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = row.version
        codes[row.litert] = len(model.operatorCodes)
        model.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex = codes[row.litert]
    given = list(node.inputs)
    while given and given[-1] is None:
        given.pop()
    operator.inputs = np.array([-1 if name is None else index[name] for name in given], np.int32)
    operator.outputs = np.array([index[name] for name in node.outputs], np.int32)
    if hasattr(schema.BuiltinOptions, row.options_table):
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, row.options_table)
        operator.builtinOptions = getattr(schema, f"{row.options_table}T")()
        for attribute in row.attributes:
            value = _litert_value(attribute, node.attrs.get(attribute.name, attribute.default))
            setattr(operator.builtinOptions, attribute.litert_field, value)
    return operator


def _litert_value(attribute: Attribute, value: Any) -> Any:
    if attribute.values is not None:
        return next(code for code, name in attribute.values.items() if name == value)
    if isinstance(attribute.default, tuple):
        return np.array(value, np.int32) if value else None
    return value


# -- operators that LiteRT does not have, stated with those it has -------------------------------------------------------


def expanded(graph: Graph) -> Graph:
    """Return the graph with LiteRT's operators alone; the same graph where it has no others."""
    if all(BY_NAME[node.op].litert for node in graph.nodes):
        return graph
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        if node.op == "lookup":
            nodes += _lookup(tensors, node)
        elif node.op == "softmax_rescaled":
            nodes += _softmax(tensors, node)
        else:
            assert BY_NAME[node.op].litert, f"LiteRT has no operator for {node.op}"
            nodes.append(node)
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


def _lookup(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    """Lower a table of 256 entries to a GATHER whose index is the stored value plus 128, by a CAST and an ADD of integers."""
    data, table = node.inputs
    assert data is not None and table is not None
    name = node.outputs[0]
    shape = tensors[data].shape
    wide, index, offset = (f"{name}/{piece}" for piece in ("wide", "index", "offset"))
    for tensor in (
        Tensor(wide, shape, DType.INT32),
        Tensor(index, shape, DType.INT32),
        constant(offset, np.array(128, np.int32)),
    ):
        assert tensor.name not in tensors, f"{tensor.name} is there already"
        tensors[tensor.name] = tensor
    return [
        Node("cast", (data,), (wide,), {}, node.source),
        Node("add", (wide, offset), (index,), {}, node.source),
        Node("gather", (table, index), (name,), {}, node.source),
    ]


def _softmax(tensors: dict[str, Tensor], node: Node) -> list[Node]:
    """Lower a softmax with an output scale of its own to SOFTMAX to int16 and QUANTIZE to int8."""
    (data,), (name,) = node.inputs, node.outputs
    assert data is not None
    wide = Tensor(f"{name}/wide", tensors[name].shape, DType.INT16, per_tensor(*WIDE))
    assert wide.name not in tensors, f"{wide.name} is there already"
    tensors[wide.name] = wide
    return [
        Node("softmax", (data,), (wide.name,), node.attrs, node.source),
        Node("quantize", (wide.name,), (name,), {}, node.source),
    ]
