# SPDX-License-Identifier: BSD-3-Clause
"""Quantization-aware training keeps recurrent layers whole, trains their parameters, and simulates what the NPU computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import openneutron
from openneutron.options import QuantizationOptions

LAYERS: dict[str, tuple[Callable[[], nn.RNNBase], int]] = {
    "LSTM with its cell state": (lambda: nn.LSTM(6, 8, batch_first=True), 1),
    "LSTM of two layers": (lambda: nn.LSTM(6, 8, 2, False, True, 0.0, True, 5), 4),
    "GRU in both directions": (lambda: nn.GRU(6, 8, bidirectional=True, batch_first=True), 2),
    "RNN": (lambda: nn.RNN(6, 8, batch_first=True), 1),
}
"""Layers, and their directions over all layers."""


class Mean(nn.Module):
    """A linear layer of the mean of a recurrent layer's outputs; of an LSTM also of its last cell state."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer
        self.fc = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Tensor:
        outputs, last = self.layer(x)
        found = outputs.mean(1)
        if isinstance(self.layer, nn.LSTM) and self.layer.num_layers == 1:
            found = torch.cat([found, last[1][0]], 1)
        return self.fc(found)


@pytest.mark.parametrize("name", LAYERS)
def test_a_trained_layer_is_one_kernel_call_for_each_direction(name: str) -> None:
    torch.manual_seed(7)
    make, calls = LAYERS[name]
    layer = make()
    model, inputs = Mean(layer), torch.randn(32, 5, 6)
    wanted = torch.randn(32, 4)
    model(inputs)
    moved: dict[str, float] = {}

    def train(rounded: nn.Module) -> None:
        assert isinstance(rounded, GraphModule)
        before = {name: param.detach().clone() for name, param in rounded.named_parameters()}
        optimizer = torch.optim.Adam(rounded.parameters(), 3e-3)
        for batch in torch.arange(32).repeat(3).split(8):
            optimizer.zero_grad()
            nn.functional.mse_loss(rounded(inputs[batch]), wanted[batch]).backward()
            optimizer.step()
        moved.update({name: float((param - before[name]).abs().max()) for name, param in rounded.named_parameters()})

    program = openneutron.compile(model, inputs[:1], quantization=QuantizationOptions(train_fn=train))
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    kernels = [operator.kernel for operator in partition.compiled.report.operators]
    assert sum(kernels.count(name) for name in ("unidirectional_sequence_lstm_s8", "recurrent_s8")) == calls
    assert len([name for name in moved if name.startswith("layer.")]) == len(list(layer.parameters()))
    assert min(moved.values()) > 1e-3
    found, simulated = (
        torch.cat([run(each).reshape(1, -1) for each in inputs.split(1)])
        for run in (lambda x: program.run(x)[0], program.quantized)
    )
    noise = ((found - simulated) ** 2).sum()
    assert 10 * float(torch.log10((simulated**2).sum() / noise)) >= 30
