# SPDX-License-Identifier: BSD-3-Clause
"""Define networks with recurrent layers or SVDF filters: keyword spotters of one layer, a text recognizer, and a noise suppressor and
a wake-word detector whose states last between runs."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from openneutron.pytorch.source.models.small import CausalConv1d, RingConv1d


class KeywordSpotter(nn.Module):
    """A recurrent layer and a linear layer of its last state (the LSTM and the GRU of Zhang et al., arXiv 1711.07128). Input
    [N, time, features], output [N, classes]."""

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], features: int = 40, units: int = 64, classes: int = 12
    ) -> None:
        super().__init__()
        self.layer = layer(features, units, batch_first=True)
        self.fc = nn.Linear(units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.layer(x)
        return self.fc(outputs[:, -1])


class StreamingKeywordSpotter(KeywordSpotter):
    """The keyword spotter of an LSTM, frame by frame, whose hidden state and cell state are buffers. Input [1, frames, features],
    output [1, frames, classes]."""

    hidden: torch.Tensor
    cell: torch.Tensor

    def __init__(self, features: int = 40, units: int = 64, classes: int = 12) -> None:
        super().__init__(nn.LSTM, features, units, classes)
        self.register_buffer("hidden", torch.zeros(1, 1, units))
        self.register_buffer("cell", torch.zeros(1, 1, units))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, (hidden, cell) = self.layer(x, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return self.fc(outputs)


class NoiseSuppressor(nn.Module):
    """A noise suppressor in the manner of RNNoise (Valin, arXiv 1709.08243): from the features of a frame the gains of 22
    bands and the probability of a voice, by three GRUs, whose states are buffers. Input [1, frames, features], outputs
    [1, frames, bands] and [1, frames, 1]."""

    voice_state: torch.Tensor
    noise_state: torch.Tensor
    gain_state: torch.Tensor

    def __init__(self, features: int = 42, bands: int = 22) -> None:
        super().__init__()
        self.features = nn.Linear(features, 24)
        self.voice = nn.GRU(24, 24, batch_first=True)
        self.noise = nn.GRU(24 + 24 + features, 48, batch_first=True)
        self.gain = nn.GRU(24 + 48 + features, 96, batch_first=True)
        self.is_voice = nn.Linear(24, 1)
        self.gains = nn.Linear(96, bands)
        for name, layer in (("voice", self.voice), ("noise", self.noise), ("gain", self.gain)):
            self.register_buffer(f"{name}_state", torch.zeros(1, 1, layer.hidden_size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense = torch.tanh(self.features(x))
        voice, state = self.voice(dense, self.voice_state)
        self.voice_state.copy_(state)
        noise, state = self.noise(torch.cat([dense, voice, x], 2), self.noise_state)
        self.noise_state.copy_(state)
        gain, state = self.gain(torch.cat([voice, noise, x], 2), self.gain_state)
        self.gain_state.copy_(state)
        return torch.sigmoid(self.gains(gain)), torch.sigmoid(self.is_voice(voice))


class Svdf(nn.Sequential):
    """A layer of filters of low rank (Nakkiran et al., "Compressing deep neural networks using a rank-constrained topology",
    Interspeech 2015): the features of each frame, and for each unit the weighted sum of the last ``memory`` features of its
    ``rank`` filters. Input [N, inputs, frames], output [N, units, frames]. ``streaming``: N is 1, and a call continues the call
    before."""

    def __init__(self, inputs: int, units: int, memory: int, rank: int, streaming: bool) -> None:
        convolution = RingConv1d if streaming else CausalConv1d
        features = nn.Conv1d(inputs, units * rank, 1, bias=False)
        super().__init__(features, convolution(units * rank, units, memory, groups=units), nn.ReLU())


class WakeWord(nn.Module):
    """A detector of wake words frame by frame, of SVDF layers. Input [N, features, frames], output [N, classes, frames]; for
    ``streaming`` see ``Svdf``."""

    def __init__(
        self,
        features: int = 40,
        units: int = 32,
        memory: int = 10,
        layers: int = 3,
        classes: int = 4,
        streaming: bool = True,
    ) -> None:
        super().__init__()
        widths = [features, *(units for _ in range(layers))]
        self.layers = nn.Sequential(*(Svdf(*pair, memory, 2, streaming) for pair in itertools.pairwise(widths)))
        self.head = nn.Conv1d(units, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


class CRNN(nn.Module):
    """A recognizer of lines of text (Shi et al., arXiv 1507.05717), made small: convolutions and pools that leave one row, a
    bidirectional LSTM along it, and a linear layer of each step. Input [N, 1, 32, width], output [N, width / 4, classes]."""

    def __init__(self, classes: int = 37, units: int = 48) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for outputs, pool in ((16, (2, 2)), (32, (2, 2)), (64, (2, 1)), (64, (4, 1))):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU(inplace=True), nn.MaxPool2d(pool)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.lstm = nn.LSTM(inputs, units, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = self.layers(x).squeeze(2).transpose(1, 2)
        return self.fc(self.lstm(steps)[0])
