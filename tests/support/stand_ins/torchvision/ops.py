# SPDX-License-Identifier: BSD-3-Clause
"""The operators on boxes that Ultralytics calls, as torchvision documents them."""

from __future__ import annotations

import torch
from torch import Tensor


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Return the intersection over union of each pair of boxes (x1, y1, x2, y2), in shape (N, M)."""
    low = torch.maximum(boxes1[:, None, :2], boxes2[None, :, :2])
    high = torch.minimum(boxes1[:, None, 2:], boxes2[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    area1, area2 = ((boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (boxes1, boxes2))
    return inside / (area1[:, None] + area2[None] - inside)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes that greedy suppression keeps, by falling score; of equal scores the first box comes first."""
    order = torch.sort(scores, descending=True, stable=True).indices
    kept: list[Tensor] = []
    while order.numel():
        first, order = order[0], order[1:]
        kept.append(first)
        over = box_iou(boxes[first][None], boxes[order])[0] > iou_threshold
        order = order[~over]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)
