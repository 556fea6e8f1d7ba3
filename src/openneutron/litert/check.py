# SPDX-License-Identifier: BSD-3-Clause
"""Check the structures of a LiteRT flatbuffer once, where a file is read: sizes, indices, shapes, quantization and options.

Everything behind the reader takes these as sound. A fault that concerns one operator alone, such as a missing operand, is not
a fault of the file: the operator stays on the CPU with this reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from openneutron import ops
from openneutron.ir import DType

DTYPE_OF_LITERT: dict[int, DType] = {
    getattr(schema.TensorType, dtype.name): dtype for dtype in DType if dtype is not DType.OPAQUE
}

MOST_AXES = 64
"""NumPy's arrays have at most so many axes; LiteRT's operators have 8 or fewer."""

UNKNOWN = -1
"""An extent that a file leaves open, which no operator on the NPU may have."""

ABSENT = -1
"""The index of an optional operand that is absent."""

SUBGRAPHS_OF_OPTIONS = {
    "CALL": ("CallOptions", ("subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("initSubgraphIndex",)),
    "IF": ("IfOptions", ("thenSubgraphIndex", "elseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("condSubgraphIndex", "bodySubgraphIndex")),
}
"""Operators that run another subgraph: their options, and the fields that have the subgraphs' indices."""

OPTIONS = {name: options for name, (options, _) in SUBGRAPHS_OF_OPTIONS.items()} | {"VAR_HANDLE": "VarHandleOptions"}
"""Operators whose options are read although the operator table has no row of them, with their options tables."""

COUNTS = {"VAR_HANDLE": (0, 1), "READ_VARIABLE": (1, 1), "ASSIGN_VARIABLE": (2, 0)}
"""The numbers of inputs and outputs of operators of variables, which the operator table does not have."""

BYTES_OF_A_REFERENCE = 4
SHARED = 4
"""Files may share vectors and strings between tables. The objects then take at most so many times the bytes of the file, and"""
ALWAYS_TAKEN = 1 << 24
"""at least so many are allowed; numbers of our own choice."""


class DamagedError(Exception):
    """A fact about a structure that can't be right, in words that follow the name of the file."""


def check_size(data: bytes) -> None:
    """Check that the tables and strings that a flatbuffer refers to fit into its bytes, before an object is made for each of them.

    Raises DamagedError, or what the generated reader raises for damaged bytes.
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
"""Positions in the tables' lists of fields."""


def _length(table: Any, slot: int) -> int:
    """Return the length of a string; 0 where it is absent."""
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
    """Check the objects of a flatbuffer. Raises DamagedError with the first fault."""
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
    """Return the bytes of a constant; 0 for other tensors."""
    _within([tensor.buffer], len(model.buffers), subject, "buffer")
    shape = _indices(tensor.shape)
    if len(shape) > MOST_AXES:
        raise DamagedError(f"{subject} has {len(shape)} axes; at most {MOST_AXES} are possible")
    if min(shape, default=0) < UNKNOWN:
        raise DamagedError(f"{subject} has shape {shape}; an extent is 0 or more, or {UNKNOWN} where it is not known")
    taken = math.prod(shape) * DTYPE_OF_LITERT[tensor.type].size_bytes if tensor.type in DTYPE_OF_LITERT else 0
    content = model.buffers[tensor.buffer].data
    stored = 0 if content is None else len(content)
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
"""The beginning of the names of custom operators."""


def operator_name(model: Any, operator: Any) -> str:
    """Return LiteRT's name of a file's operator, for instance ``CONV_2D``, or a custom operator's code."""
    code = model.operatorCodes[operator.opcodeIndex]
    builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
    if builtin == schema.BuiltinOperator.CUSTOM:
        return f"{CUSTOM}{(code.customCode or b'?').decode('utf-8', 'replace')}"
    return _OPERATOR_NAMES.get(builtin, f"BUILTIN {builtin}")


# -- forms that older converters wrote -----------------------------------------------------------------------------------


def repaired(model: Any) -> list[str]:
    """Change what LiteRT 2.3 refuses and older versions read to what these versions read, in the objects; return the changes in words.

    Older versions did not look at the axis that a depthwise weight states for its scales: the scales were those of the output
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
