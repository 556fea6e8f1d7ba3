# SPDX-License-Identifier: BSD-3-Clause
"""The boxes that a detector finds in a picture, with their scores, classes, masks and keypoints: read from its outputs, and drawn with Pillow."""

from __future__ import annotations

import ast
import colorsys
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.device.data.preprocessing import Letterbox
from openneutron.errors import InvalidModelError

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Objects that a detector found in a picture, by falling score.

    Attributes:
        boxes: float32[n, 4] with x1, y1, x2, y2. Rotated boxes are float32[n, 5]: x and y of the centre, width,
            height, and the clockwise angle in radians. The unit is a pixel of the network's input, or of the picture
            in the result of ``in_picture``.
        scores: float32[n] from 0 to 1.
        classes: int64[n], the index of each object's class.
        keypoints: float32[n, points, 2 or 3] with x and y in the unit of the boxes and, with 3, the visibility; None
            where the task has none.
        coefficients: float32[n, prototypes], the weights of the prototypes in each object's mask; None where the task
            has none.
        prototypes: float32[prototypes, height, width]. Their sum, weighted by an object's coefficients, is above 0
            inside the object. None where the task has none.
        place: Where the picture lies in the network's input; None before ``in_picture``.
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
"""The largest number of boxes in a suppression; those with the highest scores are taken (``max_nms`` of Ultralytics' utils/nms.py, 8.4)."""


def kept(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float, most: int) -> np.ndarray:
    """Return the indices of the boxes that non-maximum suppression keeps, at most ``most``, by falling score. Boxes
    with equal scores keep their order.

    A box is dropped if a kept box of its class that comes before it overlaps it with an intersection over union above
    ``iou``. Rotated boxes (five numbers) are compared by ``rotated_iou``.
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
    """Return the similarity of a rotated box to each of the others, from 0 to 1.

    It is one minus the Hellinger distance of normal distributions with the boxes' centres and covariances, as in Ultralytics (Murrugarra-Llerena
    et al., "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union for Object Detection", 2021).
    """
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
    """Return the mask of each detection in a picture of this size: bool [n, height, width]. The detections must be
    those of ``in_picture``.

    The weighted sums of prototypes are resized to the picture by bilinear interpolation, and cropped to the
    detection's box. The mask is True where the result is above 0.
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


DETECT, SEGMENT, POSE, ROTATED = "detect", "segment", "pose", "obb"

TASKS = (DETECT, SEGMENT, POSE, ROTATED)
"""The tasks whose results are boxes, by Ultralytics' names."""

CONFIDENCE, IOU, MOST = 0.25, 0.7, 300
"""The defaults of Ultralytics' ``predict`` (cfg/default.yaml, 8.4): the smallest score of a detection, the largest intersection over union of
two detections of a class, and the largest number of detections."""

RAW = "raw"
"""The value of the metadata ``head`` for a program whose outputs are a network's raw heads, before boxes are computed."""


@dataclass(frozen=True, slots=True)
class Detector:
    """A network whose results are boxes.

    Attributes:
        task: One of TASKS.
        names: The class names by number.
        height: The height of the network's input in pixels.
        width: Its width.
        points: The number of keypoints, and the number of values of each keypoint; None for other tasks than
            ``pose``.
        has_boxes: Whether the network's results are final detections, after non-maximum suppression or from an
            end-to-end network. Detections are float32[1, n, 6 + others]: a box, its score, its class, and the others,
            which are the mask's coefficients, the keypoints or the angle. Other results are float32[1, 4 + classes +
            others, anchors]: for each anchor the centre, width and height of a box, the score of each class, and the
            others.
        is_relative: Whether coordinates are shares of the input's size, as in Ultralytics' int8 ``.tflite``.
            Otherwise they are pixels.
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
        """Return the detector that Ultralytics' metadata describe; None for other metadata. The metadata may be
        values or texts of values.

        Raises InvalidModelError if the outputs are raw heads, from which no boxes were computed yet, and if an
        entry has another form than Ultralytics writes.
        """
        given = {name: _value(item) for name, item in metadata.items()}
        size, names = given.get("imgsz"), given.get("names")
        if given.get("task") not in TASKS or not size or not isinstance(names, (Mapping, list, tuple)):
            return None
        if given.get("head") == RAW:
            raise InvalidModelError(
                "its results are the raw heads of a network, which have no boxes. Compile the model without --head raw."
            )
        height, width = _whole((size, size) if isinstance(size, int) else size, "imgsz", 2)
        classes = names if isinstance(names, Mapping) else dict(enumerate(names))
        numbers = _whole(classes, "names", len(classes))
        points = _whole(given["kpt_shape"], "kpt_shape", 2) if given.get("kpt_shape") else None
        arguments = given.get("args")
        has_boxes = bool(given.get("end2end")) or (isinstance(arguments, Mapping) and bool(arguments.get("nms")))
        return cls(
            str(given["task"]),
            dict(zip(numbers, map(str, classes.values()), strict=True)),
            height,
            width,
            (points[0], points[1]) if points else None,
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
            confidence: Only objects with a larger score are returned. With ``has_boxes``, the program may have
                dropped objects by a threshold of its own before.
            iou: The largest intersection over union of two boxes of a class. It has no effect with ``has_boxes``.
            most: The largest number of objects.
            many_labels: True: an anchor gives a box for each class with a score above ``confidence``, as for mean
                average precision. False: it gives one box, of its best class. It has no effect with ``has_boxes``.

        Raises InvalidModelError where the results do not have the form that the metadata state.
        """
        flat = [np.asarray(item, np.float32) for item in outputs if item.ndim == 3]
        images = [np.asarray(item, np.float32) for item in outputs if item.ndim == 4]
        extra = {ROTATED: 1, POSE: (self.points or (0, 0))[0] * (self.points or (0, 0))[1]}.get(self.task, 0)
        prototypes = None
        plain, values = (6, 2) if self.has_boxes else (4 + len(self.names), 1)
        if self.task == SEGMENT and images:
            coefficients = flat[0].shape[values] - plain if flat else 0
            is_last = _is_last(images[0].shape, coefficients, self.is_relative)
            prototypes = np.moveaxis(images[0][0], -1, 0) if is_last else images[0][0]
            extra = len(prototypes)
        width = plain + extra
        if len(flat) != 1 or flat[0].shape[values] != width:
            there = ", ".join("x".join(map(str, item.shape)) for item in outputs)
            raise InvalidModelError(
                f"its metadata state the task '{self.task}' of {len(self.names)} classes, whose boxes have {width} values; its results "
                f"are {there}. Export the model again."
            )
        if len(flat[0]) != 1:
            raise InvalidModelError(
                f"its results are those of {len(flat[0])} pictures; boxes are read from a run on one. Export the model with batch=1."
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


def _is_last(shape: Sequence[int], coefficients: int, is_litert: bool) -> bool:
    """Return whether the number of prototypes of masks is the last axis of their shape, as in [1, height, width,
    prototypes] of a ``.tflite``, and not the second. There is a prototype for each of a box's ``coefficients``."""
    return shape[3] == coefficients and (is_litert or shape[1] != coefficients)


def _whole(given: Any, name: str, count: int) -> list[int]:
    """Return the ``count`` whole numbers of an entry of the metadata. Raises InvalidModelError for any other value."""
    try:
        found = [int(number) for number in given]
    except (TypeError, ValueError):
        found = []
    if len(found) != count:
        raise InvalidModelError(
            f"its metadata have {name}={given!r}, which is not {count} whole numbers. Export the model again."
        )
    return found


def _value(given: Any) -> Any:
    """Return a value of metadata. A text is read as a Python literal, since some files, such as ONNX's, store
    numbers, lists and dicts as text. A text that is no literal is returned unchanged."""
    if not isinstance(given, str):
        return given
    try:
        return ast.literal_eval(given)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return given


OPACITY = 0.45
"""The share of its colour that a mask has in the picture."""

VISIBLE = 0.5
"""The least visibility of a keypoint that is drawn, as in Ultralytics' plots (utils/plotting.py, 8.4)."""

GOLDEN = 0.618034
"""The step of the hue from class to class, the golden ratio's fraction: any few neighbours have hues far apart."""


def colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a class."""
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.9, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def drawn(picture: Image.Image, found: Detections, names: Mapping[int, str]) -> Image.Image:
    """Return a copy of a picture with boxes, names and scores, and with masks and keypoints where there are any.

    ``found`` has pixels of the picture (``Detections.in_picture``). The detection of the highest score is drawn last.
    """
    from PIL import Image, ImageDraw, ImageFont

    made = picture.convert("RGB")
    if found.coefficients is not None and len(found):
        pixels = np.asarray(made).astype(np.float32)
        for mask, number in zip(masks(found, made.height, made.width), found.classes, strict=True):
            pixels[mask] = (1 - OPACITY) * pixels[mask] + OPACITY * np.array(colour(int(number)), np.float32)
        made = Image.fromarray(pixels.round().astype(np.uint8))
    draw = ImageDraw.Draw(made)
    width = max(1, round(min(made.size) / 200))
    font = ImageFont.load_default(max(10, round(min(made.size) / 32)))
    for place in reversed(range(len(found))):
        number = int(found.classes[place])
        shade = colour(number)
        corners = [(float(x), float(y)) for x, y in found.corners()[place]]
        draw.line([*corners, corners[0]], shade, width, joint="curve")
        if found.keypoints is not None:
            for x, y, *seen in found.keypoints[place].tolist():
                if not seen or seen[0] > VISIBLE:
                    draw.ellipse([x - width, y - width, x + width, y + width], shade)
        text = f"{names.get(number, number)} {found.scores[place]:.2f}"
        _label(draw, min(corners, key=lambda corner: corner[::-1]), text, shade, font, made.size)
    return made


def _label(
    draw: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    text: str,
    shade: tuple[int, int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    size: tuple[int, int],
) -> None:
    """Draw a text on a ground of a colour above a corner, inside a picture of this size."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    width, height = right - left + 4, bottom - top + 4
    x = min(max(0, corner[0]), max(0, size[0] - width))
    y = corner[1] - height if corner[1] >= height else min(corner[1], max(0, size[1] - height))
    draw.rectangle([x, y, x + width, y + height], fill=shade)
    dark = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] > 128
    draw.text((x + 2 - left, y + 2 - top), text, fill=(0, 0, 0) if dark else (255, 255, 255), font=font)
