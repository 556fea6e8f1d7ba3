# SPDX-License-Identifier: BSD-3-Clause
"""Buffers that a model changes in place are state, whatever operator changes them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import openneutron

EXAMPLE = (torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8),)
RUNS = 4


class Counts(nn.Module):
    """Adds the number of its runs to the results of a convolution."""

    def __init__(self, count: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)
        self.register_buffer("runs", torch.zeros(1, 1))
        self._count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._count(self.runs)
        return torch.relu(self.conv(x)) + self.runs


def model(count: Callable[[torch.Tensor], object]) -> nn.Module:
    torch.manual_seed(1)
    return Counts(count).eval()


@pytest.mark.parametrize(
    "count",
    [lambda runs: runs.add_(1), lambda runs: runs[0].add_(1), lambda runs: runs.copy_(runs + 1)],
    ids=["add_", "add_ on a view", "copy_"],
)
def test_each_run_sees_the_run_before(count: Callable[[torch.Tensor], object]) -> None:
    compiled = openneutron.compile(model(count), EXAMPLE, calibration=[EXAMPLE] * RUNS)
    whole = model(count)
    for _ in range(RUNS):
        wanted = whole(*EXAMPLE)
        assert torch.allclose(compiled.run(*EXAMPLE)[0], wanted, atol=0.05)
        assert torch.allclose(compiled.quantized(*EXAMPLE), wanted, atol=0.05)


class Centered(nn.Module):
    """A model that subtracts the mean of its inputs so far, and reads it before it writes it and after."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = 0.9 * self.mean + 0.1 * x
        result = self.linear(x - self.mean)
        self.mean.copy_(new)
        return result


def test_a_buffer_may_be_read_twice() -> None:
    torch.manual_seed(0)
    inputs = [(torch.randn(1, 8),) for _ in range(RUNS)]
    whole = Centered().eval()
    compiled = openneutron.compile(copy.deepcopy(whole), inputs[0], calibration=inputs)
    for sample in inputs:
        assert torch.allclose(compiled.run(*sample)[0], whole(*sample), atol=0.05)
