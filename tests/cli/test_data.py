# SPDX-License-Identifier: BSD-3-Clause
"""Pictures, sounds and loaders on the command line."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import openneutron as package
from tests.cli.conftest import Command
from tests.support.litert_files import int16_file

NET = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), (torch.zeros(1, 3, 8, 8),)

def sound():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 4), nn.ReLU()).eval(), (torch.zeros(1, 16),)

def loader():
    for number in range(4):
        yield torch.full((3, 8, 8), float(number)), number
"""
STEPS = ("--preprocess", "resize=8,crop=8,mean=0.5,std=0.5")


@pytest.fixture
def data(folder: Path) -> Path:
    """The current folder, with net.py, pictures/ in two classes, and sounds/."""
    (folder / "net.py").write_text(NET)
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            values = generator.integers(0, 256, (9, 12, 3), np.uint8)
            Image.fromarray(values).save(folder / "pictures" / name / f"{number}.png")
    (folder / "sounds").mkdir()
    with wave.open(str(folder / "sounds" / "a.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(generator.integers(-9999, 9999, 6, np.int16).tobytes())
    return folder


def test_a_folder_of_pictures_and_its_bundle(openneutron: Command, data: Path) -> None:
    calibration = ("--calibration", "pictures", *STEPS, "--calibration-samples", "2")
    said = openneutron("compile", "net.py:net", *calibration, "-o", "net.pte")
    assert said.code == 0 and "Give them with --calibration" not in said.err
    assert package.load("net.pte").preprocessing == STEPS[1]
    assert openneutron("export", "net.pte", "--to", "bundle", "--golden", "pictures").code == 0
    assert f"golden inputs (`cat/0.png` after `{STEPS[1]}`)" in (data / "bundle/README.md").read_text()


def test_sounds_and_loaders(openneutron: Command, data: Path) -> None:
    sound = ("--calibration", "sounds", "--sample-rate", "16000", "--preprocess", "length=16")
    assert openneutron("compile", "net.py:sound", *sound, "-o", "sound.pte", "-q").code == 0
    assert package.load("sound.pte").preprocessing == "sample_rate=16000,length=16"
    assert openneutron("compile", "net.py:net", "--calibration", "net.py:loader", "-o", "net.pte", "-q").code == 0
    assert package.load("net.pte").preprocessing == ""


def test_bad_data_is_one_clear_error(refused: Callable[..., str], data: Path) -> None:
    (data / "empty").mkdir()
    expected = {
        ("--calibration", "pictures", "--preprocess", "crop=99"): (
            "--calibration: 6 of the 6 files of 'pictures' can't be used: 'pictures/cat/0.png': it has 9x12 pixels, less than the crop "
            "of 99x99 pixels; 'pictures/cat/1.png': it has 9x12 pixels, less than the crop of 99x99 pixels; 'pictures/cat/2.png': it "
            "has 9x12 pixels, less than the crop of 99x99 pixels; and 3 more."
        ),
        STEPS: "--preprocess: there is no calibration data that it is about. Give --calibration too.",
        ("--sample-rate", "8"): "--sample-rate: there is no calibration data that it is about. Give --calibration too.",
        (
            "--calibration",
            "pictures",
            "--calibration-samples",
            "0",
        ): "--calibration-samples: it is 0; it is at least 1.",
        ("--calibration", "net.py:lader"): "'net.py' has no function 'lader'. Did you mean 'loader'?",
        ("--calibration", "pictures", "--preprocess", "scale=x"): (
            "--preprocess: 'scale=x' can't be read: scale is a number above 0, or a quotient such as 1/255."
        ),
    }
    for arguments, message in expected.items():
        assert refused("compile", "net.py:net", *arguments) == message
    (data / "net.tflite").write_bytes(int16_file(0.1))
    assert refused("compile", "net.tflite", "--calibration-samples", "4") == (
        "--calibration-samples: it is for float models; 'net.tflite' is quantized and has its own types. Leave it out."
    )
