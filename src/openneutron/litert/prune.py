# SPDX-License-Identifier: BSD-3-Clause
"""Flatbuffer models without unused parts, and models cut out of a file for LiteRT's interpreter."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from openneutron.errors import InvalidModelError
from openneutron.litert.read import operator_name, places
from openneutron.litert.write import pack


def copied(model: Any) -> Any:
    """Return a model whose lists, and whose main subgraph's lists, can be changed without changing the given one's."""
    twin = copy.copy(model)
    twin.buffers = list(model.buffers)
    twin.operatorCodes = list(model.operatorCodes or ())
    main = copy.copy(model.subgraphs[0])
    main.tensors = list(main.tensors or ())
    main.operators = list(main.operators or ())
    twin.subgraphs = [main, *model.subgraphs[1:]]
    return twin


def prune(model: Any) -> Any:
    """Return a model without the tensors of the main subgraph, the buffers and the operator codes that nothing refers to.

    What is left keeps its order. The given model and all its objects stay as they are. Raises InvalidModelError where it
    refers to what it does not have.
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
    """Return the places in order. Raises InvalidModelError for a place that the table of a damaged file lacks."""
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
    # Buffer 0 is LiteRT's empty one, whoever uses it.
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
    """Return a model of these operators of the main graph; ``inputs`` and ``outputs`` are its tensors, by their places.

    The other subgraphs come along where one of the operators runs one. Signatures and metadata stay behind.
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
