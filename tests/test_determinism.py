# SPDX-License-Identifier: BSD-3-Clause
"""The same compile in two processes that hash differently gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = ("1", "4711")

COMPILE_TFLITE = """
import sys
from pathlib import Path
from openneutron import litert
from openneutron.mixed import compile_file
path = Path(sys.argv[1])
made = compile_file(litert.read(path), path.name)
sys.stdout.buffer.write(made.to_bytes())
"""

COMPILE_MODULE = """
import sys
import openneutron
from openneutron.pytorch.source import models
model, example = models.get(sys.argv[1])
program = openneutron.compile(model, example, calibration=models.samples(sys.argv[1], 4))
program.save(sys.argv[2])
"""


def run(program: str, seed: str, *arguments: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    result = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr.decode()[-4000:]
    return result.stdout


@pytest.mark.parametrize("name", ["mobilenet_v2_224_random_int8", "mlperf_tiny_resnet8_int8"])
def test_the_same_tflite_gives_the_same_bytes(name: str, shared_models: Path) -> None:
    first, second = (run(COMPILE_TFLITE, seed, str(shared_models / f"{name}.tflite")) for seed in SEEDS)
    assert len(first) > 1000
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()


@pytest.mark.parametrize("name", ["resnet8", "ds_cnn"])
def test_the_same_module_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{seed}.pte" for seed in SEEDS]
    for seed, file in zip(SEEDS, files, strict=True):
        run(COMPILE_MODULE, seed, name, str(file))
    first, second = (file.read_bytes() for file in files)
    assert len(first) > 1000
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
