# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron evaluate``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from openneutron import litert
from scripts.published_networks import cifarnet
from tests.cli.conftest import Command

NET = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    return nn.Sequential(*layers).eval(), (torch.zeros(1, 1, 8, 8),)
"""


@pytest.fixture
def labelled(folder: Path) -> Path:
    """The current folder, with net.py, cifarnet.tflite and samples for both."""
    generator = np.random.default_rng(2)
    (folder / "net.py").write_text(NET)
    (folder / "cifarnet.tflite").write_bytes(litert.write(cifarnet()))
    images = generator.normal(0, 1, (12, 1, 8, 8)).astype(np.float32)
    np.savez(folder / "labelled.npz", input0=images, labels=np.arange(12) % 3)
    np.savez(folder / "bare.npz", input0=images)
    colours = generator.normal(0, 1, (4, 32, 32, 3)).astype(np.float32)
    np.savez(folder / "colours.npz", input0=colours, labels=np.array([1, 2, 3, 99]))
    return folder


def test_three_sides_of_a_pytorch_model(openneutron: Command, labelled: Path) -> None:
    data = ("--data", "labelled.npz", "--calibration", "labelled.npz", "--workers", "1")
    said = json.loads(openneutron("evaluate", "net.py:net", *data, "--json").out)
    assert [side["side"] for side in said["sides"]] == ["float", "int8", "npu"]
    assert [pair["sides"] for pair in said["pairs"]] == [["float", "int8"], ["float", "npu"], ["int8", "npu"]]
    assert (said["metric"], said["samples"], said["notes"]) == ("top1", 12, [])
    assert all(side["metric"] == side["right"] / 12 for side in said["sides"])
    # Equal outputs have no noise to state.
    assert all(pair["sqnr_db"] is None or pair["sqnr_db"] > 20 for pair in said["pairs"])
    assert all(pair["sqnr_db"] is not None for pair in said["pairs"] if "float" in pair["sides"])
    assert set(said["timings"]["sides"]) == {"float", "int8", "npu"}
    lines = openneutron("evaluate", "net.py:net", *data, "--data-samples", "6").out.splitlines()
    assert lines[0] == "net.py:net for imxrt700 on labelled.npz: 6 samples"
    assert lines[2].split() == ["side", "top1", "right", "a", "sample,", "this", "computer"]
    assert [line.rsplit("  ", 3)[0].strip()[:4] for line in lines[3:6]] == ["floa", "int8", "int8"]


def test_a_compiled_file_is_evaluated_alone(openneutron: Command, refused: Callable[..., str], labelled: Path) -> None:
    assert openneutron("compile", "cifarnet.tflite", "-o", "made.tflite").code == 0
    assert openneutron("compile", "net.py:net", "--calibration", "bare.npz", "-o", "made.pte").code == 0
    classes = np.random.default_rng(3).integers(0, 10, 4)
    np.savez(labelled / "few.npz", input0=np.load(labelled / "colours.npz")["input0"], labels=classes)
    both = json.loads(openneutron("evaluate", "cifarnet.tflite", "--data", "few.npz", "--workers", "1", "--json").out)
    alone = json.loads(openneutron("evaluate", "made.tflite", "--data", "few.npz", "--workers", "1", "--json").out)
    assert [side["right"] for side in alone["sides"]] == [both["sides"][1]["right"]]
    ended = openneutron("evaluate", "made.pte", "--data", "labelled.npz", "--workers", "1", "--json")
    said = json.loads(ended.out)
    assert ([side["side"] for side in said["sides"]], said["pairs"], said["samples"]) == (["npu"], [], 12)
    assert refused("evaluate", "made.pte", "--data", "labelled.npz", "--sram-budget", "90") == (
        "--sram-budget: it is for a compile; 'made.pte' is compiled already. Leave it out."
    )
    assert refused("evaluate", "made.tflite", "--data", "bare.npz", "--input-shape", "input=1x8x8x3") == (
        "--input-shape: it is for a compile; 'made.tflite' is compiled already. Leave it out."
    )


def test_without_labels_the_command_says_so(openneutron: Command, labelled: Path) -> None:
    data = ("--data", "bare.npz", "--calibration", "bare.npz", "--workers", "1")
    said = json.loads(openneutron("evaluate", "net.py:net", *data, "--json").out)
    assert (said["metric"], said["worst_classes"]) == (None, [])
    assert said["notes"] == ["The samples have no labels: agreement and SQNR alone."]


def test_bad_input_is_one_clear_error(refused: Callable[..., str], labelled: Path) -> None:
    expected = {
        (): "--data: it is missing; evaluate needs a data set. Give a folder, a .npz file or file.py:loader.",
        ("--data", "absent.npz"): "--data: 'absent.npz' does not exist.",
        ("--data", "colours.npz", "--metric", "top3"): (
            "metric: 'top3' is unknown. A metric is top1, top5, mse, map or file.py:function. Did you mean 'top5'?"
        ),
        ("--data", "colours.npz", "--workers", "1"): (
            "metric: the label of sample 'colours[3]' is 99; the model has the classes 0 to 9. Correct the labels, or evaluate "
            "the model that they belong to."
        ),
        ("--data", "bare.npz"): (
            "--data: 'bare.npz': it is float32[12,1,8,8]; the model takes int8[1,32,32,3], one sample or several "
            "along the first axis."
        ),
        ("--data", "colours.npz", "--metric", "mse", "--workers", "1"): (
            "metric: mse takes an array like the first output, float32[1,10]; the label of sample 'colours[0]' is 1. "
            "Store the labels in that shape."
        ),
    }
    for arguments, message in expected.items():
        assert refused("evaluate", "cifarnet.tflite", *arguments) == message
