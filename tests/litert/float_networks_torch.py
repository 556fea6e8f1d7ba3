# SPDX-License-Identifier: BSD-3-Clause
"""The networks of ``float_networks``, in PyTorch."""

from __future__ import annotations

import torch
from torch import nn


class Cnn(nn.Sequential):
    """Convolutions, a pooling, a linear layer and a softmax."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(
                nn.Conv2d(8, 16, 3),
                nn.ReLU6(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(16, 10),
                nn.Softmax(-1),
            ),
        )


class Residual(nn.Module):
    """An inverted residual block with squeeze and excitation, and hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.expand = nn.Sequential(nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.Hardswish())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Sigmoid()
        )
        self.project = nn.Conv2d(24, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        x = x + self.project(y * self.squeeze(y))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Transformer(nn.Module):
    """An encoder layer with two heads over 16 vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.reshape(1, 16, 2, 8).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 16, 16)
        x = x + self.out(mixed)
        result: torch.Tensor = x + self.mlp(self.after(x))
        return result


class Recurrent(nn.Module):
    """A GRU's cell over 8 steps, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.hidden = nn.Linear(8, 36), nn.Linear(12, 36)
        self.head = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(1, 12)
        for step in range(8):
            (r, z, n), (hr, hz, hn) = self.inputs(x[:, step]).chunk(3, -1), self.hidden(h).chunk(3, -1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        result: torch.Tensor = self.head(h)
        return result


class Segmentation(nn.Module):
    """An encoder and a decoder with a skip connection, a bilinear resize and one class for each pixel; and boxes of a detector's head."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU())
        self.up = nn.Conv2d(24, 8, 3, padding=1)
        self.classes = nn.Conv2d(8, 4, 1)
        self.boxes = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low = self.down(x)
        deep = self.deep(low)
        wide = nn.functional.interpolate(deep, scale_factor=2.0, mode="bilinear", align_corners=False)
        mask = self.classes(torch.relu(self.up(torch.cat([low, wide], 1))))
        return torch.softmax(mask, 1), torch.sigmoid(self.boxes(deep).flatten(2))


def networks() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Return the networks with their example inputs, by name."""
    torch.manual_seed(0)
    image = torch.randn(1, 3, 32, 32)
    return {
        "cnn": (Cnn(), (image,)),
        "residual": (Residual(), (image,)),
        "transformer": (Transformer(), (torch.randn(1, 16, 16),)),
        "recurrent": (Recurrent(), (torch.randn(1, 8, 8),)),
        "segmentation": (Segmentation(), (image,)),
    }
