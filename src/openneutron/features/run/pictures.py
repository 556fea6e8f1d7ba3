# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as inputs of compiled files, and what a detector finds in them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data import PICTURES, SUFFIXES, ModelInput, picture_steps
from openneutron.device.data.preprocessing import Letterbox, Preprocess, Size, decoded
from openneutron.device.data.python_function import parsed
from openneutron.device.data.samples import UnusableError
from openneutron.device.files import existing
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.detection import Detections, Detector
from openneutron.features.detection.drawing import drawn
from openneutron.features.report.table import Table, right


def is_picture(path: Path) -> bool:
    """Return whether a file is a picture by its name."""
    return SUFFIXES.get(path.suffix.lower()) == PICTURES


def loaded(path: Path, wanted: ModelInput, stated: str, detector: Detector | None) -> np.ndarray:
    """Return the model's input for a picture: after the preprocessing that the compiled file states, and of a detector in a letterbox of the
    input's size.

    Raises InvalidOptionError where the picture can't be read or has another size, or a function made the preprocessing.
    """
    option = f"--input {path}"
    if parsed(stated) is not None:
        raise InvalidOptionError(
            f"{option}: the file was calibrated on data after the function {stated}, which it does not have. Give the function's result "
            "as a .npy file."
        )
    steps = Preprocess.parse(stated, option)
    if detector is not None:
        steps = replace(steps, resize=None, crop=None, letterbox=Size(detector.height, detector.width))
    try:
        return picture_steps(steps, wanted, option)(decoded(existing(str(path))))
    except UnusableError as error:
        raise InvalidOptionError(f"{option}: {error}. Give a picture of this size, or a .npy file.") from error
    except InvalidModelError as error:  # the file does not exist
        raise InvalidOptionError(f"--input: {error}") from error


@dataclass(frozen=True, slots=True)
class Found:
    """The objects that a detector found in a picture."""

    detector: Detector
    picture: Path
    detections: Detections = field(repr=False)

    @classmethod
    def of(cls, file: str, detector: Detector, picture: Path, outputs: Sequence[np.ndarray]) -> Found:
        """Return the objects in the results of a run. Raises InvalidModelError where the results have another form than the file's
        metadata state."""
        try:
            found = detector.detections(outputs)
        except InvalidModelError as error:
            raise InvalidModelError(f"'{file}': {error}") from error
        width, height = decoded(picture).size
        place = Letterbox.of(height, width, detector.height, detector.width)
        return cls(detector, picture, found.in_picture(height, width, place))

    def plot(self, path: Path) -> bytes:
        """Return the picture with the objects, in the form that the suffix of a file's name states."""
        stream = io.BytesIO()
        made = drawn(decoded(self.picture), self.detections, self.detector.names)
        made.save(stream, {".jpg": "jpeg"}.get(path.suffix.lower(), path.suffix.lower().removeprefix(".")))
        return stream.getvalue()

    def rows(self) -> list[dict[str, Any]]:
        """Return the objects as data: class, score, the box in pixels of the picture, and the keypoints."""
        found = self.detections
        made = []
        for place in range(len(found)):
            number = int(found.classes[place])
            row = {
                "class": self.detector.names.get(number, str(number)),
                "score": round(float(found.scores[place]), 4),
                "box": [round(value, 2) for value in found.boxes[place].tolist()],
            }
            if found.keypoints is not None:
                row["points"] = [[round(value, 2) for value in point] for point in found.keypoints[place].tolist()]
            made.append(row)
        return made

    def table(self) -> Table:
        """Return the objects as a table."""
        rows = self.rows()
        names = ("x", "y", "width", "height", "angle") if self.detections.is_rotated else ("x1", "y1", "x2", "y2")
        columns = [
            right("object", [item["class"] for item in rows], style="cyan"),
            right("score", [f"{item['score']:.2f}" for item in rows]),
        ]
        for place, name in enumerate(names):
            columns.append(right(name, [f"{item['box'][place]:.{2 if name == 'angle' else 0}f}" for item in rows]))
        return Table(tuple(columns))
