# SPDX-License-Identifier: BSD-3-Clause
"""Mean average precision of a detector whose boxes are known, on data with COCO's annotations and on a data.yaml."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import openneutron
from openneutron.api.load import LoadedFile
from openneutron.api.pytorch import CompiledModel
from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.pytorch.source.exporting import Staged
from tests.support.one_box import METADATA, OneBox, one_box

DOG, CAT = [16, 16, 32, 16], [0, 0, 10, 10]
"""Boxes x, y, width, height in pictures of 64 by 48 pixels. The detector finds a dog at the first one, twice as large as in its input."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> LoadedFile:
    path = tmp_path_factory.mktemp("program") / "net.pte"
    one_box().save(path)
    return openneutron.load(path)


def coco(folder: Path, boxes: list[tuple[int, list[int]]], names: tuple[str, ...] = ("dog", "cat")) -> Path:
    """Write two pictures with the same boxes, each with the number of its category, and their annotations."""
    images, annotations = [], list[dict[str, Any]]()
    (folder / "val").mkdir()
    for number in range(2):
        Image.new("RGB", (64, 48), (40, 80, 120)).save(folder / "val" / f"{number}.png")
        images.append({"id": 7 + number, "file_name": f"{number}.png", "height": 48, "width": 64})
        for category, box in boxes:
            row = {
                "id": len(annotations) + 1,
                "image_id": 7 + number,
                "category_id": category,
                "bbox": box,
                "iscrowd": 0,
            }
            annotations.append({**row, "area": box[2] * box[3]})
    categories = [{"id": 10 * place, "name": name} for place, name in enumerate(names, 1)]
    (folder / "annotations").mkdir()
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations" / "instances_val.json").write_text(json.dumps(content))
    return folder


def measured(program: LoadedFile, data: Path) -> tuple[float, float]:
    found = openneutron.evaluate(program, data, workers=1)
    assert found.metric == "map" and found.samples == 2
    side = found.side("npu")
    assert side is not None and side.metric is not None and side.metric_at_50 is not None
    assert "mAP50-95" in found.summary() and found.to_dict()["sides"][0]["metric_at_50"] == side.metric_at_50
    return side.metric, side.metric_at_50


def test_all_boxes_found_are_1_and_half_of_the_classes_a_half(program: LoadedFile, tmp_path: Path) -> None:
    """The classes are matched by their names: the data have them in another order than the model."""
    (tmp_path / "one").mkdir()
    mean, at_50 = measured(program, coco(tmp_path / "one", [(10, DOG)]))
    assert at_50 == pytest.approx(1) and mean > 0.8
    (tmp_path / "two").mkdir()
    both = coco(tmp_path / "two", [(10, DOG), (20, CAT)])
    assert measured(program, both)[1] == pytest.approx(0.5)
    assert measured(program, both / "annotations" / "instances_val.json")[1] == pytest.approx(0.5)
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
    for number in range(2):
        Image.new("RGB", (64, 48), (40, 80, 120)).save(tmp_path / "images" / f"{number}.png")
        (tmp_path / "labels" / f"{number}.txt").write_text("1 0.5 0.5 0.5 0.33333\n0 0 0 0.15 0 0.15 0.2\n")
    (tmp_path / "data.yaml").write_text("path: .\nval: images\nnames: {0: cat, 1: dog}\n")
    assert measured(program, tmp_path / "data.yaml")[1] == pytest.approx(0.5)


class Parts(nn.Module):
    """The network of a detector in two stages, the second of which stays float."""

    def __init__(self) -> None:
        super().__init__()
        self.body = OneBox().body

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.body(images),)


def test_the_sides_beside_the_npu_have_the_steps_that_stay_float(tmp_path: Path) -> None:
    model = Staged(Parts(), (torch.rand(1, 3, 32, 32),), nn.Flatten(2), METADATA)
    program = openneutron.compile(model, calibration=[torch.rand(1, 3, 32, 32)])
    assert isinstance(program, CompiledModel)
    found = openneutron.evaluate(program, coco(tmp_path, [(10, DOG)]), model=model, workers=1)
    assert [side.side for side in found.sides] == ["float", "int8", "npu"]
    assert [side.metric_at_50 for side in found.sides] == pytest.approx([1, 1, 1])


def test_data_that_can_not_be_measured(program: LoadedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(data: Path, **options: Any) -> str:
        with pytest.raises(InvalidOptionError) as caught:
            openneutron.evaluate(program, data, workers=1, **options)
        return str(caught.value)

    folder = coco(tmp_path, [(10, DOG)], ("dog", "cow", "cat"))
    assert refused(folder) == (
        "metric: the data have the class 'cow', which the model does not know; it has 2 classes, the data have 3. Give data with the "
        "model's classes."
    )
    assert refused(folder, preprocess="resize=32x32") == (
        f"preprocess: the labels of '{folder}' are boxes, which take a letterbox. Add letterbox=SIZE."
    )
    (folder / "annotations" / "instances_train.json").write_text("{}")
    assert refused(folder) == (
        f"data: '{folder}' has 2 files of annotations, such as 'annotations/instances_train.json', 'annotations/instances_val.json'. "
        "Give one of them in the folder's place."
    )
    assert refused(folder / "annotations" / "instances_train.json") == (
        f"data: '{folder / 'annotations' / 'instances_train.json'}' has no COCO annotations: the lists images, annotations, categories."
    )
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(MissingToolError) as caught:
        openneutron.evaluate(program, folder / "annotations" / "instances_val.json", workers=1)
    assert str(caught.value) == (
        "The metric map takes pycocotools, which is not installed: pip install 'openneutron[coco]'."
    )
