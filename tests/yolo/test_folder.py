# SPDX-License-Identifier: BSD-3-Clause
"""A folder that Ultralytics predicts and validates with, from its own export to ONNX: the code of the page."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.ultralytics import write

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ultralytics.md"


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
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], str]]:
    """The names and the output of the page's code, which ran in a folder with a picture and 20 labelled ones."""
    folder = tmp_path_factory.mktemp("made")
    names: dict[str, Any] = {}
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as changes, redirect_stdout(output):
        changes.chdir(folder)
        data_set(folder, 20)
        shutil.copy("images/00.png", "street.png")
        for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
            exec(compile(code, str(PAGE), "exec"), names)
        yield names, output.getvalue()


def test_the_page_predicts_and_validates(made: tuple[dict[str, Any], str]) -> None:
    from ultralytics import YOLO

    names, output = made
    program = openneutron.load(names["folder"] / "model.pte")
    assert len(program.programs) == 1 and program.metadata["task"] == "detect"
    (found,), (wanted,) = (
        one.predict("street.png", conf=0.4, imgsz=64, verbose=False) for one in (YOLO(names["folder"]), names["model"])
    )
    assert abs(len(found.boxes) - len(wanted.boxes)) <= 0.25 * len(wanted.boxes) and len(found.boxes)
    assert re.fullmatch(r"0\.\d+|0|1\.0", output.splitlines()[-1])


def test_folders_that_ultralytics_would_not_know(made: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    program = openneutron.load(made[0]["folder"] / "model.pte")
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
