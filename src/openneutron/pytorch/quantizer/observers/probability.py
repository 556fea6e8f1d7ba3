# SPDX-License-Identifier: BSD-3-Clause
"""The scale of a softmax's result, from its largest probability."""

from __future__ import annotations

import torch
from torchao.quantization.pt2e import MinMaxObserver

from openneutron.ops import BY_NAME
from openneutron.ops.softmax import LEAST_SCALE

LARGEST_FLAT = 1 / 4
"""The largest observed probability for which a softmax gets a scale of its own, at least 4 times as fine as 1/256.

Above it the scale 1/256 has at least 64 steps for the largest value, and LiteRT's plain int8 SOFTMAX computes the
result.
"""


class ProbabilityObserver(MinMaxObserver):
    """Observe probabilities: LiteRT's fixed scale 1/256 where the largest is above ``LARGEST_FLAT``, else a scale that
    ends at the largest. The zero point is -128 in either case."""

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point)."""
        scale, zero_point = fixed_parameters()
        largest = float(self.max_val)
        if 0 < largest <= LARGEST_FLAT:
            scale = max(largest / (self.quant_max - self.quant_min), LEAST_SCALE)
        return torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int64)


def fixed_parameters() -> tuple[float, int]:
    """Return scale and zero point of LiteRT's int8 SOFTMAX."""
    fixed = BY_NAME["softmax"].fixed_output
    assert fixed is not None
    return fixed
