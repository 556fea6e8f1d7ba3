# SPDX-License-Identifier: BSD-3-Clause
"""Write graphs as LiteRT flatbuffers that every LiteRT interpreter runs. Remove unused parts of models, and cut models
out of files.

Operators and forms that LiteRT does not have are replaced by LiteRT's operators. ``with_frames`` gives a quantized file
an input for the frames of a camera: uint8 in place of int8, and blue first in place of red first.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.litert.read import (
    CUSTOM,
    DTYPE_OF_LITERT,
    FILE_IDENTIFIER,
    LiteRTModel,
    operator_name,
    places,
    read_model,
    unpack,
)
from openneutron.ops import BY_NAME, Attribute, Role
from openneutron.ops.reductions import WIDE

LITERT_OF_DTYPE = {dtype: code for code, dtype in DTYPE_OF_LITERT.items()}
SCHEMA_VERSION = 3
BUFFER_ALIGNMENT = 16
DESCRIPTION = b"OpenNeutron"


def write(graph: Graph) -> bytes:
    """Return the graph as the bytes of a ``.tflite`` file. The same graph gives the same bytes.

    Every node must have a row in the operator table. An operator that LiteRT does not have is written as several of
    LiteRT's. States that LiteRT's operators keep themselves, as those of an LSTM, become variables of the file. Other
    states become further inputs, and their new values further outputs.
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
    variables = set(states_of_operators(graph))
    given = (name for name in graph.given_tensors if name not in variables)
    subgraph.inputs = np.array([index[name] for name in given], np.int32)
    left = (state for state in graph.states if state.tensor not in variables)
    updates = dict.fromkeys(state.update for state in left if state.update not in graph.outputs)
    subgraph.outputs = np.array([index[name] for name in (*graph.outputs, *updates)], np.int32)
    codes: dict[str, int] = {}
    subgraph.operators = [_operator(model, codes, node, index) for node in graph.nodes]
    for node, operator in zip(graph.nodes, subgraph.operators, strict=True):
        _add_states(subgraph, node, operator)
    model.subgraphs = [subgraph]
    return pack(model)


class _Builder(flatbuffers.Builder):
    """A builder that aligns byte vectors as LiteRT's schema demands of buffers. The generated Python code does not."""

    def StartVector(self, elemSize: int, numElems: int, alignment: int) -> int:
        return super().StartVector(elemSize, numElems, BUFFER_ALIGNMENT if elemSize == 1 else alignment)


def pack(model: Any) -> bytes:
    """Return the bytes of a model, given its flatbuffer objects."""
    builder = _Builder(1 << 16)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    return bytes(builder.Output())


def tensor_order(graph: Graph) -> list[str]:
    """Return the names of a graph's tensors in a fixed order: inputs, then the operands and outputs of each node, then
    outputs."""
    order: dict[str, None] = dict.fromkeys(graph.given_tensors)
    for node in graph.nodes:
        order.update(dict.fromkeys(name for name in node.inputs if name is not None))
        order.update(dict.fromkeys(node.outputs))
    order.update(dict.fromkeys(graph.kept_tensors))
    return list(order)


def tensor_object(model: Any, tensor: Tensor) -> Any:
    """Return the flatbuffer object of a tensor. The data of a constant becomes a new buffer of the model."""
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
    """Return a copy of the tensor object ``item`` as a constant. ``data`` becomes a new buffer of the model."""
    twin = copy.copy(item)
    twin.buffer = _new_buffer(model, data)
    return twin


def constant_object(model: Any, like: Any, data: np.ndarray, name: str | None = None) -> Any:
    """Return the flatbuffer object of a constant with the type and quantization of the tensor object ``like``. ``data``
    becomes a new buffer of the model.

    Its name is ``name``, or that of ``like`` if ``name`` is None.
    """
    twin = stored(model, like, data)
    twin.shape, twin.shapeSignature = np.array(data.shape, np.int32), None
    twin.name = like.name if name is None else name.encode()
    twin.isVariable = False
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
    if row.intermediates:
        # LiteRT for Microcontrollers checks the number of an LSTM's operands, absent ones included.
        given += [None] * (len(row.operands) - len(given))
    operator.inputs = np.array([-1 if name is None else index[name] for name in given], np.int32)
    outputs = node.outputs[:1] if any(operand.role is Role.STATE for operand in row.operands) else node.outputs
    operator.outputs = np.array([index[name] for name in outputs], np.int32)
    if hasattr(schema.BuiltinOptions, row.options_table):
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, row.options_table)
        operator.builtinOptions = getattr(schema, f"{row.options_table}T")()
        for attribute in row.attributes:
            value = _litert_value(attribute, node.attrs.get(attribute.name, attribute.default))
            setattr(operator.builtinOptions, attribute.litert_field, value)
    return operator


def operator_object(model: Any, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> Any:
    """Return the flatbuffer object of an operator without options, and add its operator code to the model. ``name`` is
    LiteRT's name, as ``operator_name`` returns it."""
    code = schema.OperatorCodeT()
    custom = name.removeprefix(CUSTOM)
    code.builtinCode = schema.BuiltinOperator.CUSTOM if custom != name else getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    code.customCode = custom.encode() if custom != name else None
    code.version = 1
    model.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex = len(model.operatorCodes) - 1
    operator.inputs = np.array(inputs, np.int32)
    operator.outputs = np.array(outputs, np.int32)
    return operator


def with_float_ends(data: bytes) -> bytes:
    """Return a LiteRT file in which each quantized input and output is float32, with a QUANTIZE behind the input or a
    DEQUANTIZE in front of the output."""
    model = copied(unpack(data, "model"))
    main = model.subgraphs[0]

    def end(place: int, suffix: str) -> int:
        inner = main.tensors[place]
        if inner.quantization is None:
            return place
        outer = schema.TensorT()
        outer.name, outer.shape, outer.type = inner.name + suffix.encode(), inner.shape, schema.TensorType.FLOAT32
        outer.buffer = 0
        main.tensors.append(outer)
        return len(main.tensors) - 1

    inner = places(main.inputs), places(main.outputs)
    outer = [end(place, "_input") for place in inner[0]], [end(place, "_output") for place in inner[1]]
    pairs = [[(a, b) for a, b in zip(*each, strict=True) if a != b] for each in zip(inner, outer, strict=True)]
    quantizes = [operator_object(model, "QUANTIZE", [there], [here]) for here, there in pairs[0]]
    dequantizes = [operator_object(model, "DEQUANTIZE", [here], [there]) for here, there in pairs[1]]
    main.operators = [*quantizes, *main.operators, *dequantizes]
    main.inputs, main.outputs = (np.array(each, np.int32) for each in outer)
    return pack(model)


def states_of_operators(graph: Graph) -> Iterator[str]:
    """Yield the names of the states that nodes keep in variables in LiteRT: their operands of the role STATE."""
    for node in graph.nodes:
        for name, operand in zip(node.inputs, BY_NAME[node.op].operands, strict=False):
            if name is not None and operand.role is Role.STATE:
                yield name


def _add_states(subgraph: Any, node: Node, operator: Any) -> None:
    """Mark an operator's states as variables of the file, and add the tensors that hold the quantization of
    intermediate values."""
    row = BY_NAME[node.op]
    for place, operand in zip(operator.inputs, row.operands, strict=False):
        if operand.role is Role.STATE:
            subgraph.tensors[place].isVariable = True
            subgraph.tensors[place].buffer = 0
    if row.intermediates:
        first = len(subgraph.tensors)
        subgraph.tensors += [_intermediate(node, *pair) for pair in enumerate(node["intermediates"])]
        operator.intermediates = np.arange(first, len(subgraph.tensors), dtype=np.int32)


def _intermediate(node: Node, number: int, quantization: tuple[float, int]) -> Any:
    item = schema.TensorT()
    item.name = f"{node.name}/intermediate{number}".encode()
    item.shape = np.zeros(1, np.int32)
    item.type = schema.TensorType.INT16
    item.buffer = 0
    item.quantization = schema.QuantizationParametersT()
    item.quantization.scale = np.array([quantization[0]], np.float32)
    item.quantization.zeroPoint = np.array([quantization[1]], np.int64)
    return item


def _litert_value(attribute: Attribute, value: Any) -> Any:
    if attribute.values is not None:
        return next(code for code, name in attribute.values.items() if name == value)
    if isinstance(attribute.default, tuple):
        return np.array(value, np.int32) if value else None
    return value


def copied(model: Any) -> Any:
    """Return a copy of a model whose lists, and whose main subgraph's lists, can be changed without changing the given
    model."""
    twin = copy.copy(model)
    twin.buffers = list(model.buffers)
    twin.operatorCodes = list(model.operatorCodes or ())
    main = copy.copy(model.subgraphs[0])
    main.tensors = list(main.tensors or ())
    main.operators = list(main.operators or ())
    twin.subgraphs = [main, *model.subgraphs[1:]]
    return twin


def prune(model: Any) -> Any:
    """Return a model without those tensors of the main subgraph, buffers and operator codes that nothing refers to.

    The others keep their order. The given model and its objects are not changed. Raises InvalidModelError if the model
    refers to something that it does not have.
    """
    model = copied(model)
    main = model.subgraphs[0]
    signatures = [item for item in model.signatureDefs or () if item.subgraphIndex == 0]
    used = {*places(main.inputs), *places(main.outputs)}
    for operator in main.operators:
        used.update(places(operator.inputs), places(operator.outputs), places(operator.intermediates))
    for signature in signatures:
        used.update(item.tensorIndex for item in (*(signature.inputs or ()), *(signature.outputs or ())))
    kept = _within(used - {-1}, main.tensors, "tensor")
    place = {old: new for new, old in enumerate(kept)} | {-1: -1}
    main.tensors = [main.tensors[index] for index in kept]
    main.inputs, main.outputs = _moved(main.inputs, place), _moved(main.outputs, place)
    main.operators = [_moved_operator(operator, place) for operator in main.operators]
    if model.signatureDefs:
        model.signatureDefs = [
            _moved_signature(item, place) if item.subgraphIndex == 0 else item for item in model.signatureDefs
        ]
    _drop_codes(model)
    _drop_buffers(model)
    return model


def _within(used: set[int], table: Sequence[Any], what: str) -> list[int]:
    """Return the used indices in order. Raises InvalidModelError for an index beyond the end of the table, as in a
    damaged file."""
    kept = sorted(used)
    if kept and not 0 <= kept[0] <= kept[-1] < len(table):
        wrong = kept[0] if kept[0] < 0 else kept[-1]
        raise InvalidModelError(
            f"the file is damaged: it names {what} {wrong}; it has {len(table)}. Convert the model again."
        )
    return kept


def _moved(array: Any, place: dict[int, int]) -> Any:
    return None if array is None else np.array([place[int(index)] for index in array], np.int32)


def _moved_operator(operator: Any, place: dict[int, int]) -> Any:
    operator = copy.copy(operator)
    operator.inputs = _moved(operator.inputs, place)
    operator.outputs = _moved(operator.outputs, place)
    operator.intermediates = _moved(operator.intermediates, place)
    return operator


def _moved_signature(signature: Any, place: dict[int, int]) -> Any:
    def moved(entries: Iterable[Any] | None) -> list[Any] | None:
        if entries is None:
            return None
        result = []
        for entry in entries:
            entry = copy.copy(entry)
            entry.tensorIndex = place[entry.tensorIndex]
            result.append(entry)
        return result

    signature = copy.copy(signature)
    signature.inputs, signature.outputs = moved(signature.inputs), moved(signature.outputs)
    return signature


def _drop_codes(model: Any) -> None:
    used = {operator.opcodeIndex for subgraph in model.subgraphs for operator in subgraph.operators or ()}
    kept = _within(used, model.operatorCodes, "operator code")
    place = {old: new for new, old in enumerate(kept)}
    model.operatorCodes = [model.operatorCodes[index] for index in kept]
    subgraphs = []
    for subgraph in model.subgraphs:
        subgraph = copy.copy(subgraph)
        operators = [copy.copy(operator) for operator in subgraph.operators or ()]
        for operator in operators:
            operator.opcodeIndex = place[operator.opcodeIndex]
        subgraph.operators = operators
        subgraphs.append(subgraph)
    model.subgraphs = subgraphs


def _drop_buffers(model: Any) -> None:
    # Buffer 0 is LiteRT's empty buffer, even if nothing uses it.
    used = {0, *(tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors or ())}
    used.update(entry.buffer for entry in model.metadata or ())
    used.update(places(model.metadataBuffer))
    kept = _within(used, model.buffers, "buffer")
    place = {old: new for new, old in enumerate(kept)}
    model.buffers = [model.buffers[index] for index in kept]
    for subgraph in model.subgraphs:
        tensors = [copy.copy(tensor) for tensor in subgraph.tensors or ()]
        for tensor in tensors:
            tensor.buffer = place[tensor.buffer]
        subgraph.tensors = tensors
    if model.metadata:
        model.metadata = [copy.copy(entry) for entry in model.metadata]
        for entry in model.metadata:
            entry.buffer = place[entry.buffer]
    model.metadataBuffer = _moved(model.metadataBuffer, place)


CALLING = ("CALL", "CALL_ONCE", "IF", "WHILE", "STABLEHLO_REDUCE", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER",
           "STABLEHLO_SORT", "STABLEHLO_WHILE", "STABLEHLO_COMPOSITE")  # fmt: skip
"""Operators that run another subgraph of their file."""


def cut(model: Any, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return a ``.tflite`` with only these operators of the main graph. ``operators``, ``inputs`` and ``outputs`` are
    indices in the main graph.

    The file has the other subgraphs only if one of the operators runs a subgraph. It has no signatures and no metadata.
    """
    new = copied(model)
    main = new.subgraphs[0]
    main.operators = [main.operators[place] for place in operators]
    main.inputs = np.array(inputs, np.int32)
    main.outputs = np.array(outputs, np.int32)
    if not any(operator_name(model, operator) in CALLING for operator in main.operators):
        new.subgraphs = [main]
    new.signatureDefs = None
    new.metadata = None
    new.metadataBuffer = None
    return pack(prune(new))


def expanded(graph: Graph) -> Graph:
    """Return the graph with LiteRT's operators only; the graph itself if it has no other operators."""
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
    """Return the first node that no file can hold, since LiteRT has neither the operator nor operators that compute the
    same; None if there is none."""
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
    """Return the results of an int16 table of 513 entries for all 65,536 stored values, as LUTLookup of LiteRT's
    internal/common.h interpolates them."""
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


OPTION = "input_format"


def with_frames(model: LiteRTModel, name: str, blue_first: bool = False) -> LiteRTModel:
    """Return a model that takes a camera's frame (uint8, NHWC) in place of its quantized image.

    An int8 image is replaced by a uint8 input with the same scale and a zero point that is larger by 128. A QUANTIZE
    operator converts this input to the int8 image, without rounding. A uint8 image needs no conversion.

    With ``blue_first``, the channels of the frame are in the order blue, green, red. The input channels of the
    convolutions that read the image are then reversed. ``name`` is the file's name in messages.

    Raises InvalidOptionError unless the file has exactly one quantized input of 4 axes. With ``blue_first``, it is
    also raised if the image does not have 3 channels, or if an operator other than a CONV_2D with constant int8
    filters reads it.
    """
    given = [model.graph[each] for each in model.graph.inputs]
    pictures = [
        each for each in given if len(each.shape) == 4 and each.dtype in (DType.INT8, DType.UINT8) and each.quant
    ]
    if len(pictures) != 1:
        raise InvalidOptionError(
            f"{OPTION}: '{name}' has {len(pictures)} quantized inputs of 4 axes; a camera's frame replaces 1. Leave it out."
        )
    (picture,) = pictures
    made = copied(model.model)
    main = made.subgraphs[0]
    place = model.tensor_index[picture.name]
    if blue_first:
        _reverse(made, place, picture.shape[-1], name)
    if picture.dtype is DType.INT8:
        assert picture.quant is not None
        points = tuple(point + 128 for point in picture.quant.zero_points)
        frame = tensor_object(
            made, replace(picture, dtype=DType.UINT8, quant=replace(picture.quant, zero_points=points))
        )
        frame.name = main.tensors[place].name
        main.tensors[place] = copy.copy(main.tensors[place])
        main.tensors[place].name = frame.name + b"_int8"
        main.tensors.append(frame)
        last = len(main.tensors) - 1
        main.operators.insert(0, operator_object(made, "QUANTIZE", [last], [place]))
        main.inputs = np.array([last if each == place else each for each in places(main.inputs)], np.int32)
        made.signatureDefs = [_of_frame(each, place, last) for each in made.signatureDefs or ()] or None
    return replace(read_model(made), changed=True, appended=model.appended)


def _of_frame(signature: Any, before: int, after: int) -> Any:
    """Return a copy of a signature whose inputs name the tensor ``after`` in place of the tensor ``before``."""
    twin = copy.copy(signature)
    twin.inputs = [copy.copy(each) for each in signature.inputs or ()]
    for each in twin.inputs:
        each.tensorIndex = after if each.tensorIndex == before else each.tensorIndex
    return twin


def _reverse(model: Any, place: int, channels: int, name: str) -> None:
    """Reverse the order of the input channels in the filters of the convolutions that read the tensor with index
    ``place``."""
    main = model.subgraphs[0]
    if channels != 3:
        raise InvalidOptionError(f"{OPTION}: bgr is for 3 channels; '{name}' has {channels}. Leave bgr out.")
    for number, operator in enumerate(main.operators):
        inputs = places(operator.inputs)
        if place not in inputs:
            continue
        operation = operator_name(model, operator)
        filters = main.tensors[inputs[1]] if len(inputs) > 1 else None
        data = None if filters is None else model.buffers[filters.buffer].data
        if operation != "CONV_2D" or filters is None or data is None or filters.type != schema.TensorType.INT8:
            raise InvalidOptionError(
                f"{OPTION}: '{name}' begins with {operation}; bgr changes the constant int8 filters of CONV_2D. Leave bgr out, and give "
                "frames with red first."
            )
        values = np.asarray(data, np.uint8).reshape(tuple(filters.shape))[..., ::-1]
        main.tensors.append(constant_object(model, filters, values, (filters.name or b"filters").decode() + "_bgr"))
        twin = copy.copy(operator)
        twin.inputs = np.array([inputs[0], len(main.tensors) - 1, *inputs[2:]], np.int32)
        main.operators[number] = twin
