# SPDX-License-Identifier: BSD-3-Clause
"""A compiled classifier as a .tflite, and samples with labels for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import litert
from openneutron.api.litert import CompiledLiteRTModel
from scripts.published_networks import cifarnet

SAMPLES = 70
CLASSES = 10


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cifarnet.tflite and labelled.npz."""
    path = tmp_path_factory.mktemp("evaluation")
    (path / "cifarnet.tflite").write_bytes(litert.write(cifarnet()))
    generator = np.random.default_rng(1)
    images = generator.normal(0, 1, (SAMPLES, 32, 32, 3)).astype(np.float32)
    np.savez(path / "labelled.npz", input0=images, labels=np.arange(SAMPLES) % CLASSES)
    return path


@pytest.fixture(scope="package")
def program(folder: Path) -> CompiledLiteRTModel:
    made = openneutron.compile(folder / "cifarnet.tflite")
    assert isinstance(made, CompiledLiteRTModel)
    return made
