# SPDX-License-Identifier: BSD-3-Clause
"""Networks that say what an image shows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.architectures.layers import SqueezeExcite, conv, head


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2, V3 or EfficientNet."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        expand: int,
        kernel: int,
        stride: int,
        act: nn.Module,
        se: nn.Module | None = None,
    ) -> None:
        super().__init__()
        wide = inputs * expand
        self.added = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            conv(inputs, wide, 1, act=act),
            conv(wide, wide, kernel, stride, act, groups=wide),
            SqueezeExcite(wide, se) if se is not None else nn.Identity(),
            conv(wide, outputs, 1, act=nn.Identity()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.added else self.body(x)


def mobilenet_v3() -> nn.Module:
    swish, gate = nn.Hardswish(), nn.Hardsigmoid()
    return nn.Sequential(
        conv(3, 16, 3, 2, swish),
        Inverted(16, 16, 1, 3, 2, nn.ReLU(), gate),
        Inverted(16, 24, 4, 3, 2, nn.ReLU()),
        Inverted(24, 24, 4, 3, 1, nn.ReLU()),
        Inverted(24, 40, 4, 5, 2, swish, gate),
        Inverted(40, 40, 6, 5, 1, swish, gate),
        conv(40, 96, 1, act=swish),
        head(96),
    )


def efficientnet_lite() -> nn.Module:
    act = nn.ReLU6()
    return nn.Sequential(
        conv(3, 16, 3, 2, act),
        Inverted(16, 16, 1, 3, 1, act),
        Inverted(16, 24, 6, 3, 2, act),
        Inverted(24, 24, 6, 3, 1, act),
        Inverted(24, 40, 6, 5, 2, act),
        Inverted(40, 40, 6, 5, 1, act),
        head(40),
    )


class Shuffle(nn.Module):
    """A unit of ShuffleNetV2."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        half = channels // 2 if stride == 1 else channels
        self.stride = stride
        self.left = (
            nn.Sequential(conv(half, half, 3, 2, nn.Identity(), groups=half), conv(half, half, 1))
            if stride == 2
            else None
        )
        self.right = nn.Sequential(
            conv(half, half, 1), conv(half, half, 3, stride, nn.Identity(), groups=half), conv(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.left is None:
            kept, x = x.chunk(2, 1)
            y = torch.cat([kept, self.right(x)], 1)
        else:
            y = torch.cat([self.left(x), self.right(x)], 1)
        n, c, h, w = y.shape
        return y.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2() -> nn.Module:
    return nn.Sequential(
        conv(3, 16, 3, 2),
        nn.MaxPool2d(3, 2, 1),
        Shuffle(16, 2),
        Shuffle(32, 1),
        Shuffle(32, 1),
        Shuffle(32, 2),
        Shuffle(64, 1),
        conv(64, 96, 1),
        head(96),
    )


class Fire(nn.Module):
    def __init__(self, inputs: int, squeezed: int, outputs: int) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = (
            nn.Conv2d(inputs, squeezed, 1),
            nn.Conv2d(squeezed, outputs, 1),
            nn.Conv2d(squeezed, outputs, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


def squeezenet() -> nn.Module:
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2),
        nn.ReLU(),
        pool,
        Fire(32, 8, 32),
        Fire(64, 8, 32),
        pool,
        Fire(64, 16, 64),
        nn.Conv2d(128, 10, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Dense(nn.Module):
    """A layer of DenseNet: what came so far, normalized, and its own features behind it."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


def densenet() -> nn.Module:
    def transition(inputs: int) -> nn.Sequential:
        return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, inputs // 2, 1), nn.AvgPool2d(2))

    return nn.Sequential(
        conv(3, 16),
        *(Dense(16 + 8 * i, 8) for i in range(4)),
        transition(48),
        *(Dense(24 + 8 * i, 8) for i in range(4)),
        transition(56),
        nn.ReLU(),
        head(28),
    )


class Inception(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.a = conv(inputs, 16, 1)
        self.b = nn.Sequential(conv(inputs, 16, 1), conv(16, 24))
        self.c = nn.Sequential(
            conv(inputs, 8, 1),
            nn.Conv2d(8, 16, (1, 7), padding=(0, 3)),
            nn.ReLU(),
            nn.Conv2d(16, 16, (7, 1), padding=(3, 0)),
            nn.ReLU(),
        )
        self.d = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), conv(inputs, 8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.a(x), self.b(x), self.c(x), self.d(x)], 1)


def inception() -> nn.Module:
    return nn.Sequential(conv(3, 16, 3, 2), Inception(16), nn.MaxPool2d(3, 2), Inception(64), head(64))


class PreActivation(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 or inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(x))
        kept = x if self.short is None else self.short(y)
        return kept + self.conv2(F.relu(self.norm2(self.conv1(y))))


def resnet_v2() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        PreActivation(16, 16, 1),
        PreActivation(16, 16, 1),
        PreActivation(16, 32, 2),
        PreActivation(32, 32, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        head(32),
    )


class ConvNext(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(0.5 * torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), ConvNext(16), nn.Conv2d(16, 32, 2, 2), ConvNext(32), head(32))


def grouped() -> nn.Module:
    return nn.Sequential(
        conv(3, 16),
        conv(16, 32, 3, 2, groups=4),
        conv(32, 32, 3, groups=8),
        nn.MaxPool2d(2),
        conv(32, 48, 3, groups=2),
        head(48),
    )


def batch_net() -> nn.Module:
    return nn.Sequential(
        conv(3, 12, 3, 2), conv(12, 12, 3, groups=12), conv(12, 24, 1), nn.MaxPool2d(2), conv(24, 24), head(24)
    )
