# SPDX-License-Identifier: BSD-3-Clause
"""A detector without training, of which all boxes are known."""

from __future__ import annotations

import torch
from torch import nn

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.pytorch.source import exporting

METADATA = {"task": "detect", "names": {"0": "cat", "1": "dog"}, "imgsz": [32, 32], "stride": 16, "end2end": False}


class OneBox(nn.Module):
    """A network that finds a dog of 16 by 8 pixels in the middle of a plain picture of 32 by 32 pixels, at each of its four anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 6, 16, 16)
        self.body.weight = nn.Parameter(torch.tensor([0.01, -0.01] * 8).expand(6, 3, 16, 16).clone())  # their sum is 0
        self.body.bias = nn.Parameter(torch.tensor([16, 16, 16, 8, 0.125, 0.75]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(images).flatten(2)


def one_box() -> CompiledModel:
    """Return the program of OneBox, with metadata as those of Ultralytics."""
    model = OneBox()
    setattr(model, exporting.METADATA, METADATA)
    made = openneutron.compile(model, (torch.rand(1, 3, 32, 32),), calibration=[torch.rand(1, 3, 32, 32)])
    assert isinstance(made, CompiledModel)
    return made
