# SPDX-License-Identifier: BSD-3-Clause
"""The bundle of a model that takes a camera's frames: its example has a camera with a picture, and gives the frame's memory to the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import openneutron
from openneutron import InputOptions
from openneutron.api.pytorch import CompiledModel
from tests.export.bundles import built, checked_on_the_host, constant_bytes, run
from tests.support.tools import required

CAMERA = InputOptions(format="uint8,nhwc,bgr", normalize="mean=0.485:0.456:0.406,std=0.229:0.224:0.225")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(2):
        values = np.random.default_rng(number).integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(values).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def model(pictures: Path) -> CompiledModel:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    made: CompiledModel = openneutron.compile(
        nn.Sequential(*layers).eval(), torch.zeros(1, 3, 12, 16), calibration=pictures, inputs=CAMERA, name="net"
    )
    return made


def test_the_examples_camera_has_a_picture_and_qemu_computes_what_the_host_does(
    model: CompiledModel, pictures: Path, tmp_path: Path
) -> None:
    required("qemu-system-arm")
    folder = tmp_path / "bundle"
    bundle = openneutron.export_bundle(model, folder)
    assert bundle.deployments[0].inputs[0].shape == (1, 12, 16, 3) and not bundle.deployments[0].inputs[0].is_permuted
    picture = np.asarray(Image.open(pictures / "0.png"))[..., ::-1]
    stored = constant_bytes(folder / "example/golden.c", "openneutron_golden_net_inputs0")
    assert stored[: picture.size] == picture.tobytes()
    assert "#define OPENNEUTRON_CAMERA 1" in (folder / "model/openneutron_models.h").read_text()
    built(folder, "-DOPENNEUTRON_WERROR=ON")
    done = run(folder)
    assert done.returncode == 0 and "output0: 4 of 4 bytes as expected" in done.stdout + done.stderr
    host = checked_on_the_host(folder, tmp_path)
    assert host.returncode == 0, host.stdout + host.stderr


def test_other_models_have_no_camera(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = openneutron.compile(nn.Linear(8, 4).eval(), torch.zeros(1, 8), calibration=[torch.rand(1, 8)], name="net")
    openneutron.export_bundle(plain, tmp_path / "bundle")
    assert not (tmp_path / "bundle/example/camera.h").exists()
