# SPDX-License-Identifier: BSD-3-Clause
"""The demo's parts, on a few images and without the training that takes a minute, and what its command prints of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from openneutron.cli import main as openneutron_command
from openneutron.pytorch.source.models.small import CifarNet
from scripts.json_schema import schema
from tests.support.json_schema import violations

if TYPE_CHECKING:
    from openneutron.features.demo.main_job import Digits, Outcome

TRAINED, TESTED = 64, 12


def silent(step: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def main_job() -> Any:
    """The module of the job, which imports scikit-learn."""
    from openneutron.features.demo import main_job

    return main_job


@pytest.fixture(scope="module")
def data(main_job: Any) -> Digits:
    from openneutron.features.demo.main_job import Digits

    whole = main_job.load(main_job.SEED)
    assert len(whole.train) + len(whole.test) == 1797
    return Digits(whole.train[:TRAINED], whole.train_labels[:TRAINED], whole.test[:TESTED], whole.test_labels[:TESTED])


@pytest.fixture(scope="module")
def outcome(main_job: Any, data: Digits) -> Outcome:
    """The outcome of the job on a few images."""
    torch.manual_seed(0)
    model = CifarNet()
    batches = []
    main_job.train(model, data.train, data.train_labels, 0, lambda: batches.append(1))
    assert batches and not model.training
    program = main_job.compiled(model, data, silent)
    return main_job.Outcome(data, program, main_job.classify(model, program, data, silent))


def test_images_are_of_the_networks_size(data: Digits) -> None:
    assert data.train.shape[1:] == (3, 32, 32)
    assert float(data.train.min()) == -1 and float(data.train.max()) == 1


def test_every_way_of_running_it(main_job: Any, outcome: Outcome) -> None:
    assert {len(found) for found in outcome.classes.values()} == {TESTED}
    assert torch.equal(outcome.classes[main_job.INT8], outcome.classes[main_job.NPU])
    assert outcome.alike() == TESTED


def test_the_command_writes_the_network_and_names_the_next_commands(
    main_job: Any,
    outcome: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main_job, "run", lambda qat, progress: outcome)
    assert openneutron_command(["demo", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "int8 on the simulated NPU" in shown and f"{TESTED} of {TESTED} with the same class on NPU and CPU" in shown
    (line,) = (line for line in shown.splitlines() if "run demo_output" in line)
    command = line[line.index("run demo_output") :].split()
    assert openneutron_command([*command, "--output", "result"]) == 0
    written = np.load("result/output0.npy")
    np.testing.assert_array_equal(written, outcome.program.run(outcome.data.test[:1])[0].numpy())

    capsys.readouterr()
    assert openneutron_command(["demo", "--json", "--to", "elsewhere"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(violations(said, schema())) == []
    assert (said["test_images"], said["alike_on_npu_and_cpu"]) == (TESTED, TESTED)
    assert said["correct"] == outcome.correct() and said["summary"]["file"] == "elsewhere/cifarnet.pte"


def test_without_scikit_learn_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from openneutron.features import demo

    # as if nothing had imported it
    monkeypatch.delitem(sys.modules, f"{demo.__name__}.main_job", raising=False)
    monkeypatch.delattr(demo, "main_job", raising=False)
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    assert openneutron_command(["demo"]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == (
        "error: openneutron demo takes torch, torchao, executorch, sklearn; 'sklearn.datasets' is not installed: "
        "pip install 'openneutron[demo]'.\n"
    )
    assert list(tmp_path.iterdir()) == []
