# SPDX-License-Identifier: BSD-3-Clause
"""Fold operators of a file that read only constants; LiteRT computes them before any other stage looks for constants.

Converters leave weights behind a TRANSPOSE, a RESHAPE or a QUANTIZE. The pass replaces such operators by their results,
which are constants. LiteRT's own reference kernels compute the results, for all kinds of operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.legalize.partition import EFFECTFUL
from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph, Node
from openneutron.litert import LiteRTModel
from openneutron.litert.read import read_model
from openneutron.litert.write import CALLING, copied, cut, stored

READ_BY_THE_NPU = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL)
"""The result types that are folded.

Floats are not: the CPU reads them, and a folded DEQUANTIZE of 16-bit float weights would only make the file larger.
"""

MOST_GROWTH = 8
"""The largest ratio of a result's bytes to those of its constants: CAST from int8 to int64 makes 8 bytes of 1."""

ALWAYS_STORED = 1 << 16
"""The bytes that any result may have, whatever its constants, such as that of a FILL; a number of our own choice."""


def folded(model: LiteRTModel) -> LiteRTModel:
    """Return the model with constants in place of known shapes and of operators that read only constants.

    The same model is returned where nothing can be folded, or where LiteRT, in a child process, can't run these
    operators.
    """
    model = with_known_shapes(model)
    graph = model.graph
    fixed = _fixed(model)
    ends = _ends(model, fixed)
    if not ends:
        return model
    needed = _needed(graph, fixed, ends)
    try:
        places = [model.tensor_index[name] for name in ends]
        from openneutron.litert.interpret import InterpreterProcess  # few models have anything to fold

        process = InterpreterProcess([(cut(model.model, needed, [], places), "operators that read constants alone")])
        results = process.run(0, [])
        process.close()
    except InvalidModelError:
        return model
    found = dict(zip(ends, results, strict=True))
    stated = {
        name: value
        for name, value in found.items()
        if (value.shape, value.dtype) == (graph[name].shape, graph[name].dtype.numpy)
    }
    return _with_constants(model, fixed, stated) if stated else model


def with_known_shapes(model: LiteRTModel) -> LiteRTModel:
    """Return the model with constants in place of its SHAPE and RANK operators; the same model where it has none.

    Keras layers that reshape, and resizes to the size of another tensor, read a shape and compute with it. A compiled
    program has fixed shapes. An operator stays where the file returns its result, or where an extent is unknown.
    """
    graph = model.graph
    found = {place: value for place, node in enumerate(graph.nodes) if (value := _known(graph, node)) is not None}
    values = {graph.nodes[place].name: value for place, value in found.items()}
    return _with_constants(model, found, values) if found else model


def _known(graph: Graph, node: Node) -> npt.NDArray[Any] | None:
    source = graph.operand(node, 0)
    if node.op not in ("shape", "rank") or source is None or len(node.outputs) != 1 or node.name in graph.outputs:
        return None
    value = np.array(source.shape if node.op == "shape" else len(source.shape), graph[node.name].dtype.numpy)
    fits = value.shape == graph[node.name].shape and all(extent > 0 for extent in source.shape)
    return value if fits else None


def _fixed(model: LiteRTModel) -> list[int]:
    """Return the indices of the operators that read only constants, directly or through each other."""
    graph, tensors = model.graph, model.model.subgraphs[0].tensors
    known = {name for name, tensor in graph.tensors.items() if tensor.is_constant}
    for name in list(known):
        tensor = tensors[model.tensor_index[name]]
        if tensor.isVariable or tensor.externalBuffer:  # it changes between runs, or its values are in another file
            known.remove(name)
    fixed = []
    for place, node in enumerate(graph.nodes):
        same = node.op not in EFFECTFUL and node.op not in CALLING and not node.op.startswith("CUSTOM")
        if node.outputs and same and all(name is None or name in known for name in node.inputs):
            known.update(node.outputs)
            fixed.append(place)
    return fixed


def _ends(model: LiteRTModel, fixed: Iterable[int]) -> list[str]:
    """Return the results of these operators that other operators read or the file returns, if they are worth
    storing."""
    graph = model.graph
    inside = set(fixed)
    read = {*graph.outputs}
    for place, node in enumerate(graph.nodes):
        if place not in inside:
            read.update(name for name in node.inputs if name is not None)
    made = [name for place in sorted(inside) for name in graph.nodes[place].outputs if name in read]
    return [name for name in made if graph[name].dtype in READ_BY_THE_NPU and _small(graph, fixed, name)]


def _small(graph: Graph, fixed: Iterable[int], end: str) -> bool:
    needed = [graph.nodes[place] for place in _needed(graph, fixed, [end])]
    sources = {name for node in needed for name in node.inputs if name is not None and graph[name].is_constant}
    read = sum(graph[name].size_bytes for name in sources)
    return 0 <= graph[end].size_bytes <= max(ALWAYS_STORED, MOST_GROWTH * read)


def _needed(graph: Graph, fixed: Iterable[int], ends: Iterable[str]) -> list[int]:
    """Return those of these operators that the ends depend on, in order."""
    wanted, needed = set(ends), []
    for place in sorted(fixed, reverse=True):
        node = graph.nodes[place]
        if wanted.intersection(node.outputs):
            wanted.update(name for name in node.inputs if name is not None)
            needed.append(place)
    return needed[::-1]


def _with_constants(model: LiteRTModel, fixed: Collection[int], values: dict[str, np.ndarray]) -> LiteRTModel:
    new = copied(model.model)
    main = new.subgraphs[0]
    for name, value in values.items():
        place = model.tensor_index[name]
        main.tensors[place] = stored(new, main.tensors[place], value)
    graph = model.graph
    used, kept = {*graph.outputs}, []
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if place in fixed and not (used - values.keys()).intersection(node.outputs):
            continue
        used.update(name for name in node.inputs if name is not None)
        kept.append(place)
    main.operators = [main.operators[place] for place in sorted(kept)]
    return read_model(new)
