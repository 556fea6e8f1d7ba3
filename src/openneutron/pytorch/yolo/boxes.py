# SPDX-License-Identifier: BSD-3-Clause
"""Non-maximum suppression of fixed shapes, as a module that torch.export and ExecuTorch's portable kernels take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

CLASS_OFFSET = 7680.0
"""The distance in pixels by which boxes of different classes are moved apart, so that they do not suppress each other. It is that of
Ultralytics' non_max_suppression (``max_wh``)."""

ROTATED_CANDIDATES = 1000
"""The largest number of rotated boxes above the confidence that are compared. Rotated boxes are suppressed by boxes that are suppressed
themselves, so that each candidate takes a step."""


class Suppression(nn.Module):
    """Greedy suppression of decoded boxes, with the result of Ultralytics' ``non_max_suppression``.

    Each step of a scan takes the box with the highest score that is left; of equal scores the first one. It removes the boxes that
    overlap this box by more than ``iou``. Once no box is left, the remaining steps do nothing. A step takes memory in proportion to the
    number of anchors, and no table of all pairs of boxes exists.

    The input is a decoded tensor (1, 4 + classes + others, anchors) with boxes (x, y, width, height), and further results, which are
    returned unchanged. The result is a tensor (1, detections, 6 + others): boxes as corners (x1, y1, x2, y2), score, class and others,
    by falling score. Rows after the last box are 0. Rotated boxes stay (x, y, width, height), and their angle is the last column.
    """

    def __init__(
        self, classes: int, anchors: int, confidence: float, iou: float, detections: int, is_rotated: bool = False
    ) -> None:
        super().__init__()
        self.classes, self.confidence, self.iou, self.is_rotated = classes, confidence, iou, is_rotated
        self.detections = min(detections, anchors)
        count = min(ROTATED_CANDIDATES, anchors) if is_rotated else self.detections
        self.register_buffer("places", torch.arange(anchors))
        self.register_buffer("steps", torch.arange(count, 0, -1))

    def forward(self, decoded: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        rows = decoded[0].transpose(0, 1)
        box, rest = rows[:, :4], rows[:, 4 + self.classes :]
        score, place = rows[:, 4 : 4 + self.classes].max(1, keepdim=True)
        number = place.float()
        if not self.is_rotated:
            half = box[:, 2:] / 2
            box = torch.cat((box[:, :2] - half, box[:, :2] + half), 1)
        found = torch.cat((box, score, number, rest), 1)
        left = torch.where(score > self.confidence, score, torch.zeros_like(score))[:, 0]
        moved = number * CLASS_OFFSET
        if self.is_rotated:
            apart = torch.cat((box[:, :2] + moved, box[:, 2:], rest[:, -1:]), 1)
            kept, scores = self._rotated(left, apart)
        else:
            kept, scores = self._upright(left, box + moved)
        chosen = found.index_select(0, kept)
        return (torch.where(scores[:, None] > 0, chosen, torch.zeros_like(chosen))[None], *others)

    def _upright(self, left: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the places of the kept boxes, and their scores; 0 for a step without a box."""
        iou = self.iou
        x1, y1, x2, y2 = (boxes[:, side].contiguous() for side in range(4))
        area = (x2 - x1) * (y2 - y1)

        def take(left: Tensor, places: Tensor, *sides: Tensor) -> tuple[Tensor, ...]:
            best = left.argmax(0, keepdim=True)
            x1, y1, x2, y2, area = sides
            first = [side.index_select(0, best) for side in sides]
            width = (torch.minimum(x2, first[2]) - torch.maximum(x1, first[0])).clamp(min=0)
            height = (torch.minimum(y2, first[3]) - torch.maximum(y1, first[1])).clamp(min=0)
            inside = width * height
            over = inside / (first[4] + area - inside) > iou
            gone = torch.logical_or(over, places == best)
            return torch.where(gone, torch.zeros_like(left), left), best, left.index_select(0, best)

        def step(left: Tensor, _number: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            left, best, score = _either(left.max() > 0, take, _nothing, (left, self.places, x1, y1, x2, y2, area))
            return left, (best, score)

        kept, scores = _steps(step, left, self.steps)
        return kept[:, 0], scores[:, 0]

    def _rotated(self, left: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return as ``_upright`` does. A rotated box is kept if no box of a higher score overlaps it."""
        from ultralytics.utils.metrics import batch_probiou

        iou = self.iou

        def take(left: Tensor, alive: Tensor, places: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
            best = left.argmax(0, keepdim=True)
            over = batch_probiou(boxes.index_select(0, best), boxes)[0] > iou
            score = left.index_select(0, best) * alive.index_select(0, best)
            zeros = torch.zeros_like(left)
            return (
                torch.where(places == best, zeros, left),
                torch.where(over, zeros, alive),
                best,
                score,
            )

        def rest(left: Tensor, alive: Tensor, _places: Tensor, _boxes: Tensor) -> tuple[Tensor, ...]:
            return left.clone(), alive.clone(), torch.zeros(1, dtype=torch.int64), torch.zeros(1)

        def step(carried: Any, _number: Tensor) -> tuple[Any, tuple[Tensor, Tensor]]:
            left, alive, best, score = _either(
                carried[0].max() > 0, take, rest, (carried[0], carried[1], self.places, boxes)
            )
            return (left, alive), (best, score)

        kept, scores = _steps(step, (left, torch.ones_like(left)), self.steps)
        # The kept boxes are moved to the front, in the order of the steps.
        order = torch.where(scores[:, 0] > 0, self.steps.float(), torch.zeros_like(scores[:, 0]))
        first = order.topk(min(self.detections, len(order))).indices
        return kept[:, 0].index_select(0, first), scores[:, 0].index_select(0, first)


def _nothing(left: Tensor, *_others: Tensor) -> tuple[Tensor, ...]:
    return left.clone(), torch.zeros(1, dtype=torch.int64), torch.zeros(1)


def _steps(step: Any, carried: Any, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of steps, which are a scan in an exported program and a loop in Python otherwise."""
    if torch.compiler.is_exporting():
        return scan(step, carried, steps)[1]
    results = []
    for number in steps:
        carried, result = step(carried, number)
        results.append(result)
    kept, scores = zip(*results, strict=True)
    return torch.stack(kept), torch.stack(scores)


def _either(condition: Tensor, yes: Any, no: Any, operands: tuple[Tensor, ...]) -> Any:
    """Return the result of one of two functions, which are branches of the program in an export."""
    if torch.compiler.is_exporting():
        return torch.cond(condition, yes, no, operands)
    return (yes if condition else no)(*operands)
