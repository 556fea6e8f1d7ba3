# SPDX-License-Identifier: BSD-3-Clause
"""The same compile in processes that hash differently gives the same bytes: one of a fixed seed, and the tests' own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import openneutron
from openneutron import litert
from openneutron.device.mixed import compile_file
from openneutron.pytorch.source import models

ROOT = Path(__file__).parents[1]
SEED = "4711"
FILES = ("mobilenet_v2_224_random_int8", "mlperf_tiny_resnet8_int8")
MODULES = ("resnet8", "ds_cnn")


def compiled_file(path: Path) -> bytes:
    return compile_file(litert.read(path), path.name).to_bytes()


def compiled_module(name: str, folder: Path) -> bytes:
    model, example = models.get(name)
    openneutron.compile(model, example, calibration=models.samples(name, 4)).save(folder / f"{name}.pte")
    return (folder / f"{name}.pte").read_bytes()


def main(shared_models: Path, folder: Path) -> None:
    """Compile everything in this process into the folder."""
    for name in FILES:
        (folder / f"{name}.bin").write_bytes(compiled_file(shared_models / f"{name}.tflite"))
    for name in MODULES:
        compiled_module(name, folder)


@pytest.fixture(scope="module")
def elsewhere(shared_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what a process with ``SEED`` compiled."""
    folder = tmp_path_factory.mktemp("elsewhere")
    command = [sys.executable, "-W", "ignore", "-m", "tests.test_determinism", str(shared_models), str(folder)]
    environment = {**os.environ, "PYTHONHASHSEED": SEED}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_the_processes_hash_differently() -> None:
    """The tests' own process hashes at random, or by another seed."""
    assert os.environ.get("PYTHONHASHSEED") not in (SEED, "0")


@pytest.mark.parametrize("name", FILES)
def test_the_same_tflite_gives_the_same_bytes(name: str, shared_models: Path, elsewhere: Path) -> None:
    made = compiled_file(shared_models / f"{name}.tflite")
    assert len(made) > 1000
    assert made == (elsewhere / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("name", MODULES)
def test_the_same_module_gives_the_same_bytes(name: str, elsewhere: Path, tmp_path: Path) -> None:
    made = compiled_module(name, tmp_path)
    assert len(made) > 1000
    assert made == (elsewhere / f"{name}.pte").read_bytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
