# SPDX-License-Identifier: BSD-3-Clause
"""Programs inside ``.tflite`` files: one NeutronGraph custom operator for each, as NXP's converter writes them.

Such an operator's inputs are the program's, then its microcode, weights and kernels as constant uint8 tensors; its
outputs are the program's, then scratch, profile and debug (version 1 of the public form).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidProgramError
from openneutron.ir import Graph
from openneutron.isa import Program
from openneutron.litert.prune import copied, prune
from openneutron.litert.read import LiteRTModel, operator_name, read
from openneutron.litert.write import pack, write

CUSTOM_CODE = b"NeutronGraph"
OPERATOR_NAME = f"CUSTOM {CUSTOM_CODE.decode()}"
BLOBS = ("microcode", "weights", "kernels")
WORK = ("scratch", "profile", "debug")


@dataclass(frozen=True, slots=True)
class NeutronNode:
    """A NeutronGraph to put into a file: what it takes and gives, by the graph's tensor names."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    program: Program


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A NeutronGraph of a file: its operator's place, and the tensors it takes and gives, by their places."""

    operator: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    program: Program


def splice(model: LiteRTModel, steps: Sequence[int | NeutronNode]) -> bytes:
    """The file with these steps for operators, in this order: a place in the file's operators, or a NeutronGraph.

    Operators that stay are the file's own objects. Tensors, buffers and operator codes that nothing uses any more are left
    out. The same arguments give the same bytes.
    """
    new = copied(model.model)
    main = new.subgraphs[0]
    code = schema.OperatorCodeT()
    code.builtinCode = schema.BuiltinOperator.CUSTOM
    code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = CUSTOM_CODE
    code.version = 1
    new.operatorCodes.append(code)
    taken = set(model.graph.tensors)
    operators = []
    for step in steps:
        if isinstance(step, int):
            operators.append(main.operators[step])
        else:
            operators.append(_operator(new, len(new.operatorCodes) - 1, model.tensor_index, step, taken))
    main.operators = operators
    return pack(prune(new))


def graph_file(graph: Graph, program: Program) -> bytes:
    """A file of one NeutronGraph: the program in place of the whole graph that it was compiled from."""
    return splice(read(write(graph)), [NeutronNode(graph.name, graph.inputs, graph.outputs, program)])


def _operator(model: Any, code: int, index: dict[str, int], node: NeutronNode, taken: set[str]) -> Any:
    header = node.program.header
    tensors = model.subgraphs[0].tensors
    stem, copy = node.name, 0
    while any(f"{stem}/{part}" in taken for part in (*BLOBS, *WORK)):
        copy += 1
        stem = f"{node.name}#{copy}"
    taken.update(f"{stem}/{part}" for part in (*BLOBS, *WORK))

    def add(part: str, size: int, blob: bytes | None) -> int:
        tensor = schema.TensorT()
        tensor.name = f"{stem}/{part}".encode()
        tensor.shape = np.array([size], np.int32)
        tensor.type = schema.TensorType.UINT8
        tensor.buffer = 0
        if blob is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(blob, np.uint8)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
        tensors.append(tensor)
        return len(tensors) - 1

    blobs = [add(part, len(blob), blob) for part in BLOBS for blob in (getattr(node.program, part),)]
    work = [add(part, header[f"{part}_size"], None) for part in WORK]
    operator = schema.OperatorT()
    operator.opcodeIndex = code
    operator.inputs = np.array([*(index[name] for name in node.inputs), *blobs], np.int32)
    operator.outputs = np.array([*(index[name] for name in node.outputs), *work], np.int32)
    return operator


def find(model: Any) -> list[FoundNode]:
    """The NeutronGraphs of a file's main graph, in order, verified.

    Raises InvalidProgramError where one is damaged, or made by another compiler.
    """
    main = model.subgraphs[0]
    return [
        _found(model, place, operator)
        for place, operator in enumerate(main.operators or ())
        if operator_name(model, operator) == OPERATOR_NAME
    ]


def _found(model: Any, place: int, operator: Any) -> FoundNode:
    tensors = model.subgraphs[0].tensors
    subject = f"NeutronGraph (operator {place})"
    inputs = [int(index) for index in operator.inputs] if operator.inputs is not None else []
    outputs = [int(index) for index in operator.outputs] if operator.outputs is not None else []
    if len(inputs) < len(BLOBS):
        raise InvalidProgramError(
            f"{subject}: it has {len(inputs)} inputs; microcode, weights and kernels alone are {len(BLOBS)}. Compile the model again."
        )
    if not all(0 <= index < len(tensors) for index in (*inputs, *outputs)):
        raise InvalidProgramError(f"{subject}: it names tensors that the file does not have. Compile the model again.")
    blobs = []
    for index in inputs[-len(BLOBS) :]:
        data = model.buffers[tensors[index].buffer].data
        blobs.append(b"" if data is None else np.asarray(data, np.uint8).tobytes())
    program = Program(*blobs)
    try:
        program.verify()
    except InvalidProgramError as error:
        raise InvalidProgramError(f"{subject}: {error}") from error
    header = program.header
    stated = (header["input_count"] + len(BLOBS), header["output_count"] + len(WORK))
    if stated != (len(inputs), len(outputs)):
        raise InvalidProgramError(
            f"{subject}: it has {len(inputs)} inputs and {len(outputs)} outputs; its microcode wants {stated[0]} and "
            f"{stated[1]}. Compile the model again."
        )
    blob_name = (tensors[inputs[-len(BLOBS)]].name or b"").decode("utf-8", "replace")
    name = blob_name.removesuffix(f"/{BLOBS[0]}")
    return FoundNode(place, name, tuple(inputs[: -len(BLOBS)]), tuple(outputs[: -len(WORK)]), program)
