# SPDX-License-Identifier: BSD-3-Clause
"""A detector by its metadata: what its results are, and the boxes in them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openneutron.errors import InvalidModelError
from openneutron.features.detection.detections import Detections, kept

DETECT, SEGMENT, POSE, ROTATED = "detect", "segment", "pose", "obb"

TASKS = (DETECT, SEGMENT, POSE, ROTATED)
"""The tasks whose results are boxes, by Ultralytics' names."""

CONFIDENCE, IOU, MOST = 0.25, 0.7, 300
"""The least score of a detection, the largest intersection over union of two of a class, and the largest number, where nothing else is
given: those of Ultralytics' ``predict`` (cfg/default.yaml, 8.4)."""

RAW = "raw"
"""The metadata ``head`` of a program whose results are a network's raw heads, before boxes."""


@dataclass(frozen=True, slots=True)
class Detector:
    """A network whose results are boxes.

    Attributes:
        task: One of TASKS.
        names: The class names by number.
        height: The height of the network's input in pixels.
        width: Its width.
        points: The numbers of keypoints and of values of each; None for other tasks than ``pose``.
        has_boxes: The results are detections after a suppression or of an end-to-end network, float32[1, n, 6 + others]: a box, its
            score, its class, and the mask's coefficients, keypoints or the angle. Otherwise they are float32[1, 4 + classes + others, anchors]: the
            centre, width and height of a box for each anchor, the score of each class, and the others.
        is_relative: Coordinates are shares of the input's size, as in Ultralytics' int8 ``.tflite``; otherwise they are pixels.
    """

    task: str
    names: Mapping[int, str]
    height: int
    width: int
    points: tuple[int, int] | None = None
    has_boxes: bool = False
    is_relative: bool = False

    @classmethod
    def of(cls, metadata: Mapping[str, Any], is_litert: bool = False) -> Detector | None:
        """Return the detector that Ultralytics' metadata describe, as values or as their text; None for other metadata.

        Raises InvalidModelError where the results are raw heads.
        """
        given = {name: _value(item) for name, item in metadata.items()}
        size, names = given.get("imgsz"), given.get("names")
        if given.get("task") not in TASKS or not size or not isinstance(names, (Mapping, list, tuple)):
            return None
        if given.get("head") == RAW:
            raise InvalidModelError(
                "its results are the raw heads of a network, which have no boxes. Compile the model without --head raw."
            )
        height, width = (size, size) if isinstance(size, int) else map(int, size)
        classes = names.items() if isinstance(names, Mapping) else enumerate(names)
        points = given.get("kpt_shape")
        arguments = given.get("args")
        has_boxes = bool(given.get("end2end")) or (isinstance(arguments, Mapping) and bool(arguments.get("nms")))
        return cls(
            str(given["task"]),
            {int(number): str(name) for number, name in classes},
            height,
            width,
            (int(points[0]), int(points[1])) if points else None,
            has_boxes,
            is_litert and not has_boxes,
        )

    def detections(
        self,
        outputs: Sequence[np.ndarray],
        confidence: float = CONFIDENCE,
        iou: float = IOU,
        most: int = MOST,
        many_labels: bool = False,
    ) -> Detections:
        """Return the objects in the results of one run, in pixels of the network's input.

        Args:
            outputs: The results: the boxes, and for the task ``segment`` the prototypes of masks, in any order.
            confidence: The least score; a program that suppresses has dropped what is below its own.
            iou: The largest intersection over union of two boxes of a class.
            most: The largest number of objects.
            many_labels: An anchor gives a box for each class whose score suffices, as in the measurement of mean average precision;
                otherwise it gives one of its best class.

        Raises InvalidModelError where the results do not have the form that the metadata state.
        """
        flat = [np.asarray(item, np.float32) for item in outputs if item.ndim == 3]
        images = [np.asarray(item, np.float32) for item in outputs if item.ndim == 4]
        extra = {ROTATED: 1, POSE: (self.points or (0, 0))[0] * (self.points or (0, 0))[1]}.get(self.task, 0)
        prototypes = None
        if self.task == SEGMENT and images:
            prototypes = np.moveaxis(images[0][0], -1, 0) if self.is_relative and _is_last(images[0]) else images[0][0]
            extra = len(prototypes)
        width = 6 + extra if self.has_boxes else 4 + len(self.names) + extra
        if len(flat) != 1 or flat[0].shape[2 if self.has_boxes else 1] != width:
            there = ", ".join("x".join(map(str, item.shape)) for item in outputs)
            raise InvalidModelError(
                f"its metadata state the task '{self.task}' of {len(self.names)} classes, whose boxes have {width} values; its results "
                f"are {there}. Export the model again."
            )
        rows = flat[0][0] if self.has_boxes else flat[0][0].T
        boxes, scores, classes, others = self._found(rows, confidence, iou, most, many_labels)
        points = others.reshape(len(others), *self.points) if self.task == POSE and self.points else None
        return Detections(boxes, scores, classes, points, others if prototypes is not None else None, prototypes)

    def _found(
        self, rows: np.ndarray, confidence: float, iou: float, most: int, many_labels: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the boxes, scores, classes and other values of the detections in the rows of a result."""
        count = len(self.names)
        if self.has_boxes:
            rows = rows[rows[:, 4] > confidence][:most]
            boxes, scores, classes, others = rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64), rows[:, 6:]
            boxes = np.concatenate([boxes, others], 1) if self.task == ROTATED else boxes
            return boxes.copy(), scores, classes, others
        found = rows[:, 4 : 4 + count]
        if many_labels:
            places, classes = np.nonzero(found > confidence)
        else:
            places = np.nonzero(found.max(1) > confidence)[0]
            classes = found[places].argmax(1)
        rows, scores = rows[places], found[places, classes]
        others = rows[:, 4 + count :]
        size = np.array([self.width, self.height], np.float32) if self.is_relative else np.ones(2, np.float32)
        centres, sizes = rows[:, :2] * size, rows[:, 2:4] * size
        if self.task == POSE and self.points:
            others = others.reshape(len(others), *self.points) * np.append(size, [1] * (self.points[1] - 2))
            others = others.reshape(len(others), -1).astype(np.float32)
        boxes = (
            np.concatenate([centres, sizes, others], 1)
            if self.task == ROTATED
            else np.concatenate([centres - sizes / 2, centres + sizes / 2], 1)
        )
        left = kept(boxes, scores, classes, iou, most)
        return boxes[left], scores[left], classes[left], others[left]


def _is_last(images: np.ndarray) -> bool:
    """Return whether the prototypes of masks are the last axis: in Ultralytics' networks their number is no extent of the masks."""
    return bool(images.shape[2] == images.shape[1] != images.shape[3])


def _value(given: Any) -> Any:
    """Return a value of metadata: files whose metadata are texts, such as ONNX's, have numbers, lists and dicts as Python writes them."""
    if not isinstance(given, str):
        return given
    try:
        return ast.literal_eval(given)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return given
