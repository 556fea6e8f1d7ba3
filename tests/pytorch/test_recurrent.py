# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and cells are delegated whole and near float, unrolled where they are no operators of their own, as are layers
that a model unrolls itself."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.quantizable.modules.rnn import LSTM as QuantizableLSTM

import openneutron
from openneutron.api.pytorch import analyse
from openneutron.pytorch.operators.recurrent import MOST_STEPS
from openneutron.pytorch.quantizer.passes.exported_forms import PlainMoves
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import Decompose
from openneutron.pytorch.quantizer.passes.slices import MergeSlices
from tests.pytorch.small_models import outputs_of


class Layers(nn.Module):
    """Every kind of layer, one of them with initial states as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 6, batch_first=True)
        self.cells = nn.ModuleList((nn.LSTMCell(6, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6, nonlinearity="relu")))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        x, (_, cell) = self.lstm(x)
        x, last = self.gru(x, h)
        lstm, gru, rnn = self.cells
        hidden, state = lstm(x[:, -1])
        return x, cell, last, state, rnn(gru(hidden, state))


def test_layers_and_cells_run_in_one_delegate_call() -> None:
    torch.manual_seed(3)
    module = Layers().eval()
    inputs = [(torch.randn(2, 3, 8), torch.randn(1, 2, 6)) for _ in range(4)]
    program = analyse(module, inputs[0], calibration=inputs)
    assert program.delegation.on_cpu == ()
    assert len(program.partitions) == 1
    with torch.no_grad():
        wanted = module(*inputs[0])
    for got, want in zip(program.run(*inputs[0]), wanted, strict=True):
        assert 10 * float(torch.log10((want**2).sum() / ((got - want) ** 2).sum())) >= 25


def test_lstms_are_one_operator_for_each_direction_with_litert_s_bytes() -> None:
    torch.manual_seed(3)
    layer = nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True, proj_size=4).eval()

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            outputs, (hidden, _) = self.layer(x)
            return outputs, hidden

    inputs = [(torch.randn(2, 5, 8),) for _ in range(4)]
    program = analyse(Outputs().eval(), inputs[0], calibration=inputs)
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    kernels = [operator.kernel for operator in partition.compiled.report.operators]
    assert kernels.count("unidirectional_sequence_lstm_s8") == 4
    graph = partition.compiled.graph
    assert [node.op for node in graph.nodes].count("unidirectional_sequence_lstm") == 4


@pytest.mark.parametrize(
    ("make", "shape", "state"),
    [
        (lambda: nn.GRU(10, 16, batch_first=True), (2, 30, 10), None),
        (lambda: nn.GRU(10, 12, 2, bidirectional=True), (20, 3, 10), (4, 3, 12)),
        (lambda: nn.RNN(10, 13, batch_first=True), (2, 20, 10), None),
        (lambda: nn.RNN(10, 13, nonlinearity="relu", bias=False), (20, 10), (1, 13)),
    ],
    ids=["GRU", "two-layer bidirectional GRU", "RNN", "RNN with relu"],
)
def test_gated_layers_are_within_a_step_of_the_quantized_module(
    make: Callable[[], nn.Module], shape: tuple[int, ...], state: tuple[int, ...] | None
) -> None:
    torch.manual_seed(4)
    layer = make().eval()
    inputs = [(torch.randn(shape), *((torch.rand(state) * 2 - 1,) if state is not None else ())) for _ in range(20)]
    program = analyse(layer, inputs[0], calibration=inputs)
    assert program.delegation.on_cpu == ()
    within = []
    for given in inputs:
        with torch.no_grad():
            want, _ = program.quantized(*given)
        got, _ = program.run(*given)
        levels = torch.cat([want.unique(), got.unique()]).unique()
        step = float(levels.diff().median())
        within.append((got - want).abs() < 1.5 * step)
    assert float(torch.stack(within).float().mean()) >= 0.99


def test_a_streaming_gru_keeps_its_state_in_the_program() -> None:
    torch.manual_seed(5)

    class Stream(nn.Module):
        h: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(6, 8, batch_first=True)
            self.register_buffer("h", torch.zeros(1, 1, 8))

        def forward(self, x: Tensor) -> Tensor:
            y, h = self.gru(x, self.h)
            self.h.copy_(h)
            return y

    frames = [(torch.randn(1, 1, 6),) for _ in range(40)]
    module = Stream().eval()
    program = analyse(copy.deepcopy(module), frames[0], calibration=frames)
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    kernels = [operator.kernel for operator in partition.compiled.report.operators]
    assert kernels.count("recurrent_s8") == 1
    assert len(kernels) <= 3
    for frame in frames:
        with torch.no_grad():
            want = module(*frame)
        (got,) = outputs_of(program.run(*frame))
        assert float((got - want).abs().max()) < 0.03


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.LSTM(5, 4, 2, bidirectional=True, bias=False), (3, 2, 5)),
        (lambda: nn.LSTM(5, 4, proj_size=3), (3, 5)),
        (lambda: nn.GRU(5, 4, 2, batch_first=True, dropout=0.5), (2, 3, 5)),
        (lambda: nn.RNN(5, 4, nonlinearity="relu", bidirectional=True), (3, 2, 5)),
    ],
    ids=["bidirectional LSTM", "LSTM with projection", "GRU with dropout", "bidirectional RNN"],
)
def test_unrolled_layers_compute_the_same(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    layer, x = make().eval(), torch.randn(shape)
    module = torch.export.export(layer, (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    assert Decompose()(module).modified
    module.graph.lint()
    for got, want in zip(outputs_of(module(x)[1]), outputs_of(layer(x)[1]), strict=True):
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(module(x)[0], layer(x)[0])


def test_a_long_sequence_stays_on_the_cpu_and_says_why() -> None:
    layer = nn.GRU(4, 3)
    inputs = [(torch.randn(MOST_STEPS + 1, 1, 4),)]
    module = torch.export.export(layer.eval(), inputs[0]).module(check_guards=False)
    assert isinstance(module, GraphModule)
    Decompose()(module)
    (call,) = (node for node in module.graph.nodes if str(node.target) == "aten.gru.input")
    assert call.meta["custom"]["stays_whole"] == (
        "it has 257 steps, over all its layers and directions; up to 256 are unrolled",
        "Give it shorter sequences, and its state from call to call.",
    )


def test_steps_that_are_written_out_share_a_layer_and_a_sigmoid() -> None:
    layer, x = QuantizableLSTM(8, 6, batch_first=True).eval(), torch.randn(2, 4, 8)
    module = torch.export.export(layer, (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    Decompose()(module)
    wanted = module(x)[0]
    counts = [_count(module, name) for name in ("aten.linear.default", "aten.sigmoid.default")]
    MergeSlices()(module)
    PlainMoves()(module)
    module.graph.lint()
    merged = [_count(module, name) for name in ("aten.linear.default", "aten.sigmoid.default")]
    assert (counts, merged) == ([8, 12], [5, 4])
    assert not any(_count(module, name) for name in ("aten.transpose.int", "aten.squeeze.dim", "aten.t.default"))
    torch.testing.assert_close(module(x)[0], wanted)


def _count(module: GraphModule, name: str) -> int:
    return sum(str(node.target) == name for node in module.graph.nodes)


def test_slices_of_what_is_itself_merged_share_their_functions() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = torch.sigmoid(x[:, :4]), torch.sigmoid(x[:, 4:])
            return torch.cat([torch.tanh(a[:, :2]), torch.tanh(a[:, 2:]), b, a], 1)

    x = torch.linspace(-2, 2, 16).reshape(2, 8)
    module = torch.export.export(Model(), (x,)).module(check_guards=False)
    MergeSlices()(module)
    names = [str(node.target) for node in module.graph.nodes]
    assert (names.count("aten.sigmoid.default"), names.count("aten.tanh.default")) == (1, 1)
    torch.testing.assert_close(module(x), Model()(x))


def test_a_gru_cell_that_begins_with_zeros_reads_no_state() -> None:
    """The hidden state of zeros is not in memory, so that the state is not made of it."""

    class Feedback(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = torch.nn.GRUCell(6, 8), torch.nn.Linear(8, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = x.new_zeros(1, 8)
            for _ in range(3):
                h = self.cell(x, h)
                x = self.out(h)
            return x

    torch.manual_seed(0)
    samples = [(torch.randn(1, 6),) for _ in range(4)]
    made = openneutron.compile(Feedback().eval(), samples[0], calibration=samples)
    for sample in samples:
        assert torch.allclose(torch.as_tensor(made.run(*sample)[0]), made.quantized(*sample), atol=0.03)
