# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run --stream``: one run after the other with state, the outputs stacked; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from openneutron.cli import main
from openneutron.device.mixed import FileSimulator
from tests.support.stream_files import compiled_stream

FRAMES = np.random.default_rng(0).integers(-128, 128, (12, 1, 1, 4, 2)).astype(np.int8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "stream.tflite"
    path.write_bytes(compiled_stream())
    return path


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "frames.npy", array)
    return str(folder / "frames.npy")


def test_outputs_of_all_runs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = saved(tmp_path, FRAMES), tmp_path / "made"
    assert main(["run", str(model), "--stream", source, "--output", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["outputs"][0]["shape"] == [12, 1, 3, 4, 2]
    simulator = FileSimulator(model)
    wanted = np.stack([simulator.run([frame])[0] for frame in FRAMES])
    np.testing.assert_array_equal(np.load(folder / "output0.npy"), wanted)


def test_what_a_stream_refuses(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert main(["run", str(model), *arguments]) != 0
        return capsys.readouterr().err

    source = saved(tmp_path, FRAMES)
    assert "--stream: it makes the inputs; leave out --input and --random." in said("--stream", source, "--random", "1")
    assert "'stream.tflite' takes 1 input (0: x); 2 given. Give each with --stream X.npy, in this order." in said(
        "--stream", source, "--stream", source
    )
    source = saved(tmp_path, FRAMES[0])
    assert (
        f"--stream {source}: it is int8[1,1,4,2]; input 0 ('x') of 'stream.tflite' is int8[1,1,4,2], and a stream has one axis "
        "more in front." in said("--stream", source)
    )
    source = saved(tmp_path, FRAMES[:0])
    assert "--stream: the inputs have 0 runs; all have the same number of runs, above 0." in said("--stream", source)
