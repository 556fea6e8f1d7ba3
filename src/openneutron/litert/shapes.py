# SPDX-License-Identifier: BSD-3-Clause
"""Replace SHAPE and RANK of tensors with known shapes by constants of the file.

Keras layers that reshape, and resizes to the size of another tensor, read a shape and compute with it. A compiled
program has fixed shapes, so these results are constants. This pass runs before any other stage looks for constants.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from openneutron.ir import Graph, Node, constant
from openneutron.litert.prune import copied
from openneutron.litert.read import LiteRTModel


def with_known_shapes(model: LiteRTModel) -> LiteRTModel:
    """Return the model with constants in place of its SHAPE and RANK operators; the same model where it has none.

    An operator stays where the file returns its result, or where an extent is unknown.
    """
    graph = model.graph
    values = {node.name: value for node in graph.nodes if (value := _known(graph, node)) is not None}
    if not values:
        return model
    kept = [place for place, node in enumerate(graph.nodes) if values.keys().isdisjoint(node.outputs)]
    constants = [constant(name, value) for name, value in values.items()]
    nodes = [graph.nodes[place] for place in kept]
    return LiteRTModel(graph.rebuilt(nodes, constants), model.tensor_index, _file(model, values, kept))


def _known(graph: Graph, node: Node) -> npt.NDArray[Any] | None:
    source = graph.operand(node, 0)
    if node.op not in ("shape", "rank") or source is None or len(node.outputs) != 1 or node.name in graph.outputs:
        return None
    value = np.array(source.shape if node.op == "shape" else len(source.shape), graph[node.name].dtype.numpy)
    fits = value.shape == graph[node.name].shape and all(extent > 0 for extent in source.shape)
    return value if fits else None


def _file(model: LiteRTModel, values: Mapping[str, npt.NDArray[Any]], kept: list[int]) -> Any:
    new = copied(model.model)
    main = new.subgraphs[0]
    for name, value in values.items():
        place = model.tensor_index[name]
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        main.tensors[place] = copy.copy(main.tensors[place])
        main.tensors[place].buffer = len(new.buffers)
        new.buffers.append(buffer)
    main.operators = [main.operators[place] for place in kept]
    return new
