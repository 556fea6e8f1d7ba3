# SPDX-License-Identifier: BSD-3-Clause
"""Modules that change their buffers when they run."""

from __future__ import annotations

import torch
from torch import nn


class Ring(nn.Module):
    """A streaming convolution: the last three frames are a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 4)
        self.register_buffer("frames", torch.zeros(1, 8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = torch.cat([self.frames, x], 2)
        self.frames.copy_(frames[:, :, 1:])
        return torch.relu(self.conv(frames))


class TwoRings(nn.Module):
    """Two streaming convolutions of pictures, row by row: the buffers have another layout than the NPU's tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(8, 8, 3, padding=(0, 1)), nn.Conv2d(8, 4, (2, 3), padding=(0, 1))
        self.register_buffer("rows", torch.zeros(1, 8, 2, 6))
        self.register_buffer("later", torch.zeros(1, 8, 1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([self.rows, x], 2)
        self.rows.copy_(rows[:, :, 1:])
        middle = torch.relu(self.one(rows))
        later = torch.cat([self.later, middle], 2)
        self.later.copy_(middle)
        return self.other(later)


class Hidden(nn.Module):
    """A recurrent cell, whose new state has the fixed scale of tanh and is 0.5 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.register_buffer("hidden", torch.full((1, 16), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(x) + self.outer(self.hidden))
        self.hidden.copy_(hidden)
        return self.last(hidden)
