# SPDX-License-Identifier: BSD-3-Clause
"""A program over windows of a sequence gives the bits of a program over the whole."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

import openneutron
from openneutron import CompileOptions
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.pytorch.windows import Field, Window, in_windows, receptive_field, windows


class Vocoder(nn.Module):
    """HiFi-GAN with one upsampling by 4 and one residual block of two dilations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose1d(8, 4, 8, 4, 2)
        self.convs = nn.ModuleList(nn.Conv1d(4, 4, 3, dilation=d, padding=d) for d in (1, 3))
        self.last = nn.Conv1d(4, 1, 5, padding=2)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.up(leaky_relu(self.first(mel.transpose(1, 2)), 0.1))
        for conv in self.convs:
            x = x + conv(leaky_relu(x, 0.1))
        return torch.tanh(self.last(leaky_relu(x))).squeeze(1)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_program_in_windows_is_that_of_the_whole() -> None:
    torch.manual_seed(0)
    model, size, total = Vocoder().eval(), 16, 41
    field = receptive_field(model, random(1, total, 8), 1)
    assert field == Field(before=3, after=3, outputs=4)
    short, whole = random(1, size, 8, seed=1), random(1, total, 8, seed=2)
    options = CompileOptions(target="imxrt700")
    program = openneutron.compile(model, short, calibration=[short, whole[:, :size]], options=options)
    same = openneutron.compile(torch.export.export(program.quantized, (whole,)), options=options)
    (wanted,) = same.run(whole)
    assert torch.equal(in_windows(program.run, whole, size, field, 1), wanted)
    smaller = Field(field.before - 1, field.after, field.outputs)
    assert not torch.equal(in_windows(program.run, whole, size, smaller, 1), wanted)
    with torch.no_grad():
        torch.testing.assert_close(in_windows(model, whole, size, field, 1), model(whole))


@pytest.mark.parametrize("total", [9, 10, 11, 12, 13, 40])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 0), (0, 4), (3, 4)])
def test_windows_keep_each_input_once_with_its_field(total: int, before: int, after: int) -> None:
    end = 0
    for window in windows(total, 9, Field(before, after, 1)):
        assert 0 <= window.first <= total - 9 and window.begin == end < window.end
        assert window.first == 0 or window.begin - before >= window.first
        assert window.first + 9 == total or window.end + after <= window.first + 9
        end = window.end
    assert end == total
    assert windows(9, 9, Field(before, after, 1)) == [Window(0, 0, 9)]


def test_networks_without_windows_are_refused() -> None:
    message = "window: 7 inputs; a window has more than the 7 inputs around an output's own, and at most the 20 of the sequence."
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        windows(20, 7, Field(3, 4, 1))
    message = "model: 20 inputs along axis 1 give 9 outputs; windows need the same number of outputs for each input."
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        receptive_field(nn.AvgPool1d(4, 2), random(1, 20), 1)
    with pytest.raises(
        InvalidModelError, match=r"^model: an input in the middle of 20 reaches the first or the last output; "
    ):
        receptive_field(nn.Softmax(1), random(1, 20), 1)
