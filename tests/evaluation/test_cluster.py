# SPDX-License-Identifier: BSD-3-Clause
"""Evaluations on a Dask cluster: a scheduler and two workers, one of which is killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

import openneutron
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.errors import InvalidOptionError
from openneutron.features.evaluation import processes
from tests.evaluation.conftest import SAMPLES

if find_spec("distributed") is None:
    pytest.skip("distributed is not installed", allow_module_level=True)

PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cluster:
    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Cluster]:
    file = tmp_path / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def started(command: str, *arguments: str) -> subprocess.Popen[bytes]:
        whole = [sys.executable, "-m", f"distributed.cli.dask_{command}", "--scheduler-file", str(file), *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(whole, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, cwd=tmp_path)

    processes = [started("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")]
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not file.exists() or not file.read_text():
            assert time.monotonic() < until and processes[0].poll() is None
            time.sleep(0.05)
        workers = [started("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard") for _ in range(2)]
        processes += workers
        address = json.loads(file.read_text())["address"]
        from distributed import Client

        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
        yield Cluster(address, workers)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_worker_that_is_killed_loses_nothing(
    program: CompiledLiteRTModel, folder: Path, two_workers: Cluster
) -> None:
    seen: list[int] = []

    def progress(_step: str, done: int, _total: int) -> None:
        seen.append(done)
        if done and two_workers.workers[0].poll() is None:
            two_workers.workers[0].kill()
            two_workers.workers[0].wait()

    alone = openneutron.evaluate(program, folder / "labelled.npz", workers=1)
    shared = openneutron.evaluate(program, folder / "labelled.npz", scheduler=two_workers.address, progress=progress)
    assert two_workers.workers[0].poll() is not None and two_workers.workers[1].poll() is None
    assert seen[-1] == SAMPLES
    texts = []
    for evaluation in (alone, shared):
        data = evaluation.to_dict()
        del data["timings"]
        texts.append(json.dumps(data))
    assert texts[0] == texts[1]


def test_a_scheduler_that_does_not_answer_is_an_error(
    program: CompiledLiteRTModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CONNECTING_SECONDS", 0.5)
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.evaluate(program, folder / "labelled.npz", scheduler="tcp://127.0.0.1:1")
    assert str(caught.value) == (
        "scheduler: nothing answers at 'tcp://127.0.0.1:1'. Start `dask scheduler`, and give the address that it prints, such as "
        "tcp://localhost:8786."
    )
