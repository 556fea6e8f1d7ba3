# SPDX-License-Identifier: BSD-3-Clause
"""Boxes with their scores, classes, masks and keypoints, and the suppression of boxes that cover the same object."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from openneutron.device.data.preprocessing import Letterbox


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Objects that a detector found in a picture, by falling score.

    Attributes:
        boxes: float32[n, 4] with x1, y1, x2, y2; of rotated boxes float32[n, 5] with x and y of the centre, width, height, and the angle in
            radians, clockwise. Pixels of the network's input, or of the picture after ``in_picture``.
        scores: float32[n] from 0 to 1.
        classes: int64[n], numbers of classes.
        keypoints: float32[n, points, 2 or 3] with x, y and visibility; None where the task has none.
        coefficients: float32[n, prototypes] of the masks; None where the task has none.
        prototypes: float32[prototypes, height, width], whose sums with the coefficients are above 0 inside an object.
        place: The place of the picture in the network's input, after ``in_picture``.
    """

    boxes: np.ndarray = field(repr=False)
    scores: np.ndarray
    classes: np.ndarray
    keypoints: np.ndarray | None = field(default=None, repr=False)
    coefficients: np.ndarray | None = field(default=None, repr=False)
    prototypes: np.ndarray | None = field(default=None, repr=False)
    place: Letterbox | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def is_rotated(self) -> bool:
        """Return whether the boxes have angles."""
        return int(self.boxes.shape[1]) == 5

    def in_picture(self, height: int, width: int, place: Letterbox) -> Detections:
        """Return the detections in pixels of the picture of this size, which was at ``place`` in the network's input. Boxes are clipped to
        the picture, rotated ones are not."""
        corner = np.array([place.left, place.top], np.float32)
        boxes = self.boxes.copy()
        boxes[:, :2] = (boxes[:, :2] - corner) / place.ratio
        if self.is_rotated:
            boxes[:, 2:4] = boxes[:, 2:4] / place.ratio
        else:
            boxes[:, 2:] = (boxes[:, 2:] - corner) / place.ratio
            boxes = boxes.clip(0, np.array([width, height, width, height], np.float32))
        points = self.keypoints
        if points is not None:
            points = points.copy()
            points[..., :2] = (points[..., :2] - corner) / place.ratio
        return replace(self, boxes=boxes, keypoints=points, place=place)

    def corners(self) -> np.ndarray:
        """Return the four corners of each box in their order around it, float32[n, 4, 2]."""
        if not self.is_rotated:
            x1, y1, x2, y2 = self.boxes.T
            return np.stack([x1, y1, x2, y1, x2, y2, x1, y2], -1).reshape(-1, 4, 2)
        x, y, width, height, angle = self.boxes.T
        cos, sin = np.cos(angle), np.sin(angle)
        one, other = np.stack([width * cos, width * sin], -1) / 2, np.stack([-height * sin, height * cos], -1) / 2
        centre = np.stack([x, y], -1)
        return np.stack([centre + one + other, centre + one - other, centre - one - other, centre - one + other], 1)


MOST_BOXES = 30_000
"""The most boxes that take part in a suppression, those of the highest scores (``max_nms`` of Ultralytics' utils/nms.py, 8.4)."""


def kept(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float, most: int) -> np.ndarray:
    """Return the indices of the boxes that a greedy suppression keeps, by falling score; of equal scores the first comes first.

    A box is dropped if a box of its class with a higher score covers it with an intersection over union above ``iou``. Rotated boxes (five
    numbers) are compared by ``rotated_iou``.
    """
    order = np.argsort(-scores, kind="stable")[:MOST_BOXES]
    found: list[int] = []
    compare = rotated_iou if boxes.shape[1] == 5 else straight_iou
    while len(order) and len(found) < most:
        first, order = int(order[0]), order[1:]
        found.append(first)
        covered = (compare(boxes[first], boxes[order]) > iou) & (classes[order] == classes[first])
        order = order[~covered]
    return np.array(found, np.int64)


def straight_iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of a box with each of the others; boxes are x1, y1, x2, y2."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inside = (high - low).clip(0).prod(-1)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(-1)
    union: np.ndarray = area + areas - inside
    shares: np.ndarray = np.divide(inside, union, out=np.zeros_like(union), where=union > 0)
    return shares


def rotated_iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the likeness of a rotated box to each of the others, from 0 to 1: one minus the Hellinger distance of normal distributions
    with the boxes' centres and covariances (Murrugarra-Llerena et al., "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union
    for Object Detection", 2021), as Ultralytics compares such boxes."""
    small = 1e-7
    first, rest = (_covariance(item) for item in (box[None], others))
    a, b, c = (one + other for one, other in zip(first, rest, strict=True))
    dx, dy = others[:, 0] - box[0], others[:, 1] - box[1]
    determinant = a * b - c * c
    apart = (a * dy**2 + b * dx**2 - 2 * c * dx * dy) / (determinant + small) / 4
    own, others_own = (item[0] * item[1] - item[2] ** 2 for item in (first, rest))
    unlike = np.log(determinant / (4 * np.sqrt(own.clip(0) * others_own.clip(0)) + small) + small) / 2
    distance = np.sqrt(1 - np.exp(-(apart + unlike).clip(small, 100)) + small)
    likeness: np.ndarray = 1 - distance
    return likeness


def _covariance(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the variances along x and y, and the covariance, of uniform distributions in rotated boxes."""
    across, along, angle = boxes[:, 2] ** 2 / 12, boxes[:, 3] ** 2 / 12, boxes[:, 4]
    cos, sin = np.cos(angle), np.sin(angle)
    return (
        across * cos**2 + along * sin**2,
        across * sin**2 + along * cos**2,
        (across - along) * cos * sin,
    )


def masks(found: Detections, height: int, width: int) -> np.ndarray:
    """Return the mask of each detection in a picture of this size, bool[n, height, width]; detections are those of ``in_picture``.

    The sums of prototypes are resized by bilinear interpolation to the picture, and cut to the detection's box.
    """
    from PIL import Image

    assert found.prototypes is not None and found.coefficients is not None and found.place is not None
    place, prototypes = found.place, found.prototypes
    made = np.zeros((len(found), height, width), bool)
    scale = prototypes.shape[1] / (place.top * 2 + place.height), prototypes.shape[2] / (place.left * 2 + place.width)
    area = (
        place.left * scale[1],
        place.top * scale[0],
        (place.left + place.width) * scale[1],
        (place.top + place.height) * scale[0],
    )
    for number, (coefficients, box) in enumerate(zip(found.coefficients, found.boxes, strict=True)):
        sums = np.tensordot(coefficients, prototypes, 1).astype(np.float32)
        whole = Image.fromarray(sums).resize((width, height), Image.Resampling.BILINEAR, box=area)
        x1, y1 = (math.floor(value) for value in box[:2])
        x2, y2 = (math.ceil(value) for value in box[2:])
        made[number, y1:y2, x1:x2] = np.asarray(whole)[y1:y2, x1:x2] > 0
    return made
