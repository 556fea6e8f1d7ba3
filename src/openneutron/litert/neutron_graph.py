# SPDX-License-Identifier: BSD-3-Clause
"""Programs inside ``.tflite`` files: each is a NeutronGraph custom operator, in the form of NXP's converter.

The operator's inputs are the program's inputs, then the microcode, weights and kernels as constant uint8 tensors. Its
outputs are the program's outputs, then scratch, profile and debug (version 1 of the public form).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidProgramError
from openneutron.isa import Program
from openneutron.litert.read import LiteRTModel, operator_name, places, unpack
from openneutron.litert.write import copied, pack, prune

CUSTOM_CODE = b"NeutronGraph"
OPERATOR_NAME = f"CUSTOM {CUSTOM_CODE.decode()}"
BLOBS = ("microcode", "weights", "kernels")
WORK = ("scratch", "profile", "debug")


@dataclass(frozen=True, slots=True)
class NeutronNode:
    """A NeutronGraph to put into a file. ``inputs`` and ``outputs`` are names of the graph's tensors."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    program: Program


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A NeutronGraph of a file. ``operator`` is the operator's place in the main graph. ``inputs`` and ``outputs`` are
    indices of the file's tensors, without those of the blobs and of the work buffers."""

    operator: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    program: Program


def splice(model: LiteRTModel, steps: Sequence[int | NeutronNode]) -> bytes:
    """Return the file with the operators ``steps``, in this order. A step is the place of one of the file's operators,
    or a NeutronGraph.

    Operators that stay are the file's own objects. Tensors, buffers and operator codes that nothing uses any more are
    removed. The same arguments give the same bytes.
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
    """Return the verified NeutronGraphs of a file's main graph, in order.

    Raises InvalidProgramError where a NeutronGraph is damaged, or another compiler made it.
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
    inputs, outputs = places(operator.inputs), places(operator.outputs)
    if len(inputs) < len(BLOBS):
        raise InvalidProgramError(
            f"{subject}: it has {len(inputs)} inputs; microcode, weights and kernels alone are {len(BLOBS)}. Compile the model again."
        )
    if not all(0 <= index < len(tensors) for index in (*inputs, *outputs)):
        raise InvalidProgramError(f"{subject}: it names tensors that the file does not have. Compile the model again.")
    program = Program(*(_blob(model, tensors[index]) for index in inputs[-len(BLOBS) :]))
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
    name = _name(tensors[inputs[-len(BLOBS)]]).removesuffix(f"/{BLOBS[0]}")
    return FoundNode(place, name, tuple(inputs[: -len(BLOBS)]), tuple(outputs[: -len(WORK)]), program)


# -- a converted partition's file: one NeutronGraph and nothing else ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConvertedGraph:
    """The NeutronGraph of a converted partition's file. Its blobs are not decoded. ``inputs`` and ``outputs`` are names
    of the file's tensors, in the NeutronGraph's order.

    ``payload_version`` is 1 where profile and debug buffers follow the scratch buffer among the outputs, and 0 where
    the scratch buffer is the last output.
    """

    program: Program = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload_version: int


def only_graph(data: bytes) -> ConvertedGraph:
    """Return the only NeutronGraph of a file.

    Raises InvalidProgramError where the file is not exactly one NeutronGraph, or the NeutronGraph is not connected to
    the file's inputs and outputs. Raises InvalidModelError where the file is damaged.
    """
    model = unpack(data, "the converted model")
    graphs = model.subgraphs or []
    if len(graphs) != 1:
        raise InvalidProgramError(f"it has {len(graphs)} graphs; a converted partition has one")
    operators = graphs[0].operators or []
    names = [operator_name(model, operator) for operator in operators]
    if names != [OPERATOR_NAME]:
        inside = ", ".join(names) if names else "none"
        raise InvalidProgramError(
            f"it has {names.count(OPERATOR_NAME)} NeutronGraphs among {len(names)} operators ({inside}); "
            "a converted partition is exactly one NeutronGraph"
        )
    of_file = {"input": places(graphs[0].inputs), "output": places(graphs[0].outputs)}
    inputs, outputs = places(operators[0].inputs), places(operators[0].outputs)
    extra = len(outputs) - len(of_file["output"])
    if len(inputs) < len(BLOBS) or extra not in (1, len(WORK)):
        raise InvalidProgramError(
            f"its NeutronGraph has {len(inputs)} inputs and {len(outputs)} outputs; the file has {len(of_file['input'])} and "
            f"{len(of_file['output'])}, and besides there are {len(BLOBS)} constants, and 1 or {len(WORK)} buffers"
        )
    tensors = graphs[0].tensors or []
    if not all(0 <= place < len(tensors) for place in (*inputs, *outputs)):
        raise InvalidProgramError("its NeutronGraph names tensors that the file does not have")

    def borders(kind: str, given: Sequence[int]) -> tuple[str, ...]:
        strangers = [place for place in given if place not in of_file[kind]]
        if strangers:
            name = _name(tensors[strangers[0]])
            raise InvalidProgramError(f"its NeutronGraph has an {kind} '{name}' that is no {kind} of the file")
        return tuple(_name(tensors[place]) for place in given)

    return ConvertedGraph(
        Program(*(_blob(model, tensors[place]) for place in inputs[-len(BLOBS) :])),
        borders("input", inputs[: -len(BLOBS)]),
        borders("output", outputs[:-extra]),
        1 if extra == len(WORK) else 0,
    )


def _name(tensor: Any) -> str:
    return (tensor.name or b"").decode("utf-8", "replace")


def _blob(model: Any, tensor: Any) -> bytes:
    data = model.buffers[tensor.buffer].data
    return b"" if data is None else np.asarray(data, np.uint8).tobytes()
