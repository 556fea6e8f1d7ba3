# SPDX-License-Identifier: BSD-3-Clause
"""Networks that make images of images, and those that find things in them."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tests.architectures.layers import Model, conv


class UNetResize(nn.Module):
    """A U-Net whose way up is a resize and a convolution."""

    def __init__(self, mode: str, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.mode = mode
        self.down = nn.ModuleList(conv(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(conv(a + b, a) for a, b in itertools.pairwise(widths))
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for layer in self.down:
            x = layer(x if not kept else F.max_pool2d(x, 2))
            kept.append(x)
        for layer, side in zip(reversed(self.up), reversed(kept[:-1]), strict=True):
            big = F.interpolate(
                x, scale_factor=2, mode=self.mode, **({} if self.mode == "nearest" else {"align_corners": False})
            )
            x = layer(torch.cat([side, big], 1))
        return torch.sigmoid(self.last(x))


class Pyramid(nn.Module):
    """A feature pyramid with box and class heads that are shared among its levels: six outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 24, 3, 2))
        self.c4, self.c5 = conv(24, 32, 3, 2), conv(32, 48, 3, 2)
        self.l3, self.l4, self.l5 = nn.Conv2d(24, 24, 1), nn.Conv2d(32, 24, 1), nn.Conv2d(48, 24, 1)
        self.boxes, self.classes = (
            nn.Sequential(conv(24, 24), nn.Conv2d(24, 8, 1)),
            nn.Sequential(conv(24, 24), nn.Conv2d(24, 6, 1)),
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        c3 = self.stem(x)
        c4 = self.c4(c3)
        p5 = self.l5(self.c5(c4))
        p4 = self.l4(c4) + F.interpolate(p5, scale_factor=2, mode="nearest")
        p3 = self.l3(c3) + F.interpolate(p4, scale_factor=2, mode="nearest")
        return [self.boxes(p) for p in (p3, p4, p5)] + [torch.sigmoid(self.classes(p)) for p in (p3, p4, p5)]


class CspBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        act = nn.SiLU()
        self.enter, self.leave = conv(channels, channels, 1, act=act), conv(2 * channels, channels, 1, act=act)
        self.steps = nn.ModuleList(
            nn.Sequential(conv(half, half, act=act), conv(half, half, act=act)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Yolo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        act = nn.SiLU()
        self.stem = nn.Sequential(conv(3, 8, 3, 2, act), conv(8, 16, 3, 2, act), CspBlock(16))
        self.deep = nn.Sequential(conv(16, 32, 3, 2, act), CspBlock(32))
        self.pool_in, self.pool_out = conv(32, 16, 1, act=act), conv(64, 32, 1, act=act)
        self.up = CspBlock(48)
        self.out3, self.out4 = nn.Conv2d(48, 12, 1), nn.Conv2d(32, 12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = self.stem(x)
        y = self.pool_in(self.deep(side))
        pooled = [y]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        y = self.pool_out(torch.cat(pooled, 1))
        z = self.up(torch.cat([F.interpolate(y, scale_factor=2, mode="nearest"), side], 1))
        return torch.cat([torch.sigmoid(self.out3(z)).flatten(2), torch.sigmoid(self.out4(y)).flatten(2)], 2)


def autoencoder() -> nn.Module:
    widths = (3, 8, 12, 16)
    encoder = [conv(a, b, 3, 2) for a, b in itertools.pairwise(widths)]
    decoder: list[nn.Module] = []
    for a, b in zip(reversed(widths), reversed(widths[:-1]), strict=False):
        decoder += [nn.ConvTranspose2d(a, b, 3, 2, 1, output_padding=1), nn.ReLU() if b > 3 else nn.Sigmoid()]
    return nn.Sequential(
        *encoder,
        nn.Flatten(),
        nn.Linear(256, 24),
        nn.ReLU(),
        nn.Linear(24, 256),
        nn.ReLU(),
        nn.Unflatten(1, (16, 4, 4)),
        *decoder,
    )


def super_resolution() -> nn.Module:
    return nn.Sequential(conv(1, 16, 5), conv(16, 12), conv(12, 12), nn.Conv2d(12, 4, 3, padding=1), nn.PixelShuffle(2))


class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 16, 3, 2), conv(16, 24, 3, 2))
        self.low = conv(16, 8, 1)
        self.rates = nn.ModuleList([conv(24, 16, 1), *(conv(24, 16, 3, dilation=d) for d in (2, 4, 6))])
        self.image, self.project = conv(24, 16, 1), conv(80, 24, 1)
        self.last = nn.Sequential(conv(32, 16), nn.Conv2d(16, 5, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.body[0](x)
        y = self.body[1](low)
        whole = F.interpolate(
            self.image(F.adaptive_avg_pool2d(y, 1)), size=y.shape[2:], mode="bilinear", align_corners=False
        )
        y = self.project(torch.cat([*(rate(y) for rate in self.rates), whole], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        y = self.last(torch.cat([y, self.low(low)], 1))
        return F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


def high_resolution() -> nn.Module:
    def function(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        a = m.stem(x)
        b = m.down(a)
        a, b = m.a1(a), m.b1(b)
        a, b = a + F.interpolate(m.up(b), scale_factor=2, mode="bilinear", align_corners=False), b + m.down2(a)
        return m.last(torch.cat([m.a2(a), F.interpolate(m.b2(b), scale_factor=2, mode="nearest")], 1))

    return Model(function, stem=conv(3, 12, 3, 2), down=conv(12, 24, 3, 2), a1=conv(12, 12), b1=conv(24, 24), up=nn.Conv2d(24, 12, 1),
                 down2=conv(12, 24, 3, 2), a2=conv(12, 12), b2=conv(24, 12), last=nn.Conv2d(24, 6, 1))  # fmt: skip


def recursive() -> nn.Module:
    def function(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = y = m.first(x)
        for _ in range(4):
            y = m.step(y) + x
        return m.last(y)

    return Model(function, first=conv(1, 12), step=conv(12, 12), last=nn.Conv2d(12, 1, 3, padding=1))
