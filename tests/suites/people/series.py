# SPDX-License-Identifier: BSD-3-Clause
"""Sounds, vibrations and other series."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case, settled
from tests.suites.people.vision import normal

series = partial(case, kind="series")


def conv1(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a convolution over time with batch normalization and a ReLU."""
    padding = kernel // 2 * dilation
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, kernel, stride, padding, dilation, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()
    )


class Causal(nn.Module):
    """A causal dilated convolution with a residual: the padding on the right is cropped."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.cut, self.conv = 2 * dilation, nn.Conv1d(width, width, 3, padding=2 * dilation, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv(x)[..., : -self.cut] + x).relu()


class Gated(nn.Module):
    """A WaveNet layer: tanh times sigmoid, a residual and a skip connection."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.f, self.g = (nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation) for _ in range(2))
        self.o = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.o(torch.tanh(self.f(x)) * torch.sigmoid(self.g(x)))
        return x + y, y


def fourier(bins: int, length: int) -> Tensor:
    """Return the real and imaginary parts of a windowed Fourier transform as filters [2 * bins, 1, length]."""
    time, frequency = torch.arange(length), torch.arange(bins).view(-1, 1)
    phase = 2 * math.pi * frequency * time / length
    return (torch.cat([phase.cos(), phase.sin()]) * torch.hann_window(length))[:, None]


series(
    "keyword_ds_cnn",
    lambda: settled(
        nn.Sequential(
            nn.Conv2d(1, 16, (10, 4), 2, (4, 1)),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 6),
        ),
        torch.randn(8, 1, 49, 10),
    ),
    normal(1, 1, 49, 10),
)
series(
    "vibration_conv1d",
    lambda: settled(
        nn.Sequential(conv1(3, 8, 5, 2), conv1(8, 16, 5, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4)),
        torch.randn(8, 3, 128),
    ),
    normal(1, 3, 128),
)
series(
    "ecg_residual",
    lambda: settled(
        nn.Sequential(
            conv1(1, 8, 7),
            Call(lambda s, x: (s.b(s.a(x)) + x).relu(), a=conv1(8, 8), b=nn.Conv1d(8, 8, 3, padding=1)),
            nn.MaxPool1d(4),
            nn.Flatten(),
            nn.Linear(256, 3),
        ),
        torch.randn(8, 1, 128),
    ),
    normal(1, 1, 128),
)
series(
    "activity_mlp",
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 6), nn.Softmax(-1)),
    normal(1, 3, 32),
)
series(
    "anomaly_autoencoder",
    lambda: settled(
        nn.Sequential(
            *[
                layer
                for a, b in ((64, 32), (32, 8), (8, 32))
                for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())
            ],
            nn.Linear(32, 64),
        ),
        torch.randn(16, 64),
    ),
    normal(1, 64),
)
series(
    "reconstruction_error",
    lambda: Call(lambda s, x: (s.d(s.e(x).relu()) - x).pow(2).mean(1), e=nn.Linear(32, 8), d=nn.Linear(8, 32)),
    normal(1, 32),
    bar=25,
    reason="a mean of squares in int8",
)
series(
    "tcn_causal",
    lambda: Call(
        lambda s, x: s.o(s.c(s.i(x))[..., -1]),
        i=nn.Conv1d(4, 16, 1),
        c=nn.Sequential(*(Causal(16, 2**i) for i in range(4))),
        o=nn.Linear(16, 3),
    ),
    normal(1, 4, 48),
)
series(
    "tcn_causal_imx95",
    lambda: Call(
        lambda s, x: s.o(s.c(s.i(x))[..., -1]),
        i=nn.Conv1d(4, 16, 1),
        c=nn.Sequential(*(Causal(16, 2**i) for i in range(4))),
        o=nn.Linear(16, 3),
    ),
    normal(1, 4, 48),
    target="imx95",
)
series(
    "wavenet_gates",
    lambda: Call(lambda s, x: (lambda a: (lambda b: a[1] + b[1])(s.b(a[0])))(s.a(x)), a=Gated(8, 1), b=Gated(8, 2)),
    normal(1, 8, 32),
)
series("glu_over_channels", lambda: nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.GLU(1)), normal(1, 8, 32))
series(
    "squeeze_excite_1d",
    lambda: Call(
        lambda s, x: x * s.b(s.a(x.mean(2, keepdim=True)).relu()).sigmoid(), a=nn.Conv1d(8, 2, 1), b=nn.Conv1d(2, 8, 1)
    ),
    normal(1, 8, 32),
)
series(
    "attention_pooling",
    lambda: Call(lambda s, x: (s.a(x).softmax(1) * x).sum(1), a=nn.Linear(16, 1)),
    normal(1, 24, 16),
)
series(
    "statistics_pooling",
    lambda: Call(lambda s, x: s.l(torch.cat([x.mean(2), x.std(2)], 1)), l=nn.Linear(16, 4)),
    normal(1, 8, 64),
)
series(
    "log_spectrogram",
    lambda: Call(
        lambda s, x: (lambda f: (f[:, :16].pow(2) + f[:, 16:].pow(2) + 1e-3).log())(F.conv1d(x, s.k, stride=16)),
        k=nn.Buffer(fourier(16, 32)),
    ),
    normal(1, 1, 256),
    bar=28,
)
series("log_of_a_square", lambda: Call(lambda s, x: (s.l(x).pow(2) + 1e-2).log(), l=nn.Linear(16, 16)), normal(1, 16))
series(
    "mel_filters",
    lambda: Call(lambda s, x: (x @ s.m + 1e-3).log(), m=nn.Buffer(torch.rand(32, 8))),
    lambda: torch.rand(1, 10, 32),
)
series(
    "pre_emphasis",
    lambda: Call(lambda s, x: s.c(x[..., 1:] - 0.97 * x[..., :-1]), c=nn.Conv1d(1, 8, 5)),
    normal(1, 1, 64),
)
series(
    "sinc_like_bandpass",
    lambda: nn.Sequential(nn.Conv1d(1, 8, 31, 4, bias=False), nn.MaxPool1d(2), nn.LeakyReLU(0.2)),
    normal(1, 1, 256),
)
series(
    "transposed_conv1d",
    lambda: nn.Sequential(nn.ConvTranspose1d(8, 4, 4, 2, 1), nn.ReLU(), nn.Conv1d(4, 1, 3, padding=1)),
    normal(1, 8, 16),
)
series(
    "upsample_1d", lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv1d(4, 4, 3, padding=1)), normal(1, 4, 16)
)
series(
    "wave_unet",
    lambda: settled(
        Call(
            lambda s, x: (lambda a: s.o(torch.cat([s.u(s.b(a)), a], 1)))(s.a(x)),
            a=conv1(1, 8, 5),
            b=conv1(8, 8, 5, 2),
            u=nn.ConvTranspose1d(8, 8, 2, 2),
            o=nn.Conv1d(16, 1, 1),
        ),
        torch.randn(8, 1, 64),
    ),
    normal(1, 1, 64),
)
series(
    "speech_mask",
    lambda: Call(
        lambda s, x: x * s.b(s.a(x).relu()).sigmoid(), a=nn.Conv1d(16, 16, 3, padding=1), b=nn.Conv1d(16, 16, 1)
    ),
    lambda: torch.rand(1, 16, 24),
)
series(
    "forecast_linear",
    lambda: Call(
        lambda s, x: (lambda m: s.l((x - m).transpose(1, 2)).transpose(1, 2) + m)(x.mean(1, keepdim=True)),
        l=nn.Linear(32, 8),
    ),
    normal(1, 32, 4),
)
series(
    "decomposed_forecast",
    lambda: Call(
        lambda s, x: (lambda t: s.a(t) + s.b(x - t))(F.avg_pool1d(F.pad(x, (2, 2), "replicate"), 5, 1)),
        a=nn.Linear(32, 8),
        b=nn.Linear(32, 8),
    ),
    normal(1, 3, 32),
)
series(
    "patches_of_series",
    lambda: Call(lambda s, x: s.o(s.e(x.unfold(-1, 8, 4)).relu().flatten(2)), e=nn.Linear(8, 8), o=nn.Linear(56, 4)),
    normal(1, 3, 32),
)
series(
    "nbeats_block",
    lambda: Call(
        lambda s, x: (lambda h: (x - s.b(h), s.f(h)))(s.l(x)),
        l=nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
        b=nn.Linear(32, 16),
        f=nn.Linear(32, 4),
    ),
    normal(1, 16),
)
series("differences", lambda: Call(lambda s, x: s.c(torch.diff(x, dim=2)), c=nn.Conv1d(2, 4, 3)), normal(1, 2, 32))
series("running_sum", lambda: Call(lambda s, x: s.c(torch.cumsum(x, 2)), c=nn.Conv1d(2, 4, 1)), normal(1, 2, 16))
series(
    "rms_level",
    lambda: Call(lambda s, x: x.pow(2).mean(2).sqrt()),
    normal(1, 4, 32),
    bar=28,
    reason="the root of a mean of squares in int8",
)
series(
    "zero_crossings",
    lambda: Call(lambda s, x: (x[..., 1:] * x[..., :-1] < 0).float().mean(-1)),
    normal(1, 4, 64),
    bar=20,
    reason="products near 0 round to 0",
)
series(
    "windowed_blocks",
    lambda: Call(lambda s, x: s.l(x.view(1, 8, 16) * s.w), l=nn.Linear(16, 8), w=nn.Buffer(torch.hann_window(16))),
    normal(1, 128),
)
series(
    "lstm_classifier",
    lambda: Call(lambda s, x: s.l(s.r(x)[0][:, -1]), r=nn.LSTM(6, 16, batch_first=True), l=nn.Linear(16, 4)),
    normal(1, 20, 6),
    bar=28,
)
series(
    "gru_classifier",
    lambda: Call(lambda s, x: s.l(s.r(x)[0][:, -1]), r=nn.GRU(6, 16, batch_first=True), l=nn.Linear(16, 4)),
    normal(1, 20, 6),
    bar=28,
)
series(
    "bidirectional_gru",
    lambda: Call(
        lambda s, x: s.l(s.r(x)[0]), r=nn.GRU(6, 12, batch_first=True, bidirectional=True), l=nn.Linear(24, 4)
    ),
    normal(1, 16, 6),
    bar=28,
)
series(
    "two_layer_lstm",
    lambda: Call(lambda s, x: s.l(s.r(x)[0]), r=nn.LSTM(6, 12, 2), l=nn.Linear(12, 4)),
    normal(16, 1, 6),
    bar=26,
    reason="two layers of gates in int8",
)
series(
    "last_state_of_lstm",
    lambda: Call(lambda s, x: s.l(s.r(x)[1][0][-1]), r=nn.LSTM(6, 16, batch_first=True), l=nn.Linear(16, 4)),
    normal(1, 12, 6),
    bar=28,
)
series(
    "simple_rnn",
    lambda: Call(lambda s, x: s.r(x)[0], r=nn.RNN(6, 16, batch_first=True)),
    normal(1, 12, 6),
    bar=26,
    reason="a state in int8",
)
series(
    "conv_then_gru",
    lambda: Call(
        lambda s, x: s.l(s.g(s.c(x).relu().transpose(1, 2))[0]),
        c=nn.Conv1d(8, 16, 3, 2, 1),
        g=nn.GRU(16, 16, batch_first=True),
        l=nn.Linear(16, 5),
    ),
    normal(1, 8, 32),
    bar=28,
)
