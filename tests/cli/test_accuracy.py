# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron accuracy``: its table and JSON, its quantization file, and wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openneutron.cli import main
from scripts.json_schema import schema
from tests.support.json_schema import violations
from tests.support.litert_files import mixed_file

MODEL = """
import torch
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)).eval(), (torch.randn(1, 8),)


def samples():
    torch.manual_seed(1)
    return [(torch.randn(1, 8), number % 4) for number in range(6)]


def largest(outputs, sample):
    return float(outputs[0].max())


def broken(outputs, sample):
    return outputs[7]
"""


LOOK = """
import torch
from torch import nn


class Look(nn.Module):
    def forward(self, x):
        return x.flatten(1)


def model():
    return Look().eval(), (torch.randn(1, 2, 4),)


def samples():
    torch.manual_seed(1)
    return [(torch.randn(1, 2, 4),) for number in range(4)]
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "net.py:model"


def test_json_has_every_layer(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", net, "--data", "net.py:samples", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(violations(found, schema())) == []
    assert (found["model"], found["samples"]) == (net, 6)
    assert set(found["metric"]) == {"name", "float", "npu"}
    assert {layer["name"] for layer in found["layers"]} == {"input_1", "0", "2"}
    costs = [layer["noise_share"] for layer in found["layers"]]
    assert costs == sorted(costs, reverse=True)


def test_the_table_begins_with_the_results(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", net, "--data", "net.py:samples", "--quiet"]) == 0
    head, top, columns, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("net.py:model: ")
    assert head.endswith(" dB at its results, int8 on imxrt700 against float, 6 samples")
    assert top.startswith("top1: ")
    assert columns.split()[:3] == ["layer", "noise", "result"]
    assert len(rows) == 3


def test_the_metric_is_that_of_the_user(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", net, "--data", "net.py:samples", "--metric", "net.py:largest", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)["metric"]
    assert found["name"] == "net.py:largest"
    assert found["float"] == pytest.approx(found["npu"], rel=0.1)
    assert main(["accuracy", net, "--data", "net.py:samples", "--metric", "net.py:broken", "--quiet"]) == 2
    assert capsys.readouterr().err == (
        "error: metric: on sample 'item 0': 'net.py:broken', line 21: IndexError: tuple index out of range. Correct the function.\n"
    )


PICTURED = """

def pictured():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
"""


def test_preprocessing_is_for_the_data_and_the_repairs_command_repeats_it(
    net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scales come from --data where there is no --calibration, so that --preprocess is about these pictures."""
    Path("net.py").write_text(MODEL + PICTURED)
    Path("two pictures").mkdir()
    for number in range(2):
        values = np.random.default_rng(number).integers(0, 256, (9, 10, 3), np.uint8)
        Image.fromarray(values).save(f"two pictures/{number}.png")
    data = ["--data", "two pictures", "--preprocess", "resize=8,crop=8"]
    assert main(["accuracy", "net.py:pictured", *data, "--repair", "20", "-o", "q.json"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "note: q.json holds no measure, as none is needed: openneutron compile net.py:pictured --calibration 'two pictures' "
        "--quantization q.json --preprocess resize=8,crop=8"
    )
    assert main(["accuracy", "net.py:pictured", "--data", "two pictures", "--preprocess", "crop=9x9x9"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: --preprocess: 'crop=9x9x9' can't be read: ")


def test_a_repair_writes_a_file_that_compile_takes(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--calibration", "net.py:samples", "--quiet"]
    assert main(["accuracy", net, *data, "--repair", "20", "-o", "net.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(violations(found, schema())) == []
    assert found["file"] == "net.json"
    assert json.loads(Path("net.json").read_text()) == found["quantization"]
    assert main(["compile", net, *data, "--quantization", "net.json", "-o", "net.pte"]) == 0
    assert Path("net.pte").exists()


def test_a_repair_that_reaches_nothing_says_so_and_writes_no_file(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model without an operator that quantization measures change."""
    Path("look.py").write_text(LOOK)
    assert (
        main(["accuracy", "look.py:model", "--calibration", "look.py:samples", "--quiet", "--repair", "140", "--json"])
        == 2
    )
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert list(violations(found, schema())) == []
    assert found["file"] is None and not found["is_reached"] and found["chosen"] == []
    assert err == (
        f"error: --repair: 'look.py:model': its results have {found['before_db']:.1f} dB, and no measure gains anything; the target is 140 "
        "dB. Train the model with quantization simulated (train_fn), or leave more of it to the CPU.\n"
    )
    assert not list(Path().glob("*.json"))


WRONG = {
    "--output": (
        ["net.py:model", "-o", "net.json"],
        "error: --output: it is for the quantization file of --repair. Leave it out; --json prints the figures.\n",
    ),
    "--metric": (
        ["net.py:model", "--repair", "20", "--metric", "top1"],
        "error: --metric: --repair reaches a ratio of signal to noise, which is no metric. Leave one of them out.\n",
    ),
    "unknown metric": (
        ["net.py:model", "--metric", "top2"],
        "error: metric: 'top2' is unknown. A metric is top1, top5, mse, map or file.py:function. Did you mean 'top5'?\n",
    ),
    "--repair": (
        ["net.py:model", "--repair", "-3"],
        "error: target_db: it is -3; a ratio to reach is above 0 and at most 150 dB.\n",
    ),
    "--quantization": (
        ["net.py:model", "--quantization", "other.json"],
        "error: quantization file 'other.json': it can't be read: No such file or directory. Give a JSON file.\n",
    ),
    "mixed.tflite": (
        ["mixed.tflite"],
        "error: 'mixed.tflite' is a .tflite, and the layers of PyTorch models are compared here. Pass the PyTorch model; `openneutron evaluate` compares a float .tflite.\n",
    ),
    "--data": (
        ["net.py:model", "--data", "wrong.npy"],
        "error: --data: 'wrong.npy' does not exist.\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("net")
def test_wrong_options_are_errors(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = WRONG[case]
    Path("mixed.tflite").write_bytes(mixed_file())
    assert main(["accuracy", *arguments, "--quiet"]) == 2
    assert capsys.readouterr().err == message
