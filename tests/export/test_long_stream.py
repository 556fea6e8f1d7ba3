# SPDX-License-Identifier: BSD-3-Clause
"""A GRU frame by frame in firmware has the simulator's bytes over a long stream, and a reset begins it anew."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import openneutron
from tests.export.long_stream import CALIBRATION, FRAMES, run_stream
from tests.support.tools import required


class Stream(nn.Module):
    """A GRU whose state is a buffer; each run brings a frame."""

    h: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.register_buffer("h", torch.zeros(1, 1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, h = self.gru(x, self.h)
        self.h.copy_(h)
        return y


def test_a_gru_on_a_cortex_m33_over_a_thousand_frames(tmp_path: Path) -> None:
    required("arm-none-eabi-gcc")
    required("qemu-system-arm")
    torch.manual_seed(6)
    frames = [(torch.randn(1, 1, 6),) for _ in range(CALIBRATION)]
    program = openneutron.compile(Stream().eval(), frames[0], calibration=frames, name="stream")
    assert run_stream(program, FRAMES, tmp_path / "bundle") == (0, "all bytes are equal\n")
