# SPDX-License-Identifier: BSD-3-Clause
"""Networks of sound, of tokens and of two inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.architectures.layers import Model, conv, head


class Temporal(nn.Module):
    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.one, self.two = (
            nn.Conv1d(inputs, outputs, 3, dilation=dilation),
            nn.Conv1d(outputs, outputs, 3, dilation=dilation),
        )
        self.short = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.one(F.pad(x, (self.pad, 0))))
        y = F.relu(self.two(F.pad(y, (self.pad, 0))))
        return F.relu(y + self.short(x))


def tcn() -> nn.Module:
    return nn.Sequential(Temporal(8, 16, 1), Temporal(16, 16, 2), Temporal(16, 16, 4), nn.Conv1d(16, 4, 1))


def audio_1d() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 1
    for wide in (16, 24, 32):
        layers += [nn.Conv1d(channels, wide, 9, 4, 4), nn.BatchNorm1d(wide), nn.ReLU()]
        channels = wide
    return nn.Sequential(*layers, nn.MaxPool1d(4), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5))


def ds_cnn() -> nn.Module:
    layers: list[nn.Module] = [
        nn.ZeroPad2d((1, 1, 4, 5)),
        nn.Conv2d(1, 24, (10, 4), (2, 2), bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
    ]
    for _ in range(3):
        layers += [conv(24, 24, 3, groups=24), conv(24, 24, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(24, 12), nn.Softmax(1))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 32, patches: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(0.1 * torch.randn(1, patches + 1, width))
        self.block = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, batch_first=True, activation="gelu", norm_first=True
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.position
        return self.head(self.block(y)[:, 0])


def two_inputs() -> nn.Module:
    def function(m: nn.Module, image: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        both = torch.cat([m.a(image), m.b(depth)], 1)
        return m.head(m.c(both) + m.a(image))

    return Model(function, a=conv(3, 8), b=conv(1, 8), c=conv(16, 8), head=head(8))


def siamese() -> nn.Module:
    def function(m: nn.Module, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(m.last((m.body(one) - m.body(other)).abs()))

    return Model(function, body=nn.Sequential(conv(1, 8), conv(8, 16, 3, 2), head(16, 24)), last=nn.Linear(24, 1))
