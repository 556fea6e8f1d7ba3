# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT flatbuffers to graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron import ops
from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import Attribute

FILE_IDENTIFIER = b"TFL3"

DTYPE_OF_LITERT: dict[int, DType] = {
    getattr(schema.TensorType, dtype.name): dtype for dtype in DType if dtype is not DType.OPAQUE
}
_OPERATOR_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


@dataclass(frozen=True, slots=True, eq=False)
class LiteRTModel:
    """A file's main graph beside its flatbuffer objects.

    ``graph`` names every tensor uniquely; ``tensor_index`` leads from there to the file's tensors. Node i of the graph
    is operator i of the file.
    """

    graph: Graph
    tensor_index: dict[str, int]
    model: Any = field(repr=False)


def read(data: bytes | Path) -> LiteRTModel:
    """Return the main graph of a ``.tflite`` file or its bytes. Raises InvalidModelError for others and damaged ones."""
    name = "model"
    if isinstance(data, Path):
        name = data.name
        try:
            data = data.read_bytes()
        except OSError as error:
            raise InvalidModelError(f"'{name}' can't be read: {error.strerror}.") from error
    model = unpack(data, name)
    try:
        return read_model(model)
    except InvalidModelError:
        raise
    # A damaged flatbuffer makes what reads it fail in many ways.
    except Exception as error:
        raise _damaged(name) from error


def unpack(data: bytes, name: str) -> Any:
    """Return a file's flatbuffer objects, as the generated reader has them. Raises InvalidModelError without them."""
    if len(data) < 8 or data[4:8] != FILE_IDENTIFIER:
        raise InvalidModelError(
            f"'{name}' is no LiteRT model: bytes 4 to 7 are {data[4:8]!r}; a .tflite file has {FILE_IDENTIFIER!r} there."
        )
    try:
        model = schema.ModelT.InitFromPackedBuf(bytes(data), 0)
        _inline(model, data)
    # A damaged flatbuffer makes the generated reader fail in many ways, none of which it declares.
    except Exception as error:
        raise _damaged(name) from error
    return model


def _damaged(name: str) -> InvalidModelError:
    return InvalidModelError(f"'{name}' is damaged: its flatbuffer can't be read. Convert the model again.")


def _inline(model: Any, data: bytes) -> None:
    """Move constants and custom options that a file above 2 GB keeps behind its flatbuffer into the objects."""
    for buffer in model.buffers or ():
        if buffer.data is None and buffer.offset > 1:
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    for operator in (operator for subgraph in model.subgraphs or () for operator in subgraph.operators or ()):
        if operator.largeCustomOptionsOffset > 1:
            size, offset = operator.largeCustomOptionsSize, operator.largeCustomOptionsOffset
            operator.customOptions = np.frombuffer(data, np.uint8, size, offset)
        operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0


def read_model(model: Any) -> LiteRTModel:
    """Return the main graph with its flatbuffer objects. Raises any exception where these are damaged."""
    if not model.subgraphs:
        raise InvalidModelError("the model has no subgraph.")
    subgraph = model.subgraphs[0]
    operators = subgraph.operators or ()
    names = _unique_names(subgraph.tensors or ())
    inputs, outputs = places(subgraph.inputs), places(subgraph.outputs)
    runtime = {*inputs, *(place for operator in operators for place in places(operator.outputs))}
    used = runtime.union(outputs, *(places(operator.inputs) for operator in operators))
    tensors = {
        names[place]: _read_tensor(names[place], subgraph.tensors[place], place in runtime, model)
        for place in sorted(used)
        if place >= 0
    }
    nodes = tuple(_read_node(model, operator, index, names) for index, operator in enumerate(operators))
    graph = Graph(
        (subgraph.name or b"main").decode("utf-8", "replace"),
        tensors,
        nodes,
        tuple(names[place] for place in inputs),
        tuple(names[place] for place in outputs),
    )
    try:
        graph.verify()
    except AssertionError as error:
        raise InvalidModelError(f"the model's graph is damaged: {error}.") from error
    return LiteRTModel(graph.rebuilt(nodes), {name: index for index, name in enumerate(names)}, model)


def places(given: Any) -> list[int]:
    """Return the tensors at these indices; index -1 is an optional operand that is absent."""
    return [] if given is None else [int(place) for place in given]


def _unique_names(tensors: Sequence[Any]) -> list[str]:
    """Return a unique name for each tensor: the file's, with a number where several tensors have the same name."""
    names: dict[str, None] = {}
    for index, item in enumerate(tensors):
        stem = item.name.decode("utf-8", "replace") if item.name else f"tensor{index}"
        name, copy = stem, 0
        while name in names:
            copy += 1
            name = f"{stem}#{copy}"
        names[name] = None
    return list(names)


def _read_tensor(name: str, item: Any, at_run_time: bool, model: Any) -> Tensor:
    # shapeSignature may leave extents open; LiteRT runs the shape unless the caller resizes, and so does the NPU.
    shape = tuple(int(extent) for extent in (item.shape if item.shape is not None else ()))
    dtype = DTYPE_OF_LITERT.get(item.type, DType.OPAQUE)
    data = None
    content = model.buffers[item.buffer].data
    if not at_run_time:
        # A variable keeps an operator's state from run to run; an external buffer lies in another file.
        if dtype is DType.OPAQUE or item.sparsity is not None or item.isVariable or item.externalBuffer:
            dtype, data = DType.OPAQUE, np.zeros(shape, DType.OPAQUE.numpy)
        elif content is not None or 0 in shape:
            content = np.zeros(0, np.uint8) if content is None else np.asarray(content, np.uint8)
            # LiteRT accepts a buffer that is longer than its tensor.
            data = np.frombuffer(content.tobytes(), dtype.numpy, math.prod(shape)).reshape(shape)
    return Tensor(name, shape, dtype, _read_quant(item.quantization, shape), data)


def _read_quant(item: Any, shape: tuple[int, ...]) -> QuantParams | None:
    """Return the quantization parameters, or None where the tensor has none or they do not fit its shape.

    A single zero point holds for all scales. LiteRT's kernels read only the values of an int32 bias, so converters may
    leave anything in its parameters: TensorFlow 1 wrote the weights' axis. An operator that does read them is refused
    by its row.
    """
    if item is None or item.scale is None or len(item.scale) == 0:
        return None
    scales = tuple(float(scale) for scale in item.scale)
    zeros = (0,) if item.zeroPoint is None else tuple(int(zero) for zero in item.zeroPoint)
    zeros = zeros * len(scales) if len(zeros) == 1 else zeros
    axis = item.quantizedDimension if len(scales) > 1 else None
    fits = axis is None or (0 <= axis < len(shape) and len(scales) == shape[axis])
    return QuantParams(scales, zeros, axis) if fits and len(zeros) == len(scales) else None


def operator_name(model: Any, operator: Any) -> str:
    """Return LiteRT's name of a file's operator, for instance ``CONV_2D``, or a custom operator's code."""
    code = model.operatorCodes[operator.opcodeIndex]
    builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
    if builtin == schema.BuiltinOperator.CUSTOM:
        return f"CUSTOM {(code.customCode or b'?').decode('utf-8', 'replace')}"
    return _OPERATOR_NAMES.get(builtin, f"BUILTIN {builtin}")


def _read_node(model: Any, operator: Any, index: int, names: list[str]) -> Node:
    litert = operator_name(model, operator)
    row = ops.BY_LITERT.get(litert)
    inputs = tuple(None if place < 0 else names[place] for place in places(operator.inputs))
    while inputs and inputs[-1] is None:
        # Some operators say "no bias" with a -1 and some by leaving it out: here it is always left out.
        inputs = inputs[:-1]
    outputs = tuple(names[place] for place in places(operator.outputs) if place >= 0)
    source = f"operator {index}"
    if row is None:
        return Node(litert, inputs, outputs, source=source)
    attrs = {a.name: _read_attribute(a, operator.builtinOptions, litert) for a in row.attributes}
    attrs = {a.name: attrs[a.name] for a in row.attributes if not (a.unstated and attrs[a.name] == a.default)}
    return Node(row.name, inputs, outputs, attrs, source)


def _read_attribute(attribute: Attribute, options: Any, litert: str) -> AttrValue:
    if options is None:
        return attribute.default
    value = getattr(options, attribute.litert_field)
    if attribute.values is not None:
        return attribute.values.get(int(value), f"{litert}.{attribute.litert_field}={value}")
    if isinstance(attribute.default, tuple):
        return () if value is None else tuple(int(item) for item in value)
    return type(attribute.default)(value)
