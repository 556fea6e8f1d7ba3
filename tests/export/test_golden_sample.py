# SPDX-License-Identifier: BSD-3-Clause
"""The preprocessing of the calibration data in a .pte and in its bundle, and golden inputs from data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import openneutron
from openneutron import DataOptions, QuantizationOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.device import pte
from openneutron.errors import InvalidOptionError
from tests.export.bundles import constant_bytes

STEPS = "resize=8,crop=8,mean=0.5"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(3):
        values = np.random.default_rng(number).integers(0, 256, (9, 12, 3), np.uint8)
        Image.fromarray(values).save(folder / f"{number}.png")
    return folder


def compiled(pictures: Path, io_dtype: str = "float32") -> CompiledModel:
    torch.manual_seed(0)
    return openneutron.compile(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(),
        torch.zeros(1, 3, 8, 8),
        calibration=pictures,
        data=DataOptions(preprocess=STEPS),
        quantization=QuantizationOptions(io_dtype=io_dtype),
        name="net",
    )


@pytest.fixture(scope="module")
def model(pictures: Path) -> CompiledModel:
    return compiled(pictures)


def test_the_file_states_the_preprocessing(model: CompiledModel, tmp_path: Path) -> None:
    assert pte.stated(pte.methods(model.buffer), pte.PREPROCESSING) == STEPS
    assert pte.stated(pte.methods(model.recompile(effort="high").buffer), pte.PREPROCESSING) == STEPS
    model.save(tmp_path / "net.pte")
    loaded = openneutron.load(tmp_path / "net.pte")
    assert loaded.preprocessing == loaded.report.to_dict()["preprocessing"] == STEPS
    assert f"Calibrated  on data after {STEPS}" in loaded.summary()
    np.testing.assert_array_equal(loaded.run(torch.ones(1, 3, 8, 8))[0], model.run(torch.ones(1, 3, 8, 8))[0])


@pytest.mark.parametrize("io_dtype", ["float32", "int8"])
def test_the_golden_input_is_the_first_calibration_sample(io_dtype: str, pictures: Path, tmp_path: Path) -> None:
    model = compiled(pictures, io_dtype)
    openneutron.export_bundle(model, tmp_path / "bundle")
    golden = tmp_path / "bundle/example/golden.c"
    stored = np.frombuffer(constant_bytes(golden, "openneutron_golden_net_inputs0"), np.int8)[: 3 * 8 * 8]
    output = np.frombuffer(constant_bytes(golden, "openneutron_golden_net_outputs0"), np.int8)[: 8 * 6 * 6]
    if io_dtype == "int8":
        (result,) = model.run(stored.reshape(1, 3, 8, 8))
        np.testing.assert_array_equal(result.numpy().ravel(), output)
    else:
        (result,) = model.run(torch.from_numpy(model.calibrated.sample[0]))
        steps = np.unique(result)
        assert np.unique(output).tolist() == np.unique(np.rint(steps / np.diff(steps).min()) - 128).tolist()
    words = (tmp_path / "bundle/README.md").read_text()
    assert f"golden inputs (the first calibration sample after `{STEPS}`)" in words
    assert f"calibrated on data after the preprocessing `{STEPS}`." in words


def test_golden_data_for_a_file_go_through_its_preprocessing(
    model: CompiledModel, pictures: Path, tmp_path: Path
) -> None:
    model.save(tmp_path / "net.pte")
    openneutron.export_bundle(model, tmp_path / "first")
    openneutron.export_bundle(tmp_path / "net.pte", tmp_path / "second", golden=pictures)
    name = "openneutron_golden_net_inputs0"
    inputs = [constant_bytes(tmp_path / folder / "example/golden.c", name) for folder in ("first", "second")]
    assert inputs[0] == inputs[1]
    assert f"golden inputs (`0.png` after `{STEPS}`)" in (tmp_path / "second/README.md").read_text()
    other = DataOptions(preprocess="resize=8x8,scale=1")
    openneutron.export_bundle(tmp_path / "net.pte", tmp_path / "third", golden=str(pictures), data=other)
    assert constant_bytes(tmp_path / "third/example/golden.c", name) != inputs[0]


def test_without_golden_data_a_file_gets_random_inputs(model: CompiledModel, tmp_path: Path) -> None:
    model.save(tmp_path / "net.pte")
    openneutron.export_bundle(tmp_path / "net.pte", tmp_path / "bundle")
    assert "golden inputs (random values)" in (tmp_path / "bundle/README.md").read_text()


def test_golden_data_that_do_not_fit(model: CompiledModel, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.export_bundle(model, tmp_path / "bundle", golden=pictures, data=DataOptions(preprocess="crop=5"))
    assert str(caught.value).startswith(
        f"--golden: 3 of the 3 files of '{pictures}' can't be used: '{pictures / '0.png'}': it has 5x5 pixels after the preprocessing; "
        "the model takes 8x8 pixels; "
    )
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.export_bundle(model, tmp_path / "bundle", data=DataOptions(preprocess="crop=5"))
    assert str(caught.value) == "preprocess: there is no golden input that it is about. Give golden too."
