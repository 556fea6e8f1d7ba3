# SPDX-License-Identifier: BSD-3-Clause
"""Metrics. A metric gives a number for each sample; the mean of these numbers is the metric of a model, except for mean average precision."""

from __future__ import annotations

import io
import math
import numbers
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data import Sample
from openneutron.device.data.preprocessing import Letterbox
from openneutron.device.data.python_function import PythonFunction, parsed
from openneutron.device.data.samples import Boxes
from openneutron.device.files import obstacle
from openneutron.errors import InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.features.detection import Detector
from openneutron.options.flags import did_you_mean

CONFIDENCE = 0.001
"""The smallest score of a box that counts, as in Ultralytics' ``val`` (engine/validator.py, 8.4)."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The boxes of a picture: the labelled boxes, and the boxes that the detector found. ``found`` is float32 [n, 6]: x1, y1, x2, y2 in pixels
    of the picture, score, class."""

    wanted: Boxes
    found: np.ndarray = field(repr=False)


@dataclass(frozen=True, slots=True)
class Precision:
    """The measurement of a detector's mean average precision. ``classes`` has the model's class number for each class of the data."""

    detector: Detector
    classes: tuple[int, ...]

    @classmethod
    def of(cls, detector: Detector | None, classes: Sequence[str]) -> Precision:
        """Return the measurement for data with these classes.

        Classes of data and model are matched by name; or by number, if a name is unknown and both have the same
        number of classes. Raises InvalidOptionError if the model is no detector, finds rotated boxes or has other
        classes, and MissingToolError without pycocotools.
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
        """Return two mean average precisions: averaged over the thresholds 0.50 to 0.95 of the intersection over
        union (IoU), and at the threshold 0.50 (COCO's AP and AP50). Both are 0 if there are no found boxes or no
        labelled ones."""
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


Score = Callable[[Sequence[np.ndarray], Sample], Any]

TOP1, TOP5, MSE, MAP = "top1", "top5", "mse", "map"
FORMS = "top1, top5, mse, map or file.py:function"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of samples. ``is_share`` states that values are between 0 and 1; tables show them in per cent. ``precision`` is set for the
    metric ``map``, whose scores are boxes."""

    name: str
    score: Score = field(repr=False)
    is_share: bool
    precision: Precision | None = None


def row(output: np.ndarray) -> np.ndarray | None:
    """Return the values of an output as an array of one axis; None for an output that is not one row of at least two
    values."""
    if output.ndim == 0 or output.size < 2 or output.size != max(output.shape) or output.dtype.kind not in "iuf":
        return None
    return output.reshape(-1)


def metric(text: str, precision: Precision | None = None) -> Metric:
    """Return the built-in metric called ``text``, or the metric that a Python file defines (``file.py:function``).

    ``precision`` is the measurement of the model and its data, which the metric ``map`` needs. Raises InvalidOptionError if there is no such
    metric, and for ``map`` without ``precision``.
    """
    if text == MAP:
        if precision is None:
            raise InvalidOptionError("metric: map is for `openneutron evaluate`, on pictures with labelled boxes.")
        return Metric(MAP, partial(_boxes, precision), False, precision)
    if text in _BUILT_IN:
        return _BUILT_IN[text]
    if named := parsed(text):
        return Metric(text, _of_user(_named(*named)), is_share=False)
    raise InvalidOptionError(
        f"metric: '{text}' is unknown. A metric is {FORMS}.{did_you_mean(text, (*_BUILT_IN, MAP))}"
    )


def check(text: str | None) -> None:
    """Check the name of a metric without loading it, before a model is compiled. None and ``map`` always pass. Raises
    InvalidOptionError if there is no such metric."""
    if text in (None, MAP):
        return
    assert text is not None
    named = parsed(text)
    if named is None:
        metric(text)
    else:
        _named(*named).check(InvalidOptionError)


def usual(label: Any) -> str | None:
    """Return the name of the default metric for a kind of label: ``top1`` for classes, ``mse`` for arrays, ``map`` for boxes, None without
    labels."""
    if label is None:
        return None
    if isinstance(label, Boxes):
        return MAP
    return TOP1 if class_of(label) is not None else MSE


def class_of(label: Any) -> int | None:
    """Return the class number of a label; None for a label of another kind."""
    if isinstance(label, np.ndarray) and label.ndim == 0:
        label = label.item()
    return int(label) if isinstance(label, numbers.Integral) and not isinstance(label, bool) else None


def _boxes(precision: Precision, outputs: Sequence[np.ndarray], sample: Sample) -> Scored:
    if not isinstance(sample.label, Boxes):
        raise InvalidOptionError(
            f"metric: map takes labelled boxes; sample '{sample.name}' has none. Give COCO's annotations or a data.yaml."
        )
    return precision.score(outputs, sample.label)


def _top(count: int) -> Score:
    name = f"top{count}"

    def score(outputs: Sequence[np.ndarray], sample: Sample) -> float:
        if sample.label is None:
            raise InvalidOptionError(
                f"metric: {name} takes the number of a class for each sample; sample '{sample.name}' has no label. Leave the "
                "metric out to compare the sides alone."
            )
        label = class_of(sample.label)
        if label is None:
            raise InvalidOptionError(
                f"metric: {name} takes the number of a class for each sample; the label of sample '{sample.name}' is "
                f"{_described(sample.label)}. For values there is mse."
            )
        values = row(outputs[0])
        if values is None:
            raise InvalidOptionError(
                f"metric: {name} takes one row of values for the classes; the first output is {_described(outputs[0])}. "
                "Write a metric of your own: file.py:function."
            )
        if not 0 <= label < len(values):
            raise InvalidOptionError(
                f"metric: the label of sample '{sample.name}' is {label}; the model has the classes 0 to {len(values) - 1}. "
                "Correct the labels, or evaluate the model that they belong to."
            )
        return float(values[label] == values[label] and _rank(values, label) < count)  # not a number: not right

    return score


def _rank(values: np.ndarray, label: int) -> int:
    """Return the rank of class ``label``: the number of classes with a larger value, plus those with an equal value and a smaller number, as in
    argmax."""
    value = values[label]
    return int((values > value).sum() + (values[:label] == value).sum())


def _mse(outputs: Sequence[np.ndarray], sample: Sample) -> float:
    if sample.label is None:
        raise InvalidOptionError(
            f"metric: mse takes an array for each sample; sample '{sample.name}' has no label. Leave the metric out to compare "
            "the sides alone."
        )
    wanted = np.asarray(sample.label)
    if wanted.size != outputs[0].size or wanted.dtype.kind not in "biuf":
        raise InvalidOptionError(
            f"metric: mse takes an array like the first output, {_described(outputs[0])}; the label of sample "
            f"'{sample.name}' is {_described(sample.label)}. Store the labels in that shape."
        )
    difference = outputs[0].astype(np.float64).reshape(-1) - wanted.astype(np.float64).reshape(-1)
    return float(np.square(difference).mean())


def _named(file: str, function: str) -> PythonFunction:
    problem = obstacle(Path(file))
    if problem is not None:
        raise InvalidOptionError(f"metric: '{file}' {problem}. A metric is {FORMS}.")
    return PythonFunction(Path(file), function)


def _of_user(named: PythonFunction) -> Score:
    purpose = "a metric returns a number"
    function = named.load(purpose, InvalidOptionError)

    def score(outputs: Sequence[np.ndarray], sample: Sample) -> float:
        try:
            result = named.run(lambda: function(tuple(outputs), sample), purpose, InvalidOptionError)
        except InvalidOptionError as error:
            raise InvalidOptionError(f"metric: on sample '{sample.name}': {error}. Correct the function.") from error
        try:
            value = float(result)
        except (TypeError, ValueError) as error:
            raise InvalidOptionError(
                f"metric: '{named}' returned {type(result).__name__} for sample '{sample.name}'; {purpose}."
            ) from error
        if not math.isfinite(value):
            raise InvalidOptionError(
                f"metric: '{named}' returned {value} for sample '{sample.name}'; a metric returns a finite number."
            )
        return value

    return score


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return f"{value!r}"


_BUILT_IN = {TOP1: Metric(TOP1, _top(1), True), TOP5: Metric(TOP5, _top(5), True), MSE: Metric(MSE, _mse, False)}
