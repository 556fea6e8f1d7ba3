# SPDX-License-Identifier: BSD-3-Clause
"""Pointwise functions that a file computes in float between int8 operators, as tables of the NPU.

TensorFlow's converter leaves operators without an int8 form in float: DEQUANTIZE, NEG (or SQUARE, SIN, DIV ...), QUANTIZE. Where such
an island computes each value of its result from one stored value, it is a table of 256 entries. LiteRT's own kernels compute the entries
from all stored values, so that every byte is that of the file.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.litert import LiteRTModel
from openneutron.litert.check import operator_name
from openneutron.litert.read import TABLE_NAME, read_model
from openneutron.litert.write import constant_object, copied, cut, operator_object

POINTWISE = frozenset(
    (
        *("ABS", "ADD", "CAST", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU"),
        *("GREATER", "GREATER_EQUAL", "HARD_SWISH", "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"),
        *("LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"),
        *("ROUND", "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH"),
    )
)  # fmt: skip
"""LiteRT's operators that compute each element of the result from the elements at the same place."""

STORED = {
    DType.INT8: np.arange(-128, 128).astype(np.int8),
    DType.UINT8: np.arange(256).astype(np.uint8),
    DType.BOOL: np.array([False, True]),
}
"""All values of a type, in the order of a table's entries."""

IN_FLOAT = (DType.FLOAT32, DType.INT32, DType.INT64, DType.BOOL)
"""The types of an island's own tensors."""


@dataclass(frozen=True, slots=True)
class Island:
    """A tensor that one stored value of another tensor determines, element by element, and the places of the operators between."""

    source: str
    result: str
    end: int
    operators: tuple[int, ...]


def with_tables(model: LiteRTModel, excluded: Collection[str] = ()) -> LiteRTModel:
    """Return the model with a table, or a SELECT_V2 for a boolean, in place of the last operator of each island, and without the
    operators that nobody reads any more. ``excluded`` names operators and tensors whose operators stay as they are.

    The same model is returned where there are no islands, or where LiteRT, in a child process, can't run them.
    """
    islands = list(_islands(model, frozenset(excluded)))
    if not islands:
        return model
    try:
        tables = _computed(model, islands)
    except InvalidModelError:
        return model
    return _replaced(model, dict(zip(islands, tables, strict=True)))


@dataclass(frozen=True, slots=True)
class _Origin:
    """The stored tensor that determines a tensor, None for a constant, and the places of the operators between."""

    source: str | None
    operators: tuple[int, ...]


def _islands(model: LiteRTModel, excluded: frozenset[str]) -> Iterator[Island]:
    graph, operators = model.graph, model.model.subgraphs[0].operators or ()
    found: dict[str, _Origin] = {}
    for place, (node, operator) in enumerate(zip(graph.nodes, operators, strict=True)):
        kind = operator_name(model.model, operator)
        if kind not in POINTWISE and kind != "QUANTIZE":
            continue
        if len(node.outputs) != 1 or not node.inputs or excluded & {node.op, kind, node.op.upper(), node.name}:
            continue
        origin = _origin(graph, node, kind, found)
        if origin is None:
            continue
        through = (*origin.operators, place)
        if origin.source is not None and _ends(graph, node, kind, origin.source):
            yield Island(origin.source, node.name, place, through)
        elif kind != "QUANTIZE" and graph[node.name].dtype in IN_FLOAT:
            found[node.name] = _Origin(origin.source, through)


def _origin(graph: Graph, node: Node, kind: str, found: Mapping[str, _Origin]) -> _Origin | None:
    """Return the origin of a node's result; None where several tensors determine it, or elements at other places."""
    sources: dict[str, None] = {}
    before: set[int] = set()
    for name in node.inputs:
        if name is None:
            return None
        if name in found:
            before.update(found[name].operators)
            if (source := found[name].source) is not None:
                sources[source] = None
        elif kind in ("DEQUANTIZE", "CAST") and _is_stored(graph[name], kind):
            sources[name] = None
        elif not _is_uniform(graph[name]):
            return None
    if not sources:
        return _Origin(None, tuple(sorted(before)))
    (source, *others) = sources
    if others or graph[node.name].shape != graph[source].shape:
        return None
    return _Origin(source, tuple(sorted(before)))


def _is_stored(tensor: Tensor, kind: str) -> bool:
    if tensor.data is not None or tensor.dtype not in STORED or not tensor.elements:
        return False
    if kind == "CAST":
        return True
    return tensor.dtype is not DType.BOOL and tensor.quant is not None and not tensor.quant.per_channel


def _is_uniform(tensor: Tensor) -> bool:
    """Return whether a tensor is a constant whose elements are one number."""
    data = tensor.data
    if data is None or tensor.dtype is DType.OPAQUE or not data.size:
        return False
    first = data.reshape(-1)[:1].tobytes()
    return bool(data.tobytes() == first * data.size)


def _ends(graph: Graph, node: Node, kind: str, source: str) -> bool:
    """Return whether a node's result is stored in 8 bits again, with other nodes between it and the source."""
    result = graph[node.name]
    if kind not in ("QUANTIZE", "CAST") or result.dtype not in (DType.INT8, DType.UINT8) or source in node.inputs:
        return False
    return result.quant is not None and not result.quant.per_channel


def _computed(model: LiteRTModel, islands: Sequence[Island]) -> list[npt.NDArray[Any]]:
    """Return the results of each island for all values of its source. LiteRT computes them in one run of a model of the islands alone.

    Raises InvalidModelError where LiteRT can't run them.
    """
    from openneutron.litert.interpret import InterpreterProcess  # few models have any islands

    graph, places = model.graph, model.tensor_index
    new = copied(model.model)
    main = new.subgraphs[0]
    inside = sorted({place for island in islands for place in island.operators})
    extents: dict[str, int] = {}
    for island in islands:
        extents |= _extents(graph, island)
    for place in inside:
        for name in graph.nodes[place].inputs:
            assert name is not None
            data = graph[name].data
            if data is not None:
                main.tensors[places[name]] = constant_object(new, main.tensors[places[name]], data.reshape(-1)[:1])
    for name, extent in extents.items():
        tensor = main.tensors[places[name]] = copy.copy(main.tensors[places[name]])
        tensor.shape, tensor.shapeSignature = np.array([extent], np.int32), None
    sources = list(dict.fromkeys(island.source for island in islands))
    content = cut(new, inside, [places[name] for name in sources], [places[island.result] for island in islands])
    process = InterpreterProcess([(content, "operators in float between int8 operators")])
    try:
        return process.run(0, [STORED[graph[name].dtype] for name in sources])
    finally:
        process.close()


def _extents(graph: Graph, island: Island) -> dict[str, int]:
    """Return the number of elements of each of an island's tensors in a run for all values of its source; 1 for constants."""
    found = {island.source: len(STORED[graph[island.source].dtype])}
    for place in island.operators:
        node = graph.nodes[place]
        found[node.name] = max(found.get(str(name), 1) for name in node.inputs)
    return found


def _replaced(model: LiteRTModel, tables: Mapping[Island, npt.NDArray[Any]]) -> LiteRTModel:
    graph, places = model.graph, model.tensor_index
    new = copied(model.model)
    main = new.subgraphs[0]
    unquantized: dict[str, None] = {}
    for island, table in tables.items():
        result = main.tensors[places[island.result]]
        source = places[island.source]
        if graph[island.source].dtype is DType.BOOL:
            operands = [
                source,
                *(
                    _add(main, constant_object(new, result, table[at].reshape(1), f"{island.result}/{at}"))
                    for at in (1, 0)
                ),
            ]
            main.operators[island.end] = operator_object(new, "SELECT_V2", operands, [places[island.result]])
            continue
        entries = _add(main, constant_object(new, result, table, f"{island.result}/table"))
        main.operators[island.end] = operator_object(new, TABLE_NAME, [source, entries], [places[island.result]])
        if graph[island.source].quant is None:
            unquantized[island.source] = None
    ends = {island.end for island in tables}
    inner = {place for island in tables for place in island.operators} - ends
    used, kept = set(graph.outputs), []
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if place in inner and not used.intersection(node.outputs):
            continue
        kept.append(place)
        # The last operator of an island reads the source alone.
        used.update(name for name in node.inputs if name is not None and place not in ends)
    used.update(island.source for island in tables)
    main.operators = [main.operators[place] for place in sorted(kept)]
    made = read_model(new)
    # Stored values that a file casts are numbers of scale 1.
    tensors = {name: replace(made.graph[name], quant=QuantParams((1.0,), (0,))) for name in unquantized}
    return replace(made, graph=replace(made.graph, tensors={**made.graph.tensors, **tensors}))


def _add(subgraph: Any, tensor: Any) -> int:
    subgraph.tensors.append(tensor)
    return len(subgraph.tensors) - 1
