# SPDX-License-Identifier: BSD-3-Clause
"""Boxes from a detector's results, against Ultralytics' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from openneutron.device.data.preprocessing import Letterbox
from openneutron.errors import InvalidModelError
from openneutron.features.detection import Detector
from openneutron.features.detection.detections import drawn, masks

CLASSES = 4
NAMES = str({number: f"class {number}" for number in range(CLASSES)})


def results(extra: int, anchors: int = 400) -> torch.Tensor:
    """Return results before suppression (1, 4 + classes + extra, anchors), with boxes of 8 to 40 pixels in 96 by 64 pixels."""
    generator = torch.Generator().manual_seed(extra)
    boxes = torch.rand(1, 4, anchors, generator=generator) * torch.tensor([96, 64, 32, 32])[:, None]
    boxes[:, 2:] += 8
    scores = torch.rand(1, CLASSES, anchors, generator=generator) ** 3
    return torch.cat((boxes, scores, torch.rand(1, extra, anchors, generator=generator) * 3 - 1), 1)


def detector(task: str, **more: Any) -> Detector:
    found = Detector.of({"task": task, "names": NAMES, "imgsz": "[64, 96]", **more})
    assert found is not None
    return found


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("task", "extra"), [("detect", 0), ("segment", 8), ("pose", 6), ("obb", 1)])
def test_detections_are_ultralytics(task: str, extra: int, many: bool) -> None:
    from ultralytics.utils.nms import non_max_suppression  # type: ignore[import-not-found]

    raw = results(extra)
    outputs = [raw.numpy()] + ([np.zeros((1, 8, 16, 24), np.float32)] if task == "segment" else [])
    found = detector(task, kpt_shape="[3, 2]").detections(outputs, 0.3, 0.5, 50, many)
    (wanted,) = non_max_suppression(
        raw.clone(), 0.3, 0.5, max_det=50, nc=CLASSES, rotated=task == "obb", multi_label=many
    )
    assert 10 < len(found) == len(wanted)
    boxes = torch.cat((wanted[:, :4], wanted[:, 6:]), 1) if task == "obb" else wanted[:, :4]
    np.testing.assert_allclose(found.boxes, boxes, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found.scores, wanted[:, 4], rtol=1e-6)
    np.testing.assert_array_equal(found.classes, wanted[:, 5])
    if task == "pose":
        assert found.keypoints is not None
        np.testing.assert_allclose(found.keypoints.reshape(-1, 6), wanted[:, 6:], rtol=1e-6)
    if task == "segment":
        assert found.coefficients is not None
        np.testing.assert_allclose(found.coefficients, wanted[:, 6:], rtol=1e-6)
    picture = Image.new("RGB", (200, 120))
    names = {number: str(number) for number in range(CLASSES)}
    assert drawn(picture, found.in_picture(120, 200, Letterbox.of(120, 200, 64, 96)), names).size == (200, 120)


def test_boxes_of_a_program_with_suppression_are_taken_as_they_are() -> None:
    rows = np.zeros((1, 5, 6), np.float32)
    rows[0, :2] = [[1, 2, 30, 40, 0.9, 3], [5, 5, 20, 20, 0.2, 1]]
    found = detector("detect", args="{'nms': True}").detections([rows])
    assert found.boxes.tolist() == [[1, 2, 30, 40]] and found.classes.tolist() == [3]
    with pytest.raises(InvalidModelError) as caught:
        detector("detect", end2end=True).detections([results(0).numpy()])
    assert str(caught.value) == (
        "its metadata state the task 'detect' of 4 classes, whose boxes have 6 values; its results are 1x8x400. Export the model again."
    )


def test_shares_of_the_input_become_pixels() -> None:
    raw = results(6)
    pixels = detector("pose", kpt_shape=[2, 3]).detections([raw.numpy()])
    raw[:, [0, 2, 8, 11]] /= 96
    raw[:, [1, 3, 9, 12]] /= 64
    relative = Detector.of({"task": "pose", "names": NAMES, "imgsz": [64, 96], "kpt_shape": [2, 3]}, is_litert=True)
    assert relative is not None
    found = relative.detections([raw.numpy()])
    np.testing.assert_allclose(found.boxes, pixels.boxes, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found.keypoints, pixels.keypoints, rtol=1e-4, atol=1e-3)


def test_masks_cover_what_their_prototypes_do() -> None:
    """The left half of the prototypes is positive: the mask is the left half of the picture, cut to the box."""
    prototypes = np.ones((1, 2, 16, 24), np.float32)
    prototypes[..., 12:] = -1
    row = np.array([[48, 32, 96, 64, 0, 0.9, 0, 0, 1, 0.5]], np.float32).T[None]
    found = detector("segment").detections([row, prototypes])
    mask = masks(found.in_picture(128, 192, Letterbox.of(128, 192, 64, 96)), 128, 192)[0]
    assert mask[:, :92].all() and not mask[:, 100:].any()


@pytest.mark.parametrize("suppressed", [False, True])
@pytest.mark.parametrize("side", [16, 24])
def test_prototypes_of_a_tflite_have_their_number_last(side: int, suppressed: bool) -> None:
    """The masks are as wide as high, or not; their number may be that of the rows."""
    found = Detector.of(
        {"task": "segment", "names": NAMES, "imgsz": [64, 4 * side], "args": {"nms": suppressed}}, is_litert=True
    )
    assert found is not None
    for count in (8, 16):
        prototypes = np.random.default_rng(count).normal(size=(1, 16, side, count)).astype(np.float32)
        rows = np.full((1, 3, 6 + count), 0.5, np.float32)
        boxes = rows if suppressed else results(count).numpy()
        if suppressed and count == 16:  # nothing tells the two orders of axes apart
            continue
        made = found.detections([boxes, prototypes])
        np.testing.assert_array_equal(made.prototypes, np.moveaxis(prototypes[0], -1, 0))
        assert made.coefficients is not None and made.coefficients.shape[1] == count


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"imgsz": [64]}, "imgsz=[64], which is not 2"),
        ({"imgsz": "x"}, "imgsz='x', which is not 2"),
        ({"names": {"a": "b"}}, "names={'a': 'b'}, which is not 1"),
        ({"kpt_shape": [17]}, "kpt_shape=[17], which is not 2"),
        ({"kpt_shape": "17"}, "kpt_shape=17, which is not 2"),
    ],
)
def test_damaged_metadata_are_refused(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        Detector.of({"task": "pose", "names": NAMES, "imgsz": 64, **entry})
    assert str(caught.value) == f"its metadata have {words} whole numbers. Export the model again."


def test_results_of_two_pictures_are_refused() -> None:
    with pytest.raises(InvalidModelError) as caught:
        detector("detect").detections([np.repeat(results(0).numpy(), 2, 0)])
    assert str(caught.value) == (
        "its results are those of 2 pictures; boxes are read from a run on one. Export the model with batch=1."
    )


def test_other_metadata_are_no_detector() -> None:
    assert Detector.of({}) is None
    assert Detector.of({"task": "classify", "names": NAMES, "imgsz": [64, 64]}) is None
    with pytest.raises(InvalidModelError, match="raw heads"):
        detector("detect", head="raw")
