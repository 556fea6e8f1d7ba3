# SPDX-License-Identifier: BSD-3-Clause
"""The demo's parts, on a few images and without the training that takes a minute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from demo import digits, main_job
from demo.digits import Digits
from demo.train import train
from openneutron.cli import main as openneutron_command
from openneutron.cli.output import Steps
from openneutron.pytorch.source.models.small import CifarNet

TRAINED, TESTED = 64, 12


@pytest.fixture(scope="module")
def data() -> Digits:
    whole = digits.load(main_job.SEED)
    assert len(whole.train) + len(whole.test) == 1797
    return Digits(whole.train[:TRAINED], whole.train_labels[:TRAINED], whole.test[:TESTED], whole.test_labels[:TESTED])


def test_it_starts(root: Path) -> None:
    command = [sys.executable, "-m", "demo", "--help"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "--qat" in done.stdout and done.stderr == ""


def test_images_are_of_the_networks_size(data: Digits) -> None:
    assert data.train.shape[1:] == (3, 32, 32)
    assert float(data.train.min()) == -1 and float(data.train.max()) == 1


def test_every_way_of_running_it(data: Digits, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = CifarNet()
    batches = []
    train(model, data.train, data.train_labels, 0, lambda: batches.append(1))
    assert batches and not model.training
    steps = Steps(quiet=True)
    program = main_job.compiled(model, data, steps)
    classes = main_job.classify(model, program, data, steps)
    assert {len(found) for found in classes.values()} == {TESTED}
    assert torch.equal(classes[main_job.INT8], classes[main_job.NPU])

    # The command that the demo prints, on the files that it writes.
    program.save(tmp_path / "cifarnet.pte")
    np.save(tmp_path / "x.npy", data.test[:1].numpy())
    result = tmp_path / "result"
    command = ["run", str(tmp_path / "cifarnet.pte"), "--input", str(tmp_path / "x.npy"), "--output", str(result)]
    assert openneutron_command(command) == 0
    written = np.load(result / "output0.npy")
    np.testing.assert_array_equal(written, program.run(data.test[:1])[0].numpy())
