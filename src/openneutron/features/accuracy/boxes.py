# SPDX-License-Identifier: BSD-3-Clause
"""Compare the boxes that a quantized detector finds with those of the float detector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron.device.third_party import suppressed
from openneutron.device.timings import step
from openneutron.errors import warn
from openneutron.pytorch.source.exporting import METADATA, ModelInputs, Run, Staged

MATCHED = 0.5
"""The overlap (intersection over union) from which two boxes of one class are the same box, as in COCO's AP50."""

LOWEST_SHARE = 0.75
"""The best score of a quantized model, as a share of that of the float model, below which its scores count as lost."""


@dataclass(frozen=True, slots=True)
class BoxAgreement:
    """The boxes above the confidence threshold, compared over some pictures.

    ``matched`` boxes are found by both models, ``lost`` only by the float model, and ``new`` only by the quantized
    model. ``iou`` is the mean overlap of the matched boxes; None if there are none. ``best`` has the highest score of
    the float model and of the quantized model, including boxes below the threshold; 0 without boxes.
    """

    pictures: int
    confidence: float
    matched: int
    lost: int
    new: int
    iou: float | None
    best: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        """Return the agreement in words."""
        overlap = "" if self.iou is None else f" (mean IoU {self.iou:.2f})"
        return (
            f"{self.matched} of {self.matched + self.lost} boxes found{overlap}, {self.new} new, with scores above {self.confidence:g}; "
            f"best score {self.best[0]:.2f} in float, {self.best[1]:.2f} in int8"
        )

    @property
    def are_lost(self) -> bool:
        """Return whether more than half of the float model's boxes are lost, or its best score has become much lower."""
        return self.lost > self.matched or self.best[1] < LOWEST_SHARE * self.best[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON."""
        return asdict(self)


def agreement(pairs: Sequence[tuple[Tensor, Tensor]], confidence: float) -> BoxAgreement:
    """Return the agreement of the boxes in pictures.

    Each pair has the boxes of the float model and of the quantized model in one picture: tensors [boxes, 6 or more]
    with corners, score and class, sorted by falling score. Only boxes with scores above ``confidence`` are compared.
    The boxes of the quantized model are matched one by one, the highest score first. A box is matched with the float
    box of its class that overlaps it most and is still unmatched, if the overlap is at least ``MATCHED``.
    """
    overlaps: list[float] = []
    one_best, two_best = (
        max((float(x[:, 4].max()) for x in side if len(x)), default=0.0) for side in zip(*pairs, strict=True)
    )
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
    return BoxAgreement(len(pairs), confidence, len(overlaps), lost, new, mean, (one_best, two_best))


def finds_boxes(model: object) -> bool:
    """Return whether a model's first result has upright boxes after suppression, as those of Ultralytics' detectors."""
    stated = getattr(model, METADATA, {}) if isinstance(model, Staged) else {}
    return stated.get("head") == "boxes" and stated.get("task") in ("detect", "segment", "pose")


def boxes_agreement(model: Staged, heads: Iterable[tuple[Any, Any]]) -> BoxAgreement:
    """Return the agreement of the boxes of a float and a quantized detector. Each pair in ``heads`` has the raw
    outputs of the float network and of the quantized network for one picture. ``model.later`` computes the boxes from
    these outputs."""
    assert isinstance(model.later, nn.Module)
    pairs = []
    with torch.no_grad():
        for both in heads:
            one, two = (model.later(*map(torch.as_tensor, pytree.tree_leaves(raw)))[0][0] for raw in both)
            pairs.append((one, two))
    return agreement(pairs, getattr(model, METADATA)["args"]["conf"])


def warn_of_lost_boxes(
    model: Staged, name: str, real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs]
) -> None:
    """Issue a warning if the quantized network of a detector loses boxes or its best scores in the first calibration sample."""
    if not samples or not finds_boxes(model):
        return
    with suppressed(), step("Comparing boxes"), torch.no_grad():
        found = boxes_agreement(model, [(Run(real).of(samples[0]), Run(quantized).of(samples[0]))])
    if found.are_lost:
        warn(
            f"'{name}': int8 loses boxes: {found}, in a calibration picture. `openneutron accuracy` names the layers that lose them."
        )


def _overlap(one: Tensor, two: Tensor) -> Tensor:
    """Return the intersection over union of each pair of boxes."""
    low = torch.maximum(one[:, None, :2], two[None, :, :2])
    high = torch.minimum(one[:, None, 2:], two[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (one, two)]
    return inside / (areas[0][:, None] + areas[1][None] - inside).clamp(min=1e-9)
