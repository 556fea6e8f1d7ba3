# SPDX-License-Identifier: BSD-3-Clause
"""Mean average precision of detected boxes, by COCO's definition and pycocotools."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openneutron.device.data.preprocessing import Letterbox
from openneutron.device.data.samples import Boxes
from openneutron.errors import InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.features.detection import Detector

CONFIDENCE = 0.001
"""The least score of a box that is measured, as in Ultralytics' ``val`` (engine/validator.py, 8.4)."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The labelled and the found boxes of a picture. ``found`` is float32[n, 6]: x1, y1, x2, y2 in pixels of the picture, score, class."""

    wanted: Boxes
    found: np.ndarray = field(repr=False)


@dataclass(frozen=True, slots=True)
class Precision:
    """The measurement of a detector. ``classes`` has the model's class for each class of the data."""

    detector: Detector
    classes: tuple[int, ...]

    @classmethod
    def of(cls, detector: Detector | None, classes: Sequence[str]) -> Precision:
        """Return the measurement for data with these classes. Classes are matched by name, or by place where some name is unknown and
        their numbers are equal.

        Raises InvalidOptionError where the model is no detector or has other classes, MissingToolError without pycocotools.
        """
        if detector is None:
            raise InvalidOptionError(
                "metric: map takes a detector with Ultralytics' metadata; this model has none. Compile its .pt or its export to ONNX."
            )
        if detector.task == "obb":
            raise InvalidOptionError(
                "metric: map is for upright boxes; this model finds rotated ones. Use Ultralytics' val."
            )
        try:
            import pycocotools  # noqa: F401
        except ImportError as error:
            raise MissingToolError(
                "The metric map takes pycocotools, which is not installed: pip install 'openneutron[coco]'."
            ) from error
        numbers = {name: number for number, name in detector.names.items()}
        if all(name in numbers for name in classes):
            return cls(detector, tuple(numbers[name] for name in classes))
        if len(classes) == len(numbers):
            return cls(detector, tuple(sorted(detector.names)))
        unknown = next(name for name in classes if name not in numbers)
        raise InvalidOptionError(
            f"metric: the data have the class '{unknown}', which the model does not know; it has {len(numbers)} classes, the data have "
            f"{len(classes)}. Give data with the model's classes."
        )

    def score(self, outputs: Sequence[np.ndarray], wanted: Boxes) -> Scored:
        """Return the labelled and the found boxes of a picture. Raises InvalidOptionError where the outputs are no boxes."""
        try:
            found = self.detector.detections(outputs, CONFIDENCE, many_labels=True)
        except InvalidModelError as error:
            raise InvalidOptionError(f"metric: {error}") from error
        place = Letterbox.of(wanted.height, wanted.width, self.detector.height, self.detector.width)
        found = found.in_picture(wanted.height, wanted.width, place)
        rows = np.concatenate([found.boxes, found.scores[:, None], found.classes[:, None]], 1, dtype=np.float32)
        return Scored(wanted, rows)

    def mean(self, scored: Sequence[Scored]) -> tuple[float, float]:
        """Return the mean average precision over intersections over union of 0.50 to 0.95, and that at 0.50 (COCO's AP and AP50)."""
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        images, annotations = [], list[dict[str, Any]]()
        rows = [np.zeros((0, 7))]
        for number, item in enumerate(scored):
            images.append({"id": number, "height": item.wanted.height, "width": item.wanted.width})
            for place, corners in enumerate(item.wanted.corners.tolist()):
                x, y, width, height = corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": self.classes[int(item.wanted.classes[place])],
                        "bbox": [x, y, width, height],
                        "area": width * height,
                        "iscrowd": int(item.wanted.crowds[place]),
                    }
                )
            found = item.found.astype(np.float64)
            sizes = found[:, 2:4] - found[:, :2]
            rows.append(np.concatenate([np.full((len(found), 1), number), found[:, :2], sizes, found[:, 4:]], 1))
        every = np.concatenate(rows)
        if not len(every) or not annotations:
            return 0.0, 0.0
        with redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = {
                "images": images,
                "annotations": annotations,
                "categories": [{"id": number} for number in sorted(set(self.classes))],
            }
            truth.createIndex()
            measured = COCOeval(truth, truth.loadRes(every), "bbox")
            measured.evaluate()
            measured.accumulate()
            measured.summarize()
        return float(measured.stats[0]), float(measured.stats[1])
