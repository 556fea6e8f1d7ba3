# SPDX-License-Identifier: BSD-3-Clause
"""A folder that Ultralytics predicts and validates with, from its own export to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.ultralytics import export, write

SIZE = 64
LAYERS = """
nc: 2
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C2f, [16, True]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, SPPF, [16, 5]]
head:
  - [-1, 1, nn.Upsample, [None, 2, "nearest"]]
  - [[-1, 2], 1, Concat, [1]]
  - [-1, 1, C2f, [16]]
  - [[7, 4], 1, Detect, [nc]]
"""


def data_set(folder: Path, count: int) -> Path:
    """Write pictures of 80 by 60 pixels with a rectangle each, and labels; return the path of data.yaml."""
    random = np.random.default_rng(0)
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        picture = Image.new("RGB", (80, 60), tuple(random.integers(0, 90, 3).tolist()))
        width, height = random.integers(16, 40, 2).tolist()
        x, y = int(random.integers(0, 80 - width)), int(random.integers(0, 60 - height))
        ImageDraw.Draw(picture).rectangle([x, y, x + width, y + height], tuple(random.integers(150, 255, 3).tolist()))
        picture.save(folder / "images" / f"{number:02}.png")
        box = (x + width / 2) / 80, (y + height / 2) / 60, width / 80, height / 60
        (folder / "labels" / f"{number:02}.txt").write_text(f"{number % 2} {' '.join(map(str, box))}")
    path = folder / "data.yaml"
    path.write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [cup, plate]\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The model of Ultralytics with random weights, and the folder of its ONNX file."""
    from ultralytics import YOLO

    folder = tmp_path_factory.mktemp("made")
    (folder / "small.yaml").write_text(LAYERS)
    torch.manual_seed(0)
    model = YOLO(folder / "small.yaml")
    model.model.train()
    with torch.no_grad():
        model.model(torch.rand(4, 3, SIZE, SIZE))
    model.model.eval()
    for layer in model.model.model[-1].cv3:
        torch.nn.init.normal_(layer[-1].weight, std=0.3)
        torch.nn.init.zeros_(layer[-1].bias)
    model.model.pt_path = model.ckpt_path = str(folder / "small.pt")
    exported = model.export(format="onnx", imgsz=SIZE, simplify=False, verbose=False)
    calibration = [torch.rand(1, 3, SIZE, SIZE) for _ in range(4)]
    return model, export(exported, folder / "small_executorch_model", calibration=calibration)


def test_it_predicts_and_validates(made: tuple[Any, Path], tmp_path: Path) -> None:
    from ultralytics import YOLO

    model, folder = made
    program = openneutron.load(folder / "model.pte")
    assert len(program.programs) == 1 and program.metadata["task"] == "detect"
    data = data_set(tmp_path / "data", 20)
    on_npu = YOLO(folder)
    picture = tmp_path / "data" / "images" / "00.png"
    (found,), (wanted,) = (one.predict(picture, conf=0.4, imgsz=SIZE, verbose=False) for one in (on_npu, model))
    assert len(found.boxes) and abs(len(found.boxes) - len(wanted.boxes)) <= 0.25 * len(wanted.boxes)
    measured = on_npu.val(data=str(data), plots=False, verbose=False, project=str(tmp_path))
    assert measured.nt_per_class.sum() == 20


def test_folders_that_ultralytics_would_not_know(made: tuple[Any, Path], tmp_path: Path) -> None:
    program = openneutron.load(made[1] / "model.pte")
    with pytest.raises(InvalidOptionError) as caught:
        write(program, tmp_path / "small")
    assert str(caught.value) == (
        "folder: 'small' does not end with _executorch_model, by which Ultralytics knows a .pte. Call it 'small_executorch_model'."
    )
    plain = openneutron.compile(
        torch.nn.Conv2d(3, 4, 1), (torch.rand(1, 3, 4, 4),), calibration=[torch.rand(1, 3, 4, 4)]
    )
    assert isinstance(plain, CompiledModel)
    with pytest.raises(InvalidModelError) as refused:
        write(plain)
    assert str(refused.value) == (
        "'model' has no metadata of Ultralytics. Compile the YOLO object, its .pt, or its export to ONNX."
    )
