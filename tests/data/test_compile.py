# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of openneutron.compile with data as people have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import openneutron
from openneutron import DataOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.errors import InvalidOptionError

EXAMPLE = torch.zeros(1, 3, 8, 8)
STEPS = "crop=8,mean=0.5,std=0.25"


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for number in range(4):
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), np.uint8)).save(made / f"{number}.png")
    return made


@pytest.fixture(scope="module")
def inputs(folder: Path) -> torch.Tensor:
    """Return the pictures of the folder after the preprocessing."""
    pixels = np.stack([np.asarray(Image.open(path)) for path in sorted(folder.iterdir())])
    return (torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25


@pytest.fixture(scope="module")
def expected(model: nn.Module, inputs: torch.Tensor) -> CompiledModel:
    return openneutron.compile(model, EXAMPLE, calibration=list(inputs.split(1)))


def test_a_folder_of_pictures(model: nn.Module, folder: Path, inputs: torch.Tensor, expected: CompiledModel) -> None:
    steps: list[tuple[str, int, int]] = []
    made = openneutron.compile(
        model,
        EXAMPLE,
        calibration=folder,
        data=DataOptions(preprocess=STEPS),
        progress=lambda *step: steps.append(step),
    )
    assert made.quantized(inputs[:1]).equal(expected.quantized(inputs[:1]))
    assert made.calibrated.preprocessing == STEPS
    np.testing.assert_array_equal(made.calibrated.sample[0], inputs[:1])
    assert ("Calibrating", 4, 4) in steps


@pytest.mark.parametrize("labelled", [False, True])
def test_a_dataset_and_a_loader(
    labelled: bool, model: nn.Module, inputs: torch.Tensor, expected: CompiledModel
) -> None:
    dataset = TensorDataset(inputs, torch.arange(4)) if labelled else TensorDataset(inputs)
    for given in (dataset, DataLoader(dataset, batch_size=3)):
        made = openneutron.compile(model, EXAMPLE, calibration=given)
        assert made.buffer == expected.buffer
        assert (made.calibrated.preprocessing, len(made.calibrated.sample)) == ("", 1)


def test_a_limit(model: nn.Module, inputs: torch.Tensor) -> None:
    some = openneutron.compile(model, EXAMPLE, calibration=[inputs[:1], inputs[2:3]])
    dataset = TensorDataset(inputs)
    made = openneutron.compile(model, EXAMPLE, calibration=dataset, data=DataOptions(calibration_samples=2))
    assert made.buffer == some.buffer


@pytest.mark.parametrize(
    ("calibration", "data", "words"),
    [
        ("nowhere", {}, "calibration: 'nowhere' does not exist."),
        (None, {"preprocess": STEPS}, "preprocess: there is no calibration data that it is about. Pass calibration too."),
        ([EXAMPLE], {"sample_rate": 8000}, "sample_rate: it is for WAV files, not for items of a loader. Leave it out."),
        (TensorDataset(EXAMPLE), {"preprocess": "croop=8"}, "preprocess: 'croop' is no step; there are color, resize, interpolation, crop, "
         "letterbox, sample_rate, length, scale, mean, std. Did you mean 'crop'?"),
        (TensorDataset(torch.zeros(1, 4)), {}, "calibration: 'item 0': it is float32[4]; the model takes float32[1,3,8,8], one sample or "
         "several along the first axis."),
    ],
)  # fmt: skip
def test_data_that_does_not_fit(calibration: object, data: dict[str, object], words: str, model: nn.Module) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(model, EXAMPLE, calibration=calibration, data=DataOptions(**data))
    assert str(caught.value) == words


def test_data_of_a_wrong_size(model: nn.Module, folder: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(model, torch.zeros(1, 3, 9, 9), calibration=str(folder))
    assert str(caught.value).endswith("; and 1 more. Give a size, for instance preprocess='resize=9,crop=9'.")
