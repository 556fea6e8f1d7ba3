# SPDX-License-Identifier: BSD-3-Clause
"""Programs that take PCM values, with the front end in the program."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import openneutron
from openneutron import QuantizationOptions
from openneutron.pytorch.sound import MelFrontEnd

OPTIONS = QuantizationOptions(layer_activations=[("front.spectrum", "int16")], keep_float=["front.levels"])


def tones(count: int, values: int) -> list[Tensor]:
    """Return int16 PCM of four tones each, with noise, from full scale to 40 dB below."""
    draw, place = torch.Generator().manual_seed(0), torch.arange(values) / 16000
    made = []
    for _ in range(count):
        level = 10 ** (-2 * torch.rand(1, generator=draw))
        waves = torch.sin(2 * math.pi * (100 + 3000 * torch.rand(4, 1, generator=draw)) * place).mean(0)
        made.append(((level * waves + 0.003 * torch.randn(values, generator=draw)) * 32767).clamp(-32768, 32767))
    return [each.to(torch.int16)[None] for each in made]


def db(expected: Tensor, found: Tensor) -> float:
    return 10 * math.log10(float(expected.square().sum() / (expected - found).square().sum()))


def test_the_spectrum_is_the_fourier_transform() -> None:
    (pcm,) = tones(1, 2048)
    front = MelFrontEnd()
    expected = torch.stft(pcm / 32768, 512, 320, window=torch.hann_window(512), center=False, return_complex=True)
    found = front.spectrum(pcm)
    assert torch.allclose(found, torch.cat([expected.real, expected.imag], 1), atol=1e-3)
    assert torch.allclose(front(pcm), torch.log(front.levels.bands[..., 0] @ expected.abs().square() + 1e-6), atol=1e-2)


def test_mfcc_are_the_cosine_transform_of_levels() -> None:
    (pcm,) = tones(1, 2048)
    whole = MelFrontEnd(bands=8, coefficients=8)
    matrix = whole.levels.cosines
    assert matrix is not None and torch.allclose(matrix[..., 0] @ matrix[..., 0].T, torch.eye(8), atol=1e-5)
    assert torch.allclose(whole(pcm), matrix[..., 0] @ MelFrontEnd(bands=8)(pcm), atol=1e-4)


def test_a_program_takes_pcm() -> None:
    class Spotter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = MelFrontEnd(window=64, hop=32, bands=8)
            self.layer = nn.Conv1d(8, 4, 3)

        def forward(self, pcm: Tensor) -> Tensor:
            return torch.relu(self.layer(self.front(pcm)))

    torch.manual_seed(0)
    model, samples = Spotter().eval(), tones(6, 512)
    made = openneutron.compile(model, samples[0], calibration=samples, quantization=OPTIONS)
    kept = [item.reason for item in made.delegation.on_cpu if item.computes]
    assert set(kept) == {"keep_float 'front.levels' keeps it float"}
    expected = torch.cat([model(each) for each in samples]).detach()
    assert db(expected, torch.cat([torch.as_tensor(made.run(each)[0]) for each in samples])) > 30
