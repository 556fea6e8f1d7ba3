# SPDX-License-Identifier: BSD-3-Clause
"""LSTMs whose states are given and read: LiteRT's bytes with its variables set to the same states, over several frames."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from openneutron import litert, targets
from openneutron.api.pytorch import analyse
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph
from tests.support import oracle
from tests.support.recurrent_files import random_lstm

FRAMES = 5


def _compare(graph: Graph, content: bytes, variables: tuple[str, str], seed: int) -> None:
    """Compare a graph that takes and gives the states with a file that has them in variables. Each second frame goes on with the
    states of the one before it; the others begin with random ones."""
    compiled = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
    interpreter = oracle.interpreter_of(content)
    places = {detail["name"]: detail["index"] for detail in interpreter.get_tensor_details()}
    found: list[np.ndarray] = []
    for frame in range(FRAMES):
        inputs = oracle.random_inputs(graph, 100 * seed + frame)
        if frame % 2:
            inputs[1:] = found[1:]
        for name, value in zip(variables, inputs[1:], strict=True):
            interpreter.set_tensor(places[name], value)
        (output,) = oracle.results_of(interpreter, inputs[:1])
        found = oracle.simulated_outputs(compiled, inputs)
        wanted = [output, *(interpreter.get_tensor(places[name]) for name in variables)]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other, f"seed {seed}, frame {frame}")


def _compare_random(seed: int) -> None:
    content = random_lstm(seed)
    graph = litert.read(content).graph
    hidden, cell = graph.states
    given = replace(
        graph,
        inputs=(*graph.inputs, hidden.tensor, cell.tensor),
        outputs=(*graph.outputs, hidden.update, cell.update),
        states=(),
    )
    _compare(given, content, (hidden.tensor, cell.tensor), seed)


def test_random_layers_take_and_give_both_states() -> None:
    for seed in range(20):
        _compare_random(seed)


def test_states_in_external_memory_are_updated_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TARGET", targets.get("imx95"))
    for seed in range(2):
        _compare_random(seed)


class Layer(nn.Module):
    """A layer whose states are inputs and results."""

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.layer(x, (h, c))
        return y, h, c


class Cell(Layer):
    """A cell whose states are inputs and results."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.layer(x, (h, c))
        return 2 * h, h, c


@pytest.mark.parametrize(
    ("make", "x", "h", "c"),
    [
        (lambda: Layer(nn.LSTM(6, 8)), (5, 3, 6), (1, 3, 8), (1, 3, 8)),
        (lambda: Layer(nn.LSTM(6, 8, bias=False, batch_first=True)), (3, 5, 6), (1, 3, 8), (1, 3, 8)),
        (lambda: Layer(nn.LSTM(6, 8, proj_size=5)), (5, 6), (1, 5), (1, 8)),
        (lambda: Layer(nn.LSTM(6, 8, 2, bidirectional=True, proj_size=3)), (4, 2, 6), (4, 2, 3), (4, 2, 8)),
        (lambda: Cell(nn.LSTMCell(6, 8)), (3, 6), (3, 8), (3, 8)),  # type: ignore[arg-type]
    ],
    ids=["LSTM", "batch first, without bias", "with projection", "two layers, bidirectional", "cell"],
)
def test_pytorchs_layers_are_one_call_for_each_direction_with_litert_s_bytes(
    make: Callable[[], nn.Module], x: tuple[int, ...], h: tuple[int, ...], c: tuple[int, ...]
) -> None:
    module = make()
    torch.manual_seed(1)
    for param in module.parameters():
        nn.init.uniform_(param, -0.5, 0.5)
    inputs = [(torch.randn(x), torch.rand(h) - 0.5, torch.randn(c)) for _ in range(8)]
    program = analyse(copy.deepcopy(module).eval(), inputs[0], calibration=inputs)
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    graph = partition.compiled.graph
    layers = [node for node in graph.nodes if node.op == "unidirectional_sequence_lstm"]
    assert len(layers) == (4 if len(h) == 3 and h[0] == 4 else 1)
    with torch.no_grad():
        wanted, quantized = module(*inputs[0]), program.quantized(*inputs[0])
    for got, want, near in zip(program.run(*inputs[0]), wanted, quantized, strict=True):
        assert 10 * float(torch.log10((want**2).sum() / ((got - want) ** 2).sum())) >= 25
        assert float((got - near).abs().max()) < 0.02
    for number, node in enumerate(layers):
        if node["backwards"]:
            continue
        places = (node.inputs[0], node.inputs[18], node.inputs[19])
        tensors = {str(name): replace(graph[str(name)], data=None) for name in places}
        tensors |= {
            name: graph[name] for name in (*node.inputs, *node.outputs) if name is not None and name not in tensors
        }
        alone = Graph("layer", tensors, (node,), tuple(map(str, places)), node.outputs)
        content = litert.write(
            replace(alone, nodes=(replace(node, outputs=node.outputs[:1]),), outputs=node.outputs[:1])
        )
        _compare(alone, content, (str(places[1]), str(places[2])), number)
