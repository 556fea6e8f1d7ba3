# SPDX-License-Identifier: BSD-3-Clause
"""Compare the boxes that a quantized detector finds with those of the float detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

MATCHED = 0.5
"""The overlap (intersection over union) from which two boxes of one class are the same box, as in COCO's AP50."""


@dataclass(frozen=True, slots=True)
class BoxAgreement:
    """The boxes above the confidence in some pictures. ``matched`` are in both results, ``lost`` in that of the float model alone, and
    ``new`` in that of the quantized model alone. ``iou`` is the mean overlap of the matched boxes; None without any."""

    pictures: int
    confidence: float
    matched: int
    lost: int
    new: int
    iou: float | None

    def __str__(self) -> str:
        """Return the agreement in words."""
        overlap = "" if self.iou is None else f" (mean IoU {self.iou:.2f})"
        return f"{self.matched} of {self.matched + self.lost} boxes found{overlap}, {self.new} new, with scores above {self.confidence:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON."""
        return asdict(self)


def agreement(pairs: Sequence[tuple[Tensor, Tensor]], confidence: float) -> BoxAgreement:
    """Return the agreement of boxes in pictures.

    Each pair has the boxes of the float and of the quantized model in one picture, each a tensor (boxes, 6 or more) of corners, score and
    class, by falling score. A box of the quantized model is matched, by falling score, with the box of its class that overlaps it most
    and has no match.
    """
    overlaps: list[float] = []
    lost = new = 0
    for wanted, got in ((one[one[:, 4] > confidence], two[two[:, 4] > confidence]) for one, two in pairs):
        table = _overlap(got[:, :4], wanted[:, :4]) * (got[:, 5:6] == wanted[None, :, 5])
        free = torch.ones(len(wanted), dtype=torch.bool)
        for row in table:
            best = (row * free).max(0) if len(row) else None
            if best is not None and best.values >= MATCHED:
                free[best.indices] = False
                overlaps.append(float(best.values))
            else:
                new += 1
        lost += int(free.sum())
    mean = sum(overlaps) / len(overlaps) if overlaps else None
    return BoxAgreement(len(pairs), confidence, len(overlaps), lost, new, mean)


def _overlap(one: Tensor, two: Tensor) -> Tensor:
    """Return the intersection over union of each pair of boxes."""
    low = torch.maximum(one[:, None, :2], two[None, :, :2])
    high = torch.minimum(one[:, None, 2:], two[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (one, two)]
    return inside / (areas[0][:, None] + areas[1][None] - inside).clamp(min=1e-9)
