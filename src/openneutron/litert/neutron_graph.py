# SPDX-License-Identifier: BSD-3-Clause
"""Programs inside ``.tflite`` files: each is a NeutronGraph custom operator, in the form of NXP's converter.

The operator's inputs are the program's inputs, then the microcode, weights and kernels as constant uint8 tensors. Its
outputs are the program's outputs, then scratch, profile and debug (version 1 of the public form).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidModelError, InvalidProgramError
from openneutron.isa import Program
from openneutron.isa.rows import FORMAT_VERSION
from openneutron.litert.read import LiteRTModel, operator_name, places, unpack
from openneutron.litert.write import copied, pack, prune

CUSTOM_CODE = b"NeutronGraph"
OPERATOR_NAME = f"CUSTOM {CUSTOM_CODE.decode()}"
BLOBS = ("microcode", "weights", "kernels")
WORK = ("scratch", "profile", "debug")


@dataclass(frozen=True, slots=True)
class NeutronNode:
    """A NeutronGraph operator that is to be put into a file. ``inputs`` and ``outputs`` are names of the graph's
    tensors.

    ``work_bytes`` are the sizes of the operator's work buffers: one (scratch) in version 0 of the public form, three
    (scratch, profile, debug) in version 1. If it is None, the sizes are those in the header of the microcode, which
    must be this project's.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    program: Program
    work_bytes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A NeutronGraph in a file. ``operator`` is the index of the operator in the main graph. ``inputs`` and
    ``outputs`` are indices of the tensors that the program reads and writes. The operator's constants (microcode,
    weights, kernels) and work buffers are not among them."""

    operator: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    program: Program


def splice(model: LiteRTModel, steps: Sequence[int | NeutronNode]) -> bytes:
    """Return the file with the operators ``steps``, in this order. A step is the index of one of the file's own
    operators, or a NeutronGraph.

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
    sizes = node.work_bytes
    if sizes is None:
        header = node.program.header
        sizes = tuple(header[f"{part}_size"] for part in WORK)
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
    work = [add(part, size, None) for part, size in zip(WORK, sizes, strict=False)]
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
    """The NeutronGraph in the file of a converted partition. Its microcode, weights and kernels are not decoded.
    ``inputs`` and ``outputs`` are names of the file's tensors, in the NeutronGraph's order.

    The last outputs of the operator are work buffers, which have the sizes ``work_bytes``. ``payload_version`` is 1
    if they are scratch, profile and debug buffer, and 0 if there is only the scratch buffer.
    """

    program: Program = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload_version: int
    work_bytes: tuple[int, ...]


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
        tuple(math.prod(places(tensors[place].shape)) for place in outputs[-extra:]),
    )


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A NeutronGraph in a file, made by any compiler. ``operator`` is its index in the main graph. ``graph`` has its
    program and its tensors. ``fault`` is the reason why no published runtime would load it, or None."""

    operator: int
    graph: ConvertedGraph
    fault: str | None

    @property
    def is_foreign(self) -> bool:
        """Return whether the microcode is not this project's. This project's microcode is recognized by its version
        word, even if the rest is damaged."""
        version = int.from_bytes(self.graph.program.microcode[4:8], "little")
        return version >> 16 != FORMAT_VERSION >> 16


def stored_graphs(model: Any) -> tuple[StoredGraph, ...]:
    """Return the NeutronGraphs of a file's main graph, in order, without decoding them.

    Raises InvalidProgramError for a NeutronGraph without the three constants microcode, weights and kernels, or with
    tensors that the file does not have.
    """
    main = model.subgraphs[0]
    tensors, found = main.tensors, []
    for place, operator in enumerate(main.operators or ()):
        if operator_name(model, operator) != OPERATOR_NAME:
            continue
        inputs, outputs = places(operator.inputs), places(operator.outputs)
        if len(inputs) < len(BLOBS) or not all(0 <= index < len(tensors) for index in (*inputs, *outputs)):
            raise InvalidProgramError(
                f"NeutronGraph (operator {place}): it lacks microcode, weights and kernels, or names tensors that the file does not "
                "have. Convert the model again."
            )
        program = Program(*(_blob(model, tensors[index]) for index in inputs[-len(BLOBS) :]))
        words = _words(program)
        # Version 1 of the public form has profile and debug buffers behind the scratch buffer, version 0 has neither.
        is_first = words is not None and tuple(map(int, words[[11, 12]])) == (
            len(inputs) - len(BLOBS),
            len(outputs) - 1,
        )
        extra = 1 if is_first or len(outputs) < len(WORK) else len(WORK)
        graph = ConvertedGraph(
            program,
            tuple(_name(tensors[index]) for index in inputs[: -len(BLOBS)]),
            tuple(_name(tensors[index]) for index in outputs[:-extra]),
            0 if extra == 1 else 1,
            tuple(math.prod(places(tensors[index].shape)) for index in outputs[-extra:]),
        )
        found.append(StoredGraph(place, graph, misfit(graph)))
    return tuple(found)


def outside(data: bytes) -> tuple[str, ...]:
    """Return the names of the tensors in a converted file that other operators than NeutronGraphs compute. The result
    is empty for a file that can't be read."""
    try:
        model = unpack(data, "the converted model")
    except InvalidModelError:
        return ()
    return tuple(
        _name(graph.tensors[place])
        for graph in model.subgraphs
        for operator in graph.operators or ()
        if operator_name(model, operator) != OPERATOR_NAME
        for place in places(operator.outputs)
        if place >= 0
    )


MAGIC = 0x64434D6E
"""Word 0 of every microcode that a published runtime reads (executorch/backends/nxp/runtime/NeutronBackend.cpp)."""

SIZE_WORDS = {"microcode": 6, "weights": 7}
COUNT_WORDS = {0: (11, 12), 1: (13, 14)}
"""The words with the numbers of inputs and outputs, by the version of the payload (same source)."""


def misfit(found: ConvertedGraph) -> str | None:
    """Return the reason why no published runtime would load a NeutronGraph, judged by the public words of its header;
    None if the words fit.

    The runtimes read the magic, the sizes of microcode and weights, and the numbers of inputs and outputs.
    """
    words = _words(found.program)
    if words is None or words[0] != MAGIC:
        return f"it begins with {found.program.microcode[:4]!r}, and microcode with {MAGIC.to_bytes(4, 'little')!r}"
    for name, place in SIZE_WORDS.items():
        there = len(getattr(found.program, name))
        if words[place] > there:
            return f"its header states {words[place]} bytes of {name}; there are {there}"
    wanted = (len(found.inputs), len(found.outputs))
    stated = {version: tuple(map(int, words[list(pair)])) for version, pair in COUNT_WORDS.items()}
    if stated[found.payload_version] == wanted:
        return None
    other = next((version for version, counts in stated.items() if counts == wanted), None)
    if other is not None:
        return f"its header has the form of version {other}, and its operator that of version {found.payload_version}"
    return "its header states {} inputs and {} outputs; its operator has {} and {}".format(
        *stated[found.payload_version], *wanted
    )


def _words(program: Program) -> np.ndarray | None:
    """Return the words of a microcode's header; None where there are fewer than the published ones."""
    count = max(COUNT_WORDS[1]) + 1
    return np.frombuffer(program.microcode, "<u4", count) if len(program.microcode) >= 4 * count else None


def _name(tensor: Any) -> str:
    return (tensor.name or b"").decode("utf-8", "replace")


def _blob(model: Any, tensor: Any) -> bytes:
    data = model.buffers[tensor.buffer].data
    return b"" if data is None else np.asarray(data, np.uint8).tobytes()
