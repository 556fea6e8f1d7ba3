# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in one and two dimensions of any stride, dilation, padding and number of groups, as one delegate call each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openneutron.pytorch.source import models
from tests.pytorch.operator_cases import assert_one_call, quantized, settled


def random_layer(seed: int) -> tuple[nn.Module, tuple[int, ...], str]:
    """A convolution, its input's shape, and its arguments in words."""
    random = np.random.default_rng(seed)
    dims = int(random.integers(1, 3))

    def up_to(most: int) -> int:
        return int(random.integers(1, most + 1))

    groups = int(random.choice([1, 1, 2, 3, 5, 12]))
    inputs, outputs = groups * up_to(6 // groups + 2), groups * up_to(12 // groups + 2)
    if random.random() < 0.25:
        groups, outputs = inputs, inputs * up_to(3)
    kernel, dilation = (tuple(up_to(most) for _ in range(dims)) for most in (5, 3))
    reach = [(taps - 1) * step for taps, step in zip(kernel, dilation, strict=True)]
    stride = tuple(up_to(4) for _ in range(dims))
    padding = str(random.choice(["same", "valid"])) if random.random() < 0.4 else tuple(up_to(4) - 1 for _ in reach)
    if padding == "same":
        stride = (1,) * dims
    extents = [far + up_to(8) for far in reach]
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    layer = kind(inputs, outputs, kernel, stride, padding, dilation, groups, bool(random.random() < 0.8))
    torch.manual_seed(seed)
    modules: list[nn.Module] = [layer]
    if random.random() < 0.3:
        modules.append(settled((nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d)(outputs)))
    if random.random() < 0.4:
        modules.append((nn.ReLU, nn.ReLU6, nn.Hardtanh)[int(random.integers(3))]())
    return nn.Sequential(*modules), (up_to(2), inputs, *extents), f"seed {seed}: {modules}, extents {extents}"


@pytest.mark.parametrize("seed", [*range(8), 34])
def test_random_layers(seed: int) -> None:
    module, shape, title = random_layer(seed)
    assert_one_call(quantized(module, shape), title)


class Causal(nn.Module):
    """A dilated convolution that is padded on one side, on inputs with or without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Conv1d(6, 6, 1)
        self.conv = nn.Conv1d(6, 5, 3, dilation=2)
        self.up = nn.ConvTranspose1d(5, 4, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.conv(F.pad(self.point(x), (4, 0))))


@pytest.mark.parametrize("shape", [(2, 6, 9), (6, 9)])
def test_causal_convolution(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    small = quantized(Causal(), shape)
    assert_one_call(small, str(shape))
    (part,) = small.program.partitions
    assert "pad" in [node.op for node in part.compiled.graph.nodes]
    assert "pad" not in [node.op for node in part.compiled.legalized.nodes]


def test_padding_by_hand_costs_a_temporal_network_no_call() -> None:
    model, example = models.get("tcn")
    small = quantized(model, example[0].shape)
    operators = [node.op for node in small.program.partitions[0].compiled.legalized.nodes]
    assert "pad" not in operators
    assert operators.count("transpose") == 2


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Conv1d(3, 4, 3), (3, 12)),
        (lambda: nn.Conv2d(3, 4, 3, padding="same"), (3, 8, 8)),
        (lambda: nn.ConvTranspose2d(3, 4, 3), (3, 6, 6)),
    ],
    ids=["conv1d", "conv2d", "conv_transpose2d"],
)
def test_an_input_without_a_batch(layer: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    assert_one_call(quantized(nn.Sequential(layer(), nn.ReLU()), shape), "without a batch")
