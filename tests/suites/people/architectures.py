# SPDX-License-Identifier: BSD-3-Clause
"""Small networks of architectures whose arithmetic is far from convolutions: capsules, spectrogram transformers, state spaces, RWKV."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.suites.people.case import case

architectures = partial(case, kind="architectures")


def squash(s: Tensor) -> Tensor:
    """Return vectors of the same direction, with lengths below 1."""
    squares = (s * s).sum(-1, keepdim=True)
    return squares / (1 + squares) * s / torch.sqrt(squares + 1e-8)


class Capsules(nn.Module):
    """A capsule network (Sabour et al., 2017): primary capsules, routing by agreement, lengths of the last capsules."""

    def __init__(self, size: int = 8, classes: int = 4, width: int = 8, iterations: int = 3) -> None:
        super().__init__()
        self.stem, self.primary = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5, stride=2)
        self.primary.weight.data.mul_(5)
        self.size, self.classes, self.iterations = size, classes, iterations
        self.weight = nn.Parameter(torch.randn(1, 64, classes, width, size) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        u = squash(self.primary(self.stem(x).relu()).view(x.shape[0], -1, self.size))
        votes = (self.weight @ u[:, :, None, :, None]).squeeze(-1)
        agreement = torch.zeros(x.shape[0], u.shape[1], self.classes, 1)
        for step in range(self.iterations):
            v = squash((agreement.softmax(2) * votes).sum(1))
            if step < self.iterations - 1:
                agreement = agreement + (votes * v[:, None]).sum(-1, keepdim=True)
        return torch.sqrt((v * v).sum(-1) + 1e-8)


class SpectrogramTransformer(nn.Module):
    """An audio spectrogram transformer (Gong et al., 2021): overlapping patches, two tokens, a pre-norm encoder."""

    def __init__(self, width: int = 64, layers: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, 16, stride=12)
        self.tokens = nn.Parameter(torch.randn(1, 2, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 5 * 7 + 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x.transpose(1, 2).unsqueeze(1)).flatten(2).transpose(1, 2)
        y = torch.cat([self.tokens.expand(len(x), -1, -1), patches], 1) + self.places
        y = self.norm(self.body(y))
        return self.head((y[:, 0] + y[:, 1]) / 2)


class Diagonal(nn.Module):
    """A diagonal state-space layer (S4D, Gu et al., 2022) in real arithmetic, as a loop or as the convolution that the loop is."""

    def __init__(self, width: int, states: int, as_convolution: bool) -> None:
        super().__init__()
        self.as_convolution = as_convolution
        self.step = nn.Parameter(torch.rand(width, 1) * 2 - 4)
        self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
        self.c = nn.Parameter(torch.randn(width, states) * states**-0.5)
        self.d = nn.Parameter(torch.ones(width))
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        u, count = self.norm(x), x.shape[1]
        step = self.step.exp()
        a = torch.exp(-step * self.decay.exp())
        if self.as_convolution:
            kernel = ((self.c * step)[..., None] * a[..., None] ** torch.arange(count)).sum(1)
            y = F.conv1d(F.pad(u.transpose(1, 2), (count - 1, 0)), kernel.flip(-1)[:, None], groups=u.shape[2])
            y = y.transpose(1, 2)
        else:
            h, outputs = torch.zeros(x.shape[0], *a.shape), []
            for t in range(count):
                h = a * h + step * u[:, t, :, None]
                outputs.append((h * self.c).sum(-1))
            y = torch.stack(outputs, 1)
        return x + F.glu(self.mix(F.gelu(y + u * self.d)), -1)


class StateSpace(nn.Module):
    """Two diagonal state-space layers and the mean over time."""

    def __init__(self, as_convolution: bool, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 5)
        self.layers = nn.Sequential(*(Diagonal(width, 8, as_convolution) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.first(x)).mean(1))


class Mamba(nn.Module):
    """A selective state-space block (Gu and Dao, 2023): steps and both projections of the state depend on the input."""

    def __init__(self, width: int = 16, states: int = 4, rank: int = 2) -> None:
        super().__init__()
        inner = 2 * width
        self.split = [rank, states, states]
        self.norm, self.first = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select, self.steps = nn.Linear(inner, sum(self.split), bias=False), nn.Linear(rank, inner)
        step = torch.exp(torch.rand(inner) * 4.6 - 6.9)
        self.steps.bias.data = step + torch.log(-torch.expm1(-step))
        self.a = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.d, self.last = nn.Parameter(torch.ones(inner)), nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[1]
        u, gate = self.first(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :count].transpose(1, 2))
        step, b, c = self.select(u).split(self.split, -1)
        step = F.softplus(self.steps(step)).unsqueeze(-1)
        decay, drive = torch.exp(-step * self.a.exp()), step * b.unsqueeze(2) * u.unsqueeze(-1)
        h, outputs = torch.zeros_like(drive[:, 0]), []
        for t in range(count):
            h = decay[:, t] * h + drive[:, t]
            outputs.append((h * c[:, t, None]).sum(-1))
        return x + self.last((torch.stack(outputs, 1) + u * self.d) * F.silu(gate))


class Mixed(nn.Module):
    """A layer on the mean of each token and the one in front of it, with a share of its own for each channel."""

    def __init__(self, width: int, outputs: int, power: float) -> None:
        super().__init__()
        self.share = nn.Parameter((torch.arange(width) / width) ** power)
        self.layer = nn.Linear(width, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.share + F.pad(x, (0, 0, 1, -1)) * (1 - self.share))


class TimeMixing(nn.Module):
    """RWKV's attention without products (Peng et al., 2023), as a loop with the running maximum of exponents."""

    def __init__(self, width: int) -> None:
        super().__init__()
        ramp = torch.arange(width) / width
        self.decay, self.bonus = nn.Parameter(-5 + 8 * ramp**0.7), nn.Parameter(torch.arange(width) % 3 * 0.5 - 1.7)
        self.key, self.value, self.gate = (Mixed(width, width, power) for power in (1.0, 0.7, 0.5))
        self.last = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        keys, values, gate = self.key(x), self.value(x), self.gate(x).sigmoid()
        w = -self.decay.exp()
        a, b, top = torch.zeros_like(keys[:, 0]), torch.zeros_like(keys[:, 0]), torch.full_like(keys[:, 0], -1e38)
        outputs = []
        for t in range(x.shape[1]):
            k, v = keys[:, t], values[:, t]
            q = torch.maximum(top, self.bonus + k)
            old, new = torch.exp(top - q), torch.exp(self.bonus + k - q)
            outputs.append((old * a + new * v) / (old * b + new))
            q = torch.maximum(top + w, k)
            old, new = torch.exp(top + w - q), torch.exp(k - q)
            a, b, top = old * a + new * v, old * b + new, q
        return self.last(gate * torch.stack(outputs, 1))


class ChannelMixing(nn.Module):
    """RWKV's feed-forward layer: squares of a ReLU, and a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key, self.gate = Mixed(width, 4 * width, 1.0), Mixed(width, width, 1.0)
        self.value = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x).sigmoid() * self.value(self.key(x).relu().square())


class Rwkv(nn.Module):
    """A language model of one RWKV block."""

    def __init__(self, words: int = 32, width: int = 32) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.time, self.channel = TimeMixing(width), ChannelMixing(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norms[0](self.table(tokens))
        x = x + self.time(self.norms[1](x))
        x = x + self.channel(self.norms[2](x))
        return self.head(self.norms[3](x))


def picture() -> Tensor:
    """Return a dark picture with six bright bars."""
    x = 0.05 * torch.rand(1, 1, 16, 16)
    for _ in range(6):
        row, column = (int(place) for place in torch.randint(2, 12, (2,)))
        x[..., row : row + 3, column : column + 2] += torch.rand(1)
    return x


def spectrogram() -> Tensor:
    """Return 96 frames of 64 logarithms of energies, normalized, with a slow part and a fast one."""
    return (torch.randn(1, 96, 64).cumsum(1) * 0.3 + torch.randn(1, 96, 64)) * 0.16


def waves(steps: int = 16) -> Tensor:
    """Return four noisy sines."""
    frequency, phase = torch.rand(4) * 0.8 + 0.1, torch.rand(4) * 6
    return torch.sin(torch.arange(float(steps))[:, None] * frequency + phase)[None] + 0.1 * torch.randn(1, steps, 4)


architectures("capsules", Capsules, picture)
architectures("rwkv", Rwkv, lambda: torch.randint(0, 32, (1, 8)))
architectures("state_space_convolution", lambda: StateSpace(as_convolution=True), waves)
architectures("state_space_loop", lambda: StateSpace(as_convolution=False), waves)
architectures(
    "spectrogram_transformer", SpectrogramTransformer, spectrogram, bar=25, reason="three layers of attention"
)
architectures(
    "mamba", lambda: nn.Sequential(nn.Linear(4, 16), Mamba(), Mamba(), nn.RMSNorm(16), nn.Linear(16, 5)), waves
)
