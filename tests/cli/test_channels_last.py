# SPDX-License-Identifier: BSD-3-Clause
"""``--channels-last``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openneutron.cli import main
from tests.support.litert_files import int16_file

MODEL = """
import torch


def model():
    pool = torch.nn.MaxPool2d(3, 2)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), pool, torch.nn.Conv2d(4, 4, 3), pool), (torch.zeros(1, 3, 32, 32),)
"""


def test_images_without_transposes_take_less_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(MODEL)
    least = {}
    for option in ("--channels-last", "--no-channels-last"):
        assert main(["pareto", f"{tmp_path / 'small.py'}:model", "--json", option]) == 0
        least[option] = json.loads(capsys.readouterr().out)["points"][0]["sram_bytes"]
    assert least["--channels-last"] < least["--no-channels-last"]


def test_it_is_for_pytorch_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(int16_file(0.1))
    assert main(["compile", str(file), "--channels-last"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("--channels-last: it is for PyTorch models; 'model.tflite' is a .tflite. Leave it out.")
    )
