# SPDX-License-Identifier: BSD-3-Clause
"""Loops of recurrent cells that a model writes out are one kernel call for each cell, where its inputs do not depend on its results."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from openneutron.api.pytorch import analyse
from openneutron.pytorch.quantizer.passes.recurrent import CellLoops

STEPS = 5


class Loop(nn.Module):
    """One cell behind another in each step; the results of the last one are stacked, or the state after the last step is read."""

    def __init__(self, kind: type[nn.RNNCellBase], stacked_along: int | None = 1) -> None:
        super().__init__()
        self.cells = nn.ModuleList((kind(6, 8), kind(8, 8)))
        self.stacked_along = stacked_along

    def forward(self, x: Tensor) -> Tensor:
        has_cell = isinstance(self.cells[0], nn.LSTMCell)
        zeros = torch.zeros(x.shape[0], 8)
        states = [(zeros, zeros) if has_cell else zeros for _ in self.cells]
        outputs = []
        for step in range(x.shape[1]):
            value = x[:, step]
            for place, cell in enumerate(self.cells):
                states[place] = cell(value, states[place])
                value = states[place][0] if has_cell else states[place]
            outputs.append(value)
        return outputs[-1] if self.stacked_along is None else torch.stack(outputs, self.stacked_along)


class Feedback(nn.Module):
    """A cell whose input is made of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(2, 8)
        for _ in range(3):
            h, c = self.cell(x, (h, c))
            x = h + 1
        return x


class CellsRead(nn.Module):
    """A loop whose cell states are results."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        state, cells = None, []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            cells.append(state[1])
        return torch.stack(cells, 1)


def merged(module: nn.Module, x: Tensor) -> GraphModule:
    """Return the graph behind the pass, once it computes what the module computes."""
    graph = torch.export.export(module.eval(), (x,)).module(check_guards=False)
    assert isinstance(graph, GraphModule)
    CellLoops()(graph)
    graph.graph.lint()
    torch.testing.assert_close(graph(x), module(x))
    return graph


def count(graph: GraphModule, ending: str) -> int:
    return sum(str(node.target).startswith("aten.") and str(node.target).endswith(ending) for node in graph.graph.nodes)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("stacked_along", [0, 1, None])
def test_a_loop_is_a_layer_for_each_cell(kind: type[nn.RNNCellBase], stacked_along: int | None) -> None:
    graph = merged(Loop(kind, stacked_along), torch.randn(2, STEPS, 6))
    assert (count(graph, ".input"), count(graph, "_cell.default")) == (2, 0)
    assert count(graph, "stack.default") == 0


def test_calls_that_need_each_other_s_results_stay_calls() -> None:
    assert count(merged(Feedback(), torch.randn(2, 8)), "_cell.default") == 3
    assert count(merged(CellsRead(), torch.randn(2, STEPS, 6)), "_cell.default") == STEPS


def test_steps_from_elsewhere_are_stacked() -> None:
    class Model(Loop):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.flip(1)[:, 1:])

    class Made(Loop):
        def forward(self, x: Tensor) -> Tensor:
            state, (cell, _) = None, self.cells
            for step in (2, 0, 1):
                state = cell(torch.relu(x[:, step]), state)
            return state[0] + state[1]

    for model in (Model, Made):
        assert count(merged(model(nn.LSTMCell), torch.randn(2, STEPS, 6)), "_cell.default") == 0


def test_two_cells_take_two_kernel_calls() -> None:
    torch.manual_seed(8)
    inputs = [(torch.randn(2, STEPS, 6),) for _ in range(8)]
    module = Loop(nn.LSTMCell).eval()
    program = analyse(module, inputs[0], calibration=inputs)
    (partition,) = program.partitions
    kernels = [operator.kernel for operator in partition.compiled.report.operators]
    assert kernels == ["unidirectional_sequence_lstm_s8"] * 2
    with torch.no_grad():
        want = module(*inputs[0])
    found = program.run(*inputs[0])[0]
    assert 10 * float(torch.log10((want**2).sum() / ((found - want) ** 2).sum())) >= 30
