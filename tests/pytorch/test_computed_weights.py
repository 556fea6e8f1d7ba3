# SPDX-License-Identifier: BSD-3-Clause
"""Layers whose weights are computed from parameters, in front of batch normalizations, are layers with constant weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

import openneutron
from openneutron.pytorch import NeutronQuantizer
from tests.pytorch.small_models import sqnr


class Standardized(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5), self.bias)


def pruned(layer: nn.Module, name: str) -> nn.Module:
    prune.l1_unstructured(layer, name, 0.5)
    return layer


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8)),
    "spectral norm": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8)),
    "a pruned bias": lambda: nn.Sequential(pruned(nn.Conv2d(3, 8, 3), "bias"), nn.BatchNorm2d(8)),
    "a pruned normalization": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), pruned(nn.BatchNorm2d(8), "weight")),
    "a computation of its own": lambda: nn.Sequential(Standardized(3, 8, 3), nn.BatchNorm2d(8)),
    "a linear layer": lambda: nn.Sequential(
        nn.Flatten(), parametrizations.weight_norm(nn.Linear(432, 8)), nn.BatchNorm1d(8)
    ),
}


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_a_computed_weight_is_a_constant(layers: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = layers().eval()
    samples = [(torch.randn(1, 3, 12, 12),) for _ in range(4)]
    program = openneutron.compile(model, samples[0], calibration=samples)
    assert program.delegation.on_cpu == ()
    assert sqnr(model(*samples[1]), program.run(*samples[1])[0]) > 34


def test_a_weight_that_is_an_input_keeps_its_batch_norm() -> None:
    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return self.norm(F.conv2d(x, weight))

    model, inputs = Given().eval(), (torch.randn(1, 3, 12, 12), torch.randn(8, 3, 3, 3))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), NeutronQuantizer())
    torch.testing.assert_close(prepared(*inputs), model(*inputs))
