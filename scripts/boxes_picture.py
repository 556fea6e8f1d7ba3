# SPDX-License-Identifier: BSD-3-Clause
"""Draw docs/assets/boxes.png: what a small detector finds in a picture. ``python -m scripts.boxes_picture``

The detector is trained here on pictures of three shapes, since the weights of Ultralytics' own detectors are no part of this
project. It needs Ultralytics (``pip install ultralytics``), which brings torchvision.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from openneutron.cli import main

RESULT = Path(__file__).parents[1] / "docs" / "assets" / "boxes.png"

NAMES = ("ellipse", "rectangle", "triangle")

LAYERS = """
nc: 3
backbone:
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, C2f, [32, True]]
  - [-1, 1, Conv, [64, 3, 2]]
  - [-1, 1, C2f, [64, True]]
  - [-1, 1, Conv, [64, 3, 2]]
  - [-1, 1, C2f, [64, True]]
head:
  - [-1, 1, nn.Upsample, [None, 2, nearest]]
  - [[-1, 4], 1, Concat, [1]]
  - [-1, 1, C2f, [64]]
  - [[9, 6], 1, Detect, [nc]]
"""

SIZE, PICTURES, EPOCHS = 128, 256, 24


def scene(random: np.random.Generator, size: int, most: int) -> tuple[Image.Image, list[str]]:
    """Return a picture of up to ``most`` shapes that do not touch, and the lines of its labels."""
    picture = Image.fromarray(random.integers(0, 120, (8, 8, 3), np.uint8)).resize(
        (size, size), Image.Resampling.BICUBIC
    )
    draw, taken, lines = ImageDraw.Draw(picture), list[tuple[float, float, float, float]](), []
    for _ in range(4 * most):
        width, height = random.uniform(0.19, 0.4, 2) * size
        x, y = random.uniform(0, size - width), random.uniform(0, size - height)
        if any(x < c and a < x + width and y < d and b < y + height for a, b, c, d in taken) or len(lines) == most:
            continue
        taken.append((x, y, x + width, y + height))
        number = int(random.integers(len(NAMES)))
        colour = tuple(random.integers(120, 256, 3).tolist())
        corners = [x, y, x + width, y + height]
        if number == 0:
            draw.ellipse(corners, colour)
        elif number == 1:
            draw.rectangle(corners, colour)
        else:
            draw.polygon([(x + width / 2, y), (x, y + height), (x + width, y + height)], colour)
        box = (x + width / 2, y + height / 2, width, height)
        lines.append(f"{number} {' '.join(f'{value / size:.6f}' for value in box)}")
    return picture, lines


def draw_boxes() -> None:
    """Train the detector, compile its ``.pt``, run it on a picture and draw the boxes."""
    from ultralytics import YOLO

    random = np.random.default_rng(0)
    for part in ("images", "labels"):
        Path(part).mkdir()
    for number in range(PICTURES):
        picture, lines = scene(random, SIZE, 3)
        picture.save(f"images/{number}.png")
        Path(f"labels/{number}.txt").write_text("\n".join(lines))
    names = ", ".join(NAMES)
    Path("data.yaml").write_text(f"path: {Path.cwd()}\ntrain: images\nval: images\nnames: [{names}]\n")
    Path("shapes.yaml").write_text(LAYERS)
    scene(np.random.default_rng(5), 480, 6)[0].save("street.png")
    settings = {"imgsz": SIZE, "epochs": EPOCHS, "batch": 16, "workers": 0, "val": False, "plots": False, "mosaic": 0.0}
    rates = {"optimizer": "AdamW", "lr0": 0.004, "warmup_epochs": 1, "scale": 0.2, "translate": 0.05, "amp": False}
    model = YOLO("shapes.yaml")
    model.train(data="data.yaml", project=str(Path.cwd()), name="trained", seed=0, verbose=False, **settings, **rates)
    weights = "trained/weights/last.pt"
    calibration = ("--calibration", "images", "--calibration-samples", "32", "--preprocess", f"letterbox={SIZE}")
    for command in (
        ("compile", weights, *calibration, "-o", "shapes.pte"),
        ("run", "shapes.pte", "--input", "street.png", "--plot", str(RESULT)),
    ):
        code = main(command)
        if code:
            sys.exit(code)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        draw_boxes()
