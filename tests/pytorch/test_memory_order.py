# SPDX-License-Identifier: BSD-3-Clause
"""Operators on the CPU compute the same of channels-last tensors as of contiguous ones."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import openneutron
from openneutron import DelegationOptions, QuantizationOptions


class Operators(nn.Module):
    """Operators whose kernels in ExecuTorch refuse channels-last tensors or take their elements in the wrong order, and others between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.plane = nn.Parameter(torch.rand(1, 8, 8, 8))
        self.scale = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.conv(x)
        first, second = y.chunk(2, 1)
        return (
            y + self.plane,  # an operand is broadcast
            y * y.mean((2, 3), True) * self.scale,  # operands in two orders, and of two ranks
            torch.cat((y.flip(2), F.pad(y, (0, 1, 0, 0))), 3),  # one operator after the other
            self.norm(y),  # several results
            F.avg_pool2d(y, 2).relu(),  # taken as it is
            torch.topk(y, 2, 1)[0],
            (first * second).softmax(1),
        )


@pytest.fixture(scope="module")
def results() -> list[tuple[Tensor, ...]]:
    """The results of programs that run on the CPU alone: for contiguous tensors, for channels-last ones, and for a contiguous input of
    channels-last weights."""
    torch.manual_seed(0)
    module, samples = Operators().eval(), [(torch.randn(2, 3, 8, 8),) for _ in range(2)]
    last = copy.deepcopy(module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    on_cpu = DelegationOptions(must_delegate=False, operators_not_to_delegate=("*",))
    return [
        openneutron.compile(
            each,
            samples[0],
            calibration=samples,
            quantization=QuantizationOptions(channels_last=order),
            delegation=on_cpu,
        ).run(*samples[0])
        for each, order in ((module, False), (module, True), (last, False))
    ]


@pytest.mark.parametrize("program", [1, 2])
def test_the_order_in_memory_changes_no_result(results: list[tuple[Tensor, ...]], program: int) -> None:
    for expected, found in zip(results[0], results[program], strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_results_have_the_order_of_the_model(results: list[tuple[Tensor, ...]]) -> None:
    assert [found.dim_order() for found in results[1]][:4] == [(0, 2, 3, 1)] * 4
