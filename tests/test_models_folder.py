# SPDX-License-Identifier: BSD-3-Clause
"""The folder of test models: the trained ones, or networks of the same shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from openneutron import litert
from openneutron.compiler import compile_graph
from openneutron.ir import Graph
from tests.support import made_networks, oracle
from tests.support.made_networks import TRAINED_MODELS


@pytest.fixture(scope="module")
def trained() -> Path:
    if not TRAINED_MODELS.is_dir():
        pytest.skip(f"{TRAINED_MODELS} is absent: it holds the trained models; the tests run on made networks instead")
    return TRAINED_MODELS


def with_names_of(made: Graph, model: Graph) -> Graph:
    """Return the model with the names of the network's tensors: of two plans in tiles that are equally good, names decide."""
    names = dict(zip(model.inputs, made.inputs, strict=True))
    for one, other in zip(model.nodes, made.nodes, strict=True):
        names |= dict(zip(one.outputs, other.outputs, strict=True))
        # A model may have no bias, or the shape of a RESHAPE as an operand.
        names |= {own: new for own, new in zip(one.inputs, other.inputs, strict=False) if own and new}
    nodes = [
        replace(
            node,
            inputs=tuple(own and names.get(own, own) for own in node.inputs),
            outputs=tuple(names[own] for own in node.outputs),
        )
        for node in model.nodes
    ]
    named = {names.get(own, own): tensor for own, tensor in model.tensors.items()}
    tensors = {name: replace(tensor, name=name) for name, tensor in named.items()}
    return replace(model, tensors=tensors, nodes=tuple(nodes), inputs=made.inputs, outputs=made.outputs)


@pytest.mark.parametrize("name", made_networks.NETWORKS)
def test_a_made_network_has_the_operators_memory_and_cycles_of_its_model(name: str, trained: Path) -> None:
    made, model = made_networks.NETWORKS[name](), litert.read(trained / f"{name}.tflite").graph
    assert [node.op for node in made.nodes] == [node.op for node in model.nodes]
    graphs = made, with_names_of(made, model)
    one, other = (compile_graph(graph, oracle.TARGET).report for graph in graphs)
    # With tiles, the memory holds the constants too.
    beside = abs(one.weights_bytes - other.weights_bytes) if oracle.TARGET.moves_tiles else 0
    assert abs(one.arena_bytes - other.arena_bytes) <= beside
    cycles = [[item.cycles for item in report.operators if item.kernel != "softmax_s8"] for report in (one, other)]
    assert cycles[0] == cycles[1]
    # The exponentials of a softmax are a table of at most 1,024 bytes, which a smaller scale makes longer.
    assert abs(one.weights_bytes - other.weights_bytes) <= 1024
    assert abs(one.cycles - other.cycles) <= 1024 / oracle.TARGET.constants_memory.bandwidth.value
