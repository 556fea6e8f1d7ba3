# SPDX-License-Identifier: BSD-3-Clause
"""Graphs as data and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from openneutron.device.cache import Digest, add_graph
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant, per_tensor
from openneutron.ir.graph import read, written
from scripts.published_networks import cifarnet


def odd() -> Graph:
    """Return a graph with all that the form of a graph has."""
    quant = QuantParams((0.1, 1e-38, 3.0), (1, 0, -1), 0)
    tensors = [
        Tensor("x", (3, 1), DType.INT8, per_tensor(0.1, -3)),
        constant("weights", np.arange(3, dtype=np.int8).reshape(3, 1), quant),
        constant("scalar", np.float16(0.5)),
        constant("empty", np.zeros((0, 4), np.int64)),
        Tensor("broadcast", (2, 3), DType.INT32, None, np.broadcast_to(np.int32(7), (2, 3))),
        Tensor("opaque", (2,), DType.OPAQUE, None, np.zeros(2, "V1")),
        Tensor("y", (), DType.BOOL),
    ]
    attrs = {
        "int": 1,
        "bool": True,
        "float": 1.0,
        "inf": float("inf"),
        "text": "a",
        "nested": (1, (2.5, ())),
        "no": None,
    }
    node = Node("op", ("x", None, "weights"), ("y",), attrs, "net.py:1")
    return Graph("odd", {tensor.name: tensor for tensor in tensors}, (node,), ("x",), ("y",))


@pytest.mark.parametrize("graph", [odd(), cifarnet()], ids=["odd", "cifarnet"])
def test_a_graph_survives(graph: Graph) -> None:
    facts, constants = written(graph)
    found = read(json.loads(json.dumps(facts)), constants)
    assert str(found) == str(graph)
    assert (found.name, [node.source for node in found.nodes]) == (graph.name, [node.source for node in graph.nodes])
    assert list(found.tensors) == list(graph.tensors)
    for name, tensor in graph.tensors.items():
        assert tensor.data is None or found[name].data.shape == tensor.data.shape
    digests = [Digest(), Digest()]
    for digest, each in zip(digests, (graph, found), strict=True):
        add_graph(digest, each)
    assert digests[0].hex() == digests[1].hex()


def test_an_attribute_that_would_come_back_as_another_is_refused() -> None:
    graph = odd()
    node = graph.nodes[0].with_attrs(int=np.float32(1))
    with pytest.raises(TypeError) as caught:
        written(graph.rebuilt([node]))
    assert str(caught.value) == "an attribute is a float32, which a graph's data has no form for"
