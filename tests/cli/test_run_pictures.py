# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run`` with pictures, and the boxes of a detector in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Command
from tests.support.one_box import METADATA, one_box


@pytest.fixture(scope="module")
def detector() -> bytes:
    program = one_box()
    assert program.metadata == METADATA
    return program.buffer


@pytest.fixture
def file(detector: bytes, folder: Path) -> str:
    (folder / "net.pte").write_bytes(detector)
    Image.new("RGB", (64, 48), (40, 80, 120)).save(folder / "street.png")
    return "net.pte"


def test_boxes_are_listed_and_drawn(openneutron: Command, file: str, folder: Path) -> None:
    """The picture is half as large in the network's input, 4 pixels below the top, so that the box is twice as large in the picture."""
    ended = openneutron("run", file, "--input", "street.png", "--plot", "boxes.png", "--json")
    assert (ended.code, ended.err) == (0, "")
    (found,) = json.loads(ended.out)["objects"]
    assert found["class"] == "dog" and abs(found["score"] - 0.75) < 0.1
    np.testing.assert_allclose(found["box"], [16, 16, 48, 32], atol=0.6)
    before, after = (np.asarray(Image.open(folder / name)).astype(int) for name in ("street.png", "boxes.png"))
    changed = (before != after).any(-1)
    assert changed[24, 16] and changed[32, 30] and not changed[24, 24:40].any() and not changed[40:].any()
    lines = openneutron("run", file, "--input", "street.png").out.splitlines()
    assert lines[-2].split() == ["object", "score", "x1", "y1", "x2", "y2"]
    assert lines[-1].split()[0] == "dog"


def test_a_picture_gives_the_bytes_of_its_array(openneutron: Command, file: str, folder: Path) -> None:
    values = np.full((32, 32, 3), 114, np.float32)
    values[4:28] = (40, 80, 120)
    np.save(folder / "x.npy", (values / np.float32(255)).transpose(2, 0, 1)[np.newaxis])
    rows = [json.loads(openneutron("run", file, "--input", name, "--json").out) for name in ("x.npy", "street.png")]
    assert rows[0]["outputs"] == rows[1]["outputs"] and rows[0]["objects"] is None


def test_pictures_that_can_not_be_used(
    refused: Callable[..., str], openneutron: Command, file: str, folder: Path
) -> None:
    def said(*arguments: str) -> str:
        return refused("run", file, *arguments)

    assert said("--input", "none.png") == "--input: 'none.png' does not exist."
    (folder / "no.png").write_text("no picture")
    assert said("--input", "no.png") == (
        "--input no.png: it is no picture that Pillow can read. Give a picture of this size, or a .npy file."
    )
    assert said("--input", "street.png", "--plot", "boxes.gif") == (
        "--plot: 'boxes.gif' is no picture's name; it ends with .png, .jpg or .bmp."
    )
    assert said("--random", "1", "--plot", "boxes.png") == (
        "--plot: there is no picture to draw into. Give one with --input."
    )
    openneutron("compile", "mixed.tflite")
    assert refused("run", "mixed_neutron.tflite", "--input", "street.png", "--plot", "boxes.png") == (
        "--plot: 'mixed_neutron.tflite' has no metadata of a detector, which a file of Ultralytics has. Leave --plot out."
    )
