# SPDX-License-Identifier: BSD-3-Clause
"""Read LiteRT flatbuffers as graphs, the zip archive that a file may end with, and TensorFlow SavedModels.

TensorFlow Lite's metadata library and Ultralytics keep labels and other metadata in a zip archive behind the flatbuffer. Readers of the
flatbuffer ignore the archive. Its structure is that of PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16. Archives in the form
Zip64, which begin at 4 GiB, are not read.

TensorFlow converts a SavedModel to a ``.tflite`` in a process of its own.
"""

from __future__ import annotations

import io
import math
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron import ops
from openneutron.errors import InvalidModelError, OpenNeutronWarning
from openneutron.ir import DType, Graph, Node, QuantParams, State, Tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import Attribute, Role

DTYPE_OF_LITERT: dict[int, DType] = {
    getattr(schema.TensorType, dtype.name): dtype for dtype in DType if dtype is not DType.OPAQUE
}

INT4 = schema.TensorType.INT4
"""The type of two weights in a byte, the first in the lower half. Constants of it are read as int8: LiteRT's reference kernels unpack them
to int8 and compute with int8 weights."""

QUANTIZED = (DType.INT8, DType.UINT8, DType.INT16)
"""The types of quantized activations."""

MOST_AXES = 64
"""The largest rank of NumPy's arrays. LiteRT's operators accept 8 axes or fewer."""

UNKNOWN = -1
"""The value of an extent that a file does not fix. No operator on the NPU may have such an extent."""

ABSENT = -1
"""The index of an optional operand that is absent."""

SUBGRAPHS_OF_OPTIONS = {
    "CALL": ("CallOptions", ("subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("initSubgraphIndex",)),
    "IF": ("IfOptions", ("thenSubgraphIndex", "elseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("condSubgraphIndex", "bodySubgraphIndex")),
}
"""The operators that run another subgraph, with their options table and the fields of it that have subgraphs' indices."""

OPTIONS = {name: options for name, (options, _) in SUBGRAPHS_OF_OPTIONS.items()} | {"VAR_HANDLE": "VarHandleOptions"}
"""The options tables of operators that have no row in the operator table and whose options are read all the same."""

COUNTS = {"VAR_HANDLE": (0, 1), "READ_VARIABLE": (1, 1), "ASSIGN_VARIABLE": (2, 0)}
"""The numbers of inputs and outputs of the operators of variables, which have no row in the operator table."""

BYTES_OF_A_REFERENCE = 4
SHARED = 4
"""The largest size of a file's objects, as a multiple of the file's size (our own choice). Tables of a file may share
vectors and strings, so that the objects can be larger than the file."""
ALWAYS_TAKEN = 1 << 24
"""The size of objects in bytes that is accepted whatever the size of the file (our own choice)."""


class DamagedError(Exception):
    """The error for a damaged file. Its text follows the name of the file in a message."""


def check_size(data: bytes) -> None:
    """Check, before any objects are made, that a flatbuffer refers to no more tables and names than its size allows.

    A small file could otherwise take much memory by referring to the same bytes many times. The limits are one table
    for each 4 bytes of the file, and max(SHARED * file size, ALWAYS_TAKEN) bytes of names in all.

    Raises DamagedError, or whatever the generated reader raises for damaged bytes.
    """
    model = schema.Model.GetRootAs(data, 0)
    tables = _Budget(len(data) // BYTES_OF_A_REFERENCE, "tables")
    names = _Budget(max(SHARED * len(data), ALWAYS_TAKEN), "bytes of names")
    tables.take(model.OperatorCodesLength(), model.BuffersLength(), model.MetadataLength(), model.SignatureDefsLength())
    tables.take(model.SubgraphsLength(), model.ExternalBuffersLength(), model.ExternalBufferGroupsLength())
    for index in range(model.OperatorCodesLength()):
        names.take(_length(model.OperatorCodes(index), _CUSTOM_CODE))
    for index in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(index)
        tables.take(signature.InputsLength(), signature.OutputsLength())
        names.take(_length(signature, _SIGNATURE_KEY))
        for entry in _each(signature.Inputs, signature.InputsLength()):
            names.take(_length(entry, _FIRST))
        for entry in _each(signature.Outputs, signature.OutputsLength()):
            names.take(_length(entry, _FIRST))
    for entry in _each(model.Metadata, model.MetadataLength()):
        names.take(_length(entry, _FIRST))
    for subgraph in _each(model.Subgraphs, model.SubgraphsLength()):
        tables.take(subgraph.TensorsLength(), subgraph.OperatorsLength())
        names.take(_length(subgraph, _SUBGRAPH_NAME))
        for tensor in _each(subgraph.Tensors, subgraph.TensorsLength()):
            names.take(_length(tensor, _TENSOR_NAME))
            tables.take(tensor.VariantTensorsLength())
            sparsity = tensor.Sparsity()
            if sparsity is not None:
                tables.take(sparsity.DimMetadataLength())


_FIRST, _CUSTOM_CODE, _SIGNATURE_KEY, _SUBGRAPH_NAME, _TENSOR_NAME = 4, 6, 8, 12, 10
"""The positions of the fields in the vtables of the tables that have them."""


def _length(table: Any, slot: int) -> int:
    """Return the length in bytes of the string in a field of a table; 0 if the field is absent."""
    place = table._tab.Offset(slot)
    return table._tab.VectorLen(place) if place else 0


def _each(get: Callable[[int], Any], count: int) -> Iterator[Any]:
    return (get(index) for index in range(count))


class _Budget:
    def __init__(self, limit: int, what: str) -> None:
        self._limit, self._what, self._taken = limit, what, 0

    def take(self, *counts: int) -> None:
        self._taken += sum(counts)
        if self._taken > self._limit:
            raise DamagedError(f"it refers to {self._taken} {self._what}; its size allows {self._limit}")


def check(model: Any, data: bytes) -> None:
    """Check that the objects of a flatbuffer refer only to objects that exist, and fit the size of the file. Raises
    DamagedError with the first fault."""
    if not model.subgraphs:
        raise DamagedError("it has no subgraph")
    if not model.buffers:
        raise DamagedError("it has no buffers")
    stored = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    if stored > max(SHARED * len(data), ALWAYS_TAKEN):
        raise DamagedError(f"its buffers have {stored} bytes; the file has {len(data)}")
    for number, entry in enumerate(model.metadata or ()):
        _within([entry.buffer], len(model.buffers), f"metadata {number}", "buffer")
    _within(_indices(model.metadataBuffer), len(model.buffers), "its metadata", "buffer")
    constants = _Budget(max(SHARED * len(data), ALWAYS_TAKEN), "bytes of constants")
    for number, subgraph in enumerate(model.subgraphs):
        _check_subgraph(model, subgraph, "" if number == 0 else f"subgraph {number}: ", number == 0, constants)
    for number, signature in enumerate(model.signatureDefs or ()):
        subject = f"signature {number}"
        _within([signature.subgraphIndex], len(model.subgraphs), subject, "subgraph")
        entries = [*(signature.inputs or ()), *(signature.outputs or ())]
        count = len(model.subgraphs[signature.subgraphIndex].tensors or ())
        _within([entry.tensorIndex for entry in entries], count, subject, "tensor")


def _check_subgraph(model: Any, subgraph: Any, where: str, main: bool, constants: _Budget) -> None:
    tensors = subgraph.tensors = subgraph.tensors or []
    optional = [] if main else [ABSENT]
    for what, given in (("inputs", subgraph.inputs), ("outputs", subgraph.outputs)):
        _within(_indices(given), len(tensors), f"{where}the list of {what}", "tensor", optional)
    for number, tensor in enumerate(tensors):
        constants.take(_check_tensor(model, tensor, f"{where}tensor {number}"))
    for number, operator in enumerate(subgraph.operators or ()):
        _within([operator.opcodeIndex], len(model.operatorCodes or ()), f"{where}operator {number}", "operator code")
        subject = f"{where}operator {number} ({operator_name(model, operator)})"
        _within(_indices(operator.inputs), len(tensors), subject, "tensor", [ABSENT])
        _within(_indices(operator.outputs), len(tensors), subject, "tensor", [ABSENT])
        _within(_indices(operator.intermediates), len(tensors), subject, "tensor")
        counts = len(_indices(operator.inputs)), len(_indices(operator.outputs))
        wanted = COUNTS.get(operator_name(model, operator), counts)
        if counts != wanted:
            raise DamagedError(
                f"{subject} has {counts[0]} inputs and {counts[1]} outputs; it takes {wanted[0]} and gives {wanted[1]}"
            )
        _check_options(model, operator, subject)


def _check_tensor(model: Any, tensor: Any, subject: str) -> int:
    """Return the size of a constant tensor in bytes; 0 for other tensors. Raises DamagedError with the first fault."""
    _within([tensor.buffer], len(model.buffers), subject, "buffer")
    shape = _indices(tensor.shape)
    if len(shape) > MOST_AXES:
        raise DamagedError(f"{subject} has {len(shape)} axes; at most {MOST_AXES} are possible")
    if min(shape, default=0) < UNKNOWN:
        raise DamagedError(f"{subject} has shape {shape}; an extent is 0 or more, or {UNKNOWN} where it is not known")
    taken = math.prod(shape) * DTYPE_OF_LITERT[tensor.type].size_bytes if tensor.type in DTYPE_OF_LITERT else 0
    if tensor.type == INT4:
        taken = -(-math.prod(shape) // 2)
    content = model.buffers[tensor.buffer].data
    stored = 0 if content is None else len(content)
    if stored and UNKNOWN in shape:
        raise DamagedError(
            f"{subject} has shape {shape} and a buffer of {stored} bytes; a constant has no open extents"
        )
    if stored < taken and stored and not tensor.externalBuffer and tensor.sparsity is None:
        raise DamagedError(f"{subject} has shape {shape}, which takes {taken} bytes; its buffer has {stored}")
    return taken if stored else 0


def _check_options(model: Any, operator: Any, subject: str) -> None:
    name = operator_name(model, operator)
    row = ops.BY_LITERT.get(name)
    wanted = OPTIONS.get(name) or (row.options_table if row is not None and row.attributes else None)
    given = operator.builtinOptions
    found = None if given is None else type(given).__name__.removesuffix("T")
    if wanted is not None and found not in (None, wanted):
        raise DamagedError(f"{subject} has the options of another operator, {found}; its own are {wanted}")
    if name not in OPTIONS:
        return
    if found is None:
        raise DamagedError(f"{subject} has no {wanted}")
    fields = SUBGRAPHS_OF_OPTIONS[name][1] if name in SUBGRAPHS_OF_OPTIONS else ()
    _within([getattr(given, field) for field in fields], len(model.subgraphs), subject, "subgraph")


def _indices(given: Any) -> list[int]:
    return [] if given is None else [int(index) for index in given]


def _within(given: Iterable[int], count: int, subject: str, what: str, others: Sequence[int] = ()) -> None:
    for index in given:
        if not 0 <= index < count and index not in others:
            raise DamagedError(f"{subject} names {what} {index}; there are {count}")


_OPERATOR_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}


CUSTOM = "CUSTOM "
"""The prefix of custom operators' names."""


def operator_name(model: Any, operator: Any) -> str:
    """Return LiteRT's name of an operator of a file, such as ``CONV_2D``. For a custom operator, return ``CUSTOM`` and
    its code."""
    code = model.operatorCodes[operator.opcodeIndex]
    builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
    if builtin == schema.BuiltinOperator.CUSTOM:
        return f"{CUSTOM}{(code.customCode or b'?').decode('utf-8', 'replace')}"
    return _OPERATOR_NAMES.get(builtin, f"BUILTIN {builtin}")


# -- forms that older converters wrote -----------------------------------------------------------------------------------


def repaired(model: Any) -> list[str]:
    """Repair, in place, objects that LiteRT 2.3 refuses and older versions accepted, with their meaning in older
    versions. Return the names of the changed tensors.

    Older versions ignored the axis that a depthwise weight states for its scales: the scales were those of the output
    channels, the last axis.
    """
    changed = []
    for subgraph in model.subgraphs:
        for operator in subgraph.operators or ():
            if operator_name(model, operator) != "DEPTHWISE_CONV_2D" or len(_indices(operator.inputs)) < 2:
                continue
            index = int(operator.inputs[1])
            if index == ABSENT:
                continue
            tensor = subgraph.tensors[index]
            shape, quant = _indices(tensor.shape), tensor.quantization
            scales = 0 if quant is None or quant.scale is None else len(quant.scale)
            if len(shape) != 4 or scales < 2 or scales != shape[3] or quant.quantizedDimension == 3:
                continue
            quant.quantizedDimension = 3
            changed.append((tensor.name or b"").decode("utf-8", "replace"))
    return changed


FILE_IDENTIFIER = b"TFL3"

TABLE_CODE = b"OpenNeutronTable"
"""The code of the custom operator for a table of the NPU (``lookup``). It exists only in models during a compile, not
in files."""

TABLE_NAME = f"CUSTOM {TABLE_CODE.decode()}"


@dataclass(frozen=True, slots=True, eq=False)
class LiteRTModel:
    """The graph of a file's main subgraph, with the file's flatbuffer objects.

    ``graph`` has a unique name for each tensor, and ``tensor_index`` the index of the file's tensor by this name.
    Node i of the graph is operator i of the file. ``changed`` is True where the objects differ from the file, for
    example because LiteRT would refuse the file (``repaired``), or because of given input shapes. ``appended`` is the
    zip archive behind the file's flatbuffer; empty if there is none.
    """

    graph: Graph
    tensor_index: dict[str, int]
    model: Any = field(repr=False)
    changed: bool = False
    appended: bytes = field(default=b"", repr=False)

    @property
    def is_float(self) -> bool:
        """Return whether all operators compute in float32. Constants do not count: weights may have any type. The
        result is False if any input or computed tensor is quantized."""
        graph = self.graph
        made = [graph[name] for name in (*graph.inputs, *(name for node in graph.nodes for name in node.outputs))]
        return any(tensor.dtype is DType.FLOAT32 for tensor in made) and not any(
            tensor.quant is not None and tensor.dtype in QUANTIZED for tensor in made
        )


AS_STORED: Mapping[str, Sequence[int]] = {}
"""The given input shapes of a file whose own are taken, with extents that only stand for open ones."""


def read(data: bytes | Path, input_shapes: Mapping[str, Sequence[int]] | None = AS_STORED) -> LiteRTModel:
    """Return the model in a ``.tflite`` file or in its bytes, with its main graph.

    ``input_shapes`` maps the names of inputs to the shapes that the user gives; None means no shapes. In both cases,
    an input without a given shape raises an error if the file leaves its shape open and has only a placeholder for it
    (``is_placeholder`` of ``input_shapes``). By default there is no such check, and all shapes are those of the file.

    LiteRT 2.3 refuses a depthwise weight whose scales are along another axis than its channels. This function reads
    such a weight as older versions of LiteRT did, with a warning. Raises InvalidModelError for a file that can't be
    read, is damaged or is no LiteRT model, and raises as ``with_shapes`` does.
    """
    name = "model"
    if isinstance(data, Path):
        name = data.name
        try:
            data = data.read_bytes()
        except OSError as error:
            raise InvalidModelError(f"'{name}' can't be read: {error.strerror}.") from error
    model = unpack(data, name)
    changed = repaired(model)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        warnings.warn(
            f"'{name}': the scales of the depthwise weight '{changed[0]}'{more} are stated along another axis than its channels, which "
            "LiteRT 2.3 refuses; they are read as those of the channels, as older versions of LiteRT did.",
            OpenNeutronWarning,
            stacklevel=2,
        )
    try:
        made = replace(read_model(model), changed=bool(changed), appended=split_archive(data)[1])
    except InvalidModelError:
        raise
    # Reading damaged objects fails in many ways.
    except Exception as error:
        raise _damaged(name) from error
    is_open = bool(input_shapes)
    for input_name in made.graph.inputs if input_shapes is not AS_STORED else ():
        is_open |= model.subgraphs[0].tensors[made.tensor_index[input_name]].shapeSignature is not None
    if not is_open:
        return made
    from openneutron.litert.input_shapes import with_shapes  # which reads models itself

    return with_shapes(made, input_shapes or {}, name)


def unpack(data: bytes, name: str) -> Any:
    """Return the flatbuffer objects of a file, as LiteRT's generated reader makes them. Raises InvalidModelError for a
    file that is damaged or no LiteRT model."""
    if len(data) < 8 or data[4:8] != FILE_IDENTIFIER:
        raise InvalidModelError(
            f"'{name}' is no LiteRT model: bytes 4 to 7 are {data[4:8]!r}; a .tflite file has {FILE_IDENTIFIER!r} there."
        )
    try:
        check_size(data)
        model = schema.ModelT.InitFromPackedBuf(bytes(data), 0)
        _inline(model, data)
        check(model, data)
    except DamagedError as error:
        raise InvalidModelError(f"'{name}' is damaged: {error}. Convert the model again.") from None
    # A damaged flatbuffer makes the generated reader fail in many ways, none of which it declares.
    except Exception as error:
        raise _damaged(name) from error
    return model


def _damaged(name: str) -> InvalidModelError:
    return InvalidModelError(f"'{name}' is damaged: its flatbuffer can't be read. Convert the model again.")


def _inline(model: Any, data: bytes) -> None:
    """Copy constants and custom options that are behind the flatbuffer, as in files above 2 GB, into the objects."""
    for buffer in model.buffers or ():
        if buffer.data is None and buffer.offset > 1:
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    for operator in (operator for subgraph in model.subgraphs or () for operator in subgraph.operators or ()):
        if operator.largeCustomOptionsOffset > 1:
            size, offset = operator.largeCustomOptionsSize, operator.largeCustomOptionsOffset
            operator.customOptions = np.frombuffer(data, np.uint8, size, offset)
        operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0


@dataclass(frozen=True, slots=True)
class StatePlaces:
    """A state, by the indices of its tensors in the main subgraph: ``tensor`` has the value from the previous run, and
    ``update`` the new value."""

    tensor: int
    update: int
    initial: np.ndarray | None


def read_model(model: Any, states: Sequence[StatePlaces] = ()) -> LiteRTModel:
    """Return the model that consists of these flatbuffer objects, with its main graph. ``states`` are further states
    of the graph: no operator of the file computes the value from the previous run. If the objects are damaged, any
    type of exception may be raised."""
    subgraph = model.subgraphs[0]
    operators = subgraph.operators or ()
    names = _unique_names(subgraph.tensors or ())
    inputs, outputs = places(subgraph.inputs), places(subgraph.outputs)
    runtime = {
        *inputs,
        *(state.tensor for state in states),
        *(place for operator in operators for place in places(operator.outputs)),
    }
    used = runtime.union(outputs, *(places(operator.inputs) for operator in operators))
    variables = _variables(model, operators)
    tensors = {
        names[place]: _read_tensor(names[place], subgraph.tensors[place], place in runtime | variables, model)
        for place in sorted(used)
        if place >= 0
    }
    nodes = tuple(_read_node(model, operator, index, names) for index, operator in enumerate(operators))
    nodes, made = _with_states(nodes, tensors, {names[place] for place in variables})
    graph = Graph(
        (subgraph.name or b"main").decode("utf-8", "replace"),
        tensors,
        nodes,
        tuple(names[place] for place in inputs),
        tuple(names[place] for place in outputs),
        (*(State(names[state.tensor], names[state.update], state.initial) for state in states), *made),
    )
    try:
        graph.verify()
    except AssertionError as error:
        raise InvalidModelError(f"the model's graph is damaged: {error}.") from error
    return LiteRTModel(graph.rebuilt(nodes), {name: index for index, name in enumerate(names)}, model)


def _variables(model: Any, operators: Iterable[Any]) -> set[int]:
    """Return the indices of the variable tensors that exactly one operand reads: the operand of a row with the role
    STATE."""
    tensors = model.subgraphs[0].tensors
    readers: dict[int, list[bool]] = {}
    for operator in operators:
        row = ops.BY_LITERT.get(operator_name(model, operator))
        for index, place in enumerate(places(operator.inputs)):
            is_state = row is not None and index < len(row.operands) and row.operands[index].role is Role.STATE
            readers.setdefault(place, []).append(is_state)
    return {place for place, found in readers.items() if found == [True] and tensors[place].isVariable}


def _with_states(
    nodes: Sequence[Node], tensors: dict[str, Tensor], variables: set[str]
) -> tuple[tuple[Node, ...], list[State]]:
    """Return the nodes, and the states that they keep in variable tensors.

    A node whose state operands are all in ``variables`` is changed: for each of these operands it gets an additional
    output, the new value of the state. The tensors of these outputs are added to ``tensors``. Other nodes are
    returned as they are.

    The initial values are those of a new LiteRT interpreter: the zero point for int8 variables, and 0 for others.
    """
    found: list[Node] = []
    states: list[State] = []
    for node in nodes:
        own = [name for name in node.inputs if name in variables]
        row = ops.BY_NAME.get(node.op)
        if row is None or len(own) < sum(operand.role is Role.STATE for operand in row.operands) or not own:
            found.append(node)
            continue
        results = []
        for name in own:
            held, made = tensors[name], f"{name}'"
            while made in tensors:
                made += "'"
            tensors[made] = replace(held, name=made)
            zero = held.quant.zero_points[0] if held.dtype is DType.INT8 and held.quant is not None else 0
            states.append(State(name, made, np.full(held.shape, zero, held.dtype.numpy)))
            results.append(made)
        found.append(replace(node, outputs=(*node.outputs, *results)))
    return tuple(found), states


def places(given: Any) -> list[int]:
    """Return an array of tensor indices as a list of ints; empty for None. Index -1 is an optional operand that is
    absent."""
    return [] if given is None else [int(place) for place in given]


def _unique_names(tensors: Sequence[Any]) -> list[str]:
    """Return a unique name for each tensor: the file's name, with a number where several tensors have the same name.
    A tensor without a name is called ``tensor`` and its index."""
    names: dict[str, None] = {}
    copies: dict[str, int] = {}
    for index, item in enumerate(tensors):
        stem = name = item.name.decode("utf-8", "replace") if item.name else f"tensor{index}"
        while name in names:
            copies[stem] = copies.get(stem, 0) + 1
            name = f"{stem}#{copies[stem]}"
        names[name] = None
    return list(names)


def _read_tensor(name: str, item: Any, at_run_time: bool, model: Any) -> Tensor:
    # shapeSignature may leave extents open. LiteRT uses ``shape`` unless the caller resizes, and so does the NPU.
    shape = tuple(int(extent) for extent in (item.shape if item.shape is not None else ()))
    dtype = DTYPE_OF_LITERT.get(item.type, DType.OPAQUE)
    if item.type == INT4 and not at_run_time:
        dtype = DType.INT8
    data = None
    content = model.buffers[item.buffer].data
    quant = _read_quant(item.quantization, shape)
    if not at_run_time:
        # A variable keeps an operator's state from run to run. An external buffer is in another file.
        if dtype is DType.OPAQUE or item.sparsity is not None or item.isVariable or item.externalBuffer:
            dtype, data = DType.OPAQUE, np.broadcast_to(np.zeros((), DType.OPAQUE.numpy), shape)
        elif content is not None or 0 in shape:
            content = np.zeros(0, np.uint8) if content is None else np.asarray(content, np.uint8)
            if item.type == INT4:
                content = np.stack([content << 4, content], axis=-1).view(np.int8).reshape(-1) >> 4
            # LiteRT accepts a buffer that is longer than its tensor.
            data = np.frombuffer(content.tobytes(), dtype.numpy, math.prod(shape)).reshape(shape)
    return Tensor(name, shape, dtype, quant, data)


def _read_quant(item: Any, shape: tuple[int, ...]) -> QuantParams | None:
    """Return the quantization parameters of a tensor. Return None if it has none, or if they do not fit its shape:
    TensorFlow 1, for example, wrote the axis of the weights into the parameters of int32 biases. This is harmless,
    because LiteRT's kernels do not read a bias's parameters. If an operator does need the missing parameters, its row
    in the operator table refuses it.

    A single zero point holds for all scales.
    """
    if item is None or item.scale is None or len(item.scale) == 0:
        return None
    scales = tuple(float(scale) for scale in item.scale)
    zeros = (0,) if item.zeroPoint is None else tuple(int(zero) for zero in item.zeroPoint)
    zeros = zeros * len(scales) if len(zeros) == 1 else zeros
    axis = item.quantizedDimension if len(scales) > 1 else None
    fits = axis is None or (0 <= axis < len(shape) and len(scales) == shape[axis])
    return QuantParams(scales, zeros, axis) if fits and len(zeros) == len(scales) else None


def _read_node(model: Any, operator: Any, index: int, names: list[str]) -> Node:
    litert = operator_name(model, operator)
    row = ops.BY_NAME["lookup"] if litert == TABLE_NAME else ops.BY_LITERT.get(litert)
    inputs = tuple(None if place < 0 else names[place] for place in places(operator.inputs))
    while inputs and inputs[-1] is None:
        # Some files state an absent bias as -1, and some leave it out: here it is always left out.
        inputs = inputs[:-1]
    outputs = tuple(names[place] for place in places(operator.outputs) if place >= 0)
    source = f"operator {index}"
    if row is None:
        return Node(litert, inputs, outputs, source=source)
    attrs = {a.name: _read_attribute(a, operator.builtinOptions, litert) for a in row.attributes}
    attrs = {a.name: attrs[a.name] for a in row.attributes if not (a.unstated and attrs[a.name] == a.default)}
    if row.intermediates:
        attrs["intermediates"] = tuple(
            _scale_of(model.subgraphs[0].tensors[place]) for place in places(operator.intermediates)
        )
    return Node(row.name, inputs, outputs, attrs, source)


def _scale_of(item: Any) -> tuple[float, int]:
    """Return the scale and the zero point of a tensor: those of the first channel where it has several. The scale is
    0 where the tensor states none."""
    quant = item.quantization
    if quant is None or quant.scale is None or len(quant.scale) == 0:
        return 0.0, 0
    zeros = quant.zeroPoint
    return float(quant.scale[0]), 0 if zeros is None or len(zeros) == 0 else int(zeros[0])


def _read_attribute(attribute: Attribute, options: Any, litert: str) -> AttrValue:
    if options is None:
        return attribute.default
    value = getattr(options, attribute.litert_field)
    if attribute.values is not None:
        return attribute.values.get(int(value), f"{litert}.{attribute.litert_field}={value}")
    if isinstance(attribute.default, tuple):
        return () if value is None else tuple(int(item) for item in value)
    return type(attribute.default)(value)


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
CENTRAL_BYTES, END_BYTES = 46, 22
MOST_COMMENT_BYTES = 0xFFFF


def split_archive(data: bytes) -> tuple[bytes, bytes]:
    """Return a file in two parts: the file without the archive at its end, and the archive (empty if there is none)."""
    found = _directory(data)
    if found is None:
        return data, b""
    directory, moved = found
    begins = [_offset(data, place) + moved for place in _entries(data, directory)]
    begin = min(begins, default=directory)
    if begin < 0 or (begins and data[begin : begin + len(LOCAL)] != LOCAL):
        return data, b""
    return data[:begin], data[begin:]


def archive_entry(data: bytes, name: str) -> bytes:
    """Return the content of an entry of the archive at the end of a file; empty where the entry is absent or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(split_archive(data)[1])) as archive:
            return archive.read(name)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, zlib.error):
        return b""


def with_archive(data: bytes, archive: bytes) -> bytes:
    """Return the file with the archive appended. The offsets in the archive are changed to count from the start of the
    new file."""
    found = _directory(archive)
    if found is None:
        return data + archive
    directory, moved = found
    made = bytearray(archive)
    for place in _entries(archive, directory):
        struct.pack_into("<I", made, place + 42, _offset(archive, place) + moved + len(data))
    struct.pack_into("<I", made, archive.rfind(END) + 16, directory + len(data))
    return data + bytes(made)


def _directory(data: bytes) -> tuple[int, int] | None:
    """Return the offset of the central directory in a zip archive at the end of ``data``, and the number to add to
    the archive's own offsets to get offsets in ``data``. Return None if ``data`` does not end with an archive."""
    place = data.rfind(END, max(0, len(data) - END_BYTES - MOST_COMMENT_BYTES))
    if place < 0 or len(data) < place + END_BYTES:
        return None
    size, offset, comment = struct.unpack_from("<IIH", data, place + 12)
    start = place - size
    if place + END_BYTES + comment != len(data) or start < 0 or (size and data[start : start + 4] != CENTRAL):
        return None
    return start, start - offset


def _entries(data: bytes, directory: int) -> Iterator[int]:
    """Return the offsets of the entries of the central directory."""
    place = directory
    while data[place : place + len(CENTRAL)] == CENTRAL:
        yield place
        place += CENTRAL_BYTES + sum(struct.unpack_from("<HHH", data, place + 28))


def _offset(data: bytes, place: int) -> int:
    offset: int = struct.unpack_from("<I", data, place + 42)[0]
    return offset


CONVERSION = "tf.lite.TFLiteConverter.from_saved_model({source}).convert()"

LONGEST_WORDS = 200


def read_saved_model(path: Path, input_shapes: Mapping[str, Sequence[int]] | None = None) -> LiteRTModel:
    """Return the float model in a folder that TensorFlow's ``tf.saved_model.save`` or Keras' ``export`` wrote.
    ``input_shapes`` has the same meaning as for ``read``.

    Raises InvalidModelError where TensorFlow can't convert the model, and where TensorFlow is not installed. The
    message then has a command that converts the model on another machine.
    """
    if find_spec("tensorflow") is None:
        raise InvalidModelError(
            f"'{path}' is a TensorFlow SavedModel, and TensorFlow is not installed here. Make a .tflite of it where TensorFlow is, and "
            f"compile that: {command_for(path)}"
        )
    return read(_converted(str(path.resolve()), (path / "saved_model.pb").stat().st_mtime_ns), input_shapes)


def command_for(path: Path) -> str:
    """Return the shell command that makes a ``.tflite`` of a SavedModel where TensorFlow is installed."""
    conversion = CONVERSION.format(source=repr(str(path)))
    return f"python -c \"import tensorflow as tf; open('{path.name}.tflite', 'wb').write({conversion})\""


@lru_cache(maxsize=1)
def _converted(path: str, _changed: int) -> bytes:
    """Return the bytes of the ``.tflite`` that TensorFlow makes of a SavedModel. The result is cached for the file's
    time of change, ``_changed``: a command reads a model several times, and a conversion takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "made.tflite"
        conversion = CONVERSION.format(source="sys.argv[1]")
        script = f"import sys, tensorflow as tf; open(sys.argv[2], 'wb').write({conversion})"
        done = subprocess.run(
            [sys.executable, "-c", script, path, str(result)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not result.exists():
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it ended without a word"]
            raise InvalidModelError(f"'{path}': TensorFlow can't convert it: {lines[-1][:LONGEST_WORDS]}")
        return result.read_bytes()
