# SPDX-License-Identifier: BSD-3-Clause
"""What watches tensors of which not every value matters: those that a softmax reads, or a mask has filled."""

from __future__ import annotations

from typing import Any

import torch
from torchao.quantization.pt2e import MinMaxObserver

from openneutron.pytorch.operators.comparison.quantize import LARGEST_VALUE
from openneutron.pytorch.quantizer.observers.ranges import LARGEST_SIGNAL

REACH = 9.0
"""How far below the largest of its row a value still matters to a softmax: e**-9 is 1/8103, 1/32 of a step of its result."""


class RowRangeObserver(MinMaxObserver):
    """Observes what a softmax over dimension ``dim`` reads: values further than ``REACH`` below their row's largest count as
    if they were just there. They saturate instead of stretching the range, above all those that a mask puts out of reach.

    Nothing else is clipped: the largest values, which are few, matter most.
    """

    def __init__(self, dim: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        if x.numel() and x.is_floating_point():
            x = torch.nan_to_num(x)
            reached = torch.maximum(x, x.amax(self.dim, keepdim=True) - REACH)
            # Rows of fillers alone give probabilities that nobody uses.
            reached = reached[reached.abs() <= LARGEST_SIGNAL]
            if reached.numel():
                super().forward(reached)
        return x_orig


class ReachableRangeObserver(MinMaxObserver):
    """Observes what ``masked_fill`` makes: numbers beyond ``LARGEST_VALUE``, infinity too, only put out of reach what they
    take the place of, and saturate."""

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        reachable = x[x.abs() <= LARGEST_VALUE]
        if reachable.numel():
            super().forward(reachable)
        return x_orig
