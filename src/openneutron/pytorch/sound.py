# SPDX-License-Identifier: BSD-3-Clause
"""The front end of networks for sound: from PCM values to the logarithms of mel bands, or to MFCC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FULL_SCALE = 32768.0
"""The value of int16 PCM that stands for 1."""


def fourier(length: int, bins: int) -> np.ndarray[Any, np.dtype[np.complex128]]:
    """Return the first ``bins`` rows [bins, length] of the discrete Fourier transform of ``length`` values."""
    turns = np.arange(bins)[:, None] * np.arange(length) % length
    return np.exp(-2j * np.pi / length * turns)


class Spectrum(nn.Module):
    """The real and the imaginary parts of the spectrum of each frame, computed by one convolution.

    Its weights are the matrix of the discrete Fourier transform times the periodic Hann window, and its stride is the
    distance of two frames. It has nearly all multiplications of a front end.
    """

    def __init__(self, window: int, hop: int) -> None:
        super().__init__()
        rows = torch.from_numpy(fourier(window, window // 2 + 1))
        parts = torch.cat([rows.real, rows.imag]) * torch.hann_window(window, dtype=torch.float64)
        self.hop = hop
        self.parts: Tensor
        self.register_buffer("parts", parts.float()[:, None])

    def forward(self, pcm: Tensor) -> Tensor:
        """Return [1, 2 * (window / 2 + 1), frames] for int16 or float [1, values]; int16 is divided by 32768."""
        values = pcm if pcm.is_floating_point() else pcm.float() / FULL_SCALE
        return nn.functional.conv1d(values[:, None], self.parts, stride=self.hop)


class Levels(nn.Module):
    """The logarithm of the power in each mel band, and with ``coefficients`` their discrete cosine transform (MFCC).

    The power has a range that int16 can't represent: its steps would be coarser than the quiet bands. This part stays float.
    """

    def __init__(self, bands: Tensor, coefficients: int, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.bands: Tensor
        self.register_buffer("bands", bands[:, :, None])
        count = len(bands)
        place, order = torch.arange(count) + 0.5, torch.arange(coefficients)[:, None]
        rows = torch.cos(math.pi / count * place * order) * math.sqrt(2 / count)
        rows[:1] /= math.sqrt(2)
        self.cosines: Tensor | None
        self.register_buffer("cosines", rows[:, :, None] if coefficients else None)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Return [1, bands or coefficients, frames] for the spectrum."""
        real, imaginary = spectrum.chunk(2, 1)
        power = nn.functional.conv1d(real * real + imaginary * imaginary, self.bands)
        levels = torch.log(power + self.floor)
        return levels if self.cosines is None else nn.functional.conv1d(levels, self.cosines)


class MelFrontEnd(nn.Module):
    """The logarithms of mel bands of PCM values, or MFCC: [1, bands or coefficients, frames] of [1, values].

    A model with the front end as its module ``front`` takes int16 PCM. The spectrum runs on the NPU with int16 activations, and the
    levels in float on the CPU, with these options:

    ``QuantizationOptions(layer_activations=[("front.spectrum", "int16")], keep_float=["front.levels"])``

    Args:
        sample_rate: The rate of the PCM values in Hz.
        window: The number of values in a frame, and in its Fourier transform. The window function is the periodic
            Hann window.
        hop: The number of values from the start of one frame to the start of the next.
        bands: The mel bands: triangles between ``lowest`` and ``highest``, of height 1 and evenly spaced on the mel scale
            2595 * log10(1 + f / 700).
        coefficients: The number of MFCC, computed by the orthonormal DCT of type 2. With 0, the results are the bands
            themselves.
        lowest: The lowest frequency of the bands in Hz.
        highest: The highest one; 0: half of the sample rate.
        floor: The power that is added before the logarithm.

    >>> MelFrontEnd(bands=40)(torch.zeros(1, 16000, dtype=torch.int16)).shape
    torch.Size([1, 40, 49])
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        window: int = 512,
        hop: int = 320,
        bands: int = 40,
        coefficients: int = 0,
        lowest: float = 20.0,
        highest: float = 0.0,
        floor: float = 1e-6,
    ) -> None:
        super().__init__()
        self.spectrum = Spectrum(window, hop)
        self.levels = Levels(
            mel_bands(sample_rate, window, bands, lowest, highest or sample_rate / 2), coefficients, floor
        )

    def forward(self, pcm: Tensor) -> Tensor:
        """Return the levels of the bands, or the MFCC, of each frame."""
        result: Tensor = self.levels(self.spectrum(pcm))
        return result


def mel_bands(sample_rate: int, window: int, bands: int, lowest: float, highest: float) -> Tensor:
    """Return the weights [bands, window / 2 + 1] of the frequencies of a spectrum in triangular bands."""
    frequencies = torch.linspace(0, sample_rate / 2, window // 2 + 1, dtype=torch.float64)
    ends = [2595 * math.log10(1 + each / 700) for each in (lowest, highest)]
    corners = 700 * (10 ** (torch.linspace(ends[0], ends[1], bands + 2, dtype=torch.float64) / 2595) - 1)
    rising = (frequencies - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    falling = (corners[2:, None] - frequencies) / (corners[2:] - corners[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0).float()
